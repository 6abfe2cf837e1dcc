"""Decays that are the same for every token: one number per head, from a schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.constants import constant
from softmax_rnn.attention.parts.decays import Forgetting, check_layer

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Schedule(StrEnum):
    """Constant decays, head by head; h counts from 0, H heads."""

    RETNET = "retnet"
    """α = 1 − 2^(−5−h)."""
    LIGHTNING = "lightning"
    """log α = −(8/H)(1 − layer/layers) h: head 0 never forgets, and deep layers forget less."""
    ALIBI = "alibi"
    """log α = −2^(−8(h+1)/H)."""


def _retnet(heads: int, depth: float) -> list[float]:
    return [math.log1p(-(2.0 ** (-5 - h))) for h in range(heads)]


def _lightning(heads: int, depth: float) -> list[float]:
    return [-8 / heads * (1 - depth) * h for h in range(heads)]


def _alibi(heads: int, depth: float) -> list[float]:
    return [-(2.0 ** (-8 * (h + 1) / heads)) for h in range(heads)]


_SCHEDULES: dict[Schedule, tuple[Callable[[int, float], list[float]], str]] = {
    Schedule.RETNET: (_retnet, "1 − 2^(−5−h)"),
    Schedule.LIGHTNING: (_lightning, "exp(−8h/H · (1 − layer/layers))"),
    Schedule.ALIBI: (_alibi, "exp(−2^(−8(h+1)/H))"),
}


@constant
def _log_decays(schedule: Schedule, heads: int, depth: float, device: torch.device) -> Tensor:
    import torch

    return torch.tensor(_SCHEDULES[schedule][0](heads, depth), dtype=torch.float64, device=device)


@dataclass(frozen=True)
class FixedDecay(Forgetting):
    """A constant α per head. No tensor, nothing to learn.

    ``layer`` of ``layers`` matters to the lightning schedule alone. A model fills both in; without them it is layer 0.
    """

    kind: ClassVar[str] = "fixed_decay"
    schedule: Schedule = Schedule.RETNET
    layer: int | None = None
    layers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layer(self.layer, self.layers)

    def log_decay(self, tensors: Mapping[str, Tensor], k: Tensor, heads: int) -> Tensor:
        depth = 0.0 if self.layer is None or self.layers is None else self.layer / self.layers
        rates = _log_decays(self.schedule, heads, depth, k.device)
        return rates[None, :, None].expand(k.shape[0], -1, k.shape[2])

    def of_layer(self, layer: int, layers: int) -> Forgetting:
        known = self.schedule != Schedule.LIGHTNING or self.layer is not None
        return self if known else replace(self, layer=layer, layers=layers)

    def text(self) -> str:
        return _SCHEDULES[self.schedule][1]
