"""Normalisers: what takes the place of softmax's denominator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Along, Declaration, Parameter, Part, Projection, check_eps, check_minimum
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.epilogue import Output, Rows


@dataclass(frozen=True)
class Normaliser(Part):
    """What the numerator is divided by."""

    slot: ClassVar[str] = "normaliser"
    reads_row_sum: ClassVar[bool] = False
    """Whether it reads Σ_j w_ij, so that the values need a column of ones."""

    def normalise(self, output: Output, rows: Rows) -> Output:
        """The numerator, divided."""
        raise NotImplementedError(f"{type(self).__name__} has no method normalise")

    def is_positive_factor(self, negative_weights: bool) -> bool:
        """Whether it divides each row by one positive number; ``negative_weights``: whether weights can be below 0."""
        return False

    def text(self) -> str:
        """What follows the numerator in a formula."""
        return f" / {self.kind}"

    def value_text(self) -> str:
        """What follows v in a formula."""
        return ""


@dataclass(frozen=True)
class RowSum(Normaliser):
    """÷ max(Σ_j w_ij + eps, minimum): the softmax denominator; ``detach`` stops its gradient.

    With ``absolute`` the absolute value of the sum is compared with the minimum, as in mLSTM.
    """

    kind: ClassVar[str] = "row_sum"
    reads_row_sum: ClassVar[bool] = True
    minimum: float | None = None
    eps: float = 0.0
    detach: bool = False
    absolute: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(self.minimum)
        check_eps(self.eps)
        if self.absolute and self.minimum is None:
            raise InputError("absolute: expected a minimum as well, without one a sum of 0 would divide")

    def normalise(self, output: Output, rows: Rows) -> Output:
        """÷ max(Σ w + eps, minimum); sums that are not positive are reported, not repaired."""
        assert rows.row_sum is not None
        total = rows.row_sum
        if self.eps:
            total = total + output.in_units(self.eps)
        if self.minimum is not None:
            total = total.abs() if self.absolute else total
            total = total.maximum(output.in_units(self.minimum))
        else:
            total = rows.reported(total)
        return output.over(total.detach() if self.detach else total)

    def is_positive_factor(self, negative_weights: bool) -> bool:
        return self.minimum is not None or not negative_weights

    @property
    def is_ratio(self) -> bool:
        """Whether a constant factor of all weights drops out."""
        return self.minimum is None and not self.eps

    def text(self) -> str:
        text = "|Σ w|" if self.absolute else "Σ w"
        if self.eps:
            text = f"(Σ w + {self.eps:g})"
        if self.minimum is not None:
            text = f"max({text}, {self.minimum:g})"
        return f" / stopgrad({text.strip('()') if self.minimum is None else text})" if self.detach else f" / {text}"


@dataclass(frozen=True)
class Length(Normaliser):
    """÷ n_i, the number of keys that query i sees."""

    kind: ClassVar[str] = "length"

    def normalise(self, output: Output, rows: Rows) -> Output:
        return output.times(1 / rows.lengths.clamp(min=1)[:, None])

    def is_positive_factor(self, negative_weights: bool) -> bool:
        return True

    def text(self) -> str:
        return " / n"


@dataclass(frozen=True)
class LearnedLength(Normaliser):
    """÷ n^σ(c), c one number per head: n counted at the query (n_i), or at the key (n_j) as the reference does."""

    kind: ClassVar[str] = "learned_length"
    by_key: bool = False

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """length_exponent: c, before the sigmoid."""
        return (Declaration("length_exponent", "H", Parameter(0.5)),)

    @property
    def differs_by_head(self) -> bool:
        return self.by_key

    def value_factor(self, tensors: Mapping[str, Tensor], lengths: Tensor) -> Tensor | None:
        return self._power(tensors, lengths) if self.by_key else None

    def normalise(self, output: Output, rows: Rows) -> Output:
        return output if self.by_key else output.times(self._power(rows.tensors, rows.lengths))

    def _power(self, tensors: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """n^(−σ(c)), and 1 where nothing is seen."""
        exponent = tensors["length_exponent"].sigmoid()[None, :, None]
        return (-exponent * lengths.clamp(min=1).log()[:, None]).exp()

    def is_positive_factor(self, negative_weights: bool) -> bool:
        return not self.by_key

    def text(self) -> str:
        return "" if self.by_key else " / n^σ(c)"

    def value_text(self) -> str:
        return "/nⱼ^σ(c)" if self.by_key else ""


@dataclass(frozen=True)
class CumulativeGate(Normaliser):
    """÷ max(Σ_{r≤i} exp(output_gate_r), minimum), with ``times_length`` also ÷ n_i; the gate is the raw projection."""

    kind: ClassVar[str] = "cumulative_gate"
    minimum: float | None = None
    times_length: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(self.minimum)

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """output_gate, raw. At 0 the sum is n, the number of keys."""
        return (Declaration("output_gate", "B H T", Projection()),)

    def running(self, along: Along, before: Tensor | None) -> Tensor | None:
        """log Σ_{r seen by i} exp(gate_r), continued from the value of the past."""
        from softmax_rnn.attention.prologue import running_log_sum

        return running_log_sum(along.tensors["output_gate"], along.seen, before)

    def running_start(self) -> float | None:
        return -math.inf

    def normalise(self, output: Output, rows: Rows) -> Output:
        """Its logarithm is known, so it is taken off the row's log_scale."""
        mass = rows.running[self.slot]
        if self.minimum is not None:
            mass = mass.clamp(min=math.log(self.minimum))
        if self.times_length:
            output = output.times(1 / rows.lengths.clamp(min=1)[:, None])
        return output.times_exp(-mass)

    def is_positive_factor(self, negative_weights: bool) -> bool:
        return True

    def text(self) -> str:
        text = "Σᵣ exp(gᵒᵣ)"
        if self.minimum is not None:
            text = f"max({text}, {self.minimum:g})"
        return f" / (n · {text})" if self.times_length else f" / {text}"
