"""Any score in O(T) memory: blocks of weights are made, used and forgotten, and made again in the backward pass.

Of exp only exp(x − m) is ever formed, m the largest logarithm of the row so far; the sums made with an older m
are multiplied by exp(m_old − m_new). With w the weights, the gradients are, block by block,

    dw = dy·vᵀ + dr     dv += wᵀ·dy     dx = dw ⊙ f'(x)     dq += dx·k     dk += dxᵀ·q

and those of the decay need no block: Σ_j dw_ij w_ij = dy_i·y_i + dr_i r_i and Σ_i dw_ij w_ij = du_j·u_j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from softmax_rnn.attention import scores
from softmax_rnn.attention.contraction import Contraction, NegativeRows, Sums, largest_norm
from softmax_rnn.attention.forms.blocks import Group, Masks, Scratch, Walk
from softmax_rnn.attention.spec import Exp, Score


def blockwise(job: Contraction) -> Sums:
    """The sums of `parallel`, block by block."""
    batch, kv_heads, groups, queries, _ = job.q.shape
    walk = Walk(batch, kv_heads, groups, queries, job.k.shape[2], job.seen, job.q.device)
    setting = _Setting(job.score, walk, job.wants_row_sum, job.negative, _largest_score(job))
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


@dataclass(frozen=True)
class _Setting:
    score: Score
    walk: Walk
    wants_row_sum: bool
    negative: NegativeRows | None
    largest_score: float
    """No score is larger: the clamp, or |q||k|. Only the decay asks for it."""

    @property
    def is_exp(self) -> bool:
        return isinstance(self.score, Exp)


@dataclass
class _Inputs:
    """The flattened tensors: q (N, G, Tq, D), k (N, T, D), v (N, T, E), decay (N, T), rows (N, G, Tq, O)."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor | None
    rows: Tensor | None

    def rows_of(self, x: Tensor, group: Group, queries: slice) -> Tensor:
        """A block of queries with the heads of a group side by side: (heads, G · queries, …)."""
        return x[group.heads, :, queries].flatten(1, 2)

    def has_faded(self, group: Group, queries: slice, keys: slice, setting: _Setting, reduced: Tensor) -> bool:
        """Whether every weight of a block is negligible beside the largest of its row, by the decay alone."""
        at_key = self.decay_at_keys(group, queries, keys, setting.walk.past)
        if at_key is None:
            return False
        largest = setting.largest_score - float(at_key.min()) - float(reduced.min())
        return largest < NEGLIGIBLE_LOG[self.q.dtype]

    def decay_at_keys(self, group: Group, queries: slice, keys: slice, past: int) -> Tensor | None:
        """decay_j from the origin of the query block, so that the difference of two large numbers is taken once."""
        if self.decay is None:
            return None
        decay = self.decay[group.heads]
        return (decay[:, keys] - decay[:, past + queries.start, None]).to(self.q.dtype)[:, None]

    def decay_at_queries(self, group: Group, queries: slice, past: int) -> Tensor | None:
        """decay_i from the same origin, as rows of a block."""
        if self.decay is None:
            return None
        decay = self.decay[group.heads, past + queries.start : past + queries.stop]
        return (decay - decay[:, :1]).to(self.q.dtype).repeat(1, self.q.shape[1])[..., None]


def _clamp_(x: Tensor, clamp: float | None) -> Tensor:
    return x if clamp is None else x.clamp_(max=clamp)


NEGLIGIBLE_LOG = {torch.float32: -60.0, torch.float64: -600.0}
"""A weight smaller than this part of its row's largest vanishes in every sum. Made 0, for the products of such
numbers would be subnormal, and processors take a hundred times as long for those."""


def _exp_(x: Tensor) -> Tensor:
    """exp of logarithms whose row has its largest at 0, in place."""
    return torch.threshold_(x, NEGLIGIBLE_LOG[x.dtype], -torch.inf).exp_()


def _zero_above_(grad: Tensor, x: Tensor, clamp: float) -> None:
    """The gradient of the clamp, in place: 0 where x is cut. One pass, while boolean masks cost five."""
    above = math.nextafter(clamp, math.inf) if x.dtype == torch.float64 else _next_float32(clamp)
    torch.ops.aten.hardtanh_backward.grad_input(grad, x, -torch.inf, above, grad_input=grad)


def _next_float32(value: float) -> float:
    number = torch.tensor(value, dtype=torch.float32)
    return float(torch.nextafter(number, torch.tensor(torch.inf)))


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, decay, rows, setting: _Setting):  # type: ignore[override]
        inputs = _Inputs(q.contiguous(), k.contiguous(), v.contiguous(), decay, rows)
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
        inputs = _Inputs(q.contiguous(), k.contiguous(), v.contiguous(), decay, rows)
        if d_numerator is None:
            d_numerator = q.new_zeros(*q.shape[:3], v.shape[-1])
        grads = _Gradients(inputs, d_numerator.contiguous(), d_row_sum)
        _walk_backward(inputs, grads, log_scale, ctx.setting)
        d_decay = None
        if decay is not None:
            d_decay = grads.of_decay(inputs, numerator, row_sum, ctx.setting.walk.past)
        return grads.q, grads.k, grads.v, d_decay, None, None


def _empty_sums(inputs: _Inputs, setting: _Setting) -> tuple[Tensor, Tensor | None]:
    q, v = inputs.q, inputs.v
    numerator = q.new_empty(*q.shape[:3], v.shape[-1])
    return numerator, q.new_empty(q.shape[:3]) if setting.wants_row_sum else None


def _exp_forward(inputs: _Inputs, setting: _Setting) -> tuple[Tensor, Tensor | None, Tensor]:
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
                x = _logarithms(inputs, setting, scratch, masks, group, queries, keys, q)
                newest = torch.maximum(largest, x.amax(-1, keepdim=True))
                weights = _exp_(x.sub_(newest))
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


def _logarithms(
    inputs: _Inputs,
    setting: _Setting,
    scratch: Scratch,
    masks: Masks,
    group: Group,
    queries: slice,
    keys: slice,
    q: Tensor,
) -> Tensor:
    """log of the weights of a block, up to the row's own decay: the clamped score, the key's decay and the mask."""
    x = _dots(inputs, scratch, group, keys, q)
    return _finish_logarithms(inputs, setting, masks, group, queries, keys, x)


def _dots(inputs: _Inputs, scratch: Scratch, group: Group, keys: slice, q: Tensor) -> Tensor:
    x = scratch.block("x", group.count, q.shape[1], keys.stop - keys.start)
    return torch.bmm(q, inputs.k[group.heads, keys].transpose(1, 2), out=x)


def _finish_logarithms(
    inputs: _Inputs, setting: _Setting, masks: Masks, group: Group, queries: slice, keys: slice, x: Tensor
) -> Tensor:
    _clamp_(x, setting.score.clamp)
    at_key = inputs.decay_at_keys(group, queries, keys, setting.walk.past)
    if at_key is not None:
        x.sub_(at_key)
    masks.add(masks.of(group, queries, keys), x, queries)
    return x


def _polynomial_forward(inputs: _Inputs, setting: _Setting) -> tuple[Tensor, Tensor | None, None]:
    walk = setting.walk
    numerator, row_sum = _empty_sums(inputs, setting)
    scratch, masks = walk.scratch(inputs.q), Masks(walk, inputs.q)
    for group in walk.groups():
        for queries in walk.query_blocks():
            q = inputs.rows_of(inputs.q, group, queries)
            total = q.new_zeros(group.count, q.shape[1], inputs.v.shape[-1])
            mass = q.new_zeros(group.count, q.shape[1])
            for keys in walk.key_blocks(group, queries):
                x = _clamp_(_dots(inputs, scratch, group, keys, q), setting.score.clamp)
                weights = _polynomial(inputs, setting, scores.value, group, queries, x)
                _fade_(inputs, setting, masks, group, queries, keys, weights)
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


def _polynomial(inputs: _Inputs, setting: _Setting, function, group: Group, queries: slice, x: Tensor) -> Tensor:
    rows = None if inputs.rows is None else inputs.rows_of(inputs.rows, group, queries)
    return function(setting.score, x, rows)


def _fade_(
    inputs: _Inputs,
    setting: _Setting,
    masks: Masks,
    group: Group,
    queries: slice,
    keys: slice,
    *blocks: Tensor,
) -> None:
    """Multiply blocks of a polynomial's weights by decay and mask, in place."""
    mask = masks.of(group, queries, keys)
    own = inputs.decay_at_queries(group, queries, setting.walk.past)
    at_key = inputs.decay_at_keys(group, queries, keys, setting.walk.past)
    if mask is None and own is None:
        return
    logarithm = torch.zeros_like(blocks[0]) if own is None or at_key is None else own - at_key
    masks.add(mask, logarithm, queries)
    factor = logarithm.exp_()
    for block in blocks:
        block.mul_(factor)


class _Gradients:
    """The gradients in the making, and those that came from above."""

    def __init__(self, inputs: _Inputs, d_numerator: Tensor, d_row_sum: Tensor | None) -> None:
        self.q = torch.empty_like(inputs.q)
        self.k = torch.zeros_like(inputs.k)
        self.v = torch.zeros_like(inputs.v)
        self.d_numerator = d_numerator
        self.d_row_sum = d_row_sum
        # Σ_i w_ij dr_i: the gradient of the value column of ones; only the decay asks for it.
        needs_ones = inputs.decay is not None and d_row_sum is not None
        self.ones = torch.zeros_like(inputs.k[..., 0]) if needs_ones else None

    def of_decay(self, inputs: _Inputs, numerator: Tensor, row_sum: Tensor | None, past: int) -> Tensor:
        """The gradient of the running log decay."""
        assert inputs.decay is not None
        at_query = (self.d_numerator * numerator).sum(-1).double()
        at_key = (self.v * inputs.v).sum(-1).double()
        if self.d_row_sum is not None and row_sum is not None and self.ones is not None:
            at_query += self.d_row_sum.double() * row_sum
            at_key += self.ones
        grad = -at_key
        grad[:, past:] += at_query.sum(1)
        return grad.to(inputs.decay.dtype)


class _KeyGradients:
    """Gradients of the key blocks of one group; whole blocks in one piece make the matrix products twice as fast."""

    def __init__(self, inputs: _Inputs, group: Group, wants_ones: bool) -> None:
        self.inputs, self.group, self.wants_ones = inputs, group, wants_ones
        self.blocks: dict[int, tuple[slice, Tensor, Tensor, Tensor | None]] = {}

    def of(self, keys: slice) -> tuple[Tensor, Tensor, Tensor | None]:
        """dk, dv and the gradient of the ones of a block, to be added to."""
        found = self.blocks.get(keys.start)
        if found is None or found[0].stop < keys.stop:
            k, v = self.inputs.k[self.group.heads, keys], self.inputs.v[self.group.heads, keys]
            fresh = (
                torch.zeros_like(k),
                torch.zeros_like(v),
                torch.zeros_like(k[..., :1]) if self.wants_ones else None,
            )
            if found is not None:  # the last query block of a past may end inside a key block
                for new, old in zip(fresh, found[1:], strict=True):
                    if new is not None and old is not None:
                        new[:, : old.shape[1]] = old
            found = self.blocks[keys.start] = (keys, *fresh)
        _, dk, dv, ones = found
        size = keys.stop - keys.start
        return dk[:, :size], dv[:, :size], None if ones is None else ones[:, :size]

    def write(self, grads: _Gradients) -> None:
        """Put the blocks where they belong."""
        for keys, dk, dv, ones in self.blocks.values():
            grads.k[self.group.heads, keys] = dk
            grads.v[self.group.heads, keys] = dv
            if ones is not None and grads.ones is not None:
                grads.ones[self.group.heads, keys] = ones[..., 0]


def _walk_backward(inputs: _Inputs, grads: _Gradients, log_scale: Tensor | None, setting: _Setting) -> None:
    walk = setting.walk
    scratch, masks = walk.scratch(inputs.q), Masks(walk, inputs.q)
    for group in walk.groups():
        key_grads = _KeyGradients(inputs, group, grads.ones is not None)
        for queries in walk.query_blocks():
            q = inputs.rows_of(inputs.q, group, queries)
            dy = inputs.rows_of(grads.d_numerator, group, queries)
            dr = None if grads.d_row_sum is None else inputs.rows_of(grads.d_row_sum[..., None], group, queries)
            scale = None if log_scale is None else inputs.rows_of(log_scale[..., None], group, queries)
            own = inputs.decay_at_queries(group, queries, walk.past)
            if scale is not None and own is not None:
                scale = scale - own
            dq = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
            for keys in walk.key_blocks(group, queries):
                if scale is not None and inputs.has_faded(group, queries, keys, setting, scale):
                    continue
                k, v = inputs.k[group.heads, keys], inputs.v[group.heads, keys]
                x = _dots(inputs, scratch, group, keys, q)
                dw = torch.bmm(dy, v.transpose(1, 2), out=scratch.block("dw", *x.shape))
                if dr is not None:
                    dw.add_(dr)
                if setting.score.clamp is not None:
                    _zero_above_(dw, x, setting.score.clamp)
                if scale is not None:
                    x = _finish_logarithms(inputs, setting, masks, group, queries, keys, x)
                    weights = slopes = _exp_(x.sub_(scale))
                else:
                    _clamp_(x, setting.score.clamp)
                    weights = _polynomial(inputs, setting, scores.value, group, queries, x)
                    slopes = _polynomial(inputs, setting, scores.slope, group, queries, x)
                    _fade_(inputs, setting, masks, group, queries, keys, weights, slopes)
                dk, dv, ones = key_grads.of(keys)
                dv.baddbmm_(weights.transpose(1, 2), dy)
                if ones is not None and dr is not None:
                    ones.baddbmm_(weights.transpose(1, 2), dr)
                dx = dw.mul_(slopes)
                dq.baddbmm_(dx, k)
                dk.baddbmm_(dx.transpose(1, 2), q)
            grads.q[group.heads, :, queries] = dq.unflatten(1, (-1, queries.stop - queries.start))
        key_grads.write(grads)
