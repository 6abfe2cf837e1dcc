"""Write rules: what enters the sum in place of the values.

An attention adds each value to what it knows. A delta rule first reads what is already known at the place where it is
about to write, and enters the difference v′:

    v′_i = gain_i · v_i − β_i · Σ_{j<i} a_ij · v′_j         then  y_i = Σ_{j≤i} w_ij · v′_j  as ever

a_ij is the weight f(φ(k_i)·φ(k_j)) · decay(i, j) of the spec's score between two keys; the read never sees its own
position. `attention.write` computes v′, so the forms, the normaliser and the state need not know of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Part, Projection, sigmoid
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.spec import AttentionSpec


class Read(StrEnum):
    """What reads the value that is already stored."""

    KEY = "key"
    QUERY = "query"


@dataclass(frozen=True)
class WriteRule(Part):
    """How values become what is written."""

    slot: ClassVar[str] = "write_rule"
    normalised: ClassVar[bool] = False
    """Whether the weights of the read are divided by their sum."""

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """beta: how much of the difference is written, σ of a projection."""
        return (Declaration("beta", "B H T", Projection(sigmoid)),)

    @property
    def differs_by_head(self) -> bool:
        return True

    @property
    def reads_with_query(self) -> bool:
        """Whether the query, not the key, reads what is stored."""
        return False

    def rates(self, beta: Tensor, self_weight: Tensor) -> tuple[Tensor | None, Tensor]:
        """The gain of the value (None: 1) and the rate β of what is read; ``self_weight`` is f(k_i·k_i), (B, H, T)."""
        raise NotImplementedError(f"{type(self).__name__} has no method rates")

    def text(self, value: str) -> str:
        """v′ in a formula, ``value`` the value as it would enter the sum."""
        raise NotImplementedError(f"{type(self).__name__} has no method text")

    def check(self, spec: AttentionSpec) -> None:
        """A read is one more contraction of the spec's kind, so the score must be the same function at every row."""
        if spec.score.kind not in ("exp", "polynomial"):
            raise InputError(f"write_rule: expected the score exp or polynomial, got {spec.score.kind}")
        if spec.forget_gate and spec.forget_gate.by_channel:
            raise InputError(f"write_rule: expected a decay per head, got the forget gate {spec.forget_gate.kind}")
        if spec.structure:
            raise InputError(f"write_rule: expected all keys to be seen, got the structure {spec.structure.kind}")


@dataclass(frozen=True)
class DeltaRule(WriteRule):
    """v′_i = β_i (v_i − Σ_{j<i} f(k_i·k_j) · decay(i, j) · v′_j): the error of what the key reads.

    A write overshoots where β_i · f(k_i·k_i) is above 1. ``bounded`` divides β_i by f(k_i·k_i) where that is.
    """

    kind: ClassVar[str] = "delta"
    bounded: bool = False

    def rates(self, beta: Tensor, self_weight: Tensor) -> tuple[Tensor | None, Tensor]:
        rate = beta / self_weight.clamp(min=1) if self.bounded else beta
        return rate, rate

    def text(self, value: str) -> str:
        beta = "β/max(w(k, k), 1)" if self.bounded else "β"
        return f"v′ = {beta} ({value} − Σ_{{j<i}} w(k, kⱼ) v′ⱼ)"


@dataclass(frozen=True)
class NormalisedDelta(WriteRule):
    """v′_i = v_i − β_i Σ_{j<i} w_ij v′_j / Σ_{j<i} w_ij, read with the query or with the key."""

    kind: ClassVar[str] = "normalised_delta"
    normalised: ClassVar[bool] = True
    read: Read = Read.QUERY

    @property
    def reads_with_query(self) -> bool:
        return self.read is Read.QUERY

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """beta. A conversion starts it at 0, where the values are left alone."""
        return (Declaration("beta", "B H T", Projection(sigmoid, neutral_bias=-40.0)),)

    def rates(self, beta: Tensor, self_weight: Tensor) -> tuple[Tensor | None, Tensor]:
        """The value enters whole."""
        return None, beta

    def text(self, value: str) -> str:
        weight = "w" if self.reads_with_query else "w(k, kⱼ)"
        return f"v′ = {value} − β Σ_{{j<i}} {weight} v′ⱼ / Σ_{{j<i}} {weight}"

    def check(self, spec: AttentionSpec) -> None:
        """A state of fixed size knows the sum of weights only where a normaliser asks for it."""
        super().check(spec)
        if not spec.wants_row_sum:
            raise InputError(
                "write_rule: normalised_delta divides by a sum of weights, so it needs the normaliser row_sum"
            )
