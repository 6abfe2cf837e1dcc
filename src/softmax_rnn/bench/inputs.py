"""Random inputs for a spec: q, k, v and whatever else it asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention.spec import AttentionSpec

Tensors = dict[str, Any]
"""Tensors by the argument names of `attend`: q, k, v and the spec's others; Any, for they are passed on with **."""


def random_inputs(
    spec: AttentionSpec,
    *,
    batch: int = 1,
    heads: int = 16,
    kv_heads: int | None = None,
    time: int = 1024,
    key_dim: int = 64,
    value_dim: int | None = None,
    query_scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Tensors:
    """Tensors by the argument names of `attend`; the same numbers in every dtype."""
    kv_heads, value_dim = kv_heads or heads, value_dim or key_dim
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    rows = (batch, heads, time)
    tensors = {
        "q": normal(*rows, key_dim) * query_scale,
        "k": normal(batch, kv_heads, time, key_dim),
        "v": normal(batch, kv_heads, time, value_dim),
    }
    extras = {
        "input_gate": torch.sigmoid(normal(*rows)),
        "output_gate": torch.sigmoid(normal(*rows)),
        "forget_gate": torch.nn.functional.logsigmoid(normal(*rows) + 2),
        "norm_weight": 1 + 0.1 * normal(value_dim),
        "norm_bias": 0.1 * normal(value_dim),
        "length_exponent": normal(heads),
    }
    tensors |= {name: extras[name] for name in spec.tensors}
    return {name: x.to(dtype) for name, x in tensors.items()}
