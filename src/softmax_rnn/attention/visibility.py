"""Which keys a query sees: causal order, padding and packed documents.

Position i sees key j when j ≤ i, key j is real (``key_mask``) and both are in the same segment
(``segment_ids``). A structure over time can hide what lies outside a window (`Near`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softmax_rnn.attention.host_sync import may_sync


@dataclass(frozen=True)
class Piece:
    """A stretch of queries of one batch row that see one stretch of keys, in causal order or all of them."""

    row: int
    queries: slice
    keys: slice
    causal: bool

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, about."""
        return (self.queries.stop - self.queries.start) * (self.keys.stop - self.keys.start) // (1 + self.causal)


@dataclass(frozen=True)
class Near:
    """Window and sinks of each query, as positions: it sees everything from ``start`` on, or before ``sink_stop``."""

    width: int
    sinks: int
    start: Int[Tensor, "B T"]
    sink_stop: Int[Tensor, "B T"]

    def part(self, batch: slice, time: slice) -> Near:
        """The same for some rows and positions."""
        return replace(self, start=self.start[batch, time], sink_stop=self.sink_stop[batch, time])


@dataclass(frozen=True)
class Visibility:
    """The visible keys of each position; None where the causal order is the only rule."""

    key_mask: Bool[Tensor, "B T"] | None = None
    first_key: Int[Tensor, "B T"] | None = None
    """The first position of each position's segment."""
    near: Near | None = None
    """Window and sinks; None where they hide nothing."""

    @property
    def is_plain(self) -> bool:
        """Whether there is neither padding nor a second segment."""
        return self.key_mask is None and self.first_key is None

    def batches(self, start: int, stop: int) -> Visibility:
        """The same for some rows of the batch."""
        return self._part(slice(start, stop), slice(None))

    def until(self, stop: int) -> Visibility:
        """The same for the first positions."""
        return self._part(slice(None), slice(0, stop))

    def _part(self, batch: slice, time: slice) -> Visibility:
        if self.is_plain and self.near is None:
            return self
        key_mask, first_key = (None if x is None else x[batch, time] for x in (self.key_mask, self.first_key))
        return Visibility(key_mask, first_key, None if self.near is None else self.near.part(batch, time))

    def within(self, width: int, sinks: int, batch: int, time: int, device: torch.device) -> Visibility:
        """The same, cut down to the last ``width`` visible keys and the first ``sinks`` of the segment."""
        if isinstance(time, int) and time <= width + sinks:  # a symbol would become two graphs
            return self
        if self.is_plain:
            position = torch.arange(time, device=device).expand(batch, -1)
            near = Near(width, sinks, (position - width + 1).clamp(min=0), torch.full_like(position, sinks))
            return replace(self, near=near)
        real = self.key_mask
        if real is None:
            real = torch.ones(batch, time, dtype=torch.bool, device=device)
        first = self.first_key if self.first_key is not None else torch.zeros_like(real, dtype=torch.long)
        counted = real.cumsum(-1)
        before = torch.nn.functional.pad(counted, (1, 0)).gather(1, first)
        if may_sync(counted) and int((counted - before).max()) <= width + sinks:
            return self
        start = torch.searchsorted(counted, counted - width + 1).maximum(first)
        sink_stop = torch.searchsorted(counted, before + sinks) + 1 if sinks else torch.zeros_like(first)
        return replace(self, near=Near(width, sinks, start, sink_stop))

    @cached_property
    def pieces(self) -> list[Piece] | None:
        """The rows cut into plain attentions, in order; None when a segment has padding between real keys, or when
        the masks may not be read on the host.

        Stretches of queries that see no key are left out. For positions that nothing but the causal order restricts
        nobody asks.
        """
        given = self.key_mask if self.first_key is None else self.first_key
        assert given is not None, "plain positions need not be cut"
        if not may_sync(given):
            return None
        batch, time = given.shape
        first = self.first_key.tolist() if self.first_key is not None else [[0] * time] * batch
        real = self.key_mask.tolist() if self.key_mask is not None else [[True] * time] * batch
        cut: list[Piece] = []
        for row in range(batch):
            starts = sorted(set(first[row]))
            for start, stop in zip(starts, [*starts[1:], time], strict=True):
                inside = real[row][start:stop]
                count = sum(inside)
                if not count:
                    continue
                begin = start + inside.index(True)
                end = begin + count
                if not all(real[row][begin:end]):
                    return None
                cut.append(Piece(row, slice(begin, end), slice(begin, end), causal=True))
                if end < stop:
                    cut.append(Piece(row, slice(end, stop), slice(begin, end), causal=False))
        return cut

    def allowed(self, queries: slice, keys: slice, device: torch.device) -> Bool[Tensor, "B Q K"]:
        """Who sees whom in a block of positions; B is 1 when nothing depends on the batch."""
        query = torch.arange(queries.start, queries.stop, device=device)
        key = torch.arange(keys.start, keys.stop, device=device)
        allowed = (key <= query[:, None])[None]
        if self.first_key is not None:
            allowed = allowed & (key >= self.first_key[:, queries, None])
        if self.near is not None:
            start, sink_stop = self.near.start[:, queries, None], self.near.sink_stop[:, queries, None]
            allowed = allowed & ((key >= start) | (key < sink_stop))
        if self.key_mask is not None:
            allowed = allowed & self.key_mask[:, None, keys]
        return allowed

    def lengths(
        self, batch: int, time: int, device: torch.device, past: Int[Tensor, " B"] | None = None
    ) -> Int[Tensor, "B T"]:
        """n_i for every position, onwards from the keys of the past."""
        if self.key_mask is None and past is not None and time == 1:
            return (past + 1)[:, None]
        if self.key_mask is not None:
            counted = self.key_mask.cumsum(-1)
        else:
            counted = torch.arange(1, time + 1, device=device).expand(batch, time)
        if self.first_key is not None:
            before = torch.nn.functional.pad(counted, (1, 0))
            counted = counted - before.gather(1, self.first_key)
        return counted if past is None else counted + past[:, None]


def gather(x: Tensor, index: Int[Tensor, "B N"], axis: int) -> Tensor:
    """Places of an axis, other ones in each row of the batch."""
    shape = [x.shape[0], *[1] * (axis - 1), index.shape[1], *[1] * (x.dim() - axis - 1)]
    wide = [*x.shape[:axis], index.shape[1], *x.shape[axis + 1 :]]
    return x.gather(axis, index.view(shape).expand(wide))


def visibility(key_mask: Tensor | None, segment_ids: Tensor | None) -> Visibility:
    """Masks and ids as a `Visibility`; what is known to restrict nothing is dropped, so that fast forms can be used."""
    if key_mask is not None and may_sync(key_mask) and bool(key_mask.all()):
        key_mask = None
    first_key = None
    if segment_ids is not None and not (may_sync(segment_ids) and _is_one_segment(segment_ids)):
        position = torch.arange(segment_ids.shape[1], device=segment_ids.device)
        begins = torch.ones_like(segment_ids, dtype=torch.bool)
        begins[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
        first_key = torch.where(begins, position, 0).cummax(-1).values
    return Visibility(key_mask, first_key)


def _is_one_segment(segment_ids: Int[Tensor, "B T"]) -> bool:
    return not bool((segment_ids[:, 1:] != segment_ids[:, :-1]).any())
