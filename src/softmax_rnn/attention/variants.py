"""The one table of names: every attention type of the paper's code, and its neighbours, as a spec.

>>> VARIANTS["softmax"] == AttentionSpec()
True
>>> VARIANTS["elu_power_3"].score.degree          # families take any number
3

`VARIANTS.add` gives an attention of your own a name, for this process; see `variant_table`.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from softmax_rnn.attention.variant_table import NEIGHBOUR, REFERENCE, UNDOCUMENTED, Family, Variant, VariantTable

E = Exp()
E5 = Exp(clamp=5.0)
OUT, IN, SUM = OutputGate(), InputGate(), RowSum()
# `length` is where most rows start: the clamped exp, divided by the number of visible keys.
length = AttentionSpec(score=E5, normaliser=Length())
bare = AttentionSpec(score=E5, normaliser=None)
unclamped_l2 = AttentionSpec(score=E, normaliser=None, output_norm=L2Norm())


def _linear(feature_map: FeatureMap, normaliser: Normaliser) -> AttentionSpec:
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
    "linear_elu": _linear(EluPlusOne(), RowSum()),
    "linear_relu": _linear(Relu(), RowSum(eps=1e-8)),
    "linear_cosine": _linear(Cosine(), LearnedLength()),
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

_NEIGHBOURS = {
    "linear_cosine_by_key": (
        _linear(Cosine(), LearnedLength(by_key=True)),
        "the reference's reading of linear_cosine: the length is the key's",
    ),
    "cottention": (_linear(Cosine(), LearnedLength()), "Cottention (2024): cosine similarity, n^σ(c)"),
    "based": (AttentionSpec(score=taylor_score(2)), "Based (2024): its global part, Taylor order 2"),
    "forgetting_transformer": (
        AttentionSpec(forget_gate=ForgetGate()),
        "Forgetting Transformer (2025): softmax with a forget gate",
    ),
    "two_mamba": (
        AttentionSpec(score=power_score(2), forget_gate=ForgetGate(Decay.NEGATIVE_SOFTPLUS)),
        "2Mamba (2026): the squared kernel with decay; its block adds a conv of width 2 and drops RoPE",
    ),
}

_NOTES = {
    "softmax_divS_gatev2": "the gate stands on the weights; it factors out of the sum",
    "softmax_taylor_80terms": "orders 0…79; the odd top order turns negative for very negative scores",
    "gated_softmax_no_gate_L2norm_nodivS_noclamp": "the paper's Norm",
    "softmax_divS_gate": "the paper's Gate",
    "linear_cosine": "length counted at the query; linear_cosine_by_key has the reference's reading",
    "gated_softmax_decay": "its block drops RoPE",
}

# How each feature map is normalised in the paper; powers on top of it keep that.
_FEATURES: dict[str, tuple[FeatureMap | None, Normaliser]] = {
    "": (None, RowSum()),
    "elu_": (EluPlusOne(), RowSum()),
    "relu_": (Relu(), RowSum(eps=1e-8)),
    "cosine_": (Cosine(), LearnedLength()),
}


def taylor(order: int, feature_map: FeatureMap | None = None, normaliser: Normaliser = SUM) -> AttentionSpec:
    """Attention with exp cut after ``order``: o_i = Σ_j T_N(x_ij) v_j / Σ_j T_N(x_ij).

    >>> taylor(2) == VARIANTS["based"]
    True
    """
    return AttentionSpec(feature_map=feature_map, score=taylor_score(order), normaliser=normaliser)


def power(exponent: int, feature_map: FeatureMap | None = None, normaliser: Normaliser = SUM) -> AttentionSpec:
    """Attention with the weight x^p; a feature map is compared without the 1/√d, as linear attention does.

    >>> power(1, EluPlusOne()) == VARIANTS["linear_elu"]
    True
    """
    score = power_score(exponent, scale=1.0 if feature_map else None)
    return AttentionSpec(feature_map=feature_map, score=score, normaliser=normaliser)


def _families() -> Iterator[Family]:
    for prefix, (feature_map, normaliser) in _FEATURES.items():
        on = f" on {feature_map.kind} features" if feature_map else ""
        yield Family(
            f"{prefix}taylor_{{n}}",
            lambda n, f=feature_map, z=normaliser: taylor(n, f, z),
            f"Taylor order n of exp{on}",
            (1, 2, 4) if not prefix else (2,),
        )
        yield Family(
            f"{prefix}power_{{n}}",
            lambda n, f=feature_map, z=normaliser: power(n, f, z),
            f"the n-th power of the score{on}",
            (2,),
        )
    yield Family("sata_{n}", taylor, "SATA (2026): Taylor order n with the symmetric state", (4,))
    yield Family(
        "power_attention_{n}",
        lambda n: AttentionSpec(score=power_score(n), forget_gate=ForgetGate()),
        "power attention (2025): an even power with a forget gate",
        (2, 4),
    )


def _rows() -> dict[str, Variant]:
    rows = {name: Variant(spec, REFERENCE, _NOTES.get(name, "")) for name, spec in _DOCUMENTED.items()}
    rows |= {name: Variant(spec, UNDOCUMENTED, _NOTES.get(name, "")) for name, spec in _UNDOCUMENTED.items()}
    rows |= {name: Variant(spec, NEIGHBOUR, note) for name, (spec, note) in _NEIGHBOURS.items()}
    return rows


VARIANTS = VariantTable(_rows(), tuple(_families()))
