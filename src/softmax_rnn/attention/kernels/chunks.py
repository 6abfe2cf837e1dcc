"""The chunks that the chunked form walks over: which positions, which heads together, what passes between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.forms import chunked as form
from softmax_rnn.attention.forms.form import CHANNEL_CHUNK
from softmax_rnn.attention.kernels.blocks import Group, Scratch
from softmax_rnn.attention.kernels.folding import Fold, fold, fold_channels
from softmax_rnn.attention.kernels.passing import ChunkKind, Passing, pass_through
from softmax_rnn.attention.scores import Series
from softmax_rnn.attention.visibility import Visibility

TOGETHER = 16
"""Chunks whose decays are made in one go."""
SPAN = 2048
"""Positions whose decays are folded in at once: more would leave the cache."""
Given = Sequence[Any]
"""q (M, G, T, D), k (M, T, D), u (M, T, U), the decay or None, the state (M, F, U), the rows' coefficients or None."""


@dataclass(frozen=True)
class Layout:
    """The geometry: which positions make a chunk, which heads are worked on together."""

    features: SymmetricFeatures
    visibility: Visibility
    batch: int
    kv_heads: int
    group_size: int
    time: int
    by_channel: bool = False
    """Whether each channel has its own decay."""
    is_wide: bool = False
    """Whether decays of channels need float64 and short chunks."""
    strict: bool = False
    """Whether a query does not see the key of its own position."""
    is_regular: ClassVar[bool] = True
    """Whether all chunks but the last are of one length, and decays can be folded in."""

    @cached_property
    def chunk(self) -> int:
        """Positions per chunk."""
        longest = min(CHANNEL_CHUNK, self.time) if self.is_wide else self.time
        return min(form.chunk_length(self.features.count), longest)

    def places(self) -> list[slice]:
        """The positions of the chunks, in order."""
        return [slice(a, min(a + self.chunk, self.time)) for a in range(0, self.time, self.chunk)]

    def spans(self, decays: bool) -> list[slice]:
        """Stretches of chunks whose inputs are made together: all, or, where decays are folded in, a few."""
        size = max(self.time, 1)
        if decays and self.is_regular and self.visibility.first_key is None:
            size = max(SPAN // self.chunk, 1) * self.chunk
        return [slice(a, min(a + size, self.time)) for a in range(0, self.time, size)]

    @property
    def rows_together(self) -> bool:
        """Whether the rows of the batch have their borders at the same places."""
        return self.visibility.first_key is None

    def groups(self) -> list[Group]:
        """Heads in groups whose features fit the memory; one batch row per group when rows differ in masks."""
        per_head = self.features.count * self.chunk * self.group_size
        at_once = max(2, form.CHUNK_NUMBERS // per_head)
        heads = self.kv_heads
        span = self.batch * heads if self.rows_together else heads
        return [
            Group(slice(h, min(h + at_once, row + span)), slice(row // heads, (row + span - 1) // heads + 1))
            for row in range(0, self.batch * heads, span)
            for h in range(row, row + span, at_once)
        ]


@dataclass
class Chunk:
    """One chunk of one group: its tensors, and what passes through it."""

    place: slice
    q: Float[Tensor, "N R D"]
    """The queries of the G heads of a group side by side: R = G · C rows."""
    k: Float[Tensor, "N C D"]
    u: Float[Tensor, "N C U"]
    rows: Float[Tensor, "N R O"] | None
    memory: Scratch
    layout: Layout
    passing: Passing

    @property
    def series(self) -> Series:
        """f, with the coefficients of these rows where each row has its own."""
        return self.layout.features.score.series(self.rows)

    def query_features(self) -> Float[Tensor, "N F R"]:
        """φ(q) with multinomials and coefficients."""
        features = self.layout.features
        return features.query(self.q.mT, self.rows, self.memory.block("query", *self._shape(self.q)))

    def key_features(self) -> Float[Tensor, "N F C"]:
        """φ(k)."""
        return self.layout.features.key(self.k.mT, self.memory.block("key", *self._shape(self.k)))

    def _shape(self, x: Tensor) -> tuple[int, int, int]:
        return x.shape[0], self.layout.features.count, x.shape[1]

    def products(self) -> Float[Tensor, "N R C"]:
        """q·k; 0 for hidden keys where channels decay, whose factors overflow there."""
        x = torch.bmm(self.q, self.k.mT)
        if not self.layout.by_channel:
            return x
        inside = self.passing.inside
        return self.mask_(x) if inside is None else x.masked_fill_(inside == 0, 0)

    def mask_(self, weights: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
        """Weights between the positions of the chunk, decayed where the decay is not folded in, in place."""
        if self.passing.inside is not None:
            return weights.mul_(self.passing.inside)
        # The rows of each of the G heads are a separate lower triangle.
        weights.view(weights.shape[0], -1, weights.shape[2], weights.shape[2]).tril_(-1 if self.layout.strict else 0)
        return weights

    def enter_(self, state: Tensor) -> Tensor:
        """The state as this chunk reads it, in place; the same backwards, for its gradient."""
        return state if self.passing.between is None else state.mul_(self.passing.between)

    def read(self, state: Tensor, beside: Tensor | None = None) -> Tensor:
        """φ(q)·S, added to ``beside``, in place."""
        query, part = self.query_features().mT, self.passing.from_past
        if beside is None:
            return times(torch.bmm(query, state), part)
        return beside.baddbmm_(query, state) if part is None else beside.addcmul_(torch.bmm(query, state), part)

    def advance_(self, state: Tensor) -> Tensor:
        """The state after the chunk, in the memory of the one before it."""
        if self.passing.keep is not None:
            state.mul_(self.passing.keep)
        return state.baddbmm_(self.key_features(), times(self.u, self.passing.into_state))

    def retreat_(self, d_state: Tensor, dy: Float[Tensor, "N R U"]) -> Tensor:
        """The gradient of the state before the chunk, from that of the one after it and those of the outputs."""
        if self.passing.keep is not None:
            d_state.mul_(self.passing.keep)
        return self.enter_(d_state.baddbmm_(self.query_features(), times(dy, self.passing.from_past)))


def times(x: Tensor, factor: Tensor | None) -> Tensor:
    """x, or x times the factor."""
    return x if factor is None else x * factor


@dataclass(frozen=True)
class Inputs:
    """The tensors with batch and heads as one axis, with the factors of a folded decay in their places."""

    q: Float[Tensor, "M G T D"]
    k: Float[Tensor, "M T D"]
    u: Float[Tensor, "M T U"]
    rows: Float[Tensor, "M G T O"] | None
    layout: Layout
    fold: Fold | None = None
    decay: RunningDecay | None = None
    """A decay that could not be folded."""

    @classmethod
    def of(cls, q: Tensor, k: Tensor, u: Tensor, decay: Tensor | None, rows: Tensor | None, layout: Layout) -> Inputs:
        """Of tensors as they are given; ``decay`` runs along time (M, T), or has the steps of channels (M, T, F)."""
        rows = None if rows is None else rows.to(q.dtype)
        if decay is None:
            return cls(q, k, u, rows, layout)
        if layout.by_channel:
            made = fold_channels(decay.to(q.dtype), layout.chunk, layout.strict)
            return cls(q * made.query[:, None], k * made.key, u, rows, layout, made)
        folds = layout.is_regular and layout.visibility.first_key is None
        made = fold(decay, layout.chunk, q.dtype) if folds else None
        if made is None:
            return cls(q, k, u, rows, layout, decay=RunningDecay(decay))
        return cls(q, k, u * made.key, rows, layout, made)

    @classmethod
    def at(cls, span: slice, given: Given, layout: Layout) -> Inputs:
        """Of a span, as if nothing came before it."""
        q, k, u, decay, _, rows = given
        if span == slice(0, layout.time):
            return cls.of(q, k, u, decay, rows, layout)
        if decay is not None:
            before = None if layout.by_channel or not span.start else decay[:, span.start - 1, None]
            decay = decay[:, span] if before is None else decay[:, span] - before
        rows = None if rows is None else rows[:, :, span]
        layout = replace(layout, time=span.stop - span.start)
        return cls.of(q[:, :, span], k[:, span], u[:, span], decay, rows, layout)

    @property
    def row_factor(self) -> Float[Tensor, "M T 1"] | None:
        """What multiplies the outputs."""
        return None if self.fold is None or self.layout.by_channel else self.fold.query

    @property
    def column_factor(self) -> Float[Tensor, "M T 1"] | None:
        """What has multiplied the values."""
        return None if self.fold is None or self.layout.by_channel else self.fold.key

    def leave_(self, state: Float[Tensor, "N M U"], heads: slice) -> Float[Tensor, "N M U"]:
        """The state after the last position, from that of the last chunk, in place; the same for its gradient."""
        last = self._between(heads, -1)
        return state if last is None else state.mul_(last)

    def _between(self, heads: slice, number: int) -> Float[Tensor, "N M 1"] | None:
        if self.fold is None:
            return None
        factors = self.fold.between[heads, :, number, None]
        return self.layout.features.key(factors) if self.layout.by_channel else factors

    def chunks(self, group: Group, places: list[slice], weighs: bool = True) -> Iterator[Chunk]:
        """The chunks of a group at these places; ``weighs``: weights between positions of a chunk are asked for."""
        heads, layout = group.heads, self.layout
        memory = Scratch(self.q.new_empty(0), group.count * layout.features.count * layout.chunk * layout.group_size)
        for place, passing in zip(places, self._passings(group, places, weighs), strict=True):
            yield Chunk(
                place,
                self.q[heads, :, place].flatten(1, 2),
                self.k[heads, place],
                self.u[heads, place],
                None if self.rows is None else self.rows[heads, :, place].flatten(1, 2),
                memory,
                layout,
                passing,
            )

    def _passings(self, group: Group, places: list[slice], weighs: bool) -> Iterator[Passing]:
        chunk, seen = self.layout.chunk, self.layout.visibility
        chunks = ChunkKind(chunk, self.layout.strict, self.q.dtype, self.q.device)
        plain = self.decay is None and seen.first_key is None
        count = TOGETHER if all(place.start % chunk == 0 for place in places) else 1
        for some in range(0, len(places), count):
            together = places[some : some + count]
            first, last = min(one.start for one in together), max(one.stop for one in together)
            passed = None if plain else pass_through(self.decay, seen, group, slice(first, last), chunks, weighs)
            for place in together:
                between = self._between(group.heads, place.start // chunk)
                number, size = (place.start - first) // chunk, place.stop - place.start
                yield Passing(between) if passed is None else passed.at(number, size, between, self.q.shape[1])
