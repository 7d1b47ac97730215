"""`postroad relay|worker|status … examples.marketplace.road:road`: the stages in processes of their own."""

from examples.marketplace.shop import from_the_environment

road = from_the_environment()
