"""A decay for each channel of a key: w_ij = f(Σ_c q_ic k_jc e^(c_ic − c_jc)), c the running log decay of the channel.

Of a polynomial f the state's entry of a monomial decays with the product of its channels' decays; the constant term
never decays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Parameter
from softmax_rnn.attention.parts.decays import (
    Decay,
    Forgetting,
    check_divisor,
    decay_projection,
    decay_text,
    log_sigmoid,
)
from softmax_rnn.attention.parts.score import Exp, Polynomial
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.spec import AttentionSpec


def spread_biases(shape: tuple[int, ...]) -> Tensor:
    """−6 … −1 over the channels of all heads, as RWKV-6 starts: with −eʳ decays from 0.998 to 0.69 per step."""
    import torch

    return (-6 + 5 * torch.linspace(0, 1, torch.Size(shape).numel()) ** 0.7).reshape(shape)


@dataclass(frozen=True)
class ChannelForgetting(Forgetting):
    """A decay per channel, however it is made."""

    by_channel: ClassVar[bool] = True

    def check(self, spec: AttentionSpec) -> None:
        """What a range says of products does not hold once their channels decay."""
        if not isinstance(spec.score, (Exp, Polynomial)):
            raise InputError(f"forget_gate: {self.kind} needs the score exp or a polynomial, got {spec.score.kind}")


@dataclass(frozen=True)
class ChannelGate(ChannelForgetting):
    """log α = the tensor channel_gate, one number per channel, through a projection of the given ``rank``.

    With ``bonus`` a query reads the state before the decay of its step, and its own key counts with a learned weight
    per channel.
    """

    kind: ClassVar[str] = "channel_gate"
    decay: Decay = Decay.LOG_SIGMOID
    divisor: float = 1.0
    rank: int | None = None
    bonus: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divisor(self.divisor)
        if self.decay == Decay.SCALED:
            raise InputError("decay: a decay per channel must not grow; expected one other than scaled")
        if self.rank is not None and self.rank < 1:
            raise InputError(f"rank: expected a whole number of 1 or more, or None, got {self.rank}")

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """channel_gate: the log decay of each step and channel. bonus: the weight of the own key's channels."""
        made = replace(decay_projection(self.decay, self.divisor), rank=self.rank)
        if self.decay == Decay.NEGATIVE_EXP:
            made = replace(made, first_bias=spread_biases)
        gate = Declaration("channel_gate", "B H T F", made)
        return (gate, Declaration("bonus", "H F", Parameter(neutral=1.0))) if self.bonus else (gate,)

    @property
    def reads_before_decay(self) -> bool:
        """Where the own key has a weight of its own."""
        return self.bonus

    def log_decay(self, tensors: Mapping[str, Tensor], k: Tensor, heads: int) -> Tensor:
        """The tensor itself."""
        return tensors["channel_gate"]

    def own_weight(self, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """The bonus."""
        return tensors["bonus"] if self.bonus else None

    def bare(self) -> Forgetting:
        """How the tensor was made is the model's affair."""
        return ChannelGate(bonus=self.bonus)

    def text(self) -> str:
        """As the model makes it."""
        return decay_text(self.decay, self.divisor) + ", own key · bonus" * self.bonus


@dataclass(frozen=True)
class KeyDecay(ChannelForgetting):
    """α = b + (1 − b) σ(k), and the key that enters is 1 − α: what is new takes the place of what is forgotten.

    b is the lower bound of the decay. The keys that are given are the raw projection.
    """

    kind: ClassVar[str] = "key_decay"
    lower_bound: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.lower_bound < 1:
            raise InputError(f"lower_bound: expected 0 or more and less than 1, got {self.lower_bound!r}")

    def check(self, spec: AttentionSpec) -> None:
        """The keys have as many channels as the features of the queries."""
        super().check(spec)
        if spec.width(64) != 64:
            raise InputError(
                f"forget_gate: key_decay needs a feature map that keeps the dimension, got {spec.feature_map}"
            )

    def log_decay(self, tensors: Mapping[str, Tensor], k: Tensor, heads: int) -> Tensor:
        """From the keys; those that heads share decay alike."""
        bound = self.lower_bound
        log = log_sigmoid(k) if not bound else (bound + (1 - bound) * k.sigmoid()).log()
        return log.repeat_interleave(heads // k.shape[1], dim=1)

    def keys(self, features: Tensor, k: Tensor) -> Tensor:
        """1 − α = (1 − b) σ(−k), without the cancellation."""
        return (-k).sigmoid() * (1 - self.lower_bound)

    def text(self) -> str:
        """With the key that goes with it."""
        alpha = f"{self.lower_bound:g} + {1 - self.lower_bound:g} σ(k)" if self.lower_bound else "σ(k)"
        return f"{alpha}, keys 1 − α"
