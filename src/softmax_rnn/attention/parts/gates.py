"""Gates: what happens to the past, to a value as it enters, to an output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Part, Projection, sigmoid

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.epilogue import Output


class Decay(StrEnum):
    """How a model turns a raw projection r into the log decay of a step; `attend` takes the log decay."""

    LOG_SIGMOID = "log_sigmoid"
    """log σ(r), as in the Forgetting Transformer and in power attention."""
    NEGATIVE_SOFTPLUS = "negative_softplus"
    """−softplus(r), as in Mamba-2 and 2Mamba."""
    SCALED = "scaled"
    """r / 1024, as in the reference's gated_softmax_decay; positive values let the past grow."""


def log_sigmoid(raw: Tensor) -> Tensor:
    """log σ(r)."""
    import torch

    return torch.nn.functional.logsigmoid(raw)


def negative_softplus(raw: Tensor) -> Tensor:
    """−log(1 + eʳ)."""
    import torch

    return -torch.nn.functional.softplus(raw)


def scaled(raw: Tensor) -> Tensor:
    """r / 1024."""
    return raw / 1024


NO_DECAY = 40.0
"""log σ(40) = −4e-18: no decay at all, and no slope either. 8 forgets 0.03 % per step and learns."""
_PROJECTIONS = {
    Decay.LOG_SIGMOID: Projection(log_sigmoid, neutral_bias=NO_DECAY, typical=2.0),
    Decay.NEGATIVE_SOFTPLUS: Projection(negative_softplus, neutral_bias=-NO_DECAY, typical=-2.0),
    Decay.SCALED: Projection(scaled, typical=-100.0),
}


@dataclass(frozen=True)
class ForgetGate(Part):
    """decay(i, j) = exp(Σ_{j<r≤i} forget_gate_r): what happens to the past at each step."""

    slot: ClassVar[str] = "forget_gate"
    kind: ClassVar[str] = "forget_gate"
    decay: Decay = Decay.LOG_SIGMOID

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """forget_gate: the log decay of each step."""
        return (Declaration("forget_gate", "B H T", _PROJECTIONS[self.decay]),)

    @property
    def differs_by_head(self) -> bool:
        """Each query head forgets at its own rate."""
        return True

    def log_decay(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The log decay of each step (B, H, T)."""
        return tensors["forget_gate"]


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
        """Each query head gates the values that it shares with others."""
        return True

    def value_factor(self, tensors: Mapping[str, Tensor], lengths: Tensor) -> Tensor | None:
        """The gate itself."""
        return tensors["input_gate"]


@dataclass(frozen=True)
class OutputGate(Part):
    """The output is multiplied by output_gate_i, before or after the output norm."""

    slot: ClassVar[str] = "output_gate"
    kind: ClassVar[str] = "output_gate"
    after_norm: bool = False

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """output_gate: σ of a projection. A conversion starts it at ½ and doubles v_proj, or o_proj behind a norm."""
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
