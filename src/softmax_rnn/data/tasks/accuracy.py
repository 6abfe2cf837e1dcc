"""Accuracy where it is counted: the share of targets, `IGNORED` ones aside, that were predicted.

>>> correct(np.array([4, 5, 6, 7]), np.array([IGNORED, 5, IGNORED, 8]))
(1, 2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from softmax_rnn.data.rows import IGNORED
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", np.ndarray, "Tensor")


def correct(predicted: Array, targets: Array) -> tuple[int, int]:
    """How many counted positions are right, and how many are counted; for numpy and for torch.

    Sums over batches, divided at the end, are the accuracy of all rows together.
    """
    if predicted.shape != targets.shape:
        raise InputError(f"predicted: expected shape {tuple(targets.shape)}, as targets, got {tuple(predicted.shape)}")
    counted = targets != IGNORED
    return int(((predicted == targets) & counted).sum()), int(counted.sum())
