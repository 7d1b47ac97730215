"""`postroad relay|worker|status … examples.marketplace.road:road`: the stages in processes of their own."""

from examples.marketplace import wording
from examples.marketplace.settings import from_environment
from examples.marketplace.shop import Shop

wording.install()
road = Shop(from_environment()).road
