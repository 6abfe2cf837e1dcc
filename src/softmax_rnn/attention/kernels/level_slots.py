"""Levels where the host does not know the positions: on a device behind masks or a past, and in a traced graph.

The states have a slot for every level but the first, 0 where a row has no such block, so their number does not depend
on the positions. With n keys before the new ones and n′ after them, and R = bit_length(n′ XOR n):

    y_i = Σ_ℓ λ_i[max(ℓ, bit_length(i XOR n))] · e^(c_i) · φ(q_i) S_ℓ  +  the new keys, pair by pair
    S′_ℓ = e^(c_end) · (S_ℓ if ℓ > R, Σ_{m≤ℓ} S_m if ℓ = R, else 0)
           +  Σ_{j: level(n′, j) = ℓ} e^(c_end − c_j) φ(k_j) U_jᵀ

Everything is arithmetic of torch, so its gradients are torch's own.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.host_sync import traced
from softmax_rnn.attention.kernels.blockwise import blockwise
from softmax_rnn.attention.kernels.chunked import values_and_ones
from softmax_rnn.attention.kernels.parallel import parallel
from softmax_rnn.attention.levels import LevelSums, LevelWeights, bit_length, level_of
from softmax_rnn.attention.visibility import Visibility


def in_slots(job: Contraction, past: LevelSums | None, keep_state: bool) -> tuple[Sums, LevelSums | None]:
    """The sums of `parallel`, continued from the slots of a past, and the slots after the last position."""
    inside = replace(job, negative=None)  # as in all forms that read a state
    sums = parallel(inside) if traced(job.q) or job.q.shape[3] == 1 else blockwise(inside)
    if past is not None:
        sums = _plus(sums, _read(job, past))
    return sums, slots_after(job, past) if keep_state else None


def step_by_step(job: Contraction, past: LevelSums | None) -> tuple[Sums, LevelSums | None]:
    """The same, one position after the other."""
    if job.k.shape[2] == 1:
        return in_slots(job, past, keep_state=True)
    rows = []
    for t in range(job.k.shape[2]):
        sums, past = in_slots(_position(job, t), _goes_on(job, t, past), keep_state=True)
        rows.append(sums)
    numerator = torch.cat([row.numerator for row in rows], 3)
    row_sum = torch.cat([row.row_sum for row in rows], 3) if job.wants_row_sum else None  # type: ignore[misc]
    return Sums(numerator, row_sum, job.log_scale), past


def slots_after(job: Contraction, past: LevelSums | None = None) -> LevelSums:
    """The states of the blocks of everything so far, one for each level from 1 on."""
    levels, features, u = _levels(job), _features(job), values_and_ones(job)
    before, after = _ends(job, levels)
    reach = bit_length(before ^ after).clamp(max=levels.top)[:, None, None, None]
    own = level_of(levels.positions, after[:, None], levels.top)
    if isinstance(job.decay, RunningDecay):
        c = job.decay.c
        u = u * torch.exp(c[..., -1:] - c).to(u.dtype)[..., None]
    keys = features.key(job.k.flatten(0, 1).mT).unflatten(0, u.shape[:2])
    old, total, slots = _now(job, past, u), None, {}
    for level in range(1, levels.top + 1):
        slots[level] = keys @ (u * (own == level)[:, None, :, None])
        if level in old:
            total = old[level] if total is None else total + old[level]
            slots[level] = slots[level] + torch.where(reach < level, old[level], 0)
        if total is not None:
            slots[level] = slots[level] + torch.where(reach == level, total, 0)
    return LevelSums(slots)


def _read(job: Contraction, past: LevelSums) -> Float[Tensor, "B K G T U"]:
    """What the queries read from the slots of a past."""
    levels, (batch, heads) = _levels(job), job.k.shape[:2]
    before, _ = _ends(job, levels)
    reach = level_of(levels.positions, before[:, None], levels.top)
    rows = None if job.rows is None else job.rows.flatten(0, 1).flatten(1, 2)
    query = _features(job).query(job.q.flatten(0, 1).flatten(1, 2).mT, rows).mT
    total = None
    for level, state in past.now(job.q.dtype).items():
        own = levels.weights.gather(-1, reach.clamp(min=level)[:, None, None, :, None].expand(*job.q.shape[:4], 1))
        read = torch.bmm(query, state.flatten(0, 1)).view(batch, heads, job.q.shape[2], -1, state.shape[-1]) * own
        total = read if total is None else total + read
    assert total is not None
    if isinstance(job.decay, RunningDecay):
        total = total * torch.exp(job.decay.c).to(total.dtype)[:, :, None, :, None]
    return total


def _now(job: Contraction, past: LevelSums | None, u: Tensor) -> dict[int, Float[Tensor, "B K F U"]]:
    """The slots of the past as they stand after the new positions."""
    old = {} if past is None else past.now(u.dtype)
    if not isinstance(job.decay, RunningDecay):
        return old
    left = torch.exp(job.decay.c[..., -1]).to(u.dtype)[..., None, None]
    return {level: x * left for level, x in old.items()}


def _ends(job: Contraction, levels: LevelWeights) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
    """How many keys come before the first position, and how many before the one after the last."""
    real = job.visibility.key_mask
    return levels.positions[:, 0], levels.positions[:, -1] + (1 if real is None else real[:, -1].long())


def _plus(sums: Sums, read: Float[Tensor, "B K G T U"]) -> Sums:
    if sums.row_sum is None:
        return replace(sums, numerator=sums.numerator + read)
    return replace(sums, numerator=sums.numerator + read[..., :-1], row_sum=sums.row_sum + read[..., -1])


def _levels(job: Contraction) -> LevelWeights:
    assert job.levels is not None
    return job.levels


def _features(job: Contraction) -> SymmetricFeatures:
    polynomial = job.score.finite_features
    assert polynomial is not None
    return SymmetricFeatures(polynomial, job.k.shape[-1])


def _position(job: Contraction, t: int) -> Contraction:
    """Position t alone, after those before it."""
    one = slice(t, t + 1)
    levels, c = _levels(job), None if job.running_decay is None else job.running_decay.c
    step = None if c is None else RunningDecay(c[..., one] - c[..., t - 1 : t] if t else c[..., one])
    mask = job.visibility.key_mask
    rows, scale = (None if x is None else x[:, :, :, one] for x in (job.rows, job.log_scale))
    return replace(
        job,
        q=job.q[:, :, :, one],
        k=job.k[:, :, one],
        v=job.v[:, :, one],
        decay=step,
        visibility=Visibility(None if mask is None else mask[:, one]),
        rows=rows,
        log_scale=scale,
        levels=replace(levels, weights=levels.weights[:, :, :, one], positions=levels.positions[:, one], counted=False),
    )


def _goes_on(job: Contraction, t: int, past: LevelSums | None) -> LevelSums | None:
    """Nothing of the past at the first position of a segment."""
    first = job.visibility.first_key
    if first is None or past is None:
        return past
    goes_on = (first[:, t] < t)[:, None, None, None]
    return LevelSums({level: x * goes_on for level, x in past.now(job.q.dtype).items()})
