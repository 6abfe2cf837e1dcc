"""From hidden states to the tensors that the parts of a spec declare: projections with an activation, parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from transformers import initialization as init

from softmax_rnn.attention.parts.base import Declaration, First, Projection, identity
from softmax_rnn.attention.spec import AttentionSpec


class SpecTensors(nn.Module):
    """Holds the parameters that a spec needs, and no others.

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> parts = SpecTensors(VARIANTS["gated_softmax"], hidden_size=8, heads=2, head_dim=4)
    >>> {name: tuple(x.shape) for name, x in parts(torch.randn(1, 3, 8)).items()}
    {'input_gate': (1, 2, 3), 'output_gate': (1, 2, 3), 'norm_weight': (4,), 'norm_bias': (4,)}
    """

    def __init__(
        self,
        spec: AttentionSpec,
        hidden_size: int,
        heads: int,
        head_dim: int,
        kv_heads: int | None = None,
        value_dim: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.sizes = {
            "H": heads,
            "K": kv_heads or heads,
            "D": head_dim,
            "E": value_dim or head_dim,
            "F": spec.width(head_dim),
        }
        for name, declared in spec.declared.items():
            if isinstance(declared.made, Projection):
                width = math.prod(self._own_shape(declared))
                self.add_module(name, _linear(hidden_size, width, declared.made, device, dtype))
            else:
                first = torch.empty(self._own_shape(declared), device=device, dtype=dtype)
                self.register_parameter(name, nn.Parameter(first))
        self.reset_vectors()

    def _own_shape(self, declared: Declaration) -> tuple[int, ...]:
        """The shape without batch and time."""
        axes = [axis for axis in declared.axes.split() if axis not in ("B", "T")]
        return replace(declared, axes=" ".join(axes)).shape(self.sizes)

    @property
    def projections(self) -> dict[str, Projection]:
        """The tensors that are made from the hidden state."""
        return {name: one.made for name, one in self.spec.declared.items() if isinstance(one.made, Projection)}

    @torch.no_grad()
    def reset_vectors(self) -> None:
        """First values of parameters and biases; the weights of projections are initialised as every Linear's are."""
        for name, declared in self.spec.declared.items():
            if isinstance(declared.made, Projection):
                if declared.made.first_bias:
                    _fill(getattr(self, name).bias, declared.made.first_bias, self._own_shape(declared))
            else:
                _fill(getattr(self, name), declared.made.first, self._own_shape(declared))

    def forward(self, hidden: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors by the names that `attend` takes; ``hidden`` (B, T, hidden) is one for all, or one per name."""
        return {name: self._tensor(name, declared, hidden) for name, declared in self.spec.declared.items()}

    def _tensor(self, name: str, declared: Declaration, hidden: Tensor | Mapping[str, Tensor]) -> Tensor:
        made = getattr(self, name)
        if not isinstance(declared.made, Projection):
            return made
        raw = (
            made(hidden if isinstance(hidden, Tensor) else hidden[name])
            .unflatten(-1, self._own_shape(declared))
            .movedim(1, declared.time_axis or 1)
        )
        if torch.compiler.is_compiling():  # else the tracer predicts the wrong strides for the gradient of softplus
            raw = raw.contiguous()
        # In float32 at least: a log decay near 0 has no digits in bfloat16.
        return declared.made.activation(raw.to(torch.promote_types(raw.dtype, torch.float32)))


def _fill(parameter: Tensor, first: First, shape: tuple[int, ...]) -> None:
    if callable(first):
        init.copy_(parameter, first(shape).to(parameter).reshape(parameter.shape))
    else:
        init.constant_(parameter, first)


class LowRank(nn.Sequential):
    """Two matrices with few numbers between them, and one bias."""

    def __init__(
        self, wide: int, rank: int, width: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        down = nn.Linear(wide, rank, bias=False, device=device, dtype=dtype)
        super().__init__(down, nn.Linear(rank, width, device=device, dtype=dtype))
        self.between: Callable[[Tensor], Tensor] = identity

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """B between(A x) + b."""
        return self[1](self.between(self[0](x)))

    @property
    def weight(self) -> Tensor:
        """The matrix that the bias belongs to."""
        return cast(nn.Linear, self[1]).weight

    @property
    def bias(self) -> Tensor:
        return cast(nn.Linear, self[1]).bias


def _linear(
    wide: int, width: int, made: Projection, device: torch.device | str | None, dtype: torch.dtype | None
) -> nn.Linear | LowRank:
    if made.rank is not None:
        module = LowRank(wide, made.rank, width, device, dtype)
        module.between = made.between
        return module
    return nn.Linear(wide, width, bias=True, device=device, dtype=dtype)
