"""A spec written out as the formula it stands for.

>>> from softmax_rnn.attention.variants import VARIANTS
>>> formula(VARIANTS["gated_softmax"])
'o = LN(gᵒ · Σ w gⁱ v / n),  w = exp(min(q·k/√d, 5))'
"""

from __future__ import annotations

from softmax_rnn.attention.spec import AttentionSpec, check_spec


def formula(spec: AttentionSpec) -> str:
    """One line: the output o of a query, then the weight w of a key."""
    check_spec(spec)
    weight, gate = spec.score.text(_dot(spec)), spec.forget_gate
    if gate and not gate.by_channel:
        weight += " · decay"
    if spec.structure:
        weight += spec.structure.weight_text()
    value = ("gⁱ " if spec.input_gate else "") + (gate.value_text() if gate else "") + "v"
    output = f"Σ w {value}" if spec.write_rule is None else "Σ w v′"
    where = "" if spec.structure is None else f",  over {spec.structure.text_with(spec)}"
    if spec.normaliser:
        output += spec.normaliser.value_text() + spec.normaliser.text()
    out_gate = spec.output_gate
    if spec.skip:
        output += spec.skip.text()
        output = f"({output})" if out_gate and not out_gate.after_norm else output
    if out_gate and not out_gate.after_norm:
        output = out_gate.text(output)
    if spec.output_norm:
        output = spec.output_norm.text(output)
    if out_gate and out_gate.after_norm:
        output = out_gate.text(output)
    decay = f",  decay = Π α,  α = {gate.text()}" if gate else ""
    written = f",  {spec.write_rule.text(value)}" if spec.write_rule else ""
    return f"o = {output},  w = {weight}{decay}{written}{where}"


def _dot(spec: AttentionSpec) -> str:
    q, k = (spec.feature_map.text(x) if spec.feature_map else x for x in ("q", "k"))
    dot = f"{q}·(decay ⊙ {k})" if spec.forget_gate and spec.forget_gate.by_channel else f"{q}·{k}"
    scale = spec.score.scale
    dot = f"{dot}/√d" if scale is None else dot if scale == 1 else f"{scale:g} {dot}"
    return dot if spec.score.clamp is None else f"min({dot}, {spec.score.clamp:g})"
