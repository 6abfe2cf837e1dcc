"""Gates: what happens to the past, to a value as it enters, to an output."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from softmax_rnn.attention.parts.base import Part


class Decay(StrEnum):
    """How a model turns a raw projection r into the log decay of a step; the core takes the log decay."""

    LOG_SIGMOID = "log_sigmoid"
    """log σ(r), as in the Forgetting Transformer and in power attention."""
    NEGATIVE_SOFTPLUS = "negative_softplus"
    """−softplus(r), as in Mamba-2 and 2Mamba."""
    SCALED = "scaled"
    """r / 1024, as in the reference's gated_softmax_decay; positive values let the past grow."""


@dataclass(frozen=True)
class ForgetGate(Part):
    """decay(i, j) = exp(Σ_{j<r≤i} forget_gate_r): what happens to the past at each step."""

    slot: ClassVar[str] = "forget_gate"
    kind: ClassVar[str] = "forget_gate"
    decay: Decay = Decay.LOG_SIGMOID

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", Decay(self.decay))


@dataclass(frozen=True)
class InputGate(Part):
    """v_j is multiplied by input_gate_j before it enters the state."""

    slot: ClassVar[str] = "input_gate"
    kind: ClassVar[str] = "input_gate"


@dataclass(frozen=True)
class OutputGate(Part):
    """The output is multiplied by output_gate_i, before or after the output norm."""

    slot: ClassVar[str] = "output_gate"
    kind: ClassVar[str] = "output_gate"
    after_norm: bool = False
