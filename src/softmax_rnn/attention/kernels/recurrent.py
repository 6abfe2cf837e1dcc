"""One position at a time, state in and state out: the form of the paper's title, and of decoding.

With finite features the state is the matrix S of the chunked form:

    y_t = decay_t · φ(q_t) S + f(q_t·k_t) U_t        S ← decay_t · S + φ(k_t) U_tᵀ

Without (exp, clamped scores) it is the list of keys and values, and a step is one row of the literal form.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.channel_decay import ChannelDecay
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.kernels.chunked import split_sums, values_and_ones
from softmax_rnn.attention.kernels.parallel import parallel


def through_features(job: Contraction, state: Any) -> tuple[Sums, Any]:
    """Step after step through a state of fixed size (B, K, F, U), or a stack of them where there are levels."""
    if job.levels is not None:
        from softmax_rnn.attention.kernels.level_steps import through_levels

        return through_levels(job, state)
    polynomial = job.score.finite_features
    assert polynomial is not None
    features = SymmetricFeatures(polynomial, job.k.shape[-1])
    u = values_and_ones(job)
    if state is None:
        state = u.new_zeros(*u.shape[:2], features.count, u.shape[-1])
    state = state.to(u.dtype)
    if job.k.shape[2] == 1 and not _needs_grad(job, state) and not isinstance(job.decay, ChannelDecay):
        return _one_step(job, features, u, state)
    outputs = []
    newest = job.own_scores()
    reads_before_decay = isinstance(job.decay, ChannelDecay) and job.decay.reads_before_decay
    for t in range(job.k.shape[2]):
        keep = keep_of(job, t, features)
        decayed = state if keep is None else state * keep.to(state.dtype)
        seen = _before_decay(job, t, state) if reads_before_decay else decayed
        rows = None if job.rows is None else job.rows[:, :, :, t]
        query = features.query(job.q[:, :, :, t].flatten(0, 1).mT, None if rows is None else rows.flatten(0, 1))
        past = torch.matmul(query.mT.unflatten(0, u.shape[:2]), seen)
        # The newest key's weight is taken directly: exact where a sum over features would cancel.
        weight = job.score.series(rows).differentiable(newest[:, :, :, t, None])
        outputs.append(past + weight * u[:, :, t, None, :])
        key = features.key(job.k[:, :, t].flatten(0, 1)[..., None]).unflatten(0, u.shape[:2])
        state = torch.addcmul(decayed, key, u[:, :, t, None, :])
    return split_sums(job, torch.stack(outputs, dim=3)), state


def _needs_grad(job: Contraction, state: Tensor) -> bool:
    tensors = (job.q, job.k, job.v, state, None if job.decay is None else job.decay.memory)
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _one_step(
    job: Contraction, features: SymmetricFeatures, u: Float[Tensor, "B K 1 U"], state: Float[Tensor, "B K F U"]
) -> tuple[Sums, Float[Tensor, "B K F U"]]:
    """One position in few calls: the features of queries and key are made together, then two products."""
    heads, (groups, dim) = u.shape[:2], (job.q.shape[2], job.q.shape[4])
    keep = keep_of(job, 0, features)
    decayed = (state if keep is None else state * keep.to(state.dtype)).flatten(0, 1)
    q, k, u = job.q.reshape(-1, groups, dim), job.k.flatten(0, 1), u.flatten(0, 1)
    both = features.side_by_side(torch.cat([q, k], 1).mT)
    rows = None if job.rows is None else job.rows.flatten(0, 1).squeeze(2)
    past = torch.bmm(features.weighed(both[..., :groups], rows).mT, decayed)
    # The newest key's weight is taken directly: exact where a sum over features would cancel.
    y = torch.baddbmm(past, job.score.series(rows).value(torch.bmm(q, k.mT)), u)
    state = torch.addcmul(decayed, both[..., groups:], u)
    return split_sums(job, y.unflatten(0, heads).unsqueeze(3)), state.unflatten(0, heads)


def keep_of(job: Contraction, t: int, features: SymmetricFeatures) -> Tensor | None:
    """What is left of the state at step t: the decay of the step, nothing at the first position of a segment."""
    keep = None if job.decay is None else job.decay.keep(t, features)
    goes_on = _goes_on(job, t)
    if goes_on is None:
        return keep
    return goes_on if keep is None else keep * goes_on


def _before_decay(job: Contraction, t: int, state: Tensor) -> Tensor:
    goes_on = _goes_on(job, t)
    return state if goes_on is None else state * goes_on


def _goes_on(job: Contraction, t: int) -> Tensor | None:
    """Whether the segment of position t began before it; None where there is one segment."""
    first = job.visibility.first_key
    return None if first is None else (first[:, t] < t)[:, None, None, None]


def through_keys(job: Contraction) -> Sums:
    """Row after row through the growing list of keys and values."""
    if job.q.shape[3] == 1:
        return parallel(job)
    rows = [parallel(job.at(t)) for t in range(job.q.shape[3])]
    return Sums(
        torch.cat([row.numerator for row in rows], dim=3),
        torch.cat([row.row_sum for row in rows], dim=3) if job.wants_row_sum else None,  # type: ignore[misc]
        None if rows[0].log_scale is None else torch.cat([row.log_scale for row in rows], dim=3),  # type: ignore[misc]
    )
