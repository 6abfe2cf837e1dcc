"""RAT: attention to the ends of chunks, on keys and values that a gated scan has smoothed inside each chunk."""

from __future__ import annotations

from collections.abc import Iterator

from softmax_rnn.attention.parts import ChunkEnds, VectorGate
from softmax_rnn.attention.parts.vector_gate import Activation
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.variant_table import STRUCTURE, Family


def families() -> Iterator[Family]:
    """The rows with a number in their names."""
    yield Family(
        "rat_{n}",
        lambda n: AttentionSpec(structure=ChunkEnds(n), output_gate=VectorGate(activation=Activation.SIGMOID)),
        "softmax over the ends of earlier chunks of n and the current key; its block smooths keys and values in each",
        (16,),
        group=STRUCTURE,
        block={"chunk_scan": True, "chunk_positions": True},
        source="RAT (2025), arXiv 2507.04416",
    )
