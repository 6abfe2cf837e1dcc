"""An output gate with a value per channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Projection, sigmoid
from softmax_rnn.attention.parts.gates import OutputGate

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.epilogue import Output


class Activation(StrEnum):
    """How a model turns a raw projection z into the gate; `attend` takes the gate."""

    SIGMOID = "sigmoid"
    SILU = "silu"
    """z · σ(z), which can be negative."""


def silu(raw: Tensor) -> Tensor:
    """z · σ(z)."""
    return raw * raw.sigmoid()


SILU_IS_ONE = 1.2784645427610738
"""z · σ(z) = 1."""


@dataclass(frozen=True)
class VectorGate(OutputGate):
    """Each channel of the output is multiplied by its own gate, before or after the output norm.

    RetNet, GLA, Mamba-2 and DeltaNet have SiLU after (Mamba-2: before) an RMS norm.
    """

    kind: ClassVar[str] = "vector_gate"
    is_row_factor: ClassVar[bool] = False
    activation: Activation = Activation.SILU

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """output_gate. A conversion starts σ at ½, as a gate per head, and SiLU at 1."""
        if self.activation is Activation.SILU:
            return (Declaration("output_gate", "B H T E", Projection(silu, neutral_bias=SILU_IS_ONE, typical=1.0)),)
        multiplies = "output" if self.after_norm else "values"
        return (Declaration("output_gate", "B H T E", Projection(sigmoid), multiplies=multiplies),)

    def before_norm(self, output: Output, tensors: Mapping[str, Tensor]) -> Output:
        return output.times_each(tensors["output_gate"])

    def behind_norm(self, y: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        return y * tensors["output_gate"]

    def text(self, x: str) -> str:
        return f"{'σ' if self.activation is Activation.SIGMOID else 'SiLU'}(z) ⊙ {x}"
