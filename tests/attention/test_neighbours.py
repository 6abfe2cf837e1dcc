"""Decays against the recurrences of their papers, as matrix states, on random inputs.

Written here from the formulas: the reference functions of flash-linear-attention need triton, so they cannot be
imported on a CPU. What had to be matched: queries are scaled by 1/√d except in RWKV-6; the norm, the gate and the
projections around the sum are left out on both sides.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from attention.cases import inputs
from attention.compare import assert_close
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.variants import VARIANTS

HEADS, DIM = 3, 8


def recurrence(q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, u: Tensor | None = None) -> Tensor:
    """S_t = diag(α_t) S_{t−1} + k_t v_tᵀ; y_t = S_tᵀ q_t, or (S_{t−1} + diag(u) k_t v_tᵀ)ᵀ q_t."""
    state = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], dtype=q.dtype)
    outputs = []
    for t in range(q.shape[2]):
        write = k[:, :, t, :, None] * v[:, :, t, None, :]
        after = alpha[:, :, t, :, None] * state + write
        seen = after if u is None else state + u[:, :, None] * write
        outputs.append(torch.einsum("bhd,bhde->bhe", q[:, :, t], seen))
        state = after
    return torch.stack(outputs, 2)


def retnet(x: dict[str, Tensor]) -> Tensor:
    gamma = torch.tensor([1 - 2.0 ** (-5 - h) for h in range(HEADS)], dtype=torch.float64)
    return recurrence(x["q"] * DIM**-0.5, x["k"], x["v"], gamma[:, None, None].expand(2, -1, x["q"].shape[2], 1))


def simple_gla(x: dict[str, Tensor]) -> Tensor:
    return recurrence(x["q"] * DIM**-0.5, x["k"], x["v"], x["forget_gate"].exp()[..., None])


def mamba2(x: dict[str, Tensor]) -> Tensor:
    """h_t = exp(A Δ_t) h_{t−1} + Δ_t B_t x_tᵀ, A = −e^{A_log}; y_t = C_tᵀ h_t + D x_t."""
    step = x["time_step"][..., None]
    alpha = torch.exp(-x["log_rate"].exp()[:, None, None] * step)
    return recurrence(x["q"], x["k"] * step, x["v"], alpha) + x["skip_weight"][:, None, None] * x["v"]


def gla(x: dict[str, Tensor]) -> Tensor:
    return recurrence(x["q"] * DIM**-0.5, x["k"], x["v"], x["channel_gate"].exp())


def hgrn2(x: dict[str, Tensor]) -> Tensor:
    alpha = x["k"].sigmoid()
    return recurrence(torch.nn.functional.silu(x["q"]) * DIM**-0.5, 1 - alpha, x["v"], alpha)


def rwkv6(x: dict[str, Tensor]) -> Tensor:
    return recurrence(x["q"], x["k"], x["v"], x["channel_gate"].exp(), x["bonus"])


@pytest.mark.parametrize("published", [retnet, simple_gla, mamba2, gla, hgrn2, rwkv6], ids=lambda one: one.__name__)
def test_published_recurrence(published):
    name = "mamba2_ssd" if published is mamba2 else published.__name__
    spec = replace(VARIANTS[name], output_norm=None, output_gate=None)
    tensors = inputs(spec, time=70, heads=HEADS, kv_heads=HEADS)
    assert_close(attend(spec, **tensors), published(tensors))
