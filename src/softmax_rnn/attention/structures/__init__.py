"""Structures over time: how each is computed, one object and one file each. This is their only table."""

from functools import cache, singledispatch

from softmax_rnn.attention.parts import ChunkEnds, KeptKeys, Levels, NearFar, NearKeys, Structure
from softmax_rnn.attention.structures.chunk_ends import ChunkEndsPast
from softmax_rnn.attention.structures.kept_keys import KeptKeysPast
from softmax_rnn.attention.structures.levels import LevelledPast
from softmax_rnn.attention.structures.near_far import NearFarPast
from softmax_rnn.attention.structures.whole import WholePast
from softmax_rnn.attention.structures.window import WindowPast

_past = singledispatch(WholePast)
_past.register(NearKeys, WindowPast)
_past.register(NearFar, NearFarPast)
_past.register(KeptKeys, KeptKeysPast)
_past.register(Levels, LevelledPast)
_past.register(ChunkEnds, ChunkEndsPast)


@cache
def past_of(structure: Structure) -> WholePast:
    """How the structure is computed."""
    return _past(structure)


__all__ = ["WholePast", "past_of"]
