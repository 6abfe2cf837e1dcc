"""The attention types of the paper's code, as its formulas say, under its names; the short names are ours."""

from __future__ import annotations

from dataclasses import replace

from softmax_rnn.attention.parts import (
    Cosine,
    CumulativeGate,
    Decay,
    EluPlusOne,
    Exp,
    FeatureMap,
    ForgetGate,
    InputGate,
    L2Norm,
    LayerNorm,
    LearnedLength,
    Length,
    Normaliser,
    OutputGate,
    Polynomial,
    Relu,
    RMSNorm,
    RowSum,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.variant_table import PAPER, THE_PAPER, UNDOCUMENTED, Variant

E = Exp()
E5 = Exp(clamp=5.0)
OUT, IN = OutputGate(), InputGate()
# `length` is where most rows start: the clamped exp, divided by the number of visible keys.
length = AttentionSpec(score=E5, normaliser=Length())
bare = AttentionSpec(score=E5, normaliser=None)
unclamped_l2 = AttentionSpec(score=E, normaliser=None, output_norm=L2Norm())


def linear(feature_map: FeatureMap, normaliser: Normaliser) -> AttentionSpec:
    """Linear attention on a feature map: w = φ(q)·φ(k)."""
    return AttentionSpec(feature_map=feature_map, score=power_score(1, scale=1.0), normaliser=normaliser)


_DOCUMENTED = {
    "softmax": AttentionSpec(),
    "softmax_clamp_denom": AttentionSpec(score=E5, normaliser=RowSum(minimum=1.0)),
    "softmax_detach_denom": AttentionSpec(score=E5, normaliser=RowSum(minimum=1.0, detach=True)),
    "softmax_detach_denom_gate": AttentionSpec(score=E5, normaliser=RowSum(eps=1e-4, detach=True), output_gate=OUT),
    "softmax_divs": length,
    "softmax_gate": replace(bare, output_gate=OUT),
    "softmax_divS_gate": replace(length, output_gate=OUT),
    "softmax_divS_gatev2": replace(length, output_gate=OUT),
    "softmax_divS_norm": replace(length, output_norm=RMSNorm()),
    "softmax_taylor_80terms": AttentionSpec(score=taylor_score(79)),
    "gated_softmax": replace(length, input_gate=IN, output_gate=OUT, output_norm=LayerNorm()),
    "gated_softmax_no_norm": replace(length, input_gate=IN, output_gate=OUT),
    "gated_softmax_no_in_gate": replace(length, output_gate=OUT, output_norm=LayerNorm()),
    "gated_softmax_no_out_gate": replace(length, input_gate=IN, output_norm=LayerNorm()),
    "gated_softmax_no_out_gate_no_norm": replace(length, input_gate=IN),
    "gated_softmax_no_in_gate_no_norm": replace(length, output_gate=OUT),
    "gated_relu_no_in_gate_no_norm": AttentionSpec(
        feature_map=Relu(),
        score=Polynomial(coefficients=(0.0, 1.0), clamp=5.0),
        normaliser=Length(),
        output_gate=OUT,
    ),
    "gated_softmax_no_gate": replace(length, output_norm=LayerNorm()),
    "gated_softmax_no_gate_rmsnorm": replace(length, output_norm=RMSNorm()),
    "gated_softmax_no_gate_rmsnorm_nodivS": replace(bare, output_norm=RMSNorm()),
    "gated_softmax_no_gate_L2norm_nodivS": replace(bare, output_norm=L2Norm()),
    "gated_softmax_no_gate_L2norm_nodivS_noclamp": unclamped_l2,
    "gated_ReLU_no_gate_L2norm_nodivS_noclamp": AttentionSpec(
        feature_map=Relu(), score=power_score(1), normaliser=None, output_norm=L2Norm()
    ),
    "gated_softmax_out_gate_L2norm_nodivS_noclamp": replace(unclamped_l2, output_gate=OUT),
    "gated_softmax_post_out_gate_L2norm_nodivS_noclamp": replace(unclamped_l2, output_gate=OutputGate(after_norm=True)),
    "gated_softmax_no_gate_no_norm": length,
    "linear_elu": linear(EluPlusOne(), RowSum()),
    "linear_relu": linear(Relu(), RowSum(eps=1e-8)),
    "linear_cosine": linear(Cosine(), LearnedLength()),
}

_UNDOCUMENTED = {
    "gated_softmax_no_gate_customnorm": replace(length, output_norm=L2Norm(times_dim=True)),
    "gated_softmax_cumgate": AttentionSpec(score=E5, normaliser=CumulativeGate(minimum=1.0)),
    "cumulative_gated_softmax": AttentionSpec(score=E5, normaliser=CumulativeGate(times_length=True)),
    "gated_softmax_decay": replace(
        length,
        forget_gate=ForgetGate(Decay.SCALED),
        input_gate=IN,
        output_gate=OUT,
        output_norm=LayerNorm(),
    ),
}

_NOTES = {
    "softmax_divS_gatev2": "the gate multiplies the weights; it factors out of the sum",
    "softmax_taylor_80terms": "orders 0…79; the odd top order turns negative for very negative scores",
    "gated_softmax_no_gate_L2norm_nodivS_noclamp": "the paper's Norm",
    "softmax_divS_gate": "the paper's Gate",
    "linear_cosine": "length counted at the query; linear_cosine_by_key has the reference's reading",
    "gated_softmax_decay": "its block drops RoPE",
}

_SHORT = {
    "softmax_detach_denom_gate": "softmax_detach_gate",
    "softmax_divs": "softmax_over_t",
    "softmax_divS_gate": "softmax_gate_over_t",
    "softmax_divS_gatev2": "softmax_gate_over_t_v2",
    "softmax_divS_norm": "softmax_over_t_rms",
    "gated_softmax_no_norm": "softmax_gates_over_t",
    "gated_softmax_no_in_gate": "softmax_out_gate_ln",
    "gated_softmax_no_out_gate": "softmax_in_gate_ln",
    "gated_softmax_no_out_gate_no_norm": "softmax_in_gate_over_t",
    "gated_softmax_no_in_gate_no_norm": "softmax_out_gate_over_t",
    "gated_relu_no_in_gate_no_norm": "relu_gate_over_t",
    "gated_softmax_no_gate": "softmax_ln",
    "gated_softmax_no_gate_rmsnorm": "softmax_rms_over_t",
    "gated_softmax_no_gate_rmsnorm_nodivS": "softmax_rms",
    "gated_softmax_no_gate_L2norm_nodivS": "softmax_l2_clamped",
    "gated_softmax_no_gate_L2norm_nodivS_noclamp": "softmax_l2",
    "gated_ReLU_no_gate_L2norm_nodivS_noclamp": "relu_l2",
    "gated_softmax_out_gate_L2norm_nodivS_noclamp": "softmax_gate_l2",
    "gated_softmax_post_out_gate_L2norm_nodivS_noclamp": "softmax_l2_gate",
    "gated_softmax_no_gate_no_norm": "softmax_bare_over_t",
    "gated_softmax_no_gate_customnorm": "softmax_l2_times_dim",
}

_BLOCKS = {"gated_softmax_decay": {"use_rope": False}}
_SOURCES = {
    "softmax": "Transformer (2017), arXiv 1706.03762",
    "linear_elu": "Linear Transformer (2020), arXiv 2006.16236",
}


def _row(name: str, spec: AttentionSpec, group: str) -> Variant:
    source = _SOURCES.get(name, THE_PAPER)
    return Variant(spec, group, _NOTES.get(name, ""), _SHORT.get(name, ""), _BLOCKS.get(name, {}), source)


ROWS = {name: _row(name, spec, PAPER) for name, spec in _DOCUMENTED.items()}
ROWS |= {name: _row(name, spec, UNDOCUMENTED) for name, spec in _UNDOCUMENTED.items()}
