"""What a write rule puts in place of the values: v′_i = value_i − rate_i · Σ_{j<i} a_ij v′_j.

The read Σ_{j<i} a_ij v′_j is a contraction of the spec's own kind, keys (or queries) against strictly earlier keys.
v′ solves a triangular system, (I + rate ⊙ A) V′ = value, which `kernels.writing` does in chunks or blocks. Its gradient
needs no other kernels: with λ the gradient of all that v′ does,

    λ = dV′ − Aᵀ (rate ⊙ λ)          the same system, from the end to the start
    d value = λ,   d rate_i = −λ_i · read_i,   and A gets the gradients of a contraction whose output has −rate ⊙ λ
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.work import Work


def written(work: Work) -> Work:
    """The same with v′ in place of the values of its new positions; a growing past holds v′ already."""
    spec, job, real = work.now.call.spec, work.job, work.now.new.key_mask
    rule = spec.write_rule
    if rule is None:
        return work
    past = job.past
    k = job.k[:, :, past:]
    scale = spec.score.scale if spec.score.scale is not None else k.shape[-1] ** -0.5
    q = job.q if rule.reads_with_query else (k if scale == 1 else k * scale)[:, :, None]
    own = torch.einsum("bktd,bktd->bkt", k, k) * scale
    if job.score.clamp is not None:
        own = own.clamp(max=job.score.clamp)
    gain, rate = rule.rates(work.now.call.tensors["beta"], job.score.series().differentiable(own))
    if real is not None:
        rate = rate.masked_fill(~real[:, None], 0)
    values = job.v[:, :, past:] if gain is None else job.v[:, :, past:] * gain[..., None]
    joined = torch.cat([job.v[:, :, :past], values], 2) if past else values
    reading = replace(job, q=q, v=joined, wants_row_sum=rule.normalised, negative=None)
    matrix, known = work.summed
    if matrix is not None:
        matrix = matrix[..., : joined.shape[-1] + rule.normalised]
    fitted = job.score.fit(reading, known, work.has_fixed_state)
    new = work.form.write(fitted, rate, matrix).to(job.v.dtype)
    return replace(work, job=replace(job, v=_put(job.v, new)))


def _put(v: Float[Tensor, "B K S E"], new: Float[Tensor, "B K T E"]) -> Float[Tensor, "B K S E"]:
    """The values with new ones at the end, in the memory of a decoding state where they stand in one."""
    past = v.shape[2] - new.shape[2]
    if not past:
        return new
    if torch.is_grad_enabled() and (v.requires_grad or new.requires_grad):
        return torch.cat([v[:, :, :past], new], 2)
    v[:, :, past:] = new
    return v
