"""Chunk ends: a query sees the last key of each earlier chunk, and its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.structure import Structure
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ChunkEnds(Structure):
    """The last key of each earlier chunk of ``length`` visible keys, counted from the segment's first, and its own.

    In RAT each key and value is a gated sum of those of its chunk so far, which is a matter of the block. With a length
    of 1 every key is an end, and all are seen.
    """

    kind: ClassVar[str] = "chunk_ends"
    needs_own_state: ClassVar[str | None] = "chunk_ends keeps only the ends of chunks"
    length: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1:
            raise InputError(f"length: expected 1 or more, got {self.length}")

    @property
    def chunk(self) -> int:
        return self.length

    def pairs(self, pairs: int, queries: int) -> int:
        return pairs // self.length + queries

    def seen(self, lengths: Tensor, real: Tensor | None) -> Tensor:
        """An end for each whole chunk before the position, and its own key."""
        own = 1 if real is None else real.long()
        return (lengths - own) // self.length + own

    def text(self) -> str:
        return f"the query's own key and the last of each earlier chunk of {self.length} keys"
