"""What a spec computes on inputs that the algebra presumes: positive gates; made once for each spec."""

from __future__ import annotations

import math
from functools import cache

import torch

from attention.cases import attention, inputs
from attention.compare import Result, errors, run, seeded
from softmax_rnn.attention.spec import AttentionSpec

TIME = 9
SIZES = (1.0, 30.0)
"""Factors of the queries: softmax and its 80-term polynomial part only where scores are large."""


def gates(spec: AttentionSpec, size: float) -> dict[str, torch.Tensor]:
    """Inputs in which every gate is positive, as the algebra presumes."""
    tensors = inputs(spec, time=TIME)
    tensors["q"] = tensors["q"] * size
    if "output_gate" in tensors:
        tensors["output_gate"] = tensors["output_gate"].sigmoid()
    if "forget_gate" in tensors:  # the log decay itself, however a model makes it
        tensors["forget_gate"] = -0.3 * seeded(*tensors["forget_gate"].shape, seed=5).abs()
    return tensors


@cache
def results(spec: AttentionSpec) -> tuple[Result, ...]:
    return tuple(run(attention(spec, form="parallel"), gates(spec, size)) for size in SIZES)


def largest_difference(a: AttentionSpec, b: AttentionSpec) -> float:
    """Functions of tensors of other shapes are others."""
    if any(one.axes != b.declared[name].axes for name, one in a.declared.items() if name in b.declared):
        return math.inf
    return max(max(errors(x, y).values()) for x, y in zip(results(a), results(b), strict=True))


@cache
def results_at_size_one(spec: AttentionSpec) -> Result:
    return run(attention(spec, form="parallel"), gates(spec, 1.0))
