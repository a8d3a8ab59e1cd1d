"""What is lost when one feature goes."""

from __future__ import annotations

import torch

from torus.explain.coalitions.game import Game
from torus.explain.coalitions.segments import Given
from torus.explain.function import Function
from torus.explain.methods import Attribution, Run, of_values
from torus.explain.points import Points


@of_values
def feature_ablation(
    function: Function, points: Points, baselines: Points, run: Run, *, segments: Given = None
) -> Attribution:
    """The value at the inputs less the value with one feature at its baseline, for each feature.

    Zeiler, Fergus: Visualizing and understanding convolutional networks (2014), for features of any form.
    """
    game = Game(function, points, baselines, run, segments)
    features = torch.arange(game.features)
    lost = game.ends()[1] - game.values(game.features, lambda rows: rows[:, None] != features)
    return game.attribution(lost.T)
