"""Skips: what reaches the output past the attention, before gate and norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Along, Declaration, Parameter, Part
from softmax_rnn.attention.parts.vector_gate import silu
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.epilogue import Rows


@dataclass(frozen=True)
class Skip(Part):
    """What is added to the normalised output."""

    slot: ClassVar[str] = "skip"

    def added(self, rows: Rows) -> Tensor:
        """The summand (B, H, T, E)."""
        raise NotImplementedError(f"{type(self).__name__} has no method added")

    def text(self) -> str:
        """What follows the normalised sum in a formula."""
        return f" + {self.kind}"


@dataclass(frozen=True)
class OwnValue(Skip):
    """+ D · v_i, D one number per head, 1 at the start: Mamba-2's skip."""

    kind: ClassVar[str] = "own_value"

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        return (Declaration("skip_weight", "H", Parameter(1.0, neutral=0.0)),)

    def added(self, rows: Rows) -> Tensor:
        """D · v_i, without the input gate."""
        return rows.tensors["skip_weight"][:, None, None] * _by_head(rows.v, rows)

    def text(self) -> str:
        return " + D vᵢ"


@dataclass(frozen=True)
class ConvolvedValue(Skip):
    """+ Σ_{b<width} c_b ⊙ v_{i−b}, through SiLU or as it is: a causal convolution with separate taps per channel.

    Values of other segments and of padding count as 0. RecGRELA's local shortcut has SiLU, NaLaFormer's has not.
    """

    kind: ClassVar[str] = "convolved_value"
    width: int = 4
    silu: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.width <= 64:
            raise InputError(f"width: expected 1 to 64 taps, got {self.width}")

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """skip_taps: c, the tap of the position itself last."""
        return (Declaration("skip_taps", f"K E {self.width}", Parameter(uniform_taps, neutral=0.0)),)

    @property
    def running_axes(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The last values of each key head."""
        return f"K {self.width} E"

    def running_start(self) -> float | None:
        return 0.0

    def running(self, along: Along, before: Tensor | None) -> Tensor | None:
        """v_{i−width+1} … v_i of each position (B, K, T, width, E)."""
        import torch

        v, reach = along.v, self.width - 1
        past = v.new_zeros(*v.shape[:2], reach, v.shape[-1]) if before is None else before[:, :, 1:].to(v.dtype)
        windows = torch.cat([past, v], 2).unfold(2, self.width, 1).mT
        first = along.seen.first_key
        if first is not None:
            steps = torch.arange(-reach, 1, device=v.device)
            inside = torch.arange(v.shape[2], device=v.device)[:, None] + steps >= first[..., None]
            windows = windows * inside[:, None, ..., None]
        return windows

    def added(self, rows: Rows) -> Tensor:
        windows = rows.running[self.slot]
        summed = (windows * rows.tensors["skip_taps"].mT[:, None]).sum(-2)
        return _by_head(silu(summed) if self.silu else summed, rows)

    def text(self) -> str:
        conv = f"conv{self.width}(v)"
        return f" + SiLU({conv})" if self.silu else f" + {conv}"


def uniform_taps(shape: tuple[int, ...]) -> Tensor:
    """U(±1/√width), as a convolution of that width starts."""
    import torch

    bound = 1 / math.sqrt(shape[-1])
    return torch.empty(shape).uniform_(-bound, bound, generator=torch.Generator().manual_seed(0))


def _by_head(x: Tensor, rows: Rows) -> Tensor:
    """Values (B, K, T, E) for the H query heads."""
    return x.repeat_interleave(rows.q.shape[1] // x.shape[1], dim=1)
