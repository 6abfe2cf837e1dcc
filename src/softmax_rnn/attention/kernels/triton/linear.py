"""Linear attention as an autograd function: one walk per head with the state in registers."""

# Launches give tuples of unknown length to kernels with many parameters.
# pyright: reportCallIssue=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.kernels.triton.blockwise import constants, decay_gradient, needs_sums, rounded
from softmax_rnn.attention.kernels.triton.chunked import Passing, joined, split
from softmax_rnn.attention.kernels.triton.tiles import Tile, padded, precision, ships, tile
from softmax_rnn.attention.kernels.triton.visible import Seen
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.second_derivative import once

SUMS, QUERIES, KEYS = "linear_sums", "linear_query_gradients", "linear_key_gradients"


@dataclass(frozen=True)
class Walk:
    """How a kernel walks: its tile, and what passes through chunks of that length."""

    tile: Tile
    passing: Passing


@dataclass(frozen=True)
class Setting:
    """What stays the same in all passes."""

    score: Polynomial
    kv_heads: int
    groups: int
    seen: Seen
    walks: dict[str, Walk]
    wants_row_sum: bool
    dtype: torch.dtype

    def constants(self, walk: str, k: Tensor, v: Tensor, decay: Tensor | None, start: Tensor | None) -> dict[str, Any]:
        """What a kernel is compiled for."""
        dim, width, chosen = k.shape[-1], v.shape[-1], self.walks[walk]
        return {
            "G": self.groups,
            "D": dim,
            "E": width,
            "BD": padded(dim),
            "BE": padded(width),
            "BC": chosen.tile.queries,
            "HAS_0": int(0 in self.score.orders),
            "HAS_DECAY": decay is not None,
            "HAS_LOW": self.seen.low is not None,
            "HAS_MASK": self.seen.mask is not None,
            "HAS_PASSING": chosen.passing.keep is not None,
            "HAS_STATE": start is not None,
            "WANTS_SUM": self.wants_row_sum,
            "PRECISION": precision(self.dtype),
            **chosen.tile.options,
        }

    def shared(self, walk: str, decay: Tensor | None, device: torch.device) -> tuple[Tensor | None, ...]:
        """The arguments between the inputs and the states."""
        seen, passing = self.seen, self.walks[walk].passing
        factors = (passing.from_past, passing.into_state, passing.keep)
        return (decay, constants(self.score, device), seen.low, seen.mask, *factors)

    def sizes(self, walk: str, k: Tensor) -> tuple[int, int, int]:
        """T, chunks and K."""
        return k.shape[1], -(-k.shape[1] // self.walks[walk].tile.queries), self.kv_heads


def serves(job: Contraction, dtype: torch.dtype, needs_grad: bool) -> bool:
    """Whether the states fit the registers."""
    dims = (job.k.shape[-1], job.v.shape[-1], dtype)
    return all(ships(walk, *dims) for walk in ((SUMS, QUERIES, KEYS) if needs_grad else (SUMS,)))


def linear(job: Contraction, state: Tensor | None, dtype: torch.dtype, needs_grad: bool) -> tuple[Sums, Tensor]:
    """The sums of `parallel`, continued from a state, and the state after the last position."""
    score = job.score.as_polynomial
    assert score is not None and score.degree == 1
    batch, kv_heads, time = job.k.shape[:3]
    decay = None if job.running_decay is None else job.running_decay.c
    flat = [None if x is None else x.flatten(0, 1) for x in (job.q, job.k, job.v, decay, state)]
    seen = Seen.of(job.visibility, batch, time, job.q.device)
    still = None if decay is None else decay.detach().flatten(0, 1)
    keys, walks = job.k.flatten(0, 1), {}
    for name in (SUMS, QUERIES, KEYS) if needs_grad else (SUMS,):
        chosen = tile(name, job.k.shape[-1], job.v.shape[-1], dtype)
        walks[name] = Walk(chosen, Passing.of(job.visibility, still, kv_heads, keys, chosen.queries))
    setting = Setting(score, kv_heads, job.q.shape[2], seen, walks, job.wants_row_sum, dtype)
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
            q, k, v, *setting.shared(SUMS, decay, q.device), *start, y, r, *end, *setting.sizes(SUMS, k),
            **setting.constants(SUMS, k, v, decay, start[0]),
        )  # fmt: skip
        after = joined(end)
        kept = (y, r) if needs_sums(decay, r, setting.dtype) else (None, None)
        ctx.save_for_backward(q, k, v, decay, *start, *kept, None if decay is None else after)
        ctx.setting, ctx.has_state = setting, state is not None
        ctx.set_materialize_grads(False)
        return y, r, after

    @staticmethod
    @once("triton")
    def backward(ctx, dy, dr, d_end):  # type: ignore[override]
        from softmax_rnn.attention.kernels.triton.device.linear import linear_key_gradients, linear_query_gradients

        q, k, v, decay, state, sums, y, r, after = ctx.saved_tensors
        setting: Setting = ctx.setting
        dy = torch.zeros(*q.shape[:3], v.shape[-1], device=q.device) if dy is None else dy
        if setting.wants_row_sum and dr is None:
            dr = torch.zeros(q.shape[:3], device=q.device)
        dy, dr = rounded(dy, dr, y, r, v.dtype)
        dq, dk, dv = (torch.empty(x.shape, device=q.device) for x in (q, k, v))
        ones = torch.empty(k.shape[:2], device=q.device) if setting.wants_row_sum else None
        linear_query_gradients[(k.shape[0],)](
            k, v, *setting.shared(QUERIES, decay, q.device), state, sums, dy, dr, dq, *setting.sizes(QUERIES, k),
            **setting.constants(QUERIES, k, v, decay, state),
        )  # fmt: skip
        d_state = _empty_state(k, v, setting)
        behind = split(d_end, setting.wants_row_sum) or (None, None)
        linear_key_gradients[(k.shape[0],)](
            q, k, v, *setting.shared(KEYS, decay, q.device), *behind, dy, dr, dk, dv, ones, *d_state,
            *setting.sizes(KEYS, k), **setting.constants(KEYS, k, v, decay, behind[0]),
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
