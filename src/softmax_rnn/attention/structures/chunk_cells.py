"""Chunks of different places in each row as cells of a grid, queries side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.visibility import Visibility, gather


@dataclass(frozen=True)
class Cells:
    """The positions of a call in cells of at most L queries that see the same ends; a last cell without queries ends
    them. A new chunk begins a cell, and its key, the end of the chunk before, arrives there.
    """

    cell: Int[Tensor, "B T"]
    slot: Int[Tensor, "B T"]
    start: Int[Tensor, "B C"]
    """Where a cell begins in time; its key stands just before."""
    arrives: Bool[Tensor, "B C"]
    first_cell: Int[Tensor, "B C"] | None
    """The first cell of the segment."""
    length: int

    @classmethod
    def of(cls, positions: Int[Tensor, "B T"], seen: Visibility, length: int) -> Cells:
        """The cells of positions that are counted in their segments, padding left out."""
        batch, time = positions.shape
        t = torch.arange(time, device=positions.device).expand(batch, -1)
        changes, chunk_start = chunk_starts(positions, seen, length)
        since = t - chunk_start
        cell = (since % length == 0).cumsum(1) - 1
        count = int(cell.max()) + 2 if may_sync(cell) else _most(time, length, seen.is_plain) + 1
        start = torch.full((batch, count), time, device=t.device)
        start = start.scatter_reduce(1, cell, t, "amin")
        newest = positions[:, -1:] + (1 if seen.key_mask is None else seen.key_mask[:, -1:].long())
        is_end = (newest % length == 0) & (newest > positions[:, -1:])
        arrives = torch.zeros(batch, count, dtype=torch.bool, device=t.device)
        arrives = arrives.scatter(1, torch.where(changes, cell, count - 1), True)
        arrives[:, -1:] = is_end
        first_cell = None
        if seen.first_key is not None:
            own = cell.gather(1, seen.first_key)
            first_cell = torch.zeros_like(start).scatter(1, cell, own).cummax(1).values
        return cls(cell, since % length, start, arrives, first_cell, length)

    @property
    def count(self) -> int:
        """How many, the last one included."""
        return self.start.shape[1]

    @cached_property
    def _times(self) -> Int[Tensor, "B LC"]:
        """The position in time of each slot of each cell; one past the last where there is none."""
        batch, time = self.cell.shape
        empty = torch.full((batch, self.length * self.count), time, device=self.cell.device)
        t = torch.arange(time, device=self.cell.device).expand(batch, -1)
        return empty.scatter(1, self.slot * self.count + self.cell, t)

    def side_by_side(self, x: Float[Tensor, "B K G T *D"]) -> Float[Tensor, "B K GL C *D"]:
        """Queries of a chunk as heads that share a key head; 0 in empty slots."""
        padded = torch.cat([x, torch.zeros_like(x[:, :, :, :1])], 3)
        picked = gather(padded, self._times, 3)
        return picked.unflatten(3, (self.length, self.count)).flatten(2, 3)

    def in_time(self, x: Float[Tensor, "B K GL C *E"]) -> Float[Tensor, "B K G T *E"]:
        """The inverse."""
        rows = x.unflatten(2, (-1, self.length)).flatten(3, 4)
        return gather(rows, self.slot * self.count + self.cell, 3)

    def keys(self, x: Float[Tensor, "B K T D"]) -> Float[Tensor, "B K C D"]:
        """What arrives with each cell; 0 where nothing does."""
        picked = gather(x, (self.start - 1).clamp(min=0), 2)
        return picked.masked_fill(~self.arrives[:, None, :, None], 0)

    def at_start(self, c: Float[Tensor, "B K T"]) -> Float[Tensor, "B K C"]:
        """A running sum just before each cell."""
        return gather(torch.nn.functional.pad(c, (1, 0)), self.start, 2)


def _most(time: int, length: int, is_plain: bool) -> int:
    """How many cells so many positions can have: one per chunk that they touch, and padding may cut each in two."""
    chunks = -(-time // length) + 1
    return min(time, chunks if is_plain else 2 * chunks)


def chunk_starts(
    positions: Int[Tensor, "B T"], seen: Visibility, length: int
) -> tuple[Bool[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Where a new chunk of a segment begins, and where that of each position began, among the positions of the call."""
    t = torch.arange(positions.shape[1], device=positions.device).expand(positions.shape[0], -1)
    chunk = positions // length
    other = torch.zeros_like(chunk, dtype=torch.bool) if seen.first_key is None else seen.first_key == t
    changes = torch.nn.functional.pad(chunk[:, 1:] != chunk[:, :-1], (1, 0)) & ~other
    return changes, torch.where(changes | other | (t == 0), t, 0).cummax(1).values
