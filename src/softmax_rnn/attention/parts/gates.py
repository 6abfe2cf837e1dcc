"""Gates: what happens to a value as it enters, and to an output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Part, Projection, sigmoid

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.epilogue import Output


@dataclass(frozen=True)
class InputGate(Part):
    """v_j is multiplied by input_gate_j before it enters the state."""

    slot: ClassVar[str] = "input_gate"
    kind: ClassVar[str] = "input_gate"

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """input_gate: σ of a projection. A conversion starts it at ½, where σ is steepest, and doubles v_proj."""
        return (Declaration("input_gate", "B H T", Projection(sigmoid), multiplies="values"),)

    @property
    def differs_by_head(self) -> bool:
        return True

    def value_factor(self, tensors: Mapping[str, Tensor], lengths: Tensor) -> Tensor | None:
        return tensors["input_gate"]


@dataclass(frozen=True)
class OutputGate(Part):
    """The output is multiplied by output_gate_i, before or after the output norm."""

    slot: ClassVar[str] = "output_gate"
    kind: ClassVar[str] = "output_gate"
    after_norm: bool = False

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """output_gate: σ of a projection. A conversion starts it at ½ and doubles v_proj, or o_proj after a norm."""
        multiplies = "output" if self.after_norm else "values"
        return (Declaration("output_gate", "B H T", Projection(sigmoid), multiplies=multiplies),)

    is_row_factor: ClassVar[bool] = True
    """Whether a row has one gate, which is positive; otherwise each channel has its own."""

    def before_norm(self, output: Output, tensors: Mapping[str, Tensor]) -> Output:
        """The row in the making, gated."""
        return output.times(tensors["output_gate"])

    def behind_norm(self, y: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The output (B, H, T, E), gated."""
        return y * tensors["output_gate"][..., None]

    def text(self, x: str) -> str:
        """The gate in front of x in a formula."""
        return f"gᵒ · {x}"
