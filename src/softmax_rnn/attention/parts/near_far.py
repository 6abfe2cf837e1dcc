"""Exact near, compressed far: exp on window and sinks, the spec's polynomial on the keys that have left the window.

Each way to put the two together is another function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Parameter
from softmax_rnn.attention.parts.normalisers import RowSum
from softmax_rnn.attention.parts.structure import NearKeys
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.contraction import Sums
    from softmax_rnn.attention.spec import AttentionSpec


class Alone(StrEnum):
    """One of the two parts."""

    NEAR = "near"
    FAR = "far"


@dataclass(frozen=True)
class Both:
    """What the two parts are put together from."""

    near: Sums
    """exp on window and sinks; its log_scale is the largest logarithm of a weight in the row."""
    far: Sums
    is_far: Tensor
    """Where a key has left the window, (B, 1, 1, Tq)."""
    tensors: Mapping[str, Tensor]
    """Those of the spec; one number per head as (K, G, 1)."""


@dataclass(frozen=True)
class NearFar(NearKeys):
    """exp on window and sinks, the spec's polynomial on the rest, one denominator.

    With a feature map, exp still reads q·k/√d. Equal to softmax as the width or the order grows. ``centred`` expands
    the far part at μ_i, the mean of its keys: e^(q·μ) f(q·(k − μ)). ``gaussian`` has in place of the Taylor polynomial
    of exp the one that is closest to it where scores are normally distributed, with the variance of the query's far
    scores; the state has what is needed for it. ``alone`` takes only one of the two parts.
    """

    kind: ClassVar[str] = "near_far"
    beside_exp: ClassVar[bool] = True
    reads_largest: ClassVar[bool] = False
    """Whether the largest near score is part of the function."""
    needs_own_state: ClassVar[str | None] = "near_far sums up the keys that leave the window"
    centred: bool = False
    gaussian: bool = False
    alone: Alone | None = None

    @property
    def needs_row_sum(self) -> bool:
        return self.gaussian

    @property
    def wide_sums(self) -> bool:
        return self.centred

    @property
    def spare(self) -> int:
        """None: a key that leaves the window is summed up."""
        return 0

    def check(self, spec: AttentionSpec) -> None:
        """The rest needs a state of fixed size."""
        super().check(spec)
        polynomial = spec.score.as_polynomial
        if polynomial is None or spec.score.clamp is not None:
            raise InputError(f"structure: {self.kind} needs a polynomial score without a clamp, got {spec.score.kind}")
        if self.centred and spec.feature_map is not None:
            raise InputError("structure: centred needs the dot products of exp; leave out the feature map")
        if self.centred and not polynomial.has_all_orders:
            raise InputError("structure: centred needs every order up to the degree, as Taylor polynomials have")
        if self.gaussian and not (
            self.centred and polynomial.is_taylor and polynomial.degree >= 2 and spec.wants_row_sum
        ):
            raise InputError("structure: gaussian needs centred, a Taylor polynomial of order 2 or more, and a row sum")
        if self.divides_apart and spec.normaliser not in (None, RowSum()):
            raise InputError(f"structure: {self.kind} divides each part by its own sum; use a plain row_sum or none")

    def join(self, both: Both) -> Sums:
        """Both parts in the units of the larger one; where there is no far key, in those of the near part."""
        import torch

        near, far = both.near, both.far
        assert near.log_scale is not None
        far_scale = torch.zeros_like(near.log_scale) if far.log_scale is None else far.log_scale
        far_scale = torch.where(both.is_far, far_scale, torch.finfo(far_scale.dtype).min)
        return near.plus(replace(far, log_scale=far_scale))

    def text(self) -> str:
        if self.alone is Alone.NEAR:
            return f"{NearKeys.text(self)}, with exp(q·k/√d) in place of w"
        if self.alone is Alone.FAR:
            return f"all keys but {super().text()}{self._centre()}"
        return f"all keys, exp(q·k/√d) in place of w for {super().text()}{self._centre()}"

    def _centre(self) -> str:
        if self.gaussian:
            return ",  e^(q·μ + s/2) w(k − μ; s) for w of the others, μ their mean, s the variance of their scores"
        return ",  e^(q·μ) w(k − μ) for w of the others, μ their mean" if self.centred else ""


@dataclass(frozen=True)
class Lolcats(NearFar):
    """γ e^(x − m) on window and sinks, m the row's largest x there; the spec's polynomial far; one denominator.

    The maximum is part of the function: the far part is not divided by it. γ = σ(near_weight), 0.1 at the start.
    """

    kind: ClassVar[str] = "lolcats"
    reads_largest: ClassVar[bool] = True

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """near_weight: γ before the sigmoid."""
        return (Declaration("near_weight", "H", Parameter(-2.197)),)

    def join(self, both: Both) -> Sums:
        """The near sums are in units of e^m already."""
        import torch

        near = both.near
        gamma = both.tensors["near_weight"].sigmoid()
        row_sum = None if near.row_sum is None else near.row_sum * gamma
        assert near.log_scale is not None
        same = replace(near, numerator=near.numerator * gamma[..., None], row_sum=row_sum)
        return super().join(replace(both, near=replace(same, log_scale=torch.zeros_like(near.log_scale))))

    def text(self) -> str:
        if self.alone is not None:
            return super().text()
        return f"all keys, γ exp(q·k/√d − m) in place of w for {NearKeys.text(self)},  m their largest q·k/√d"


@dataclass(frozen=True)
class Averaged(NearFar):
    """½ softmax over window and sinks + ½ the spec over the rest, each divided by its own sum.

    A decay is one of the far part only. Where no key is far the near part counts whole.
    """

    kind: ClassVar[str] = "near_far_average"
    divides_apart: ClassVar[bool] = True

    def far_share(self, tensors: Mapping[str, Tensor]) -> Tensor | float:
        """The weight of the far part."""
        return 0.5

    def join(self, both: Both) -> Sums:
        """A weighted mean of two outputs; the far sum is reported where it is not positive."""
        import torch

        from softmax_rnn.attention.contraction import Sums

        near, far = both.near, both.far
        assert near.row_sum is not None
        share = torch.where(both.is_far, self.far_share(both.tensors), 0.0)[..., None]
        here = near.numerator / near.row_sum.masked_fill(near.row_sum == 0, 1)[..., None]
        there, row_sum = far.numerator, far.row_sum
        if row_sum is not None:
            row_sum = torch.where(both.is_far, row_sum, 1)
            there = there / row_sum.masked_fill(row_sum == 0, 1)[..., None]
        elif far.log_scale is not None:
            there = there * torch.exp(far.log_scale)[..., None]
        return Sums(here * (1 - share) + there * share, row_sum, normalised=True)

    def text(self) -> str:
        if self.alone is not None:
            return super().text()
        return f"all keys but {NearKeys.text(self)};  o = {self._mean()}{self._centre()}"

    def _mean(self) -> str:
        return "½ o + ½ softmax over those"


@dataclass(frozen=True)
class Gated(Averaged):
    """g · the spec over the rest + (1 − g) · softmax over window and sinks, g = σ(far_gate) per head."""

    kind: ClassVar[str] = "near_far_gate"

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """far_gate: g before the sigmoid."""
        return (Declaration("far_gate", "H", Parameter(0.0)),)

    def far_share(self, tensors: Mapping[str, Tensor]) -> Tensor | float:
        return tensors["far_gate"].sigmoid()

    def _mean(self) -> str:
        return "g o + (1 − g) softmax over those,  g = σ(c)"
