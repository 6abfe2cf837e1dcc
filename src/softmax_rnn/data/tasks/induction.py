"""Induction: a special token occurs once, and at the end again; say what followed it.

With length T and vocabulary V, the special token ! being V − 1, a row is

    x_0 … x_{p−1} ! x_{p+1} … x_{T−2} !          target at the last position: x_{p+1}

    x         independent and uniform over 0 … V − 2.
    p         uniform over 0 … T − 3, so the follower comes before the last token.

These are the induction heads of H3 (Fu et al. 2023) with the Mamba paper's V = 16 and T = 256. H3's published code
leaves out the last place for p, has one more token that never occurs, and trains on every next token as well; here
only the last position is counted, on both sides.

>>> row = Induction(length=8).rows("train", seed=0)[0]
>>> row["input_ids"].tolist(), int(row["targets"][-1])
([5, 4, 8, 9, 15, 6, 7, 15], 6)
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from softmax_rnn.data.tasks.task import Task, blank_targets


class Induction(Task, frozen=True):
    """The settings, with the Mamba paper's defaults."""

    name: Literal["induction"] = "induction"
    vocab_size: int = Field(default=16, ge=3)
    length: int = Field(default=256, ge=3)

    @property
    def counted_per_row(self) -> int:
        return 1

    @property
    def chance_accuracy(self) -> float:
        return 1 / (self.vocab_size - 1)

    def draw(self, generator: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        special, every = self.vocab_size - 1, np.arange(rows)
        inputs = generator.integers(0, special, (rows, self.length))
        place = generator.integers(0, self.length - 2, rows)
        inputs[every, place] = inputs[:, -1] = special
        targets = blank_targets(rows, self.length)
        targets[:, -1] = inputs[every, place + 1]
        return inputs, targets
