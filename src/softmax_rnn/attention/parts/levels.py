"""Levels: a query weighs its past by how far back it lies, in pieces whose lengths double (log-linear attention)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Parameter, Projection
from softmax_rnn.attention.parts.mamba_decay import ONE_STEP
from softmax_rnn.attention.parts.structure import Structure
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Levels(Structure):
    """w_ij · λ_i[level], level = bit_length(i XOR j), positions counted from the first visible key of the segment.

    Level 0 is the query's own key; level ℓ holds 2^(ℓ−1) keys, the pieces into which a Fenwick tree cuts the past. What
    would lie beyond the last of ``count`` levels belongs to it. λ = softplus(scale · r), r a projection of the hidden
    state.
    """

    kind: ClassVar[str] = "levels"
    count: int = 15

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count < 2:
            raise InputError(f"count: expected 2 or more levels, got {self.count}")

    @property
    def levels(self) -> int:
        return self.count

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """level_weights: r. level_scales: what multiplies it, learned per head. A conversion starts at λ = 1."""
        raw = Projection(neutral_bias=ONE_STEP, typical=ONE_STEP)
        return (
            Declaration("level_weights", f"B H T {self.count}", raw),
            Declaration("level_scales", f"H {self.count}", Parameter(1.0)),
        )

    def weights(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """λ (B, H, T, levels)."""
        import torch

        return torch.nn.functional.softplus(tensors["level_scales"][:, None] * tensors["level_weights"])

    def weight_text(self) -> str:
        return " · λ"

    def text(self) -> str:
        return "all keys, λ = λ_i of the level, the bit length of i XOR j"
