"""Exact near, compressed far: exp on window and sinks, the spec's polynomial on the keys that have left the window.

Two contractions over disjoint sets of keys. At most one key leaves the window at each position, so the far one is an
ordinary causal contraction of the queries with keys that arrive late, each when it leaves: every form serves it, and
its state lags behind the window.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.fitting import KeySummary
from softmax_rnn.attention.forms import Form
from softmax_rnn.attention.kernels.blockwise import blockwise
from softmax_rnn.attention.kernels.parallel import parallel
from softmax_rnn.attention.kernels.recurrent import through_keys
from softmax_rnn.attention.looking import may_look
from softmax_rnn.attention.parts import Exp, NearKeys
from softmax_rnn.attention.state import NearFarState
from softmax_rnn.attention.visibility import Visibility


def _triton(job: Contraction) -> Sums:
    from softmax_rnn.attention.kernels.triton.run import with_keys

    return with_keys(job)


_NEAR = {
    "triton": _triton,
    "parallel": parallel,
    "blockwise": blockwise,
    "chunked": blockwise,
    "recurrent": through_keys,
}


def near_and_far(
    job: Contraction,
    near_q: Float[Tensor, "B K G Tq D"],
    structure: NearKeys,
    state: NearFarState | None,
    form: Form,
    *,
    has_fixed_state: bool,
    keep_state: bool,
) -> tuple[Sums, Tensor | None, KeySummary]:
    """The sums of both contractions, the matrix of the far one after them, and what is known of its keys.

    Where a feature map changes the keys, those of ``job`` are the plain ones, which the near part reads, and the
    mapped ones side by side.
    """
    far_dim = job.q.shape[-1]
    mapped = job.k.shape[-1] > near_q.shape[-1]
    near_k, far_k = (job.k[..., :-far_dim], job.k[..., -far_dim:]) if mapped else (job.k, job.k)
    near = _NEAR[form.name](replace(job, score=Exp(), q=near_q, k=near_k, negative=None))
    before = KeySummary() if state is None else KeySummary(state.key_norm, state.extent)
    past = None if state is None else state.lengths
    has_left, arriving = _far(replace(job, k=far_k), structure, past)
    fitted = job.score.fit(arriving, before, has_fixed_state)
    far, matrix = form.run(fitted, None if state is None else state.matrix, keep_state)
    nothing_left = may_look(has_left) and not bool(has_left.any())
    return (near if nothing_left else _joined(near, far, has_left[:, None, None])), matrix, fitted.summary


def _far(
    job: Contraction, structure: NearKeys, before: Int[Tensor, " B"] | None
) -> tuple[Bool[Tensor, "B Tq"], Contraction]:
    """Which queries have far keys, ``before`` so many were seen; and the far part as an ordinary contraction: at each
    position arrives the key that leaves the window there.
    """
    past, time = job.past, job.k.shape[2]
    index, valid, has_left = _leaving(job.visibility, structure, past, time, job.k)
    if before is not None:
        has_left = has_left | (before > structure.near)[:, None]
    place = index[:, None, :, None]
    k = job.k.gather(2, place.expand(-1, job.k.shape[1], -1, job.k.shape[3]))
    v = job.v
    if job.wants_row_sum:
        v = torch.cat([v, v.new_ones(*v.shape[:-1], 1)], dim=-1)
    v = v.gather(2, place.expand(-1, v.shape[1], -1, v.shape[3]))
    decay = None
    if job.decay is not None:
        assert isinstance(job.decay, RunningDecay), "a decay per channel is refused"
        c = job.decay.c
        now, then = c[..., past:], c.gather(2, index[:, None].expand(-1, c.shape[1], -1))
        late = torch.where(valid[:, None], now - then, 0)
        v = v * torch.exp(late).to(v.dtype)[..., None]
        decay = RunningDecay(now - c[..., past - 1 : past] if past else now)
    first_key = None if job.visibility.first_key is None else job.visibility.first_key[:, past:]
    seen = Visibility(None if may_look(valid) and bool(valid.all()) else valid, first_key)
    return has_left, replace(job, k=k, v=v, decay=decay, visibility=seen, wants_row_sum=False)


def _leaving(
    seen: Visibility, structure: NearKeys, past: int, time: int, like: Tensor
) -> tuple[Int[Tensor, "B Tq"], Bool[Tensor, "B Tq"], Bool[Tensor, "B Tq"]]:
    """The key that leaves the window at each new position, whether one does, and whether one has by then."""
    batch, device = like.shape[0], like.device
    if seen.is_plain:
        index = torch.arange(past - structure.width, time - structure.width, device=device).expand(batch, -1)
        return index.clamp(min=0), index >= structure.sinks, index >= structure.sinks
    real = seen.key_mask
    if real is None:
        real = torch.ones(batch, time, dtype=torch.bool, device=device)
    counted = real.cumsum(-1)
    first = torch.zeros_like(counted) if seen.first_key is None else seen.first_key
    before = torch.nn.functional.pad(counted, (1, 0)).gather(1, first)[:, past:]
    number = counted[:, past:] - structure.width
    has_left = number > before + structure.sinks
    index = torch.searchsorted(counted, number.contiguous()).clamp(max=time - 1)
    return index, real[:, past:] & has_left, has_left


def _joined(near: Sums, far: Sums, has_far: Bool[Tensor, "B 1 1 Tq"]) -> Sums:
    """Both parts in the units of the larger one; where there is no far key, in those of the near part."""
    assert near.log_scale is not None
    far_scale = torch.zeros_like(near.log_scale) if far.log_scale is None else far.log_scale
    far_scale = torch.where(has_far, far_scale, torch.finfo(far_scale.dtype).min)
    scale = torch.maximum(near.log_scale.to(far_scale.dtype), far_scale)
    here, there = torch.exp(near.log_scale - scale), torch.exp(far_scale - scale)
    dim = near.numerator.shape[-1]
    total = near.numerator * here[..., None] + far.numerator[..., :dim] * there[..., None]
    row_sum = None if near.row_sum is None else near.row_sum * here + far.numerator[..., dim] * there
    return Sums(total, row_sum, scale)
