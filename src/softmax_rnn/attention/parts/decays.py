"""What happens to the past at each step: one decay per head, constant or made from the hidden state.

decay(i, j) = α_{j+1} ⋯ α_i, and parts give log α. Decays per channel are in `channel_decays`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Part, Projection
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.spec import AttentionSpec

NO_DECAY = 40.0
"""log σ(40) = −4e-18: no decay at all, and no slope either. 8 forgets 0.03 % per step and learns."""


@dataclass(frozen=True)
class Forgetting(Part):
    """Whatever fills the slot of the forget gate."""

    slot: ClassVar[str] = "forget_gate"
    by_channel: ClassVar[bool] = False
    """Whether each channel of a key has its own decay."""

    @property
    def differs_by_head(self) -> bool:
        return True

    @property
    def reads_before_decay(self) -> bool:
        """Whether a query reads the state before the decay of its step; its key then counts by `bonus_weight`."""
        return False

    def log_decay(self, tensors: Mapping[str, Tensor], k: Tensor, heads: int) -> Tensor:
        """log α of each step (B, H, T), or (B, H, T, F) per channel; k (B, K, T, D) are the keys as they were given."""
        raise NotImplementedError(f"{type(self).__name__} has no method log_decay")

    def check(self, spec: AttentionSpec) -> None:
        """Refuse what it cannot be combined with."""

    def keys(self, features: Tensor, k: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The keys as they enter the sum, from their features and from the keys as they were given."""
        return features

    def bonus_weight(self, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """What multiplies each channel of the product of a query with its own key (H, F)."""
        return None

    def of_layer(self, layer: int, layers: int) -> Forgetting:
        """The part as layer number ``layer`` of so many has it."""
        return self

    def bare(self) -> Forgetting:
        """Without what only a model reads: two parts with the same bare one are the same function."""
        return self

    def text(self) -> str:
        """α in a formula."""
        return "α"

    def value_text(self) -> str:
        """What comes before v in a formula."""
        return ""


class Decay(StrEnum):
    """How a model turns a raw projection r into the log decay of a step; `attend` takes the log decay."""

    LOG_SIGMOID = "log_sigmoid"
    """log σ(r), as in the Forgetting Transformer and in power attention."""
    NEGATIVE_SOFTPLUS = "negative_softplus"
    """−softplus(r), as in 2Mamba."""
    NEGATIVE_EXP = "negative_exp"
    """−eʳ, as in RWKV-6."""
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


def negative_exp(raw: Tensor) -> Tensor:
    """−eʳ."""
    return -raw.exp()


def scaled(raw: Tensor) -> Tensor:
    """r / 1024."""
    return raw / 1024


_PROJECTIONS = {
    Decay.LOG_SIGMOID: Projection(log_sigmoid, neutral_bias=NO_DECAY, typical=2.0),
    Decay.NEGATIVE_SOFTPLUS: Projection(negative_softplus, neutral_bias=-NO_DECAY, typical=-2.0),
    Decay.NEGATIVE_EXP: Projection(negative_exp, neutral_bias=-NO_DECAY, typical=-2.0),
    Decay.SCALED: Projection(scaled, typical=-100.0),
}
_TEXTS = {
    Decay.LOG_SIGMOID: "σ(r)",
    Decay.NEGATIVE_SOFTPLUS: "σ(−r)",
    Decay.NEGATIVE_EXP: "exp(−eʳ)",
    Decay.SCALED: "exp(r/1024)",
}


@cache
def decay_projection(decay: Decay, divisor: float) -> Projection:
    """How a model makes a log decay; the same object for the same options, so that declarations can be compared."""
    made = _PROJECTIONS[decay]
    if divisor == 1:
        return made

    def divided(raw: Tensor) -> Tensor:
        return made.activation(raw) / divisor

    return replace(made, activation=divided)


def decay_text(decay: Decay, divisor: float) -> str:
    """α in a formula."""
    return _TEXTS[decay] + ("" if divisor == 1 else f"^(1/{divisor:g})")


def check_divisor(divisor: float) -> None:
    """A divisor is positive."""
    if not (math.isfinite(divisor) and divisor > 0):
        raise InputError(f"divisor: expected a positive number, got {divisor!r}")


def check_layer(layer: int | None, layers: int | None) -> None:
    """A layer is one of so many; both are known, or neither."""
    if (layer is None) != (layers is None):
        raise InputError(f"layer: expected both layer and layers, or neither, got {layer} of {layers}")
    if layer is not None and layers is not None and not 0 <= layer < layers:
        raise InputError(f"layer: expected 0 to {layers - 1}, got {layer}")


@cache
def spread_over_heads(first: float, last: float) -> Callable[[tuple[int, ...]], Tensor]:
    """Biases in equal steps from the first head to the last; the same object for the same numbers."""

    def biases(shape: tuple[int, ...]) -> Tensor:
        import torch

        return torch.linspace(first, last, shape[0])

    return biases


@dataclass(frozen=True)
class ForgetGate(Forgetting):
    """log α = the tensor forget_gate; a model makes it from the hidden state, as ``decay`` says, over ``divisor``."""

    kind: ClassVar[str] = "forget_gate"
    decay: Decay = Decay.LOG_SIGMOID
    divisor: float = 1.0
    first_bias: float | tuple[float, ...] = 0.0
    """The bias of the projection in a new model; two numbers: of the first head and of the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divisor(self.divisor)
        if isinstance(self.first_bias, tuple) and len(self.first_bias) != 2:
            raise InputError(
                f"first_bias: expected one number, or the first and the last head's, got {self.first_bias}"
            )

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """forget_gate: the log decay of each step."""
        bias = spread_over_heads(*self.first_bias) if isinstance(self.first_bias, tuple) else self.first_bias
        made = replace(decay_projection(self.decay, self.divisor), first_bias=bias)
        return (Declaration("forget_gate", "B H T", made),)

    def log_decay(self, tensors: Mapping[str, Tensor], k: Tensor, heads: int) -> Tensor:
        return tensors["forget_gate"]

    def bare(self) -> Forgetting:
        return ForgetGate()

    def text(self) -> str:
        return decay_text(self.decay, self.divisor)
