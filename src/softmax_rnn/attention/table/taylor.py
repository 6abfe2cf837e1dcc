"""Taylor orders and powers on any feature map, and the published systems that are made of them."""

from __future__ import annotations

from collections.abc import Iterator

from softmax_rnn.attention.parts import (
    Cosine,
    Decay,
    EluPlusOne,
    FeatureMap,
    ForgetGate,
    LearnedLength,
    Normaliser,
    Relu,
    RowSum,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.paper import linear
from softmax_rnn.attention.table.variant_table import NEW, TAYLOR, THE_PAPER, Family, Variant

SUM = RowSum()
# How each feature map is normalised in the paper; powers on top of it keep that.
_FEATURES: dict[str, tuple[FeatureMap | None, Normaliser]] = {
    "": (None, RowSum()),
    "elu_": (EluPlusOne(), RowSum()),
    "relu_": (Relu(), RowSum(eps=1e-8)),
    "cosine_": (Cosine(), LearnedLength()),
}


def taylor(order: int, feature_map: FeatureMap | None = None, normaliser: Normaliser = SUM) -> AttentionSpec:
    """Attention with exp cut after ``order``: o_i = Σ_j T_N(x_ij) v_j / Σ_j T_N(x_ij).

    >>> taylor(2) == ROWS["based"].spec
    True
    """
    return AttentionSpec(feature_map=feature_map, score=taylor_score(order), normaliser=normaliser)


def power(exponent: int, feature_map: FeatureMap | None = None, normaliser: Normaliser = SUM) -> AttentionSpec:
    """Attention with the weight x^p; a feature map is compared without the 1/√d, as linear attention does.

    >>> power(1, EluPlusOne()) == linear(EluPlusOne(), RowSum())
    True
    """
    score = power_score(exponent, scale=1.0 if feature_map else None)
    return AttentionSpec(feature_map=feature_map, score=score, normaliser=normaliser)


def families() -> Iterator[Family]:
    """The rows with a number in their names."""
    for prefix, (feature_map, normaliser) in _FEATURES.items():
        on = f" on {feature_map.kind} features" if feature_map else ""
        yield Family(
            f"{prefix}taylor_{{n}}",
            lambda n, f=feature_map, z=normaliser: taylor(n, f, z),
            f"Taylor order n of exp{on}",
            (1, 2, 4) if not prefix else (2,),
            source=NEW if prefix else THE_PAPER,
        )
        yield Family(
            f"{prefix}power_{{n}}",
            lambda n, f=feature_map, z=normaliser: power(n, f, z),
            f"the n-th power of the score{on}",
            (2,),
            source=NEW if prefix else THE_PAPER,
        )
    yield Family("sata_{n}", taylor, "Taylor order n with the symmetric state", (4,), source="SATA (2026)")
    yield Family(
        "power_attention_{n}",
        lambda n: AttentionSpec(score=power_score(n), forget_gate=ForgetGate(first_bias=6.906768)),
        "an even power with a forget gate that starts at a decay of 0.999; theirs is per key head",
        (2, 4),
        source="Power attention (2025), arXiv 2507.04239",
    )


ROWS = {
    "linear_cosine_by_key": Variant(
        linear(Cosine(), LearnedLength(by_key=True)),
        TAYLOR,
        "the reference's reading of linear_cosine: the length is the key's",
        source=THE_PAPER,
    ),
    "cottention": Variant(
        linear(Cosine(), LearnedLength()), TAYLOR, "cosine similarity, n^σ(c)", source="Cottention (2024)"
    ),
    "based": Variant(
        AttentionSpec(score=taylor_score(2)),
        TAYLOR,
        "its global part, Taylor order 2",
        source="Based (2024), arXiv 2402.18668",
    ),
    "forgetting_transformer": Variant(
        AttentionSpec(forget_gate=ForgetGate()),
        TAYLOR,
        "softmax with a forget gate",
        block={"use_rope": False},
        source="Forgetting Transformer (2025)",
    ),
    "two_mamba": Variant(
        AttentionSpec(score=power_score(2), forget_gate=ForgetGate(Decay.NEGATIVE_SOFTPLUS)),
        TAYLOR,
        "the squared kernel with decay; its values are not scaled by a time step here",
        block={"use_rope": False, "conv_width": 2, "conv_bias": True},
        source="2Mamba (2026)",
    ),
}
