"""Selective copying: remember the data tokens among blanks, then say them in order.

With M data tokens, length T and vocabulary V a row is

    _ x_1 _ _ x_2 _ … x_M _  ! ! … !          target at the i-th marker !: x_i

    data      x_1 … x_M are independent and uniform over 1 … V − 2.
    places    they stand, in order, at M of the first T − M positions; every choice of places is equally likely.
    blanks    the rest of these positions is token 0.
    markers   the last M positions are token V − 1.

This is the task of the Mamba paper (Gu & Dao 2023: V = 16, M = 16, T = 4096). The default length is MAD's, 256. MAD
(Poli et al. 2024) writes one marker and then blanks, and draws the places by inserting blanks in front of random data
tokens; here the markers are all the same, so that the model counts them, and the places are uniform.

>>> row = SelectiveCopy(length=12, data_tokens=3).rows("train", seed=0)[0]
>>> row["input_ids"].tolist()
[0, 0, 14, 0, 0, 0, 0, 9, 3, 15, 15, 15]
>>> row["targets"].tolist()[-3:]
[14, 9, 3]
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from softmax_rnn.data.tasks.draws import distinct
from softmax_rnn.data.tasks.task import Task, blank_targets
from softmax_rnn.errors import InputError


class SelectiveCopy(Task, frozen=True):
    """The settings, with the Mamba paper's vocabulary and number of data tokens."""

    name: Literal["selective_copy"] = "selective_copy"
    vocab_size: int = Field(default=16, ge=4)
    length: int = Field(default=256, ge=2)
    data_tokens: int = Field(default=16, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> SelectiveCopy:
        if 2 * self.data_tokens > self.length:
            raise InputError(f"data_tokens: expected at most length/2 = {self.length // 2}, got {self.data_tokens}")
        return self

    @property
    def counted_per_row(self) -> int:
        return self.data_tokens

    @property
    def chance_accuracy(self) -> float:
        return 1 / (self.vocab_size - 2)

    def draw(self, generator: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        markers = self.length - self.data_tokens
        data = generator.integers(1, self.vocab_size - 1, (rows, self.data_tokens))
        places = np.sort(distinct(generator, rows, self.data_tokens, 0, markers), axis=1)

        inputs = np.zeros((rows, self.length), np.int64)
        np.put_along_axis(inputs, places, data, axis=1)
        inputs[:, markers:] = self.vocab_size - 1
        targets = blank_targets(rows, self.length)
        targets[:, markers:] = data
        return inputs, targets
