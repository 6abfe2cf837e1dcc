"""Attentions that differ in what is compared: learned maps, maps with positions, random features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from softmax_rnn.attention.parts import (
    Activation,
    ConvolvedValue,
    CosFormer,
    EluPlusOne,
    FeatureMap,
    FeatureSum,
    ForgetGate,
    GatedKeys,
    Hedgehog,
    LayerNorm,
    LearnedNorm,
    LearnedRelu,
    NormAware,
    Projected,
    RandomFeatures,
    Reading,
    Rotated,
    RowSum,
    SoftmaxFeatures,
    VectorGate,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.paper import linear
from softmax_rnn.attention.table.variant_table import Family, Variant

MAPS = "feature maps"
NO_ROPE = {"use_rope": False}
BESIDE_THE_MEAN = FeatureSum(eps=1e-6, per_key=True)


def based(dim: int) -> AttentionSpec:
    """Taylor order 2 on queries and keys of ``dim`` dimensions."""
    return AttentionSpec(feature_map=Projected(dim), score=taylor_score(2), normaliser=RowSum(eps=1e-12))


def performer(count: int) -> AttentionSpec:
    """exp estimated by ``count`` random features."""
    return linear(RandomFeatures(count), RowSum())


def nalaformer(reading: Reading) -> AttentionSpec:
    """Its map, rotated in the numerator alone, a convolution of the values beside it, a norm and a gate."""
    rotated = Rotated(NormAware(reading), blocks=2)
    return replace(
        linear(rotated, BESIDE_THE_MEAN),
        skip=ConvolvedValue(5),
        output_norm=LayerNorm(),
        output_gate=VectorGate(after_norm=True),
    )


def families() -> Iterator[Family]:
    """The rows with a number in their names."""
    yield Family(
        "based_{n}",
        based,
        "Taylor order 2 on n learned dimensions per head",
        (16,),
        group=MAPS,
        block=NO_ROPE,
        source="Based (2024), arXiv 2402.18668",
    )
    yield Family(
        "performer_{n}",
        performer,
        "exp estimated by n positive random features",
        (64,),
        group=MAPS,
        source="Performer (2020), arXiv 2009.14794",
    )


def _row(feature_map: FeatureMap, normaliser: RowSum, note: str, source: str, rope: bool = True) -> Variant:
    return Variant(linear(feature_map, normaliser), MAPS, note, block={} if rope else NO_ROPE, source=source)


ROWS = {
    "hedgehog": _row(
        Hedgehog(),
        RowSum(),
        "a learned map that imitates softmax; starts at W = I",
        "Hedgehog (2024), arXiv 2402.04347",
    ),
    "t2r": _row(
        LearnedRelu(),
        RowSum(eps=1e-8),
        "a learned relu; starts as linear_relu",
        "Transformer-to-RNN (2021), arXiv 2103.13076",
    ),
    "softmax_features": _row(
        SoftmaxFeatures(),
        RowSum(),
        "softmax over the features of a vector in place of time",
        "Liger (2025), arXiv 2503.01496: its map, with a row sum",
    ),
    "linear_norm_aware": _row(
        NormAware(),
        RowSum(eps=1e-6),
        "nalaformer's map alone, beside linear_relu: the norm of a query makes it sharper",
        "NaLaFormer (2025), arXiv 2506.21137: its map",
    ),
    "cosformer": _row(
        CosFormer(),
        RowSum(eps=1e-6),
        "relu features weighed by the cosine of the distance, over 4,096 positions",
        "cosFormer (2022), arXiv 2202.08791",
        rope=False,
    ),
    "rebased": Variant(
        AttentionSpec(feature_map=Projected(16, LearnedNorm()), score=power_score(2), normaliser=RowSum(eps=1e-5)),
        MAPS,
        "the square of a normalised, affine map of 16 learned dimensions",
        block=NO_ROPE,
        source="ReBased (2024), arXiv 2402.10644",
    ),
    "nalaformer": Variant(
        nalaformer(Reading.CODE),
        MAPS,
        "as its code has it, causal; its convolution is 5 × 5 on images, 5 taps here",
        block=NO_ROPE,
        source="NaLaFormer (2025), arXiv 2506.21137",
    ),
    "nalaformer_preprint": Variant(
        nalaformer(Reading.PREPRINT),
        MAPS,
        "as its first preprint has it: cos and sin, so a row sum can be near 0",
        block=NO_ROPE,
        source="NaLaFormer (2025), arXiv 2506.21137v1",
    ),
    "recgrela": Variant(
        replace(
            linear(Rotated(EluPlusOne()), BESIDE_THE_MEAN),
            skip=ConvolvedValue(4, silu=True),
            output_gate=VectorGate(),
        ),
        MAPS,
        "causal, with separate values and the rotation per head; theirs is neither",
        block=NO_ROPE,
        source="RecGRELA (2025), arXiv 2506.13315",
    ),
    "roformer_linear": Variant(
        linear(Rotated(EluPlusOne()), FeatureSum()),
        MAPS,
        "linear_elu, rotated in the numerator alone",
        block=NO_ROPE,
        source="RoFormer (2021), arXiv 2104.09864, section 3.3",
    ),
    "mlstm": Variant(
        AttentionSpec(
            feature_map=GatedKeys(),
            score=power_score(1),
            forget_gate=ForgetGate(first_bias=(3.0, 6.0)),
            normaliser=RowSum(minimum=1.0, absolute=True),
            output_norm=LayerNorm(),
            output_gate=VectorGate(activation=Activation.SIGMOID, after_norm=True),
        ),
        MAPS,
        "an exponential input gate that the row sum sees, ÷ max(|Σ w|, 1)",
        block=NO_ROPE,
        source="xLSTM (2024), arXiv 2405.04517",
    ),
}
