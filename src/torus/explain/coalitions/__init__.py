"""Attribution by asking for the model's value with some of the features at their baseline.

A coalition is a row of booleans, one for each feature: True where the feature keeps its value. Coalitions are made on
the host, from the run's own stream, and applied on the device in batches of one size.
"""

from torus.explain.coalitions.game import Game as Game
from torus.explain.coalitions.segments import Segments as Segments

__all__ = ["Game", "Segments"]
