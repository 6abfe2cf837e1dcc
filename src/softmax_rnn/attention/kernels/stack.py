"""The stack of states that the chunked form with levels walks with: one state for each block of the past."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softmax_rnn.attention.kernels.blocks import Group
from softmax_rnn.attention.kernels.chunks import Chunk, Inputs, Layout, times
from softmax_rnn.attention.levels import LevelTables, LevelWeights, PairLevels, Stretch, bit_length, blocks


@dataclass(frozen=True, eq=False)
class Visit:
    """What a chunk knows of its positions."""

    row: slice
    """Of the batch."""
    place: slice
    positions: list[int]
    """Of each place: how many keys of its segment come before it."""
    after: int
    """How many come before the position after the chunk."""
    groups: int
    tables: LevelTables

    @property
    def before(self) -> int:
        """How many keys come before the chunk."""
        return self.positions[0]

    @cached_property
    def _positions(self) -> Int[Tensor, " C"]:
        return self.tables.levels.positions[self.row.start, self.place]

    @cached_property
    def pairs(self) -> PairLevels:
        """The levels inside the chunk."""
        pairs = self.tables.of(self.row, self.place, self.place)
        assert isinstance(pairs, PairLevels)
        return pairs

    @cached_property
    def reach(self) -> Int[Tensor, " C"]:
        """The level at least of everything before the chunk: digits that changed since it began."""
        return bit_length(self._positions ^ self.before).clamp(max=self.tables.top)

    @property
    def farthest(self) -> int:
        """The largest reach: positions in order change ever higher digits."""
        return min((self.positions[-1] ^ self.before).bit_length(), self.tables.top)

    def read_levels(self, block: Stretch) -> Int[Tensor, "R 1"]:
        """The level of a block of the past for each query; the heads of a group stand side by side."""
        return self.reach.clamp(min=block.level).repeat(self.groups)[:, None]

    def columns(self, block: Stretch) -> slice:
        """The places of the keys of a block."""
        return slice(bisect_left(self.positions, block.start), bisect_left(self.positions, block.stop))


def read_column(own: Float[Tensor, "N R L"], block: Stretch, visit: Visit) -> Float[Tensor, "N R 1"]:
    """λ of the level that a block of the past has for each query."""
    if visit.farthest <= block.level:
        return own[..., block.level, None]
    return own.gather(-1, visit.read_levels(block).expand(*own.shape[:2], 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelLayout(Layout):
    """The geometry with levels: chunks that begin at multiples of their length, in each row of the batch."""

    is_regular: ClassVar[bool] = False
    levels: LevelWeights
    past_levels: tuple[int, ...]
    """The levels of the states that a past brings, in order."""

    @property
    def rows_together(self) -> bool:
        return super().rows_together and not self.levels.rows_differ and self.visibility.key_mask is None

    @cached_property
    def _visits(self) -> dict[int, list[Visit]]:
        return {}

    def visits_of(self, group: Group) -> list[Visit]:
        """The chunks of a group, in order."""
        row = group.batches.start
        if row not in self._visits:
            self._visits[row] = self._cut(row)
        return self._visits[row]

    def _cut(self, row: int) -> list[Visit]:
        seen = self.visibility
        tables = LevelTables(self.levels)
        at = self.levels.row(row)
        first = None if seen.first_key is None else seen.first_key[row].tolist()
        real = None if seen.key_mask is None else seen.key_mask[row].tolist()
        starts, one = [0], slice(row, row + 1)
        for t in range(1, self.time):
            begin = starts[-1]
            other_segment = first is not None and first[t] == t
            if other_segment or at[t] // self.chunk != at[begin] // self.chunk or t - begin == self.chunk:
                starts.append(t)
        visits_here = []
        for start, stop in zip(starts, [*starts[1:], self.time], strict=True):
            after = at[stop - 1] + int(real is None or real[stop - 1])
            place = slice(start, stop)
            visits_here.append(Visit(one, place, at[start:stop], after, self.group_size, tables))
        return visits_here

    def places(self) -> list[slice]:
        raise AssertionError("chunks with levels depend on the row: visits_of")

    @cached_property
    def end_levels(self) -> tuple[int, ...]:
        """The levels of the states after the last position, in any row; the first is always there."""
        rows = range(1 if self.rows_together else self.batch)
        ends = [self.visits_of(Group(slice(0, 0), slice(row, row + 1)))[-1].after for row in rows]
        return tuple(sorted({1} | {block.level for after in ends for block in blocks(after, self.levels.top)}))


def visits(inputs: Inputs, group: Group, backwards: bool = False) -> Iterator[tuple[Chunk, Visit]]:
    """The chunks of a group, each with its positions."""
    layout = inputs.layout
    assert isinstance(layout, LevelLayout)
    visits_here = layout.visits_of(group)[:: -1 if backwards else 1]
    return zip(inputs.chunks(group, [visit.place for visit in visits_here]), visits_here, strict=True)


@dataclass(frozen=True)
class Entry:
    """The state of a block."""

    block: Stretch
    sums: Float[Tensor, "N F U"]
    factor: Float[Tensor, "N 1 1"] | None = None
    """What is left of it; None for all."""

    def now(self) -> Float[Tensor, "N F U"]:
        """The state, decayed."""
        return times(self.sums, self.factor)


class Stack:
    """The states of all blocks of the past, the farthest first."""

    def __init__(self, entries: list[Entry], top: int) -> None:
        self.entries, self.top = entries, top

    @classmethod
    def of(cls, layout: LevelLayout, group: Group, past: Sequence[Float[Tensor, "M F U"]]) -> Stack:
        """The states that a past brings."""
        known, top = dict(zip(layout.past_levels, past, strict=True)), layout.levels.top
        before = layout.visits_of(group)[0].before
        return cls([Entry(block, known[block.level][group.heads]) for block in blocks(before, top)], top)

    def enter(self, visit: Visit) -> None:
        """A segment that begins has no past."""
        if not visit.before:
            self.entries = []

    def advance(self, chunk: Chunk, visit: Visit) -> None:
        """The stack after a chunk: its keys make a block, full blocks are joined."""
        keep, entries = chunk.passing.keep, []
        features = entering = None
        for block in blocks(visit.after, self.top):
            inner = [entry for entry in self.entries if block.start <= entry.block.start < block.stop]
            if block.stop <= visit.before:
                (entry,) = inner
                left = entry.factor if keep is None else times(keep, entry.factor)
                entries.append(replace(entry, factor=left))
                continue
            if features is None or entering is None:
                features, entering = chunk.key_features(), times(chunk.u, chunk.passing.into_state)
            some = visit.columns(block)
            total = torch.bmm(features[..., some], entering[:, some])
            for entry in inner:
                factor = entry.factor if keep is None else times(keep, entry.factor)
                total.add_(entry.sums) if factor is None else total.addcmul_(entry.sums, factor)
            entries.append(Entry(block, total))
        self.entries = entries
