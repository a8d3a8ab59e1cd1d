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

    It promises no sum: what two features do together is in both. A function of several numbers a row, (n, m), gives
    attributions with m at their end.

    Zeiler, Fergus: Visualizing and understanding convolutional networks (2014), for features of any form; Li, Monroe,
    Jurafsky: Understanding neural networks through representation erasure (2016), for words.
    """
    game = Game(function, points, baselines, run, segments)
    absent = torch.arange(1, 1 + game.features)
    values = game.values(1 + game.features, lambda rows: rows[:, None] != absent)  # the first has every feature
    return game.attribution((values[0] - values[1:]).movedim(0, 1))
