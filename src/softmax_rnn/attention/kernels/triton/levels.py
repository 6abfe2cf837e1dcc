"""Levels by the blockwise kernels: a query's keys of one level stand side by side, so a level is a call of its own.

For a query at position p, level 0 is its own key. Where digit ℓ−1 of p is 1, level ℓ are the 2^(ℓ−1) positions that
begin at p with its last ℓ digits set to 0. The last level is everything before p with its last digits set to 0. To the
kernels these are the sinks of each query. All calls together meet each pair once:

    y_i = Σ_ℓ λ_i[ℓ] · Σ_{j of level ℓ} w_ij v_j

and λ gets its gradient from the sums of its level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softmax_rnn.attention.contraction import NOTHING, Contraction, NegativeRows, Sums
from softmax_rnn.attention.kernels.triton.blockwise import blockwise
from softmax_rnn.attention.kernels.triton.visible import Seen, small


@dataclass(frozen=True)
class _Level:
    number: int
    seen: Seen
    empty: Bool[Tensor, "B Tq"]
    """Queries that have no key of this level."""


def by_level(job: Contraction, dtype: torch.dtype, score_scale: float) -> Sums:
    """The sums of `parallel`, level by level."""
    levels, negative = job.levels, job.negative
    assert levels is not None
    parts, scales = [], []
    for level in _levels(job):
        noted = None if negative is None else NegativeRows(torch.zeros_like(negative.negative))
        sums = blockwise(replace(job, levels=None, negative=noted), dtype, score_scale, level.seen)
        if negative is not None and noted is not None:
            negative.negative.logical_or_(noted.negative)
        parts.append((levels.weights[..., level.number], sums))
        if job.score.is_exponential and sums.log_scale is not None:
            scales.append(sums.log_scale.masked_fill(level.empty[:, None, None], NOTHING))
    largest = job.log_scale
    if scales:  # each level has its own units
        largest = torch.stack(scales).amax(0)
        largest = torch.where(largest > NOTHING, largest, 0)
        parts = [(own * torch.exp(scale - largest), sums) for (own, sums), scale in zip(parts, scales, strict=True)]
    numerator = torch.stack([sums.numerator * own[..., None] for own, sums in parts]).sum(0)
    row_sums = [sums.row_sum * own for own, sums in parts if sums.row_sum is not None]
    return Sums(numerator, torch.stack(row_sums).sum(0) if row_sums else None, largest)


def _levels(job: Contraction) -> Iterator[_Level]:
    """The levels that so many keys can have, each as places of its keys; nothing is read on the host."""
    levels, seen, past = job.levels, job.visibility, job.past
    assert levels is not None
    at, top, time = levels.positions, levels.top, job.k.shape[2]
    place = torch.arange(time, device=at.device).expand_as(at)
    mask = None if seen.key_mask is None else seen.key_mask.to(torch.int8).contiguous()
    real = torch.ones_like(at, dtype=torch.bool) if seen.key_mask is None else seen.key_mask
    counted = real.cumsum(-1)
    before = counted - real.long() - at  # real keys of earlier segments

    def place_of(number: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
        """Where the key with this number in the segment of each position stands, or would stand."""
        return torch.searchsorted(counted, before + number + 1)

    yield _Level(0, Seen(mask, small(place), last=small(place)), ~real[:, past:])
    nowhere = small(torch.full_like(place, time))
    for level in range(1, min(top, (time - 1).bit_length()) + 1):
        size = 1 << (level - 1)
        if level == top:
            first, stop = torch.zeros_like(at), at // size * size
            last = torch.full_like(place, time - 1)
        else:
            first = at // (2 * size) * (2 * size)
            stop = torch.where(at // size % 2 == 1, first + size, first)
            last = place_of(first + 2 * size).clamp(max=time - 1)
        start, sink = place_of(first), place_of(stop)
        keys = Seen(mask, nowhere, small(start), small(sink), small(last))
        yield _Level(level, keys, (stop <= first)[:, past:])
