"""The chunks that the chunked form walks over: which positions, which heads together, what passes between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.decay import ChunkDecay, RunningDecay
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.forms import chunked as form
from softmax_rnn.attention.kernels.blocks import Group, Scratch
from softmax_rnn.attention.scores import Series
from softmax_rnn.attention.visibility import Visibility


@dataclass(frozen=True)
class Layout:
    """The geometry: which positions make a chunk, which heads are worked on together."""

    features: SymmetricFeatures
    visibility: Visibility
    batch: int
    kv_heads: int
    group_size: int
    time: int

    @cached_property
    def chunk(self) -> int:
        """Positions per chunk."""
        return min(form.chunk_length(self.features.count), self.time)

    def places(self) -> list[slice]:
        """The positions of the chunks, in order."""
        return [slice(a, min(a + self.chunk, self.time)) for a in range(0, self.time, self.chunk)]

    def groups(self) -> list[Group]:
        """Heads in groups whose features fit the memory; one batch row per group when rows differ in masks."""
        per_head = self.features.count * self.chunk * self.group_size
        at_once = max(2, form.CHUNK_NUMBERS // per_head)
        heads = self.kv_heads
        span = self.batch * heads if self.visibility.first_key is None else heads
        return [
            Group(slice(h, min(h + at_once, row + span)), slice(row // heads, (row + span - 1) // heads + 1))
            for row in range(0, self.batch * heads, span)
            for h in range(row, row + span, at_once)
        ]


@dataclass(frozen=True)
class Passing:
    """How much of the past, and of the chunk itself, passes on; None where all of it does."""

    from_past: Float[Tensor, "N R 1"] | None = None
    """e^(c_i − c_{a−1}), 0 where the segment began inside the chunk."""
    into_state: Float[Tensor, "N C 1"] | None = None
    """e^(c_end − c_j), 0 where the segment ended inside the chunk."""
    keep: Float[Tensor, "N 1 1"] | None = None
    """e^(c_end − c_{a−1}), 0 where the last segment began inside the chunk."""
    inside: Float[Tensor, "N R C"] | None = None
    """e^(c_i − c_j) where i sees j, else 0; None for the plain lower triangle."""


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
    features: SymmetricFeatures
    passing: Passing

    @property
    def series(self) -> Series:
        """f, with the coefficients of these rows where each row has its own."""
        return self.features.score.series(self.rows)

    def query_features(self) -> Float[Tensor, "N F R"]:
        """φ(q) with multinomials and coefficients."""
        out = self.memory.block("query", self.q.shape[0], self.features.count, self.q.shape[1])
        return self.features.query(self.q.mT, self.rows, out)

    def key_features(self) -> Float[Tensor, "N F C"]:
        """φ(k)."""
        out = self.memory.block("key", self.k.shape[0], self.features.count, self.k.shape[1])
        return self.features.key(self.k.mT, out)

    def decay_and_mask_(self, weights: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
        """Weights between the positions of the chunk, in place."""
        if self.passing.inside is not None:
            return weights.mul_(self.passing.inside)
        # The rows of each of the G heads are a lower triangle of their own.
        weights.view(weights.shape[0], -1, weights.shape[2], weights.shape[2]).tril_()
        return weights

    def advance(self, state: Tensor) -> Tensor:
        """The state after the chunk, in the memory of the one before it."""
        if self.passing.keep is not None:
            state.mul_(self.passing.keep)
        return state.baddbmm_(self.key_features(), times(self.u, self.passing.into_state))


def times(x: Tensor, factor: Tensor | None) -> Tensor:
    """x, or x times the factor."""
    return x if factor is None else x * factor


@dataclass(frozen=True)
class Inputs:
    """The tensors with batch and heads as one axis."""

    q: Float[Tensor, "M G T D"]
    k: Float[Tensor, "M T D"]
    u: Float[Tensor, "M T U"]
    decay: RunningDecay | None
    rows: Float[Tensor, "M G T O"] | None
    layout: Layout

    def chunks(self, group: Group, places: Iterable[slice]) -> Iterator[Chunk]:
        """The chunks of a group at these places."""
        heads, layout = group.heads, self.layout
        memory = Scratch(self.q, group.count * layout.features.count * layout.chunk * layout.group_size)
        for place in places:
            yield Chunk(
                place,
                self.q[heads, :, place].flatten(1, 2),
                self.k[heads, place],
                self.u[heads, place],
                None if self.rows is None else self.rows[heads, :, place].flatten(1, 2),
                memory,
                layout.features,
                self._passing(group, place),
            )

    def _passing(self, group: Group, place: slice) -> Passing:
        first_key, dtype, device = self.layout.visibility.first_key, self.q.dtype, self.q.device
        if self.decay is None and first_key is None:
            return Passing()
        size = place.stop - place.start
        logs = _no_decay(group.count, size, device) if self.decay is None else self.decay.chunk(group.heads, place)
        allowed = torch.ones(size, size, dtype=torch.bool, device=device).tril()
        # Masked before exp: a decay that would look into the future may overflow.
        log_inside = torch.where(allowed, logs.inside, -torch.inf)
        from_past, into_state, keep = torch.exp(logs.from_past), torch.exp(logs.into_state), torch.exp(logs.keep)
        if first_key is not None:
            first = first_key[group.batches, place]
            begin, last = place.start, first[:, -1:]
            position = torch.arange(place.start, place.stop, device=device)
            from_past = from_past * (first < begin)
            into_state = into_state * (position >= last)
            keep = keep * (last < begin)
            log_inside = torch.where(position >= first[:, :, None], log_inside, -torch.inf)
        repeat = self.q.shape[1]
        return Passing(
            from_past.to(dtype).repeat(1, repeat)[..., None],
            into_state.to(dtype)[..., None],
            keep.to(dtype)[..., None],
            torch.exp(log_inside).to(dtype).repeat(1, repeat, 1),
        )


def _no_decay(heads: int, size: int, device: torch.device) -> ChunkDecay:
    zeros = torch.zeros(heads, size, dtype=torch.float64, device=device)
    return ChunkDecay(zeros, zeros, zeros[:, :1], zeros[:, :, None].expand(-1, -1, size))
