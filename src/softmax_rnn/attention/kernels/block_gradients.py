"""The backward pass of `blockwise`: every block of weights is made again, used for four products and dropped.

With w the weights, dy and dr the gradients of the numerator and the row sum,

    dw = dy·vᵀ + dr     dv += wᵀ·dy     dx = dw ⊙ f'(x)     dq += dx·k     dk += dxᵀ·q

and those of the decay need no block: Σ_j dw_ij w_ij = dy_i·y_i + dr_i r_i and Σ_i dw_ij w_ij = du_j·u_j.
"""

from __future__ import annotations

import torch
from torch import Tensor

from softmax_rnn.attention.exponential import exp_
from softmax_rnn.attention.kernels.block import Block, QueryBlock, Work, relative_exp_
from softmax_rnn.attention.kernels.blocks import Group


class Gradients:
    """The gradients that are being filled, and those of the outputs."""

    def __init__(self, work: Work, d_numerator: Tensor, d_row_sum: Tensor | None) -> None:
        self.q = torch.empty_like(work.q)
        self.k = torch.zeros_like(work.k)
        self.v = torch.zeros_like(work.v)
        self.levels = None if work.levels is None else torch.empty_like(work.levels)
        self.d_numerator = d_numerator
        self.d_row_sum = d_row_sum
        # Σ_i w_ij dr_i: the gradient of the value column of ones; only the decay asks for it.
        needs_ones = work.decay is not None and d_row_sum is not None
        self.ones = torch.zeros_like(work.k[..., 0]) if needs_ones else None

    def of_decay(self, work: Work, numerator: Tensor, row_sum: Tensor | None) -> Tensor:
        """The gradient of the running log decay."""
        assert work.decay is not None
        at_query = (self.d_numerator * numerator).sum(-1).double()
        at_key = (self.v * work.v).sum(-1).double()
        if self.d_row_sum is not None and row_sum is not None and self.ones is not None:
            at_query += self.d_row_sum.double() * row_sum
            at_key += self.ones
        return work.decay.gradient(at_query.sum(1), at_key)


class _KeyGradients:
    """Gradients of the key blocks of one group; whole blocks in one piece make the matrix products twice as fast."""

    def __init__(self, work: Work, group: Group, wants_ones: bool) -> None:
        self.work, self.group, self.wants_ones = work, group, wants_ones
        self.blocks: dict[int, tuple[slice, Tensor, Tensor, Tensor | None]] = {}

    def of(self, block: Block) -> tuple[Tensor, Tensor, Tensor | None]:
        """dk, dv and the gradient of the ones of a block, to be added to."""
        keys = block.keys
        known = self.blocks.get(keys.start)
        if known is None or known[0].stop < keys.stop:
            fresh = (
                torch.zeros_like(block.k),
                torch.zeros_like(block.v),
                torch.zeros_like(block.k[..., :1]) if self.wants_ones else None,
            )
            if known is not None:  # the last query block of a past may end inside a key block
                for new, old in zip(fresh, known[1:], strict=True):
                    if new is not None and old is not None:
                        new[:, : old.shape[1]] = old
            known = self.blocks[keys.start] = (keys, *fresh)
        _, dk, dv, ones = known
        size = keys.stop - keys.start
        return dk[:, :size], dv[:, :size], None if ones is None else ones[:, :size]

    def write(self, grads: Gradients) -> None:
        """Write the blocks to their places."""
        for keys, dk, dv, ones in self.blocks.values():
            grads.k[self.group.heads, keys] = dk
            grads.v[self.group.heads, keys] = dv
            if ones is not None and grads.ones is not None:
                grads.ones[self.group.heads, keys] = ones[..., 0]


def walk_backward(work: Work, grads: Gradients, log_scale: Tensor | None) -> None:
    """Fill the gradients, block by block."""
    for group in work.setting.walk.groups():
        key_grads = _KeyGradients(work, group, grads.ones is not None)
        for row in work.query_blocks(group):
            row.write(grads.q, _query_gradient(row, grads, key_grads, log_scale))
        key_grads.write(grads)


def _query_gradient(row: QueryBlock, grads: Gradients, key_grads: _KeyGradients, log_scale: Tensor | None) -> Tensor:
    """dq of a block of queries; what it gives to keys and values is added there."""
    score = row.work.setting.score
    dy = row.rows_of(grads.d_numerator)
    dr = None if grads.d_row_sum is None else row.rows_of(grads.d_row_sum[..., None])
    scale = None if log_scale is None else row.rows_of(log_scale[..., None])
    if scale is not None and row.decay is not None:
        scale = (scale - row.decay).to(scale.dtype)
    dq = torch.zeros(row.q.shape, dtype=row.q.dtype, device=row.q.device)
    d_levels = None if row.levels is None else torch.zeros_like(row.levels)
    for block in row.blocks():
        if scale is not None and block.has_faded(scale):
            continue
        x = block.dots()
        dw = torch.bmm(dy, block.v.transpose(1, 2), out=block.scratch("dw"))
        if dr is not None:
            dw.add_(dr)
        d_weights = dw if d_levels is None or score.ceiling is None else dw.clone()
        score.cut_gradient_(dw, x)
        if row.work.setting.is_bounded:
            weights = slopes = exp_(block.logarithms_(x))
        elif scale is not None:
            weights = slopes = relative_exp_(block.logarithms_(x).sub_(scale))
        else:
            score.cut_(x)
            weights, slopes = row.series.value(x), row.series.slope(x)
            block.decay_and_mask_(weights, slopes)
        if d_levels is not None:
            block.pairs.add_sums_(d_levels, d_weights * weights)
            block.level_(*((weights,) if slopes is weights else (weights, slopes)))
        dk, dv, ones = key_grads.of(block)
        dv.baddbmm_(weights.transpose(1, 2), dy)
        if ones is not None and dr is not None:
            ones.baddbmm_(weights.transpose(1, 2), dr)
        dx = dw.mul_(slopes)
        dq.baddbmm_(dx, block.k)
        dk.baddbmm_(dx.transpose(1, 2), row.q)
    if d_levels is not None and grads.levels is not None:
        row.write(grads.levels, d_levels)
    return dq
