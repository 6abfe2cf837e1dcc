"""Vectors divided by their size, for vectors of any size: no square leaves the number range."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.host_sync import may_sync

LARGEST = {torch.float32: 1e14, torch.float64: 1e140}
"""Vectors with entries up to this have squares, and sums of squares, that are floats."""
SMALLEST = {torch.float32: 1e-15, torch.float64: 1e-140}
"""Vectors at least this long have squares with all their digits."""


class _OverRoot(torch.autograd.Function):
    """Few passes forward and backward; autograd would keep and read three times as much.

    The inverse root is an output as well: the backward pass is then made of outputs alone, and can itself be
    differentiated.
    """

    @staticmethod
    def forward(y: Tensor, eps: Tensor, count: int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        square = torch.linalg.vector_norm(y, dim=-1, keepdim=True).square_().div_(count).add(eps)
        inverse = torch.where(square > 0, square.rsqrt(), 0)
        return y * inverse, inverse

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        _, eps, ctx.count = inputs
        ctx.eps_shape = eps.shape
        ctx.save_for_backward(*output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *grads: Tensor | None) -> tuple[Tensor, Tensor, None]:
        out, inverse = ctx.saved_tensors
        d_out, d_inverse = grads
        if d_out is None:
            d_out = torch.zeros_like(out)
        along = (d_out * out).sum(-1, keepdim=True)
        if d_inverse is not None:
            along = along + d_inverse * inverse
        d_y = torch.addcmul(d_out, out, along, value=-1 / ctx.count).mul_(inverse)
        d_eps = (-0.5 * along * inverse.square()).sum_to_size(ctx.eps_shape)
        return d_y, d_eps, None


class _Inverse(torch.autograd.Function):
    """1/x whose gradient −g/x² is made without the square, which a float32 ends for at x = 1e-19."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:  # type: ignore[override]
        return 1 / x

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return -(grads[0] * inverse) * inverse


def inverse(x: Tensor) -> Tensor:
    """1/x, with a gradient for every x whose inverse is a float."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return 1 / x
    return _Inverse.apply(x)  # type: ignore[return-value]


def over_root(y: Float[Tensor, "*batch E"], eps: Float[Tensor, "*#batch #1"], count: int) -> Float[Tensor, "*batch E"]:
    """y / √(|y|²/count + eps), and 0 where that is 0/0."""
    if not (torch.is_grad_enabled() and (y.requires_grad or eps.requires_grad)):
        return _OverRoot.forward(y, eps, count)[0]
    out, _ = _OverRoot.apply(y, eps, count)  # type: ignore[misc]
    return out


def in_range(
    y: Float[Tensor, "*batch E"], smallest: Float[Tensor, "*#batch"] | None = None
) -> tuple[Float[Tensor, "*batch E"], Float[Tensor, "*batch"] | None]:
    """y with rows divided by powers of two so that squares exist, and the exponents; None if it is known to fit.

    Exponents below ``smallest`` are raised to it, at most to 0.
    """
    if may_sync(y):
        low, high = torch.aminmax(y.detach()) if y.numel() else (y.new_zeros(()), y.new_zeros(()))
        if max(-float(low), float(high)) < LARGEST[y.dtype]:
            return y, None
    return _by_powers_of_two(y, smallest)


def _by_powers_of_two(y: Tensor, smallest: Tensor | None = None) -> tuple[Tensor, Tensor]:
    lowest = -120 if y.dtype == torch.float32 else -1000
    # By log2 and not frexp, whose exponents inductor cannot vectorise beside float64.
    exponent = (torch.log2(y.detach().abs().amax(-1)).floor() + 1).clamp(lowest, math.log2(torch.finfo(y.dtype).max))
    if smallest is not None:
        exponent = torch.maximum(exponent, smallest.ceil().clamp(max=0))
    return y * torch.exp2(-exponent)[..., None], exponent


def unit(x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
    """x / |x|, and 0 for x = 0.

    >>> [round(number, 6) for number in unit(torch.tensor([3e30, 4e30])).tolist()]
    [0.6, 0.8]
    """
    fits = may_sync(x)
    if fits and x.numel():
        norms = torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True)
        low, high = torch.aminmax(norms)
        fits = low.item() > SMALLEST[x.dtype] and high.item() < LARGEST[x.dtype]
        if fits and not (torch.is_grad_enabled() and x.requires_grad):
            return x / norms
    if not fits:
        x, _ = _by_powers_of_two(x)
    return over_root(x, x.new_zeros(1), 1)
