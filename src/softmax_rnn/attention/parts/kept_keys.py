"""A fixed budget of keys beside window and sinks: those with the largest weights so far stay exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.structure import NearKeys
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from softmax_rnn.attention.spec import AttentionSpec


@dataclass(frozen=True, kw_only=True)
class KeptKeys(NearKeys):
    """exp on window, sinks and ``kept`` keys with the largest mass; the spec's polynomial on the rest, one denominator.

    The mass of a key is the sum, over the queries so far and the query heads that share it, of its part of the exact
    weights, exp(x_j) / Σ exp(x). A key that leaves the window is kept; where there is one too many, the one with the
    smallest mass is folded into the far state, for good. With the score exp it is dropped instead. ``centred`` expands
    the polynomial at the mean of the folded keys.
    """

    kind: ClassVar[str] = "kept_keys"
    step_by_step: ClassVar[bool] = True
    beside_exp: ClassVar[bool] = True
    needs_own_state: ClassVar[str | None] = "kept_keys chooses its keys as it reads"
    kept: int
    centred: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kept < 1:
            raise InputError(f"kept: expected 1 or more, got {self.kept}; without kept keys use near_far or window")

    @property
    def needs_row_sum(self) -> bool:
        return True

    @property
    def wide_sums(self) -> bool:
        return self.centred

    @property
    def near(self) -> int:
        return self.width + self.sinks + self.kept

    def kept_numbers(self, key_dim: int, value_dim: int) -> int:
        """With the mass of each key, and the sum of the folded ones."""
        return self.near * (key_dim + value_dim + 1) + key_dim * self.centred

    def check(self, spec: AttentionSpec) -> None:
        """exp or a polynomial of q·k, without a decay; and nothing that would count the keys that were dropped."""
        super().check(spec)
        polynomial = spec.score.as_polynomial
        if not spec.score.is_exponential and polynomial is None:
            raise InputError(f"structure: kept_keys needs exp or a polynomial score, got {spec.score.kind}")
        if spec.score.ceiling is not None:
            raise InputError("structure: kept_keys needs a score without a clamp or cap")
        if self.centred and (polynomial is None or not polynomial.has_all_orders):
            raise InputError("structure: centred needs every order up to the degree, as Taylor polynomials have")
        if spec.feature_map is not None:
            raise InputError("structure: kept_keys reads q·k; leave out the feature map")
        if spec.forget_gate is not None:
            raise InputError("structure: kept_keys has no decay; leave out the forget gate")
        if spec.normaliser is None or not spec.normaliser.reads_row_sum:
            raise InputError("structure: kept_keys needs a row_sum: how many keys are seen is not counted")

    def text(self) -> str:
        return f"{super().text()} and {self.kept} that are kept"

    def text_with(self, spec: AttentionSpec) -> str:
        """Where exp is used; with the score exp the rest is dropped."""
        if spec.score.is_exponential:
            return self.text()
        return f"all keys, exp(q·k/√d) in place of w for {self.text()}"
