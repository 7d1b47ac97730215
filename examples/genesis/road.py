"""`postroad relay|worker|trace … examples.genesis.road:road`: the stages in processes of their own."""

from examples.genesis.studio import Studio

road = Studio().road
