"""Attentions that write the error of what they already know: the delta rule, for every score."""

from __future__ import annotations

from softmax_rnn.attention.parts import (
    Cosine,
    DeltaRule,
    Exp,
    MambaDecay,
    NormalisedDelta,
    RMSNorm,
    VectorGate,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.variant_table import NEW, WRITES, Variant

# The block of DeltaNet: a convolution of width 4 with SiLU on q, k and v, no rotation.
CONVOLVED = {"use_rope": False, "conv_width": 4, "conv_activation": "silu"}
_LINEAR = AttentionSpec(
    feature_map=Cosine(),
    score=power_score(1, scale=1.0),
    normaliser=None,
    output_norm=RMSNorm(eps=1e-5),
    write_rule=DeltaRule(),
)

ROWS = {
    "deltanet": Variant(
        _LINEAR,
        WRITES,
        "the delta rule on unit keys",
        block=CONVOLVED,
        source="DeltaNet (2024), arXiv 2406.06484",
    ),
    "gated_deltanet": Variant(
        AttentionSpec(
            feature_map=Cosine(),
            score=power_score(1, scale=1.0),
            forget_gate=MambaDecay(gates_input=False),
            normaliser=None,
            output_gate=VectorGate(after_norm=True),
            output_norm=RMSNorm(eps=1e-5),
            write_rule=DeltaRule(),
        ),
        WRITES,
        "the delta rule on a past that decays; values twice as wide as keys",
        block={**CONVOLVED, "value_expand": 2.0},
        source="Gated DeltaNet (2024), arXiv 2412.06464",
    ),
    "deltaformer": Variant(
        AttentionSpec(write_rule=NormalisedDelta()),
        WRITES,
        "softmax over values from which softmax has taken what earlier ones say; the authors' layer reads with keys",
        source="DeltaFormer (2025), arXiv 2505.19488",
    ),
    "taylor_delta_2": Variant(
        AttentionSpec(
            feature_map=Cosine(),
            score=taylor_score(2, scale=1.0),
            normaliser=None,
            output_norm=RMSNorm(eps=1e-5),
            write_rule=DeltaRule(bounded=True),
        ),
        WRITES,
        "the delta rule with the features of Taylor order 2",
        block=CONVOLVED,
        source=NEW,
    ),
    "softmax_delta": Variant(
        AttentionSpec(
            feature_map=Cosine(),
            score=Exp(scale=1.0),
            normaliser=None,
            output_norm=RMSNorm(eps=1e-5),
            write_rule=DeltaRule(bounded=True),
        ),
        WRITES,
        "the delta rule with all features of exp",
        block=CONVOLVED,
        source=NEW,
    ),
}
