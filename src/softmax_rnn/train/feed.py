"""The batches of one process: its share of every step, from a table of rows or from a stream.

A step takes B rows in a fixed order. With w processes and a parts of accumulation, part m of process r computes the
b = B/(w·a) rows from (m·w + r)·b on. Which rows make a step depends on neither w nor a.

>>> import numpy as np
>>> rows = [{"input_ids": np.array([i]), "targets": np.array([i])} for i in range(6)]
>>> feed = Feed(rows, TrainSettings(batch_size=4), Share(rank=1, processes=2), first_step=0)
>>> next(iter(feed))["input_ids"].shape
torch.Size([2, 1])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from softmax_rnn.data.rows import Row, Rows, RowStream, collate
from softmax_rnn.train.order import Order
from softmax_rnn.train.settings import TrainSettings


@dataclass(frozen=True)
class Share:
    """Which of how many processes this is."""

    rank: int = 0
    processes: int = 1


class Feed:
    """Endless batches from a step on. Iterating draws the rows of a step when its first batch is asked for."""

    def __init__(
        self, rows: Rows | RowStream | Sequence[Row], settings: TrainSettings, share: Share, first_step: int
    ) -> None:
        self._rows = rows
        self._settings = settings
        self._share = share
        self._first_step = first_step
        self._size = settings.rows_of_process(share.processes)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        step = self._first_step
        while True:
            parts = self._parts_of_stream() if isinstance(self._rows, RowStream) else self._parts_of_table(step)
            yield from map(collate, parts)
            step += 1

    def state_dict(self) -> dict[str, Any]:
        """The place in a stream, after the steps drawn so far; a table needs none, the step says it all."""
        return self._rows.state_dict() if isinstance(self._rows, RowStream) else {}

    def _starts(self) -> list[int]:
        share, size = self._share, self._size
        return [(part * share.processes + share.rank) * size for part in range(self._settings.accumulate)]

    def _parts_of_table(self, step: int) -> list[list[Row]]:
        assert not isinstance(self._rows, RowStream)
        batch = self._settings.batch_size
        taken = Order(len(self._rows), self._settings.seed).take(step * batch, batch)
        return [[self._rows[int(i)] for i in taken[start : start + self._size]] for start in self._starts()]

    def _parts_of_stream(self) -> list[list[Row]]:
        # Every process reads the whole stream: its place is then the same for all, whatever their number.
        assert isinstance(self._rows, RowStream)
        drawn = [next(self._rows) for _ in range(self._settings.batch_size)]
        return [drawn[start : start + self._size] for start in self._starts()]
