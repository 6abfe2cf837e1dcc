"""The backward pass of `blockwise`: every block of weights is made again, used for four products and forgotten.

With w the weights, dy and dr the gradients of the numerator and the row sum,

    dw = dy·vᵀ + dr     dv += wᵀ·dy     dx = dw ⊙ f'(x)     dq += dx·k     dk += dxᵀ·q

and those of the decay need no block: Σ_j dw_ij w_ij = dy_i·y_i + dr_i r_i and Σ_i dw_ij w_ij = du_j·u_j.
"""

from __future__ import annotations

import torch
from torch import Tensor

from softmax_rnn.attention import scores
from softmax_rnn.attention.forms.blocks import Group, Masks
from softmax_rnn.attention.forms.weights import (
    Inputs,
    Setting,
    clamp_,
    dots,
    exp_,
    fade_,
    finish_logarithms,
    polynomial,
    zero_above_,
)


class Gradients:
    """The gradients in the making, and those that came from above."""

    def __init__(self, inputs: Inputs, d_numerator: Tensor, d_row_sum: Tensor | None) -> None:
        self.q = torch.empty_like(inputs.q)
        self.k = torch.zeros_like(inputs.k)
        self.v = torch.zeros_like(inputs.v)
        self.d_numerator = d_numerator
        self.d_row_sum = d_row_sum
        # Σ_i w_ij dr_i: the gradient of the value column of ones; only the decay asks for it.
        needs_ones = inputs.decay is not None and d_row_sum is not None
        self.ones = torch.zeros_like(inputs.k[..., 0]) if needs_ones else None

    def of_decay(self, inputs: Inputs, numerator: Tensor, row_sum: Tensor | None, past: int) -> Tensor:
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

    def __init__(self, inputs: Inputs, group: Group, wants_ones: bool) -> None:
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

    def write(self, grads: Gradients) -> None:
        """Put the blocks where they belong."""
        for keys, dk, dv, ones in self.blocks.values():
            grads.k[self.group.heads, keys] = dk
            grads.v[self.group.heads, keys] = dv
            if ones is not None and grads.ones is not None:
                grads.ones[self.group.heads, keys] = ones[..., 0]


def walk_backward(inputs: Inputs, grads: Gradients, log_scale: Tensor | None, setting: Setting) -> None:
    """Fill the gradients, block by block."""
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
                x = dots(inputs, scratch, group, keys, q)
                dw = torch.bmm(dy, v.transpose(1, 2), out=scratch.block("dw", *x.shape))
                if dr is not None:
                    dw.add_(dr)
                if setting.score.clamp is not None:
                    zero_above_(dw, x, setting.score.clamp)
                if scale is not None:
                    x = finish_logarithms(inputs, setting, masks, group, queries, keys, x)
                    weights = slopes = exp_(x.sub_(scale))
                else:
                    clamp_(x, setting.score.clamp)
                    weights = polynomial(inputs, setting, scores.value, group, queries, x)
                    slopes = polynomial(inputs, setting, scores.slope, group, queries, x)
                    fade_(inputs, setting, masks, group, queries, keys, weights, slopes)
                dk, dv, ones = key_grads.of(keys)
                dv.baddbmm_(weights.transpose(1, 2), dy)
                if ones is not None and dr is not None:
                    ones.baddbmm_(weights.transpose(1, 2), dr)
                dx = dw.mul_(slopes)
                dq.baddbmm_(dx, k)
                dk.baddbmm_(dx.transpose(1, 2), q)
            grads.q[group.heads, :, queries] = dq.unflatten(1, (-1, queries.stop - queries.start))
        key_grads.write(grads)
