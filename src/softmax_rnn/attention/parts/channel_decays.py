"""A decay for each channel of a key: w_ij = f(Σ_c q_ic k_jc e^(c_ic − c_jc)), c the running log decay of the channel.

Of a polynomial f the state's entry of a monomial decays with the product of its channels' decays; the constant term
never decays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Parameter, tanh
from softmax_rnn.attention.parts.decays import (
    Decay,
    Forgetting,
    check_divisor,
    check_layer,
    decay_projection,
    decay_text,
    log_sigmoid,
)
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
        if not spec.score.is_exponential and spec.score.as_polynomial is None:
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
        """channel_gate: the log decay of each step and channel. bonus: the weight of the current key's channels."""
        made = replace(decay_projection(self.decay, self.divisor), rank=self.rank)
        if self.decay == Decay.NEGATIVE_EXP:
            made = replace(made, first_bias=spread_biases, between=tanh)
        gate = Declaration("channel_gate", "B H T F", made)
        return (gate, Declaration("bonus", "H F", Parameter(neutral=1.0))) if self.bonus else (gate,)

    @property
    def reads_before_decay(self) -> bool:
        return self.bonus

    def log_decay(self, tensors: Mapping[str, Tensor], k: Tensor, heads: int) -> Tensor:
        return tensors["channel_gate"]

    def bonus_weight(self, tensors: Mapping[str, Tensor]) -> Tensor | None:
        return tensors["bonus"] if self.bonus else None

    def bare(self) -> Forgetting:
        return ChannelGate(bonus=self.bonus)

    def text(self) -> str:
        return decay_text(self.decay, self.divisor) + ", own key · bonus" * self.bonus


@dataclass(frozen=True)
class KeyDecay(ChannelForgetting):
    """α = b + (1 − b) σ(k), and the key that enters is 1 − α: what is new takes the place of what is forgotten.

    b is the lower bound of the decay; ``learned_bound`` has one per channel, b = σ(lower_bound), that starts at
    layer / layers and is 0 in the first layer. The keys that are given are the raw projection.
    """

    kind: ClassVar[str] = "key_decay"
    learned_bound: bool = False
    layer: int | None = None
    layers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layer(self.layer, self.layers)

    @property
    def has_bound(self) -> bool:
        """In all layers but the first."""
        return self.learned_bound and self.layer != 0

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """lower_bound: b before its sigmoid."""
        if not self.has_bound:
            return ()
        depth = 0.5 if self.layer is None or self.layers is None else self.layer / self.layers
        return (Declaration("lower_bound", "K D", Parameter(math.log(depth / (1 - depth)))),)

    def check(self, spec: AttentionSpec) -> None:
        """The keys have as many channels as the features of the queries."""
        super().check(spec)
        if spec.width(64) != 64:
            raise InputError(
                f"forget_gate: key_decay needs a feature map that keeps the dimension, got {spec.feature_map}"
            )

    def log_decay(self, tensors: Mapping[str, Tensor], k: Tensor, heads: int) -> Tensor:
        """From the keys; those that heads share decay alike."""
        import torch

        log = log_sigmoid(k)
        if self.has_bound:
            raw = tensors["lower_bound"][:, None]
            log = torch.logaddexp(log_sigmoid(raw), log_sigmoid(-raw) + log)
        return log.repeat_interleave(heads // k.shape[1], dim=1)

    def keys(self, features: Tensor, k: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """1 − α = (1 − b) σ(−k), without the cancellation."""
        key = (-k).sigmoid()
        return key * (-tensors["lower_bound"][:, None]).sigmoid() if self.has_bound else key

    def of_layer(self, layer: int, layers: int) -> Forgetting:
        """Learned bounds rise with the depth."""
        return replace(self, layer=layer, layers=layers) if self.learned_bound and self.layer is None else self

    def text(self) -> str:
        return f"{'b + (1 − b) σ(k)' if self.has_bound else 'σ(k)'}, keys 1 − α"
