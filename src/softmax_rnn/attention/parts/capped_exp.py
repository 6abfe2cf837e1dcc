"""exp of scores that are bent below a cap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.score import Exp
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class CappedExp(Exp):
    """f(x) = exp(cap · tanh(x / cap)), as in Gemma 2."""

    kind: ClassVar[str] = "capped_exp"
    cap: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.cap) and self.cap > 0):
            raise InputError(f"cap: expected a positive number, got {self.cap!r}")
        if self.clamp is not None:
            raise InputError(f"clamp: a capped exp has none, got {self.clamp!r}")

    @property
    def ceiling(self) -> float | None:
        return self.cap

    @property
    def work(self) -> tuple[float, float]:
        """tanh costs as much as exp."""
        return 2.0, 4.0

    def cut(self, x: Tensor) -> Tensor:
        """cap · tanh(x / cap)."""
        return (x / self.cap).tanh() * self.cap

    def cut_(self, x: Tensor) -> Tensor:
        return x.div_(self.cap).tanh_().mul_(self.cap)

    def cut_gradient_(self, grad: Tensor, x: Tensor) -> None:
        """1 − tanh²(x / cap)."""
        import torch

        torch.ops.aten.tanh_backward.grad_input(grad, (x / self.cap).tanh_(), grad_input=grad)

    def text(self, x: str) -> str:
        return f"exp({self.cap:g} tanh({x} / {self.cap:g}))"
