"""The batches of one process: its share of every step, from a table of rows or from a stream.

Which rows a step takes is a function of the seed and the step alone, so there is no order to save or to lose. A table
is read in passes; pass e takes its n rows in the permutation of (seed, e). Position p of the endless sequence is row
permutation_e[p mod n] with e = p div n, and step s takes positions s·B … (s+1)·B − 1 for a batch of B.

With w processes and a parts of accumulation, part m of process r computes the b = B/(w·a) rows from (m·w + r)·b on.
Which rows make a step depends on neither w nor a.

>>> rows = [{"input_ids": np.array([i]), "targets": np.array([i])} for i in range(6)]
>>> batches = Batches(rows, TrainSettings(batch_size=4), Share(rank=1, processes=2))
>>> [part["input_ids"].shape for part in batches.of_step(0)]
[torch.Size([2, 1])]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from softmax_rnn.data.rows import Row, Rows, RowStream, collate
from softmax_rnn.train.processes import Share
from softmax_rnn.train.settings import TrainSettings

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Order:
    """The endless order of a finite table of rows.

    >>> order = Order(rows=10, seed=0)
    >>> sorted(order.take(0, 10).tolist()) == list(range(10))
    True
    """

    rows: int
    seed: int

    def take(self, position: int, count: int) -> np.ndarray:
        """The rows at ``count`` positions from ``position`` on."""
        taken: list[np.ndarray] = []
        while count:
            turn, offset = divmod(position, self.rows)
            part = _permutation(self.rows, self.seed, turn)[offset : offset + count]
            taken.append(part)
            position, count = position + len(part), count - len(part)
        return np.concatenate(taken)


@lru_cache(maxsize=4)
def _permutation(rows: int, seed: int, turn: int) -> np.ndarray:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, turn]))).permutation(rows)


class Batches:
    """What this process computes in each step."""

    def __init__(self, rows: Rows | RowStream | Sequence[Row], settings: TrainSettings, share: Share) -> None:
        size = settings.rows_of_process(share.processes)
        self._rows, self._settings = rows, settings
        starts = [(part * share.processes + share.rank) * size for part in range(settings.accumulate)]
        self._parts = [slice(start, start + size) for start in starts]

    def of_step(self, step: int) -> list[Batch]:
        """The parts of a step, counted from 0. A stream gives its next rows: its place is part of a checkpoint."""
        batch = self._settings.batch_size
        if isinstance(self._rows, RowStream):
            # Every process reads the whole stream: its place is then the same for all, whatever their number.
            drawn = [next(self._rows) for _ in range(batch)]
            return [collate(drawn[part]) for part in self._parts]
        taken = Order(len(self._rows), self._settings.seed).take(step * batch, batch)
        return [collate([self._rows[int(i)] for i in taken[part]]) for part in self._parts]

    def state_dict(self) -> dict[str, Any]:
        """The place in a stream; a table needs none, the step says it all."""
        return self._rows.state_dict() if isinstance(self._rows, RowStream) else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place in a stream."""
        if isinstance(self._rows, RowStream):
            self._rows.load_state_dict(state)
