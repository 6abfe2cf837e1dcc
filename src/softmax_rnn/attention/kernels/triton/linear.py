"""Linear attention as an autograd function: one walk per head with the state in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.kernels.triton.blockwise import constants, decay_gradient
from softmax_rnn.attention.kernels.triton.chunked import Passing, joined, split
from softmax_rnn.attention.kernels.triton.tiles import interpreted, padded, precision
from softmax_rnn.attention.kernels.triton.visible import Seen
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.second_derivative import once

MAX_DIM = 128
"""Sides of a state that fits the registers."""
CHUNK = 64


def chunk() -> int:
    """Positions of a chunk."""
    return 16 if interpreted() else CHUNK


@dataclass(frozen=True)
class Setting:
    """What stays the same in both passes."""

    score: Polynomial
    kv_heads: int
    seen: Seen
    passing: Passing
    wants_row_sum: bool
    dtype: torch.dtype

    def constants(self, k: Tensor, v: Tensor, decay: Tensor | None, has_state: bool) -> dict[str, Any]:
        """What the kernels are compiled for."""
        dim, width = k.shape[-1], v.shape[-1]
        return {
            "D": dim,
            "E": width,
            "BD": padded(dim),
            "BE": padded(width),
            "BC": chunk(),
            "HAS_0": int(0 in self.score.orders),
            "HAS_DECAY": decay is not None,
            "HAS_LOW": self.seen.low is not None,
            "HAS_MASK": self.seen.mask is not None,
            "HAS_PASSING": self.passing.keep is not None,
            "HAS_STATE": has_state,
            "WANTS_SUM": self.wants_row_sum,
            "PRECISION": precision(self.dtype),
            "num_warps": 4 if max(dim, width) <= 64 else 8,
            "num_stages": 1,
        }

    def shared(self, decay: Tensor | None, device: torch.device) -> tuple[Tensor | None, ...]:
        """The arguments between the inputs and the states."""
        seen, passing = self.seen, self.passing
        factors = (passing.from_past, passing.into_state, passing.keep)
        return (decay, constants(self.score, device), seen.low, seen.mask, *factors)

    def sizes(self, k: Tensor, groups: int) -> tuple[int, int, int, int]:
        """T, chunks, G and K."""
        return k.shape[1], -(-k.shape[1] // chunk()), groups, self.kv_heads


def linear(job: Contraction, state: Tensor | None, dtype: torch.dtype) -> tuple[Sums, Tensor]:
    """The sums of `parallel`, continued from a state, and the state after the last position."""
    score = job.score
    assert isinstance(score, Polynomial) and score.degree == 1
    batch, kv_heads, time = job.k.shape[:3]
    decay = None if job.running_decay is None else job.running_decay.c
    flat = [None if x is None else x.flatten(0, 1) for x in (job.q, job.k, job.v, decay, state)]
    seen = Seen.of(job.visibility, batch, time, job.q.device)
    still = None if decay is None else decay.detach().flatten(0, 1)
    passing = Passing.of(job.visibility, still, kv_heads, job.k.flatten(0, 1), chunk())
    setting = Setting(score, kv_heads, seen, passing, job.wants_row_sum, dtype)
    y, r, end = _Linear.apply(*flat, setting)  # type: ignore[misc]
    shape = (batch, kv_heads)
    row_sum = None if r is None else r.unflatten(0, shape)
    return Sums(y.unflatten(0, shape), row_sum, job.log_scale), end.unflatten(0, shape)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, decay, state, setting: Setting):  # type: ignore[override]
        from softmax_rnn.attention.kernels.triton.device.linear import linear_sums

        q, k, v = (x.to(setting.dtype).contiguous() for x in (q, k, v))
        decay = None if decay is None else decay.contiguous()
        start = split(state, setting.wants_row_sum) or (None, None)
        y = torch.empty(*q.shape[:3], v.shape[-1], device=q.device)
        r = torch.empty(q.shape[:3], device=q.device) if setting.wants_row_sum else None
        end = _empty_state(k, v, setting)
        linear_sums[(k.shape[0],)](
            q, k, v, *setting.shared(decay, q.device), *start, y, r, *end, *setting.sizes(k, q.shape[1]),
            **setting.constants(k, v, decay, state is not None),
        )  # fmt: skip
        after = joined(end)
        ctx.save_for_backward(q, k, v, decay, *start, *((None,) * 3 if decay is None else (y, r, after)))
        ctx.setting, ctx.has_state = setting, state is not None
        ctx.set_materialize_grads(False)
        return y, r, after

    @staticmethod
    @once("triton")
    def backward(ctx, dy, dr, d_end):  # type: ignore[override]
        from softmax_rnn.attention.kernels.triton.device.linear import linear_key_gradients, linear_query_gradients

        q, k, v, decay, S, Z, y, r, after = ctx.saved_tensors
        setting: Setting = ctx.setting
        dy = torch.zeros(*q.shape[:3], v.shape[-1], device=q.device) if dy is None else dy
        dy = dy.to(v.dtype).contiguous()
        if setting.wants_row_sum:
            dr = torch.zeros(q.shape[:3], device=q.device) if dr is None else dr.float().contiguous()
        dq, dk, dv = (torch.empty(x.shape, device=q.device) for x in (q, k, v))
        ones = torch.empty(k.shape[:2], device=q.device) if setting.wants_row_sum else None
        shared, sizes = setting.shared(decay, q.device), setting.sizes(k, q.shape[1])
        linear_query_gradients[(k.shape[0],)](
            k, v, *shared, S, Z, dy, dr, dq, *sizes, **setting.constants(k, v, decay, ctx.has_state)
        )
        d_state = _empty_state(k, v, setting)
        behind = split(d_end, setting.wants_row_sum) or (None, None)
        linear_key_gradients[(k.shape[0],)](
            q, k, v, *shared, *behind, dy, dr, dk, dv, ones, *d_state, *sizes,
            **setting.constants(k, v, decay, d_end is not None),
        )  # fmt: skip
        d_decay = None
        if decay is not None:
            d_decay = decay_gradient(decay, v, dv, ones, dy, dr, y, r)
            if d_end is not None:
                d_decay[:, -1] += (d_end.double() * after).sum((1, 2))
        return dq, dk, dv, d_decay, joined(d_state) if ctx.has_state else None, None


def _empty_state(k: Tensor, v: Tensor, setting: Setting) -> tuple[Tensor, Tensor | None]:
    rows = k.shape[-1] + (0 in setting.score.orders)
    state = torch.empty(k.shape[0], rows, v.shape[-1], device=k.device)
    return state, torch.empty(k.shape[0], rows, device=k.device) if setting.wants_row_sum else None
