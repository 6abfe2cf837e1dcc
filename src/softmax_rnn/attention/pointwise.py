"""What happens before and after the contraction, position by position: gates, lengths, normalisers, norms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import singledispatch

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.contraction import Sums
from softmax_rnn.attention.features import feature_map
from softmax_rnn.attention.nonpositive import OnNonPositive
from softmax_rnn.attention.parts import (
    CumulativeGate,
    L2Norm,
    LayerNorm,
    LearnedLength,
    Length,
    Normaliser,
    OutputNorm,
    RMSNorm,
    RowSum,
)
from softmax_rnn.attention.rownorm import SMALLEST, in_range, over_root, unit
from softmax_rnn.attention.spec import AttentionSpec

MODERATE_LOG = 9.0


@dataclass(frozen=True)
class Extras:
    """The tensors that a spec may need beside q, k and v, in the dtype of the computation."""

    input_gate: Float[Tensor, "B H T"] | None = None
    output_gate: Float[Tensor, "B H T"] | None = None
    forget_gate: Float[Tensor, "B H T"] | None = None
    norm_weight: Float[Tensor, " E"] | None = None
    norm_bias: Float[Tensor, " E"] | None = None
    length_exponent: Float[Tensor, " H"] | None = None

    def span(self, place: slice) -> Extras:
        """The same for some of the positions."""
        timed = {"input_gate": self.input_gate, "output_gate": self.output_gate, "forget_gate": self.forget_gate}
        return replace(self, **{name: x[:, :, place] for name, x in timed.items() if x is not None})


def features(spec: AttentionSpec, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """φ(q) · scale and φ(k)."""
    if spec.feature_map is not None:
        q, k = feature_map(spec.feature_map, q), feature_map(spec.feature_map, k)
    scale = spec.score.scale if spec.score.scale is not None else q.shape[-1] ** -0.5
    return (q if scale == 1 else q * scale), k


def values(
    spec: AttentionSpec,
    v: Float[Tensor, "B K T E"],
    extras: Extras,
    lengths: Float[Tensor, "B T"],
    heads: int,
) -> Float[Tensor, "B K T E"]:
    """The values as they enter the sum: gated, divided by the key's own length. Heads grow to H where they differ."""
    factor = None
    if extras.input_gate is not None:
        factor = extras.input_gate
    if isinstance(spec.normaliser, LearnedLength) and spec.normaliser.by_key:
        by_key = _length_power(lengths, extras)
        factor = by_key if factor is None else factor * by_key
    if factor is None:
        return v
    return v.repeat_interleave(heads // v.shape[1], dim=1) * factor[..., None]


def keys_differ_by_head(spec: AttentionSpec) -> bool:
    """Whether query heads that share a key head need states of their own."""
    by_key = isinstance(spec.normaliser, LearnedLength) and spec.normaliser.by_key
    return spec.input_gate is not None or spec.forget_gate is not None or by_key


def _length_power(lengths: Float[Tensor, "B T"], extras: Extras) -> Float[Tensor, "B H T"]:
    """n^(−σ(c)), and 1 where nothing is seen."""
    assert extras.length_exponent is not None
    exponent = torch.sigmoid(extras.length_exponent)[None, :, None]
    return torch.exp(-exponent * torch.log(lengths.clamp(min=1))[:, None])


@dataclass(frozen=True)
class Output:
    """A row in the making, y · factor · e^log_scale: what multiplies a whole row is kept apart until the end."""

    y: Float[Tensor, "B H T E"]
    factor: Float[Tensor, "B H T"] | None
    log_scale: Float[Tensor, "B H T"] | None

    def times(self, factor: Float[Tensor, "B H T"]) -> Output:
        """The row multiplied by one more number."""
        return replace(self, factor=factor if self.factor is None else self.factor * factor)

    def value(self) -> Float[Tensor, "B H T E"]:
        """The row itself."""
        factor = self.factor
        if self.log_scale is not None:
            largest = math.log(torch.finfo(self.y.dtype).max) - 1
            if float(self.log_scale.detach().max()) < largest / 2:
                scale = torch.exp(self.log_scale)
                factor = scale if factor is None else factor * scale
            else:
                # In two halves, each inside the number range: 0 stays 0 (0 · inf would not), what overflows is inf.
                half = torch.exp((self.log_scale / 2).clamp(max=largest))[..., None]
                y = self.y * half * half
                return y if factor is None else y * factor[..., None]
        return self.y if factor is None else self.y * factor[..., None]


@dataclass(frozen=True)
class Rows:
    """What a normaliser may look at."""

    spec: AttentionSpec
    row_sum: Float[Tensor, "B H T"] | None
    lengths: Float[Tensor, "B T"]
    gate_mass: Float[Tensor, "B H T"] | None
    """log Σ_{r≤i} exp(output_gate_r), for the cumulative gate."""
    extras: Extras
    nonpositive: OnNonPositive
    negative_rows: int
    """Rows in which the form has seen a weight below 0."""
    real: Bool[Tensor, "B T"] | None
    """Which positions are not padding; None when all are real, so that each sees at least itself."""


def epilogue(sums: Sums, rows: Rows, output_gate: Float[Tensor, "B H T"] | None) -> Float[Tensor, "B H T E"]:
    """Numerator and row sum → normaliser → output gate → output norm → output gate; 0 where nothing was seen."""
    spec = rows.spec
    output = Output(sums.numerator, None, sums.log_scale)
    if spec.normaliser is not None and not (sums.normalised and isinstance(spec.normaliser, RowSum)):
        output = normalise(spec.normaliser, output, rows)
    gate = spec.output_gate
    if gate is not None and not gate.after_norm:
        assert output_gate is not None
        output = output.times(output_gate)
    y = output.value() if spec.output_norm is None else norm(spec.output_norm, output, rows.extras)
    if gate is not None and gate.after_norm:
        assert output_gate is not None
        y = y * output_gate[..., None]
    return torch.where((rows.lengths > 0)[:, None, :, None], y, 0) if rows.real is not None else y


def _reduced(number: float, output: Output, power: float) -> Float[Tensor, "B H T"]:
    """number / e^(log_scale · power): a constant of the formula in the units of `Output.y`."""
    value = output.y.new_full((1, 1, 1), number)
    if output.log_scale is not None:
        most = 0.9 * math.log(torch.finfo(output.y.dtype).max)
        value = value * torch.exp((-power * output.log_scale).clamp(max=most))
    return value


@singledispatch
def normalise(part: Normaliser, output: Output, rows: Rows) -> Output:
    """The numerator divided by the normaliser; a new part registers its function here."""
    raise TypeError(f"no function is registered for the normaliser {part.kind}")


@normalise.register
def _(part: RowSum, output: Output, rows: Rows) -> Output:
    assert rows.row_sum is not None
    total = rows.row_sum
    if part.eps:
        total = total + _reduced(part.eps, output, 1.0)
    if part.minimum is not None:
        total = torch.maximum(total, _reduced(part.minimum, output, 1.0))
    if not rows.spec.score.is_exponential and part.minimum is None:
        nonpositive.report(rows.spec, total, rows.real, rows.negative_rows, rows.nonpositive)
    if part.detach:
        total = total.detach()
    y = output.y
    if bool((total.detach().abs() < SMALLEST[total.dtype]).any()):
        # The gradient has the square of the sum below: take its power of two out of both.
        exponent = torch.frexp(total.detach()).exponent.clamp(-1000 if y.dtype == torch.float64 else -120).to(y.dtype)
        scale = torch.exp2(-exponent)
        y, total = y * scale[..., None], total * scale
    return Output(y, 1 / torch.where(total == 0, 1, total), None)


@normalise.register
def _(part: Length, output: Output, rows: Rows) -> Output:
    return output.times(1 / rows.lengths.clamp(min=1)[:, None])


@normalise.register
def _(part: LearnedLength, output: Output, rows: Rows) -> Output:
    if part.by_key:
        return output  # done on the values
    return output.times(_length_power(rows.lengths, rows.extras))


@normalise.register
def _(part: CumulativeGate, output: Output, rows: Rows) -> Output:
    assert rows.gate_mass is not None
    mass = rows.gate_mass
    if part.minimum is not None:
        mass = mass.clamp(min=math.log(part.minimum))
    if part.times_length:
        output = output.times(1 / rows.lengths.clamp(min=1)[:, None])
    return replace(output, log_scale=-mass if output.log_scale is None else output.log_scale - mass)


@singledispatch
def norm(part: OutputNorm, output: Output, extras: Extras) -> Tensor:
    """The norm of y · e^log_scale; a new part registers its function here."""
    raise TypeError(f"no function is registered for the norm {part.kind}")


@norm.register
def _(part: L2Norm, output: Output, extras: Extras) -> Tensor:
    y = unit(output.y)
    if output.factor is not None:
        # Of a factor only the sign is left, and a gradient of 0.
        y = y * torch.sign(output.factor)[..., None]
    return y * y.shape[-1] if part.times_dim else y


@norm.register
def _(part: RMSNorm, output: Output, extras: Extras) -> Tensor:
    y = _over_root_mean_square(output, part.eps)
    return y if extras.norm_weight is None else y * extras.norm_weight


@norm.register
def _(part: LayerNorm, output: Output, extras: Extras) -> Tensor:
    if _is_moderate(output):
        row = output.value()
        return F.layer_norm(row, row.shape[-1:], extras.norm_weight, extras.norm_bias, part.eps)
    y = _over_root_mean_square(replace(output, y=output.y - output.y.mean(-1, keepdim=True)), part.eps)
    if extras.norm_weight is None or extras.norm_bias is None:
        return y
    return torch.addcmul(extras.norm_bias, y, extras.norm_weight)


def _is_moderate(output: Output) -> bool:
    """Whether the row itself, and the squares of its entries, are floats: then the platform's norm will do."""
    if output.log_scale is not None and float(output.log_scale.detach().abs().max()) > MODERATE_LOG:
        return False
    return in_range(output.y)[1] is None


def _over_root_mean_square(output: Output, eps: float) -> Tensor:
    """y / √(mean y² + eps) of the row's true value, without squares that leave the number range."""
    if output.factor is not None:
        output = replace(output, y=output.y * output.factor[..., None], factor=None)
    y, exponent = in_range(output.y)
    if exponent is not None:
        shift = exponent * math.log(2)
        output = Output(y, None, shift if output.log_scale is None else output.log_scale + shift)
    return over_root(output.y, _reduced(eps, output, 2.0)[..., None], output.y.shape[-1])


def gate_mass(
    gate: Float[Tensor, "B H T"],
    key_mask: Bool[Tensor, "B T"] | None,
    first_key: Tensor | None,
    before: Float[Tensor, "B H"] | None,
) -> Float[Tensor, "B H T"]:
    """log Σ_{r seen by i} exp(gate_r), continued from the value of the past."""
    if key_mask is not None:
        gate = gate.masked_fill(~key_mask[:, None], torch.finfo(gate.dtype).min)
    if first_key is not None:
        return _segmented_logcumsumexp(gate, first_key)
    if before is None:
        return torch.logcumsumexp(gate, dim=-1)
    return torch.logcumsumexp(torch.cat([before[..., None], gate], dim=-1), dim=-1)[..., 1:]


def _segmented_logcumsumexp(x: Float[Tensor, "B H T"], first_key: Tensor) -> Float[Tensor, "B H T"]:
    """The running log-sum-exp that starts anew at each segment, by doubling: after step s it spans 2^s positions."""
    time = x.shape[-1]
    position = torch.arange(time, device=x.device)
    reach = 1
    while reach < time:
        earlier = torch.nn.functional.pad(x[..., :-reach], (reach, 0))
        inside = (position - reach >= first_key)[:, None]
        x = torch.where(inside, torch.logaddexp(x, torch.where(inside, earlier, 0)), x)
        reach *= 2
    return x
