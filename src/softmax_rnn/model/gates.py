"""From hidden states to the tensors that a spec needs beside q, k and v: its gates, norm weights and exponents.

input_gate, output_gate   g = σ(W h + b)         raw, W h + b, for a cumulative gate
forget_gate               log decay of W h + b   as the spec's `Decay` says
norm_weight, norm_bias    parameters of the head dimension
length_exponent           one parameter a head
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from transformers import initialization as init

from softmax_rnn.attention.parts import CumulativeGate, Decay
from softmax_rnn.attention.spec import AttentionSpec

GATES = ("input_gate", "output_gate", "forget_gate")
"""Tensors with a value for every head and position, made by a projection."""
FIRST_LENGTH_EXPONENT = 0.5


def _negative_softplus(raw: Tensor) -> Tensor:
    return -F.softplus(raw)


def _scaled(raw: Tensor) -> Tensor:
    return raw / 1024


def _as_it_is(raw: Tensor) -> Tensor:
    return raw


LOG_DECAY: dict[Decay, Callable[[Tensor], Tensor]] = {
    Decay.LOG_SIGMOID: F.logsigmoid,
    Decay.NEGATIVE_SOFTPLUS: _negative_softplus,
    Decay.SCALED: _scaled,
}


def gate_activations(spec: AttentionSpec) -> dict[str, Callable[[Tensor], Tensor]]:
    """What turns the raw projection of each gate of the spec into the tensor that the core takes.

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> list(gate_activations(VARIANTS["gated_softmax"]))
    ['input_gate', 'output_gate']
    """
    found: dict[str, Callable[[Tensor], Tensor]] = {}
    for name in GATES:
        if name in spec.tensors:
            found[name] = torch.sigmoid
    if isinstance(spec.normaliser, CumulativeGate):
        found["output_gate"] = _as_it_is
    if spec.forget_gate is not None:
        found["forget_gate"] = LOG_DECAY[spec.forget_gate.decay]
    return found


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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.names = spec.tensors
        self.activations = gate_activations(spec)
        sizes = {"norm_weight": head_dim, "norm_bias": head_dim, "length_exponent": heads}
        for name in spec.tensors:
            if name in self.activations:
                self.add_module(name, nn.Linear(hidden_size, heads, bias=True, device=device, dtype=dtype))
            else:
                self.register_parameter(name, nn.Parameter(torch.empty(sizes[name], device=device, dtype=dtype)))
        self.reset_vectors()

    @torch.no_grad()
    def reset_vectors(self) -> None:
        """Norm weights 1, biases 0, exponents 0.5; projections are initialised as every other Linear is."""
        first = {"norm_weight": 1.0, "norm_bias": 0.0, "length_exponent": FIRST_LENGTH_EXPONENT}
        for name, parameter in self.named_parameters(recurse=False):
            init.constant_(parameter, first[name])

    def forward(self, hidden: Float[Tensor, "B T hidden"]) -> dict[str, Tensor]:
        """The tensors by the names that `attend` takes."""
        found: dict[str, Tensor] = {}
        for name in self.names:
            value = getattr(self, name)
            if name in self.activations:
                raw = value(hidden).transpose(1, 2)
                # In float32 at least: a log decay near 0 has no digits in bfloat16.
                value = self.activations[name](raw.to(torch.promote_types(raw.dtype, torch.float32)))
            found[name] = value
        return found
