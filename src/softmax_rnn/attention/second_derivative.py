"""Forms whose backward pass is written by hand give gradients once, and say so when asked for gradients of those."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.errors import InputError


class _Refuse(torch.autograd.Function):
    """Gradients that cannot be differentiated again; ``sources`` are what they were made of."""

    @staticmethod
    def forward(form: str, count: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return tuple(None if x is None else x.view_as(x) for x in tensors[:count])

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.form = inputs[0]

    @staticmethod
    def backward(ctx, *_: Tensor) -> tuple[None, ...]:
        raise InputError(
            f"form: {ctx.form!r} has no second derivative; form='parallel' and form='recurrent' have one for every spec"
        )


def _refusing(form: str, grads: tuple[Tensor | None, ...], sources: tuple[Tensor | None, ...]) -> Any:
    return _Refuse.apply(form, len(grads), *grads, *sources) if torch.is_grad_enabled() else grads


def once(form: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For the backward pass of a form's own autograd function."""

    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(backward)
        def wrapped(ctx: Any, *grads: Tensor | None) -> Any:
            with torch.no_grad():
                made = backward(ctx, *grads)
            # Recomputed activations can be read once: they are asked for again only where someone may differentiate.
            return _refusing(form, made, (*grads, *ctx.saved_tensors)) if torch.is_grad_enabled() else made

        return wrapped

    return decorate


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(form: str, *tensors: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.form, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> Any:
        return (None, *_refusing(ctx.form, grads, ctx.saved_tensors))


def differentiable_once(form: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The same tensors, for the inputs of a kernel of the platform."""
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)):
        return tensors
    same = _Once.apply(form, *tensors)
    assert isinstance(same, tuple)
    return same
