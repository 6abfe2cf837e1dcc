"""One position at a time, state in and state out: the form of the paper's title, and of decoding.

With finite features the state is the matrix S of the chunked form:

    y_t = decay_t · φ(q_t) S + f(q_t·k_t) U_t        S ← decay_t · S + φ(k_t) U_tᵀ

Without (exp, clamped scores) it is the list of keys and values, and a step is one row of the literal form.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention import scores
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.forms.chunked import split_sums, values_and_ones
from softmax_rnn.attention.forms.parallel import parallel
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.visibility import Visibility


def recurrent_features(
    job: Contraction, state: Float[Tensor, "B K F U"] | None = None
) -> tuple[Sums, Float[Tensor, "B K F U"]]:
    """Step after step through the fixed state of a polynomial score."""
    assert isinstance(job.score, Polynomial)
    features = SymmetricFeatures(job.score, job.k.shape[-1])
    u = values_and_ones(job)
    if state is None:
        state = u.new_zeros(*u.shape[:2], features.count, u.shape[-1])
    state = state.to(u.dtype)
    outputs = []
    for t in range(job.k.shape[2]):
        keep = _keep(job, t)
        if keep is not None:
            state = state * keep.to(state.dtype)
        rows = None if job.rows is None else job.rows[:, :, :, t]
        query = features.query(job.q[:, :, :, t].flatten(0, 1).mT, None if rows is None else rows.flatten(0, 1))
        past = torch.matmul(query.mT.unflatten(0, u.shape[:2]), state)
        # The newest key's weight is taken directly: exact where a sum over features would cancel.
        newest = torch.einsum("bkgd,bkd->bkg", job.q[:, :, :, t], job.k[:, :, t])[..., None]
        weight = scores.differentiable_value(job.score, newest, rows)
        outputs.append(past + weight * u[:, :, t, None, :])
        key = features.key(job.k[:, :, t].flatten(0, 1)[..., None]).unflatten(0, u.shape[:2])
        state = torch.addcmul(state, key, u[:, :, t, None, :])
    return split_sums(job, torch.stack(outputs, dim=3)), state


def _keep(job: Contraction, t: int) -> Tensor | None:
    """What is left of the state at step t: the decay of the step, nothing at the first position of a segment."""
    keep = None
    if job.decay is not None:
        log_decay = job.decay[:, :, t] - job.decay[:, :, t - 1] if t else job.decay[:, :, 0]
        keep = torch.exp(log_decay)[..., None, None]
    if job.seen.first_key is not None:
        begins = (job.seen.first_key[:, t] < t)[:, None, None, None]
        keep = begins if keep is None else keep * begins
    return keep


def recurrent_rows(job: Contraction) -> Sums:
    """Row after row through the growing list of keys and values."""
    rows = []
    for t in range(job.q.shape[3]):
        stop = job.past + t + 1
        seen = Visibility(
            None if job.seen.key_mask is None else job.seen.key_mask[:, :stop],
            None if job.seen.first_key is None else job.seen.first_key[:, :stop],
        )
        step = replace(
            job,
            q=job.q[:, :, :, t : t + 1],
            k=job.k[:, :, :stop],
            v=job.v[:, :, :stop],
            decay=None if job.decay is None else job.decay[:, :, :stop],
            seen=seen,
            rows=None if job.rows is None else job.rows[:, :, :, t : t + 1],
            log_scale=None if job.log_scale is None else job.log_scale[:, :, :, t : t + 1],
            negative=None if job.negative is None else job.negative.at(t),
        )
        rows.append(parallel(step))
    return Sums(
        torch.cat([row.numerator for row in rows], dim=3),
        torch.cat([row.row_sum for row in rows], dim=3) if job.wants_row_sum else None,  # type: ignore[misc]
        None if rows[0].log_scale is None else torch.cat([row.log_scale for row in rows], dim=3),  # type: ignore[misc]
    )
