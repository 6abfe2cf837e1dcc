"""Ends of earlier chunks and the query's own key: two contractions over disjoint sets of keys.

All queries of a chunk see the same ends. So the queries of a chunk of L stand side by side, as query heads that share a
key head do, and with each chunk arrives the end of the one before it: an ordinary causal contraction over T/L places,
which every form serves. The query's own key is one weight, added afterwards. Padding and packed documents only change
where chunks begin.

How many chunks there are depends on masks and on the past. Where these may not be looked at, there are as many cells as
there can be at most; packed documents, which can be of any number, hide what is no end from each query, pair by pair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention.contraction import NOTHING, Contraction, NegativeRows, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.fitting import KeySummary
from softmax_rnn.attention.forms import FORMS, Form
from softmax_rnn.attention.forms.form import FormWithKeys
from softmax_rnn.attention.host_sync import may_sync, traced
from softmax_rnn.attention.parts import ChunkEnds
from softmax_rnn.attention.state import FixedState, GrowingState, State
from softmax_rnn.attention.visibility import Near, Visibility

SPARE = 64
"""Places of a state that may be empty before they are cleared."""


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
        changes, chunk_start = _chunk_starts(positions, seen, length)
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
        picked = _gather(padded, self._times, 3)
        return picked.unflatten(3, (self.length, self.count)).flatten(2, 3)

    def in_time(self, x: Float[Tensor, "B K GL C *E"]) -> Float[Tensor, "B K G T *E"]:
        """The inverse."""
        rows = x.unflatten(2, (-1, self.length)).flatten(3, 4)
        return _gather(rows, self.slot * self.count + self.cell, 3)

    def keys(self, x: Float[Tensor, "B K T D"]) -> Float[Tensor, "B K C D"]:
        """What arrives with each cell; 0 where nothing does."""
        picked = _gather(x, (self.start - 1).clamp(min=0), 2)
        return picked.masked_fill(~self.arrives[:, None, :, None], 0)

    def at_start(self, c: Float[Tensor, "B K T"]) -> Float[Tensor, "B K C"]:
        """A running sum just before each cell."""
        return _gather(torch.nn.functional.pad(c, (1, 0)), self.start, 2)


def _most(time: int, length: int, is_plain: bool) -> int:
    """How many cells so many positions can have: one per chunk that they touch, and padding may cut each in two."""
    chunks = -(-time // length) + 1
    return min(time, chunks if is_plain else 2 * chunks)


def _chunk_starts(
    positions: Int[Tensor, "B T"], seen: Visibility, length: int
) -> tuple[Bool[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Where a new chunk of a segment begins, and where that of each position began, among the positions of the call."""
    t = torch.arange(positions.shape[1], device=positions.device).expand(positions.shape[0], -1)
    chunk = positions // length
    other = torch.zeros_like(chunk, dtype=torch.bool) if seen.first_key is None else seen.first_key == t
    changes = torch.nn.functional.pad(chunk[:, 1:] != chunk[:, :-1], (1, 0)) & ~other
    return changes, torch.where(changes | other | (t == 0), t, 0).cummax(1).values


def _gather(x: Tensor, index: Int[Tensor, "B N"], axis: int) -> Tensor:
    """Places of an axis, other ones in each row of the batch."""
    shape = [x.shape[0], *[1] * (axis - 1), index.shape[1], *[1] * (x.dim() - axis - 1)]
    wide = [*x.shape[:axis], index.shape[1], *x.shape[axis + 1 :]]
    return x.gather(axis, index.view(shape).expand(wide))


def ends_and_own(
    job: Contraction,
    structure: ChunkEnds,
    positions: Int[Tensor, "B T"],
    state: State | None,
    form: Form,
    has_fixed_state: bool,
    keep_state: bool,
) -> tuple[Sums, Any, KeySummary, tuple[Any, ...] | None]:
    """The sums over the ends of earlier chunks and the query's own key, and what a state goes on with.

    ``job`` has the new positions alone; a state keeps the matrix of the ends, or their keys and values.
    """
    if not may_sync(positions) and state is None and (traced(positions) or job.visibility.first_key is not None):
        return _own(job).plus(_pair_by_pair(job, structure, positions, form)), None, KeySummary(), None
    cells = Cells.of(positions, job.visibility, structure.length)
    past = state if isinstance(state, GrowingState) and state.time else None
    fixed = state if isinstance(state, FixedState) else None
    before = KeySummary() if fixed is None else KeySummary(fixed.key_norm, fixed.extent)
    far = _far(job, cells, past, has_fixed_state)
    fitted = job.score.fit(far, before, has_fixed_state)
    ends, matrix = form.run(fitted, None if fixed is None else fixed.matrix, keep_state)
    sums = _own(job).plus(_unseen(_in_time(ends, job, cells), positions, structure))
    if job.negative is not None and far.negative is not None:
        flags = far.negative.negative.unflatten(0, job.q.shape[:2])
        flags = torch.cat([flags, torch.zeros_like(flags[..., :1])], 3)[..., : cells.count]
        job.negative.negative.logical_or_(cells.in_time(flags).flatten(0, 1))
    kept = None
    if keep_state and not has_fixed_state:
        fed = None if state is None or state.fed is None else state.fed + positions.shape[1]
        kept = _kept(job, cells, past, None if fed is None else fed // structure.length)
    return sums, matrix, fitted.summary, kept


def _unseen(ends: Sums, positions: Int[Tensor, "B T"], structure: ChunkEnds) -> Sums:
    """The same; in the first chunk there is no end."""
    if ends.log_scale is None:
        return ends
    none = (positions < structure.length)[:, None, None]
    return replace(ends, log_scale=ends.log_scale.masked_fill(none, NOTHING))


def _pair_by_pair(job: Contraction, structure: ChunkEnds, positions: Int[Tensor, "B T"], form: Form) -> Sums:
    """The sums over the ends, all other keys hidden: a query sees the ends before the start of its chunk."""
    _, start = _chunk_starts(positions, job.visibility, structure.length)
    is_end, real = (positions + 1) % structure.length == 0, job.visibility.key_mask
    ends = is_end if real is None else is_end & real
    near = Near(0, 0, torch.full_like(start, positions.shape[1]), start)
    far = replace(job, visibility=Visibility(ends, job.visibility.first_key, near))
    with_keys = form if isinstance(form, FormWithKeys) else FORMS["blockwise"]
    sums, _ = with_keys.run(job.score.fit(far, KeySummary(), False), None, False)
    return _unseen(sums, positions, structure)


def _far(job: Contraction, cells: Cells, past: GrowingState | None, has_fixed_state: bool) -> Contraction:
    """The ends as an ordinary contraction, one place per cell, behind those of a past.

    The last cell, which has no queries, matters to a state of fixed size only.
    """
    last = cells.count if has_fixed_state else cells.count - 1
    q, k, v = cells.side_by_side(job.q)[:, :, :, :last], cells.keys(job.k)[:, :, :last], cells.keys(job.v)[:, :, :last]
    running, mask = job.running_decay, cells.arrives[:, :last]
    c = None if running is None else cells.at_start(running.c)[:, :, :last]
    if past is not None:
        # Nothing arrives with the first cell: where nothing decays, the past's last key can stand in its place.
        new = slice(1 if c is None else 0, None)
        k, v = _behind(past.keys, k[:, :, new], 2), _behind(past.values, v[:, :, new], 2)
        known = past.key_mask
        if known is None:
            known = torch.ones(k.shape[0], past.time, dtype=torch.bool, device=k.device)
        mask = torch.cat([known, mask[:, new]], 1)
        c = None if c is None or past.decay is None else torch.cat([past.decay, c], 2)
    negative = None
    if job.negative is not None:
        size = (job.q.shape[0] * job.q.shape[1], *q.shape[2:4])
        negative = NegativeRows(torch.zeros(size, dtype=torch.bool, device=q.device))
    first_cell = None if cells.first_cell is None else cells.first_cell[:, :last]
    seen = Visibility(None if may_sync(mask) and bool(mask.all()) else mask, first_cell)
    decay = None if c is None else RunningDecay(c)
    return replace(job, q=q, k=k, v=v, decay=decay, visibility=seen, negative=negative)


def _behind(old: Tensor, new: Tensor, axis: int) -> Tensor:
    return torch.cat([old.to(new.dtype), new], axis) if new.shape[axis] else old.to(new.dtype)


def _own(job: Contraction) -> Sums:
    """The weight of each query's own key; none at padding."""
    x = job.score.cut(job.own_scores())
    real = job.visibility.key_mask
    if job.score.is_exponential:
        scale, weight = x.detach(), torch.exp(x - x.detach())
    else:
        scale, weight = torch.zeros_like(x), job.score.series().differentiable(x)
    if real is not None:
        weight = weight * real[:, None, None]
        scale = scale.masked_fill(~real[:, None, None], NOTHING)
    if job.negative is not None:
        job.negative.negative.logical_or_((weight < 0).flatten(0, 1))
    return Sums(weight[..., None] * job.v[:, :, None], weight if job.wants_row_sum else None, scale)


def _in_time(ends: Sums, job: Contraction, cells: Cells) -> Sums:
    """The sums over the ends at each position, what has decayed since the chunk began included."""

    def back(x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        missing = cells.count - x.shape[3]  # the last cell, where it was left out
        if missing:
            x = torch.cat([x, torch.zeros_like(x[:, :, :, :missing])], 3)
        return cells.in_time(x)

    numerator, row_sum, scale = back(ends.numerator), back(ends.row_sum), back(ends.log_scale)
    assert numerator is not None
    running = job.running_decay
    if running is not None:
        since = running.c - _gather(cells.at_start(running.c), cells.cell, 2)
        factor = torch.exp(since).to(numerator.dtype)[:, :, None]
        numerator = numerator * factor[..., None]
        row_sum = None if row_sum is None else row_sum * factor
    return Sums(numerator, row_sum, scale)


def _kept(job: Contraction, cells: Cells, past: GrowingState | None, most: int | None) -> tuple[Any, ...]:
    """What a `GrowingState` holds: the ends so far, ``most`` of them at most, and how much each has decayed by now.

    Where no number may be looked at, what may be an end takes a place, and now and then the places that hold none go.
    """
    looks = may_sync(cells.arrives)
    some = cells.arrives.any(0) if looks else slice(1, None)  # nothing arrives with the first cell
    k, v, real = cells.keys(job.k)[:, :, some], cells.keys(job.v)[:, :, some], cells.arrives[:, some]
    c = None if job.running_decay is None else cells.at_start(job.running_decay.c)
    decay = None if c is None else c[:, :, some] - c[:, :, -1:]
    buffers: tuple[Any, Any] = (None, None)
    if past is not None:
        known = past.key_mask
        if known is None:
            known = torch.ones(k.shape[0], past.time, dtype=torch.bool, device=k.device)
        real = torch.cat([known, real], 1)
        if c is not None and decay is not None and past.decay is not None:
            decay = torch.cat([past.decay - c[:, :, -1:], decay], 2)
        if k.shape[2]:
            k, v, buffers = past.append(k, v, lambda x: x)
        else:
            k, v, buffers = past.keys, past.values, (past.key_buffer, past.value_buffer)
    if not looks and most is not None and k.shape[2] >= most + SPARE:
        index = real.byte().argsort(dim=-1, stable=True)[:, k.shape[2] - most :]
        k, v, buffers = _gather(k, index, 2), _gather(v, index, 2), (None, None)
        real, decay = real.gather(1, index), None if decay is None else _gather(decay, index, 2)
    mask = None if looks and bool(real.all()) else real
    return k, v, decay, mask, *buffers
