"""Attentions with a structure over time: windows and sinks, exact near and compressed far."""

from __future__ import annotations

from collections.abc import Iterator

from softmax_rnn.attention.parts import NearFar, Window, taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.variant_table import STRUCTURE, Family, Variant

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
    )


ROWS = {
    "streaming_llm": Variant(
        AttentionSpec(structure=Window(1020, SINKS)),
        STRUCTURE,
        "softmax over the last 1020 keys and the first 4; positions are those of the text",
        source=_STREAMING,
    ),
}
