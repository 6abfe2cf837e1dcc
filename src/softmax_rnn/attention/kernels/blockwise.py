"""Any score in O(T) memory: blocks of weights are made, used and dropped, and made again in the backward pass.

For exp, only exp(x − m) is ever computed, m the largest logarithm of the row so far; the sums made with an older m
are multiplied by exp(m_old − m_new).
"""

from __future__ import annotations

import torch
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.exponential import exp_
from softmax_rnn.attention.fitting import largest_norm
from softmax_rnn.attention.host_sync import may_sync, traced
from softmax_rnn.attention.kernels.block import SMALL_SCORE, Setting, Work, relative_exp_
from softmax_rnn.attention.kernels.block_gradients import Gradients, walk_backward
from softmax_rnn.attention.kernels.blocks import Walk
from softmax_rnn.attention.levels import LevelTables
from softmax_rnn.attention.second_derivative import once


def blockwise(job: Contraction) -> Sums:
    """The sums of `parallel`, block by block."""
    shape = job.q.shape[:2]
    decay = None if job.running_decay is None else job.running_decay.c
    levels = None if job.levels is None else job.levels.weights
    flat = [None if x is None else x.flatten(0, 1) for x in (job.q, job.k, job.v, decay, levels, job.rows)]
    if traced(job.q):
        from softmax_rnn.attention.kernels.operators import blockwise_sums

        numerator, row_sum, log_scale = blockwise_sums(job, flat)
    else:
        numerator, row_sum, log_scale = _Blockwise.apply(*flat, setting_of(job))  # type: ignore[misc]
    return Sums(
        numerator.unflatten(0, shape),
        None if row_sum is None else row_sum.unflatten(0, shape),
        job.log_scale if log_scale is None else log_scale.unflatten(0, shape),
    )


def setting_of(job: Contraction) -> Setting:
    """What stays the same for all blocks."""
    batch, kv_heads, groups, queries, _ = job.q.shape
    levels = job.levels
    row_by_row = levels is not None and levels.rows_differ
    walk = Walk(
        batch, kv_heads, groups, queries, job.k.shape[2], job.visibility, job.q.device, levels is not None, row_by_row
    )
    tables = None if levels is None else LevelTables(levels)
    return Setting(
        job.score, walk, job.wants_row_sum, job.negative, _largest_score(job), tables, _scores_are_small(job)
    )


def _scores_are_small(job: Contraction) -> bool:
    """Whether |q||k| bounds the logarithms of all weights, and is small."""
    if not job.score.is_exponential or job.reads_largest or not may_sync(job.q):
        return False
    if job.decay is not None or job.levels is not None:
        return False
    return float(largest_norm(job.q.flatten(2, 3)).max()) * float(largest_norm(job.k).max()) <= SMALL_SCORE


def _largest_score(job: Contraction) -> float:
    if job.score.ceiling is not None or job.decay is None or not may_sync(job.q):
        return job.score.ceiling or 0.0
    return float(largest_norm(job.q.flatten(2, 3)).max()) * float(largest_norm(job.k).max())


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, decay, levels, rows, setting: Setting):  # type: ignore[override]
        numerator, row_sum, log_scale = walk_forward(work_of(q, k, v, decay, levels, rows, setting))
        # The sums themselves are needed again only for the gradient of the decay.
        sums = (None, None) if decay is None else (numerator, row_sum)
        ctx.save_for_backward(q, k, v, decay, levels, rows, *sums, log_scale)
        ctx.setting = setting
        if log_scale is not None:
            ctx.mark_non_differentiable(log_scale)
        ctx.set_materialize_grads(False)
        return numerator, row_sum, log_scale

    @staticmethod
    @once("blockwise")
    def backward(ctx, d_numerator, d_row_sum, _):  # type: ignore[override]
        q, k, v, decay, levels, rows, *sums = ctx.saved_tensors
        work = work_of(q, k, v, decay, levels, rows, ctx.setting)
        if d_numerator is None:
            d_numerator = q.new_zeros(*q.shape[:3], v.shape[-1])
        return *gradients(work, *sums, d_numerator, d_row_sum), None, None  # pyright: ignore[reportCallIssue]


def work_of(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    levels: Tensor | None,
    rows: Tensor | None,
    setting: Setting,
) -> Work:
    """One pass over these tensors."""
    return Work(q, k, v, None if decay is None else RunningDecay(decay), rows, setting, levels)


def walk_forward(work: Work) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Numerator, row sum and log_scale."""
    if work.setting.is_bounded:
        return _bounded_exp_forward(work)
    return _exp_forward(work) if work.setting.score.is_exponential else _forward(work)


def gradients(
    work: Work,
    numerator: Tensor | None,
    row_sum: Tensor | None,
    log_scale: Tensor | None,
    d_numerator: Tensor,
    d_row_sum: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Those of q, k, v, the decay and λ; the sums are read where there is a decay."""
    grads = Gradients(work, d_numerator.contiguous(), d_row_sum)
    walk_backward(work, grads, log_scale)
    d_decay = None
    if work.decay is not None:
        assert numerator is not None
        d_decay = grads.of_decay(work, numerator, row_sum)
    return grads.q, grads.k, grads.v, d_decay, grads.levels


def _empty_sums(work: Work) -> tuple[Tensor, Tensor | None]:
    shape = work.q.shape[:3]
    return work.q.new_empty(*shape, work.v.shape[-1]), work.q.new_empty(shape) if work.setting.wants_row_sum else None


def _bounded_exp_forward(work: Work) -> tuple[Tensor, Tensor | None, Tensor]:
    """Scores that are known to be small: three passes over a block in place of six."""
    numerator, row_sum = _empty_sums(work)
    for group in work.setting.walk.groups():
        for row in work.query_blocks(group):
            total = row.q.new_zeros(*row.q.shape[:2], work.v.shape[-1])
            mass = row.q.new_zeros(row.q.shape[:2])
            for block in row.blocks():
                weights = exp_(block.logarithms_(block.dots()))
                total.baddbmm_(weights, block.v)
                if row_sum is not None:
                    mass.add_(weights.sum(-1))
            row.write(numerator, total)
            if row_sum is not None:
                row.write(row_sum, mass)
    return numerator, row_sum, work.q.new_zeros(work.q.shape[:3])


def _exp_forward(work: Work) -> tuple[Tensor, Tensor | None, Tensor]:
    numerator, row_sum = _empty_sums(work)
    log_scale = work.q.new_empty(work.q.shape[:3])
    lowest = torch.finfo(work.q.dtype).min / 2
    for group in work.setting.walk.groups():
        for row in work.query_blocks(group):
            total = row.q.new_zeros(*row.q.shape[:2], work.v.shape[-1])
            mass = row.q.new_zeros(*row.q.shape[:2], 1)
            largest = row.q.new_full((*row.q.shape[:2], 1), lowest)
            # The nearest keys first: where the past has faded, the rest is known to be negligible.
            for block in reversed(row.blocks()):
                if block.has_faded(largest):
                    continue
                x = block.logarithms_(block.dots())
                newest = torch.maximum(largest, x.amax(-1, keepdim=True))
                weights = relative_exp_(x.sub_(newest))
                block.level_(weights)
                shrink = torch.exp(largest - newest)
                total.mul_(shrink).baddbmm_(weights, block.v)
                if row_sum is not None:
                    mass.mul_(shrink).add_(weights.sum(-1, keepdim=True))
                largest = newest
            row.write(numerator, total)
            # A row that saw no key has nothing to scale.
            scale = torch.where(largest > lowest, largest if row.decay is None else largest + row.decay, 0)
            row.write(log_scale, scale[..., 0])
            if row_sum is not None:
                row.write(row_sum, mass[..., 0])
    return numerator, row_sum, log_scale


def _forward(work: Work) -> tuple[Tensor, Tensor | None, None]:
    numerator, row_sum = _empty_sums(work)
    negative = work.setting.negative
    for group in work.setting.walk.groups():
        for row in work.query_blocks(group):
            total = row.q.new_zeros(*row.q.shape[:2], work.v.shape[-1])
            mass = row.q.new_zeros(row.q.shape[:2])
            for block in row.blocks():
                weights = row.series.value(work.setting.score.cut_(block.dots()))
                block.decay_and_mask_(weights)
                block.level_(weights)
                if negative is not None:
                    negative.note(weights, group.heads, row.queries)
                total.baddbmm_(weights, block.v)
                if row_sum is not None:
                    mass.add_(weights.sum(-1))
            row.write(numerator, total)
            if row_sum is not None:
                row.write(row_sum, mass)
    return numerator, row_sum, None
