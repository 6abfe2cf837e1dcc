"""After the contraction, row by row: normaliser, skip, output gate, output norm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.contraction import Sums
from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.nonpositive import OnNonPositive
from softmax_rnn.attention.rownorm import in_range, inverse, over_root, unit
from softmax_rnn.attention.spec import AttentionSpec

MODERATE_LOG = 9.0


@dataclass(frozen=True)
class Output:
    """A row in the making, y · factor · e^log_scale: what multiplies a whole row is kept apart until the end."""

    y: Float[Tensor, "B H T E"]
    factor: Float[Tensor, "B _ T"] | None = None
    log_scale: Float[Tensor, "B H T"] | None = None

    def times(self, factor: Tensor) -> Output:
        """The row multiplied by one more number (B, H, T)."""
        return replace(self, factor=factor if self.factor is None else self.factor * factor)

    def times_each(self, factors: Float[Tensor, "B H T E"]) -> Output:
        """Each channel multiplied by its own number."""
        return replace(self, y=self.y * factors)

    def times_exp(self, log_factor: Float[Tensor, "B H T"]) -> Output:
        """The row multiplied by e^log_factor, which need not be a float."""
        return replace(self, log_scale=log_factor if self.log_scale is None else self.log_scale + log_factor)

    def in_units(self, number: float, power: float = 1.0) -> Tensor:
        """number / e^(log_scale · power): a constant of the formula in the units of y, or of y^power."""
        value = self.y.new_full((1, 1, 1), number)
        if self.log_scale is not None:
            value = value * torch.exp((-power * self.log_scale).clamp(max=self._largest_log))
        return value

    @property
    def _largest_log(self) -> float:
        return 0.9 * math.log(torch.finfo(self.y.dtype).max)

    def over(self, total: Float[Tensor, "B H T"]) -> Output:
        """y / total, a total in the units of y: the log_scale drops out. 0 where the total is 0."""
        return Output(self.y, inverse(torch.where(total == 0, 1, total)))

    def value(self) -> Float[Tensor, "B H T E"]:
        """The row itself."""
        factor = self.factor
        if self.log_scale is not None:
            largest = math.log(torch.finfo(self.y.dtype).max) - 1
            if may_sync(self.log_scale) and float(self.log_scale.detach().max()) < largest / 2:
                scale = torch.exp(self.log_scale)
                factor = scale if factor is None else factor * scale
            else:
                # In two halves, each inside the number range: 0 stays 0 (0 · inf would not), what overflows is inf.
                half = torch.exp((self.log_scale / 2).clamp(max=largest))[..., None]
                y = self.y * half * half
                return y if factor is None else y * factor[..., None]
        return self.y if factor is None else self.y * factor[..., None]

    def unit(self) -> Float[Tensor, "B H T E"]:
        """The direction of the row: of a factor only the sign is left, and a gradient of 0."""
        y = unit(self.y)
        return y if self.factor is None else y * torch.sign(self.factor)[..., None]

    def centred(self) -> Output:
        """The row minus its mean."""
        return replace(self, y=self.y - self.y.mean(-1, keepdim=True))

    def heads_joined(self) -> Output:
        """The rows of all heads as one row (B, 1, T, H · E), in units of the largest."""
        largest = None if self.log_scale is None else self.log_scale.detach().amax(1, keepdim=True)
        row = self if largest is None else self.times_exp(-largest)
        return Output(row.value().transpose(1, 2).flatten(2)[:, None], None, largest)

    def is_moderate(self) -> bool:
        """Whether the row and the squares of its entries are known to be floats: then the platform's norm will do."""
        if not may_sync(self.y):
            return False
        if self.log_scale is not None and float(self.log_scale.detach().abs().max()) > MODERATE_LOG:
            return False
        return in_range(self.y)[1] is None

    def over_root_mean_square(self, eps: float) -> Float[Tensor, "B H T E"]:
        """y / √(mean y² + eps) of the row's true value, without squares that leave the number range."""
        row = self if self.factor is None else replace(self, y=self.y * self.factor[..., None], factor=None)
        # Rows that are small beside eps need no larger units, in which eps would not be a float.
        log_scale = row.y.new_zeros(()) if row.log_scale is None else row.log_scale.detach()
        smallest = (-0.5 * self._largest_log - log_scale) / math.log(2) if eps else None
        y, exponent = in_range(row.y, smallest)
        if exponent is not None:
            row = replace(row, y=y).times_exp(exponent * math.log(2))
        return over_root(row.y, row.in_units(eps, 2.0)[..., None], row.y.shape[-1])


@dataclass(frozen=True)
class Rows:
    """What a normaliser or a skip may read."""

    spec: AttentionSpec
    row_sum: Float[Tensor, "B H T"] | None
    lengths: Float[Tensor, "B T"]
    """How many keys each query sees."""
    tensors: Mapping[str, Tensor]
    q: Float[Tensor, "B H T D"]
    v: Float[Tensor, "B K T E"]
    """As they were given, v with 0 at padding."""
    running: Mapping[str, Tensor] = field(default_factory=dict)
    """Values that parts carry along time, by the part's slot."""
    nonpositive: OnNonPositive = OnNonPositive.WARN
    negative_rows: Tensor | None = None
    """How many rows had a weight below 0, where the form counts them."""
    real: Bool[Tensor, "B T"] | None = None
    """Which positions are not padding; None when all are real, so that each sees at least itself."""

    def reported(self, total: Float[Tensor, "B H T"]) -> Float[Tensor, "B H T"]:
        """The same; row sums that are not positive are reported, those of exp always are."""
        if self.spec.score.is_exponential:
            return total
        return nonpositive.report(self.spec, total, self.real, self.negative_rows, self.nonpositive)


def epilogue(sums: Sums, rows: Rows) -> Float[Tensor, "B H T E"]:
    """Numerator and row sum → normaliser → skip → output gate → output norm → output gate; 0 where nothing was seen."""
    spec = rows.spec
    output = Output(sums.numerator, None, sums.log_scale)
    if spec.normaliser is not None and not (sums.normalised and spec.normaliser.reads_row_sum):
        output = spec.normaliser.normalise(output, rows)
    elif sums.row_sum is not None:
        rows.reported(sums.row_sum)
    if spec.skip is not None:
        output = Output(output.value() + spec.skip.added(rows))
    gate = spec.output_gate
    if gate is not None and not gate.after_norm:
        output = gate.before_norm(output, rows.tensors)
    y = output.value() if spec.output_norm is None else spec.output_norm.norm(output, rows.tensors)
    if gate is not None and gate.after_norm:
        y = gate.behind_norm(y, rows.tensors)
    return torch.where((rows.lengths > 0)[:, None, :, None], y, 0) if rows.real is not None else y
