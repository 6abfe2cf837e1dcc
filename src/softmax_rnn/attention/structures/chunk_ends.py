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

import torch
from jaxtyping import Int
from torch import Tensor

from softmax_rnn.attention.buffer import Buffers
from softmax_rnn.attention.contraction import NOTHING, Contraction, NegativeRows, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.fitting import UNKNOWN
from softmax_rnn.attention.forms import Form
from softmax_rnn.attention.host_sync import may_sync, traced
from softmax_rnn.attention.levels import positions
from softmax_rnn.attention.parts import ChunkEnds
from softmax_rnn.attention.state import GrowingState, State
from softmax_rnn.attention.structures.chunk_cells import Cells, chunk_starts
from softmax_rnn.attention.structures.whole import WholePast
from softmax_rnn.attention.visibility import Near, Visibility, gather
from softmax_rnn.attention.work import Work

SPARE = 64
"""Places of a state that may be empty before they are cleared."""


@dataclass(frozen=True)
class ChunkEndsPast(WholePast):
    """A state keeps the matrix of the ends, or their keys and values."""

    structure: ChunkEnds

    def listed(self, state: State) -> GrowingState | None:
        """None: the ends of a state go to their own contraction."""
        return None

    def cannot_lose(self, state: State, count: int) -> str | None:
        gone = "keys inside chunks are gone, so positions cannot be removed"
        return super().cannot_lose(state, count) or (gone if count else None)

    def run(self, work: Work) -> tuple[Sums, State | None]:
        """The sums over the ends of earlier chunks and the query's own key."""
        job, state, structure = work.job, work.now.state, self.structure
        at = positions(work.now.new, work.now.counts)
        if not may_sync(at) and state is None and (traced(at) or job.visibility.first_key is not None):
            return _own_and(job, _pair_by_pair(job, structure, at, work.form)), None
        cells = Cells.of(at, job.visibility, structure.length)
        past = None if state is None else state.listed
        has_fixed_state = work.has_fixed_state
        far = _far(job, cells, past, has_fixed_state)
        ends, matrix, known = work.contract(far, work.summed)
        sums = _own_and(job, _unseen(_in_time(ends, job, cells), at, structure))
        if job.negative is not None and far.negative is not None:
            flags = far.negative.negative.unflatten(0, job.q.shape[:2])
            flags = torch.cat([flags, torch.zeros_like(flags[..., :1])], 3)[..., : cells.count]
            job.negative.negative.logical_or_(cells.in_time(flags).flatten(0, 1))
        if state is None:
            return sums, None
        if has_fixed_state:
            return sums, self._after(work, matrix, known)
        most = None if state.fed is None else (state.fed + at.shape[1]) // structure.length
        return sums, _after(work, cells, past, most)


def _unseen(ends: Sums, at: Int[Tensor, "B T"], structure: ChunkEnds) -> Sums:
    """The same; in the first chunk there is no end."""
    if ends.log_scale is None:
        return ends
    none = (at < structure.length)[:, None, None]
    return replace(ends, log_scale=ends.log_scale.masked_fill(none, NOTHING))


def _pair_by_pair(job: Contraction, structure: ChunkEnds, at: Int[Tensor, "B T"], form: Form) -> Sums:
    """The sums over the ends, all other keys hidden: a query sees the ends before the start of its chunk."""
    _, start = chunk_starts(at, job.visibility, structure.length)
    is_end, real = (at + 1) % structure.length == 0, job.visibility.key_mask
    ends = is_end if real is None else is_end & real
    near = Near(0, 0, torch.full_like(start, at.shape[1]), start)
    far = replace(job, visibility=Visibility(ends, job.visibility.first_key, near))
    return _unseen(form.sums(job.score.fit(far, UNKNOWN, False).for_keys()), at, structure)


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
        mask = torch.cat([past.real, mask[:, new]], 1)
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


def _own_and(job: Contraction, ends: Sums) -> Sums:
    """The sums over the ends and each query's own key, which has no weight at padding."""
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
    sums = Sums(weight[..., None] * job.v[:, :, None], weight if job.wants_row_sum else None, scale).plus(ends)
    assert sums.log_scale is not None
    return replace(sums, log_scale=torch.where(sums.log_scale > NOTHING, sums.log_scale, 0))


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
        since = running.c - gather(cells.at_start(running.c), cells.cell, 2)
        factor = torch.exp(since).to(numerator.dtype)[:, :, None]
        numerator = numerator * factor[..., None]
        row_sum = None if row_sum is None else row_sum * factor
    return Sums(numerator, row_sum, scale)


def _after(work: Work, cells: Cells, past: GrowingState | None, most: int | None) -> GrowingState:
    """The ends so far, ``most`` of them at most, and how much each has decayed by now.

    Where no number may be looked at, what may be an end takes a place, and now and then the places that hold none go.
    """
    job, looks = work.job, may_sync(cells.arrives)
    some = cells.arrives.any(0) if looks else slice(1, None)  # nothing arrives with the first cell
    k, v, real = cells.keys(job.k)[:, :, some], cells.keys(job.v)[:, :, some], cells.arrives[:, some]
    c = None if job.running_decay is None else cells.at_start(job.running_decay.c)
    decay = None if c is None else c[:, :, some] - c[:, :, -1:]
    buffers: Buffers = (None, None)
    if past is not None:
        real = torch.cat([past.real, real], 1)
        if c is not None and decay is not None and past.decay is not None:
            decay = torch.cat([past.decay - c[:, :, -1:], decay], 2)
        if k.shape[2]:
            k, v, buffers = past.append(k, v, lambda x: x)
        else:
            k, v, buffers = past.keys, past.values, (past.key_buffer, past.value_buffer)
    state = GrowingState(*work.carried(), k, v, decay, None if looks and bool(real.all()) else real, *buffers)
    if looks or most is None or state.time < most + SPARE:
        return state
    return state.at(real.byte().argsort(dim=-1, stable=True)[:, state.time - most :])
