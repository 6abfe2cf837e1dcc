"""How two computations are compared: their outputs, and their gradients of every tensor, in one metric.

error of the output     max|got − truth| / max|truth|
error of a gradient     max|got − truth| / max(max|truth|, 0.1 · the largest gradient of the call)

The second term of a gradient's scale is there because some gradients have no size of their own: that of an
output gate in front of a norm cancels to 0 exactly, and what is left is the rounding of its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}
DTYPES = tuple(TOLERANCE)
WEIGHT_SEED = 987_654
"""Unlike the seeds of inputs: a weight parallel to v would make gradients vanish."""


@dataclass(frozen=True)
class Result:
    """What a function gave: its output, and the gradient of ⟨output, a fixed random tensor⟩ by name."""

    output: Tensor
    grads: dict[str, Tensor]


def seeded(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def run(function: Callable[..., Tensor], tensors: dict[str, Tensor], weight: Tensor | None = None, **other) -> Result:
    """Call function(**tensors, **other) and differentiate it by all tensors; unused ones have the gradient 0."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in tensors.items()}
    output = function(**leaves, **other)
    if weight is None:
        weight = seeded(*output.shape, seed=WEIGHT_SEED, dtype=output.dtype)
    if not output.requires_grad:  # nothing was seen: a constant 0
        return Result(output, {name: torch.zeros_like(x) for name, x in leaves.items()})
    grads = torch.autograd.grad((output * weight.to(output)).sum(), list(leaves.values()), allow_unused=True)
    pairs = zip(leaves.items(), grads, strict=True)
    return Result(output.detach(), {name: torch.zeros_like(x) if g is None else g for (name, x), g in pairs})


def largest(x: Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def relative_error(got: Tensor, truth: Tensor, scale: float) -> float:
    """max|got − truth| / scale; 0 where both are equal, NaN and inf where got has them."""
    difference = largest(got.double() - truth.double())
    return difference if difference == 0 else difference / scale if scale else torch.inf


def errors(got: Result, truth: Result) -> dict[str, float]:
    """The error of the output and of each gradient; a tensor that only one of them knows has the gradient 0."""
    result = {"output": relative_error(got.output, truth.output, largest(truth.output))}
    biggest = max((largest(g) for g in truth.grads.values()), default=0.0)
    for name in got.grads | truth.grads:
        known = truth.grads.get(name, got.grads.get(name))
        a, b = (r.grads.get(name, torch.zeros_like(known)) for r in (got, truth))
        result[name] = relative_error(a, b, max(largest(b), 0.1 * biggest))
    return result


def assert_same(got: Result, truth: Result, dtype: torch.dtype) -> None:
    """All errors are within the tolerance of the dtype, which is never widened."""
    assert got.output.shape == truth.output.shape
    wrong = {name: error for name, error in errors(got, truth).items() if not error <= TOLERANCE[dtype]}
    assert not wrong, f"errors above {TOLERANCE[dtype]:g}: {wrong}"


def assert_close(got: Tensor, truth: Tensor, tolerance: float | None = None) -> None:
    """Outputs alone, in the same metric; the tolerance is that of got's dtype."""
    assert got.shape == truth.shape
    error = relative_error(got, truth, largest(truth))
    assert error <= (TOLERANCE[got.dtype] if tolerance is None else tolerance), error
