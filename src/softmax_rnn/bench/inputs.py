"""Random inputs for a spec: q, k, v and whatever else it asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention.parts.base import Declaration, Projection
from softmax_rnn.attention.spec import AttentionSpec

Tensors = dict[str, Any]
"""Tensors by the argument names of `attend`: q, k, v and the spec's others; Any, because they are passed on with **."""


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
    generator = torch.Generator("cpu").manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cpu")

    rows = (batch, heads, time)
    tensors = {
        "q": normal(*rows, key_dim) * query_scale,
        "k": normal(batch, kv_heads, time, key_dim),
        "v": normal(batch, kv_heads, time, value_dim),
    }
    sizes = {"B": batch, "H": heads, "K": kv_heads, "T": time, "D": key_dim, "E": value_dim, "F": spec.width(key_dim)}
    for name, declared in spec.declared.items():
        tensors[name] = random_tensor(declared, normal(*declared.shape(sizes)))
    return {name: x.to(dtype) for name, x in tensors.items()}


def random_tensor(declared: Declaration, noise: Tensor) -> Tensor:
    """A tensor as a trained model might make it: the activation of a raw projection, or near the first value."""
    made = declared.made
    if isinstance(made, Projection):
        return made.activation(noise + made.typical)
    if not callable(made.first):
        return made.first + 0.1 * noise
    with torch.random.fork_rng(devices=[]):  # first values may be drawn: the same ones for the same noise
        torch.manual_seed(0)
        return made.first(tuple(noise.shape)).to(noise) + 0.1 * noise
