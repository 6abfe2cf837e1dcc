"""A spec written out as the formula it stands for.

>>> from softmax_rnn.attention.variants import VARIANTS
>>> formula(VARIANTS["gated_softmax"])
'o = LN(gᵒ · Σ w gⁱ v / n),  w = exp(min(q·k/√d, 5))'
"""

from __future__ import annotations

from functools import singledispatch

from softmax_rnn.attention.parts import (
    Cosine,
    CumulativeGate,
    EluPlusOne,
    Exp,
    FeatureMap,
    L2Norm,
    LayerNorm,
    LearnedLength,
    Length,
    Normaliser,
    OutputNorm,
    Polynomial,
    Relu,
    RMSNorm,
    RowSum,
    Score,
)
from softmax_rnn.attention.ranges.kinds import ExpOnRange, MeanPoint
from softmax_rnn.attention.spec import AttentionSpec


def formula(spec: AttentionSpec) -> str:
    """One line: the output o of a query, then the weight w of a key."""
    weight = score_text(spec.score, _dot(spec))
    if spec.forget_gate:
        weight += " · decay"
    value = "gⁱ v" if spec.input_gate else "v"
    if isinstance(spec.normaliser, LearnedLength) and spec.normaliser.by_key:
        value += "/nⱼ^σ(c)"
    output = f"Σ w {value}"
    if spec.normaliser:
        output += normaliser_text(spec.normaliser)
    gate = spec.output_gate
    if gate and not gate.after_norm:
        output = f"gᵒ · {output}"
    if spec.output_norm:
        output = norm_text(spec.output_norm, output)
    if gate and gate.after_norm:
        output = f"gᵒ · {output}"
    return f"o = {output},  w = {weight}"


def _dot(spec: AttentionSpec) -> str:
    dot = "·".join(feature_text(spec.feature_map, x) for x in ("q", "k")) if spec.feature_map else "q·k"
    scale = spec.score.scale
    dot = f"{dot}/√d" if scale is None else dot if scale == 1 else f"{scale:g} {dot}"
    return dot if spec.score.clamp is None else f"min({dot}, {spec.score.clamp:g})"


@singledispatch
def feature_text(part: FeatureMap, x: str) -> str:
    """φ(x)."""
    return f"{part.kind}({x})"


@feature_text.register
def _(part: EluPlusOne, x: str) -> str:
    return f"(elu({x})+1)"


@feature_text.register
def _(part: Relu, x: str) -> str:
    return f"relu({x})"


@feature_text.register
def _(part: Cosine, x: str) -> str:
    return f"{x}/|{x}|"


@singledispatch
def score_text(part: Score, x: str) -> str:
    """f(x)."""
    return f"{part.kind}({x})"


@score_text.register
def _(part: Exp, x: str) -> str:
    return f"exp({x})"


@score_text.register
def _(part: Polynomial, x: str) -> str:
    if part.is_taylor:
        return f"Σₙ₌₀…{part.degree} ({x})ⁿ/n!"
    if part.orders == (1,) and part.coefficients[1] == 1:
        return x
    if len(part.orders) == 1 and part.coefficients[-1] == 1:
        return f"({x})^{part.degree}"
    if part.degree > 4:
        return f"P{part.degree}({x})"
    return " + ".join(f"{part.coefficients[n]:g} ({x})^{n}" for n in part.orders)


@score_text.register
def _(part: ExpOnRange, x: str) -> str:
    series = "Taylor" if isinstance(part.range, MeanPoint) else "Chebyshev"
    base = f"{series}{part.degree // part.power}[{part.range.kind.replace('_', ' ')}]"
    return f"{base}({x})" if part.power == 1 else f"{base}({x}/{part.power})^{part.power}"


@singledispatch
def normaliser_text(part: Normaliser) -> str:
    """What follows the numerator."""
    return f" / {part.kind}"


@normaliser_text.register
def _(part: RowSum) -> str:
    text = "Σ w"
    if part.eps:
        text = f"(Σ w + {part.eps:g})"
    if part.minimum is not None:
        text = f"max({text}, {part.minimum:g})"
    return f" / stopgrad({text.strip('()') if part.minimum is None else text})" if part.detach else f" / {text}"


@normaliser_text.register
def _(part: Length) -> str:
    return " / n"


@normaliser_text.register
def _(part: LearnedLength) -> str:
    return "" if part.by_key else " / n^σ(c)"


@normaliser_text.register
def _(part: CumulativeGate) -> str:
    text = "Σᵣ exp(gᵒᵣ)"
    if part.minimum is not None:
        text = f"max({text}, {part.minimum:g})"
    return f" / (n · {text})" if part.times_length else f" / {text}"


@singledispatch
def norm_text(part: OutputNorm, x: str) -> str:
    """The norm of x."""
    return f"{part.kind}({x})"


@norm_text.register
def _(part: L2Norm, x: str) -> str:
    return f"d · L2({x})" if part.times_dim else f"L2({x})"


@norm_text.register
def _(part: RMSNorm, x: str) -> str:
    return f"RMS({x})"


@norm_text.register
def _(part: LayerNorm, x: str) -> str:
    return f"LN({x})"
