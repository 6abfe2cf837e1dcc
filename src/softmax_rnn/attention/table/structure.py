"""Attentions with a structure over time: windows and sinks, exact near and compressed far."""

from __future__ import annotations

from collections.abc import Iterator

from softmax_rnn.attention.parts import (
    Averaged,
    EluPlusOne,
    Gated,
    Hedgehog,
    KeptKeys,
    Lolcats,
    NearFar,
    SoftmaxFeatures,
    Window,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.variant_table import NEW, STRUCTURE, Family, Variant

_LINEAR = power_score(1, scale=1.0)
_LOLCATS_MAP = Hedgehog(rows=64, factor=1.0, joint=False)
_STREAMING = "StreamingLLM (2023), arXiv 2309.17453"
SINKS = 4
"""How many first keys StreamingLLM keeps."""


def families() -> Iterator[Family]:
    """The rows with a number in their names."""
    yield Family(
        "window_{n}",
        lambda n: AttentionSpec(structure=Window(n)),
        "softmax over the last n keys",
        (64,),
        group=STRUCTURE,
        source="Longformer (2020), arXiv 2004.05150",
    )
    yield Family(
        "streaming_llm_{n}",
        lambda n: AttentionSpec(structure=Window(n, SINKS)),
        "softmax over the last n keys and the first 4; positions are those of the text",
        (64,),
        group=STRUCTURE,
        source=_STREAMING,
    )
    yield Family(
        "near_far_{n}",
        lambda n: AttentionSpec(score=taylor_score(2), structure=NearFar(n, SINKS)),
        "exp on the last n keys and the first 4, Taylor order 2 on the rest, one denominator",
        (64,),
        group=STRUCTURE,
        source=NEW,
    )
    yield Family(
        "kept_keys_{n}",
        lambda n: AttentionSpec(score=taylor_score(2), structure=KeptKeys(n, SINKS, kept=n, centred=True)),
        "exp on the last n keys, the first 4 and the n others of most weight so far; Taylor order 2, expanded at the"
        " mean of their keys, on the rest",
        (64,),
        group=STRUCTURE,
        source=NEW,
    )
    yield Family(
        "heavy_hitters_{n}",
        lambda n: AttentionSpec(structure=KeptKeys(n, SINKS, kept=n)),
        "softmax over the last n keys, the first 4 and the n others of most weight so far; the rest is dropped",
        (64,),
        group=STRUCTURE,
        source="after H2O (2023), arXiv 2306.14048",
    )
    yield Family(
        "near_far_centred_{n}",
        lambda n: AttentionSpec(score=taylor_score(2), structure=NearFar(n, SINKS, centred=True)),
        "near_far_{n}, its Taylor polynomial expanded at the mean of the far keys",
        (64,),
        group=STRUCTURE,
        source=NEW,
    )
    yield Family(
        "near_far_gaussian_{n}",
        lambda n: AttentionSpec(score=taylor_score(2), structure=NearFar(n, SINKS, centred=True, gaussian=True)),
        "near_far_centred_{n} with the polynomial that is closest to exp for normally distributed far scores",
        (64,),
        group=STRUCTURE,
        source=NEW,
    )
    yield Family(
        "lolcats_{n}",
        lambda n: AttentionSpec(feature_map=_LOLCATS_MAP, score=_LINEAR, structure=Lolcats(n)),
        "exp relative to the largest near score, times γ, on the last n keys; learned features on the rest",
        (64,),
        group=STRUCTURE,
        source="LoLCATs (2024), arXiv 2410.10254",
    )
    yield Family(
        "near_far_average_{n}",
        lambda n: AttentionSpec(feature_map=SoftmaxFeatures(), score=_LINEAR, structure=Averaged(n)),
        "the mean of softmax over the last n keys and of linear attention over the rest, after Liger, whose linear"
        " part is over all keys, decays by channel and has no denominator",
        (64,),
        group=STRUCTURE,
        source="Liger (2025), arXiv 2503.01496",
    )
    yield Family(
        "near_far_gate_{n}",
        lambda n: AttentionSpec(feature_map=EluPlusOne(), score=_LINEAR, structure=Gated(n)),
        "a learned mean per head of softmax over the last n keys and of linear attention over the rest, after"
        " Infini-attention, whose near keys are those of a segment",
        (64,),
        group=STRUCTURE,
        source="Infini-attention (2024), arXiv 2404.07143",
    )


ROWS = {
    "streaming_llm": Variant(
        AttentionSpec(structure=Window(1020, SINKS)),
        STRUCTURE,
        "softmax over the last 1020 keys and the first 4; positions are those of the text",
        source=_STREAMING,
    ),
}
