"""Multi-query associative recall: pairs of key and value, then every key once more, to be answered by its value.

With P pairs, length T and vocabulary V a row is

    k_1 v_1 k_2 v_2 … k_P v_P  _ _ _ k_2 _ k_1 _ _ _ …          target at a query: the value of its key

    keys      P distinct tokens of 1 … ⌊V/2⌋ − 1, values P distinct tokens of ⌊V/2⌋ … V − 1; every ordered choice is
              equally likely.
    queries   key i occurs again at position 2P + 2 g_i. The gaps g_1, g_2, … are drawn in this order, without
              repetition, from 0 … (T − 2P)/2 − 1 with weights (g + 1)^(a − 1). a = `power_a`: at 1 all gaps are equally
              likely, near 0 short ones are preferred. The gap counts from the end of the pairs.
    fillers   the other positions after the pairs are uniform over all V tokens, or 0 without `random_non_queries`.
              By chance a filler is a key of the row (P/V); nothing is counted there, and the pair stays the first
              occurrence.

This is the distribution of zoology (Arora et al. 2024) with its defaults. It differs in two ways: the random numbers,
and that the vocabulary may be smaller than the length. A model that knows the row's values but not whose they are has
1/P.

>>> row = MQAR(vocab_size=12, length=16, pairs=2, random_non_queries=False).rows("train", seed=0)[0]
>>> row["input_ids"].tolist()
[2, 8, 3, 6, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]
>>> {t: int(answer) for t, answer in enumerate(row["targets"]) if answer >= 0}
{4: 6, 14: 8}
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from softmax_rnn.data.tasks.draws import distinct, weighted_distinct
from softmax_rnn.data.tasks.task import Task, blank_targets
from softmax_rnn.errors import InputError


class MQAR(Task, frozen=True):
    """The settings, with zoology's defaults."""

    name: Literal["mqar"] = "mqar"
    vocab_size: int = Field(default=8192, ge=4)
    length: int = Field(default=64, ge=4)
    pairs: int = Field(default=4, ge=1)
    power_a: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    """The exponent of the gaps' weights (g + 1)^(power_a − 1)."""
    random_non_queries: bool = True
    """Random tokens between the queries instead of zeros."""

    @model_validator(mode="after")
    def _fits(self) -> MQAR:
        if self.length % 2:
            raise InputError(f"length: expected an even number, got {self.length}")
        if 4 * self.pairs > self.length:
            raise InputError(f"pairs: expected at most length/4 = {self.length // 4}, got {self.pairs}")
        if self.pairs > self.first_value - 1:
            raise InputError(f"pairs: expected at most vocab_size/2 - 1 = {self.first_value - 1}, got {self.pairs}")
        return self

    @property
    def first_value(self) -> int:
        """Keys are 1 … first_value − 1, values first_value … vocab_size − 1."""
        return self.vocab_size // 2

    @property
    def gap_weights(self) -> np.ndarray:
        """(g + 1)^(a − 1) for every gap g."""
        return np.arange(1, self.length // 2 - self.pairs + 1) ** (self.power_a - 1.0)

    @property
    def counted_per_row(self) -> int:
        return self.pairs

    @property
    def chance_accuracy(self) -> float:
        return 1 / (self.vocab_size - self.first_value)

    def draw(self, generator: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        keys = distinct(generator, rows, self.pairs, 1, self.first_value)
        values = distinct(generator, rows, self.pairs, self.first_value, self.vocab_size)
        queries = 2 * self.pairs + 2 * weighted_distinct(generator, rows, self.pairs, self.gap_weights)

        inputs = np.zeros((rows, self.length), np.int64)
        if self.random_non_queries:
            inputs = generator.integers(0, self.vocab_size, inputs.shape)
        inputs[:, 0 : 2 * self.pairs : 2] = keys
        inputs[:, 1 : 2 * self.pairs : 2] = values
        np.put_along_axis(inputs, queries, keys, axis=1)
        targets = blank_targets(rows, self.length)
        np.put_along_axis(targets, queries, values, axis=1)
        return inputs, targets


MQAR_ANCHORS = MappingProxyType(
    {f"{length}_{pairs}": MQAR(length=length, pairs=pairs) for length, pairs in ((64, 4), (128, 8), (256, 16))}
)
"""``length_pairs`` → the settings of the published table: vocabulary 8192, 100,000 rows to train, 3,000 to test."""
