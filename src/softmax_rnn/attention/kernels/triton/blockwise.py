"""Blockwise kernels as an autograd function: O(T) memory, weights are made again in the backward pass."""

# Launches give numbers to what a kernel declares as constexpr.
# pyright: reportArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.kernels.triton.tiles import padded, precision, tile
from softmax_rnn.attention.kernels.triton.visible import Seen
from softmax_rnn.attention.parts import Polynomial, Score
from softmax_rnn.attention.second_derivative import once


@dataclass(frozen=True)
class Setting:
    """What stays the same in both passes."""

    score: Score
    kv_heads: int
    seen: Seen
    wants_row_sum: bool
    negative: Tensor | None
    dtype: torch.dtype
    """That of the products' factors."""
    score_scale: float = 1.0
    """What the scores of exp are multiplied by: it was left out of the queries."""

    @property
    def degree(self) -> int:
        """0 for exp."""
        return 0 if (polynomial := self.score.as_polynomial) is None else polynomial.degree

    def coefficients(self, rows: Tensor | None, device: torch.device) -> Tensor | None:
        """Those of each row, or those of the score; exp has none."""
        if rows is not None:
            return rows
        polynomial = self.score.as_polynomial
        return None if polynomial is None else constants(polynomial, device)

    def constants(self, q: Tensor, v: Tensor, decay: Tensor | None, rows: Tensor | None) -> dict[str, Any]:
        """What all three kernels are compiled for."""
        dim, width = q.shape[-1], v.shape[-1]
        return {
            "D": dim,
            "E": width,
            "BD": padded(dim),
            "BE": padded(width),
            "DEGREE": self.degree,
            "HAS_ROWS": rows is not None,
            "HAS_CLAMP": self.score.clamp is not None,
            "HAS_DECAY": decay is not None,
            "PRECISION": precision(self.dtype),
            **self.seen.flags,
        }

    def sizes(self, q: Tensor, k: Tensor) -> tuple[int, int, int, int, float, float]:
        """Tq, T, G, K, the clamp and the scale."""
        return q.shape[2], k.shape[1], q.shape[1], self.kv_heads, self.score.clamp or 0.0, self.score_scale


@cache
def constants(score: Polynomial, device: torch.device) -> Tensor:
    """The coefficients of a score, once per device."""
    return torch.tensor(score.coefficients, dtype=torch.float32, device=device)


def blockwise(job: Contraction, dtype: torch.dtype, score_scale: float = 1.0, seen: Seen | None = None) -> Sums:
    """The sums of `parallel`, the scores of exp times a scale; ``seen`` in place of the visibility."""
    batch, kv_heads, _, _, _ = job.q.shape
    seen = Seen.of(job.visibility, batch, job.k.shape[2], job.q.device) if seen is None else seen
    negative = None if job.negative is None else job.negative.negative
    setting = Setting(job.score, kv_heads, seen, job.wants_row_sum, negative, dtype, score_scale)
    decay = None if job.running_decay is None else job.running_decay.c
    flat = [None if x is None else x.flatten(0, 1) for x in (job.q, job.k, job.v, decay, job.rows)]
    numerator, row_sum, log_scale = _Blockwise.apply(*flat, setting)  # type: ignore[misc]
    shape = (batch, kv_heads)
    return Sums(
        numerator.unflatten(0, shape),
        None if row_sum is None else row_sum.unflatten(0, shape),
        job.log_scale if log_scale is None else log_scale.unflatten(0, shape),
    )


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, decay, rows, setting: Setting):  # type: ignore[override]
        q, k, v = (x.to(setting.dtype).contiguous() for x in (q, k, v))
        decay, rows = (None if x is None else x.contiguous() for x in (decay, rows))
        rows = None if rows is None else rows.float()
        sums = forward(q, k, v, decay, rows, setting)
        numerator, row_sum, log_scale = sums
        kept = (numerator, row_sum) if needs_sums(decay, row_sum, setting.dtype) else (None, None)
        ctx.save_for_backward(q, k, v, decay, rows, *kept, log_scale)
        ctx.setting = replace(setting, negative=None)
        if log_scale is not None:
            ctx.mark_non_differentiable(log_scale)
        ctx.set_materialize_grads(False)
        return sums

    @staticmethod
    @once("triton")
    def backward(ctx, d_numerator, d_row_sum, _):  # type: ignore[override]
        q, k, v, decay, rows, numerator, row_sum, log_scale = ctx.saved_tensors
        if d_numerator is None:
            d_numerator = torch.zeros(*q.shape[:3], v.shape[-1], device=q.device)
        d_numerator, d_row_sum = rounded(d_numerator, d_row_sum, numerator, row_sum, v.dtype)
        dq, dk, dv, ones = backward(q, k, v, decay, rows, d_numerator, d_row_sum, log_scale, ctx.setting)
        d_decay = None
        if decay is not None:
            d_decay = decay_gradient(decay, v, dv, ones, d_numerator, d_row_sum, numerator, row_sum)
        return dq, dk, dv, d_decay, None, None


def needs_sums(decay: Tensor | None, row_sum: Tensor | None, dtype: torch.dtype) -> bool:
    """Whether the backward pass reads the sums: for the gradient of a decay, and to round that of the numerator."""
    return decay is not None or (row_sum is not None and dtype != torch.float32)


def rounded(
    dy: Tensor, dr: Tensor | None, y: Tensor | None, row_sum: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """The gradients of numerator and row sum as the kernels take them, dy in the dtype of the products.

    The same dy enters both sides, since the gradient of a decay is the difference of two sums over it. What dy·y loses
    by the rounding is made good in dr, so Σ_j w_ij dw_ij is what it was: 0 for rows that are divided by their sum.
    """
    near = dy.to(dtype).contiguous()
    if dr is None:
        return near, None
    dr = dr.float()
    if dtype != torch.float32 and y is not None and row_sum is not None:
        lost = ((dy - near.to(dy.dtype)) * y).sum(-1)
        dr = dr + torch.where(row_sum == 0, 0, lost / row_sum)
    return near, dr.contiguous()


def forward(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, rows: Tensor | None, setting: Setting
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Numerator, row sum and log scale."""
    from softmax_rnn.attention.kernels.triton.device.forward import block_sums

    shape, seen = q.shape[:3], setting.seen
    numerator = torch.empty(*shape, v.shape[-1], device=q.device)
    row_sum = torch.empty(shape, device=q.device) if setting.wants_row_sum else None
    log_scale = torch.empty(shape, device=q.device) if setting.degree == 0 else None
    negative = None if setting.negative is None or setting.degree == 0 else setting.negative.view(torch.int8)
    chosen = tile("block_sums", q.shape[-1], v.shape[-1], setting.dtype)
    block_sums[(-(-shape[2] // chosen.queries), shape[0] * shape[1])](
        q,
        k,
        v,
        decay,
        setting.coefficients(rows, q.device),
        seen.low,
        seen.first,
        seen.sink,
        seen.mask,
        numerator,
        row_sum,
        log_scale,
        negative,
        *setting.sizes(q, k),
        WANTS_SUM=setting.wants_row_sum,
        WANTS_SIGN=negative is not None,
        **setting.constants(q, v, decay, rows),
        **chosen.launch,
    )
    return numerator, row_sum, log_scale


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    rows: Tensor | None,
    dy: Tensor,
    dr: Tensor | None,
    log_scale: Tensor | None,
    setting: Setting,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """dq, dk, dv in float32, and Σ_i w_ij dr_i where a decay asks for it."""
    from softmax_rnn.attention.kernels.triton.device.backward import key_gradients, query_gradients

    dq, dk, dv = (torch.empty(x.shape, device=q.device) for x in (q, k, v))
    ones = torch.empty(k.shape[:2], device=q.device) if decay is not None and dr is not None else None
    seen, sizes, coefficients = setting.seen, setting.sizes(q, k), setting.coefficients(rows, q.device)
    shared = {"HAS_DR": dr is not None, **setting.constants(q, v, decay, rows)}
    dims = (q.shape[-1], v.shape[-1], setting.dtype)
    by_key, by_query = tile("key_gradients", *dims), tile("query_gradients", *dims)
    where = (seen.low, seen.first, seen.sink)
    key_gradients[(-(-k.shape[1] // by_key.keys), k.shape[0])](
        q, k, v, decay, coefficients, *where, seen.last, seen.mask, dy, dr, log_scale, dk, dv, ones, *sizes,
        **shared, **by_key.launch,
    )  # fmt: skip
    query_gradients[(-(-q.shape[2] // by_query.queries), q.shape[0] * q.shape[1])](
        q, k, v, decay, coefficients, *where, seen.mask, dy, dr, log_scale, dq, *sizes, **shared, **by_query.launch
    )
    return dq, dk, dv, ones


def decay_gradient(
    decay: Tensor,
    v: Tensor,
    dv: Tensor,
    ones: Tensor | None,
    dy: Tensor,
    dr: Tensor | None,
    y: Tensor,
    row_sum: Tensor | None,
) -> Tensor:
    """dc from Σ_j dw_ij w_ij = dy_i·y_i + dr_i r_i, and Σ_i dw_ij w_ij = dv_j·v_j + Σ_i w_ij dr_i."""
    at_query = (dy.double() * y).sum((1, 3))
    at_key = (dv.double() * v).sum(-1)
    if dr is not None and row_sum is not None and ones is not None:
        at_query += (dr.double() * row_sum).sum(1)
        at_key += ones
    return RunningDecay(decay).gradient(at_query, at_key)
