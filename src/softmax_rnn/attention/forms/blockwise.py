"""Any score in O(T) memory: blocks of weights are made, used and forgotten, and made again in the backward pass.

Of exp only exp(x − m) is ever formed, m the largest logarithm of the row so far; the sums made with an older m
are multiplied by exp(m_old − m_new).
"""

from __future__ import annotations

import torch
from torch import Tensor

from softmax_rnn.attention import scores
from softmax_rnn.attention.contraction import Contraction, Sums, largest_norm
from softmax_rnn.attention.forms.block_gradients import Gradients, walk_backward
from softmax_rnn.attention.forms.blocks import Masks, Walk
from softmax_rnn.attention.forms.weights import Inputs, Setting, clamp_, dots, exp_, fade_, logarithms, polynomial


def blockwise(job: Contraction) -> Sums:
    """The sums of `parallel`, block by block."""
    batch, kv_heads, groups, queries, _ = job.q.shape
    walk = Walk(batch, kv_heads, groups, queries, job.k.shape[2], job.seen, job.q.device)
    setting = Setting(job.score, walk, job.wants_row_sum, job.negative, _largest_score(job))
    flat = [None if x is None else x.flatten(0, 1) for x in (job.q, job.k, job.v, job.decay, job.rows)]
    numerator, row_sum, log_scale = _Blockwise.apply(*flat, setting)  # type: ignore[misc]
    shape = (batch, kv_heads)
    return Sums(
        numerator.unflatten(0, shape),
        None if row_sum is None else row_sum.unflatten(0, shape),
        job.log_scale if log_scale is None else log_scale.unflatten(0, shape),
    )


def _largest_score(job: Contraction) -> float:
    if job.score.clamp is not None or job.decay is None:
        return job.score.clamp or 0.0
    return float(largest_norm(job.q.flatten(2, 3)).max()) * float(largest_norm(job.k).max())


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, decay, rows, setting: Setting):  # type: ignore[override]
        inputs = Inputs(q.contiguous(), k.contiguous(), v.contiguous(), decay, rows)
        forward = _exp_forward if setting.is_exp else _polynomial_forward
        numerator, row_sum, log_scale = forward(inputs, setting)
        # The sums themselves are needed again only for the gradient of the decay.
        sums = (None, None) if decay is None else (numerator, row_sum)
        ctx.save_for_backward(q, k, v, decay, rows, *sums, log_scale)
        ctx.setting = setting
        if log_scale is not None:
            ctx.mark_non_differentiable(log_scale)
        ctx.set_materialize_grads(False)
        return numerator, row_sum, log_scale

    @staticmethod
    def backward(ctx, d_numerator, d_row_sum, _):  # type: ignore[override]
        q, k, v, decay, rows, numerator, row_sum, log_scale = ctx.saved_tensors
        inputs = Inputs(q.contiguous(), k.contiguous(), v.contiguous(), decay, rows)
        if d_numerator is None:
            d_numerator = q.new_zeros(*q.shape[:3], v.shape[-1])
        grads = Gradients(inputs, d_numerator.contiguous(), d_row_sum)
        walk_backward(inputs, grads, log_scale, ctx.setting)
        d_decay = None
        if decay is not None:
            d_decay = grads.of_decay(inputs, numerator, row_sum, ctx.setting.walk.past)
        return grads.q, grads.k, grads.v, d_decay, None, None


def _empty_sums(inputs: Inputs, setting: Setting) -> tuple[Tensor, Tensor | None]:
    q, v = inputs.q, inputs.v
    numerator = q.new_empty(*q.shape[:3], v.shape[-1])
    return numerator, q.new_empty(q.shape[:3]) if setting.wants_row_sum else None


def _exp_forward(inputs: Inputs, setting: Setting) -> tuple[Tensor, Tensor | None, Tensor]:
    walk = setting.walk
    numerator, row_sum = _empty_sums(inputs, setting)
    log_scale = inputs.q.new_empty(inputs.q.shape[:3])
    scratch, masks = walk.scratch(inputs.q), Masks(walk, inputs.q)
    lowest = torch.finfo(inputs.q.dtype).min / 2
    for group in walk.groups():
        for queries in walk.query_blocks():
            q = inputs.rows_of(inputs.q, group, queries)
            total = q.new_zeros(group.count, q.shape[1], inputs.v.shape[-1])
            mass = q.new_zeros(group.count, q.shape[1], 1)
            largest = q.new_full((group.count, q.shape[1], 1), lowest)
            # The nearest keys first: where the past has faded, the rest is known to be negligible.
            for keys in reversed(list(walk.key_blocks(group, queries))):
                if inputs.has_faded(group, queries, keys, setting, largest):
                    continue
                x = logarithms(inputs, setting, scratch, masks, group, queries, keys, q)
                newest = torch.maximum(largest, x.amax(-1, keepdim=True))
                weights = exp_(x.sub_(newest))
                fade = torch.exp(largest - newest)
                total.mul_(fade).baddbmm_(weights, inputs.v[group.heads, keys])
                if row_sum is not None:
                    mass.mul_(fade).add_(weights.sum(-1, keepdim=True))
                largest = newest
            size = queries.stop - queries.start
            numerator[group.heads, :, queries] = total.unflatten(1, (-1, size))
            own = inputs.decay_at_queries(group, queries, walk.past)
            # A row that saw no key has nothing to scale.
            scale = torch.where(largest > lowest, largest if own is None else largest + own, 0)
            log_scale[group.heads, :, queries] = scale.view(group.count, -1, size)
            if row_sum is not None:
                row_sum[group.heads, :, queries] = mass.view(group.count, -1, size)
    return numerator, row_sum, log_scale


def _polynomial_forward(inputs: Inputs, setting: Setting) -> tuple[Tensor, Tensor | None, None]:
    walk = setting.walk
    numerator, row_sum = _empty_sums(inputs, setting)
    scratch, masks = walk.scratch(inputs.q), Masks(walk, inputs.q)
    for group in walk.groups():
        for queries in walk.query_blocks():
            q = inputs.rows_of(inputs.q, group, queries)
            total = q.new_zeros(group.count, q.shape[1], inputs.v.shape[-1])
            mass = q.new_zeros(group.count, q.shape[1])
            for keys in walk.key_blocks(group, queries):
                x = clamp_(dots(inputs, scratch, group, keys, q), setting.score.clamp)
                weights = polynomial(inputs, setting, scores.value, group, queries, x)
                fade_(inputs, setting, masks, group, queries, keys, weights)
                if setting.negative is not None:
                    setting.negative.see(weights, group.heads, queries)
                total.baddbmm_(weights, inputs.v[group.heads, keys])
                if row_sum is not None:
                    mass.add_(weights.sum(-1))
            size = queries.stop - queries.start
            numerator[group.heads, :, queries] = total.unflatten(1, (-1, size))
            if row_sum is not None:
                row_sum[group.heads, :, queries] = mass.unflatten(1, (-1, size))
    return numerator, row_sum, None
