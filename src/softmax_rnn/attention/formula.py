"""A spec written out as the formula it stands for.

>>> from softmax_rnn.attention.variants import VARIANTS
>>> formula(VARIANTS["gated_softmax"])
'o = LN(gᵒ · Σ w gⁱ v / n),  w = exp(min(q·k/√d, 5))'
"""

from __future__ import annotations

from softmax_rnn.attention.spec import AttentionSpec


def formula(spec: AttentionSpec) -> str:
    """One line: the output o of a query, then the weight w of a key."""
    weight = spec.score.text(_dot(spec))
    if spec.forget_gate:
        weight += " · decay"
    value = "gⁱ v" if spec.input_gate else "v"
    output = f"Σ w {value}"
    if spec.normaliser:
        output += spec.normaliser.value_text() + spec.normaliser.text()
    gate = spec.output_gate
    if gate and not gate.after_norm:
        output = gate.text(output)
    if spec.output_norm:
        output = spec.output_norm.text(output)
    if gate and gate.after_norm:
        output = gate.text(output)
    return f"o = {output},  w = {weight}"


def _dot(spec: AttentionSpec) -> str:
    dot = "·".join(spec.feature_map.text(x) for x in ("q", "k")) if spec.feature_map else "q·k"
    scale = spec.score.scale
    dot = f"{dot}/√d" if scale is None else dot if scale == 1 else f"{scale:g} {dot}"
    return dot if spec.score.clamp is None else f"min({dot}, {spec.score.clamp:g})"
