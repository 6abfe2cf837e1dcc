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

    i − b counts keys without padding; values of other segments count as 0. RecGRELA's local shortcut has SiLU,
    NaLaFormer's has not.
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
        """The last values up to each position (B, K, T, width, E)."""
        import torch

        v, seen = along.v, along.seen
        past = v.new_zeros(*v.shape[:2], self.width, v.shape[-1]) if before is None else before.to(v.dtype)
        if seen.key_mask is None:
            count = torch.arange(1, v.shape[2] + 1, device=v.device)[None]
            windows = torch.cat([past[:, :, 1:], v], 2).unfold(2, self.width, 1).mT
        else:
            count = seen.key_mask.cumsum(-1)
            real_first = seen.key_mask.byte().argsort(dim=-1, descending=True, stable=True)
            values = torch.cat([past, v.gather(2, real_first[:, None, :, None].expand_as(v))], 2)
            windows = values.unfold(2, self.width, 1).mT
            windows = windows.gather(2, count[:, None, :, None, None].expand(*v.shape[:3], *windows.shape[3:]))
        if seen.first_key is not None:
            before_document = torch.nn.functional.pad(count, (1, 0)).expand(v.shape[0], -1).gather(1, seen.first_key)
            numbers = count[..., None] + torch.arange(-self.width, 0, device=v.device)
            windows = windows * (numbers >= before_document[..., None])[:, None, ..., None]
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
