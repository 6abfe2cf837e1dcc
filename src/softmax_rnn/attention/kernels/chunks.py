"""The chunks that the chunked form walks over: which positions, which heads together, what passes between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.channel_decay import ChannelDecay, ChannelFactors
from softmax_rnn.attention.decay import ChunkDecay, RunningDecay
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.forms import chunked as form
from softmax_rnn.attention.forms.form import CHANNEL_CHUNK
from softmax_rnn.attention.kernels.blocks import Group, Scratch
from softmax_rnn.attention.looking import may_look
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
    by_channel: bool = False
    """Whether each channel decays by itself."""
    reads_before_decay: bool = False

    def decay(self, memory: Tensor | None) -> RunningDecay | ChannelDecay | None:
        """The decay of a tensor."""
        if memory is None:
            return None
        return ChannelDecay(memory, self.reads_before_decay) if self.by_channel else RunningDecay(memory)

    @cached_property
    def chunk(self) -> int:
        """Positions per chunk."""
        longest = min(CHANNEL_CHUNK, self.time) if self.by_channel else self.time
        return min(form.chunk_length(self.features.count), longest)

    def places(self) -> list[slice]:
        """The positions of the chunks, in order."""
        return [slice(a, min(a + self.chunk, self.time)) for a in range(0, self.time, self.chunk)]

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
    diagonal: int = 0
    """−1 where the triangle leaves out the own key."""
    row: Float[Tensor, "N R 1"] | None = None
    """Where both are floats, e^(c_i − o) and e^(o − c_j) take the place of ``inside``, o the middle of the chunk."""
    column: Float[Tensor, "N C 1"] | None = None


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
    channels: ChannelFactors | None = None
    """The decays of channels; q and k are already multiplied by theirs."""

    @property
    def series(self) -> Series:
        """f, with the coefficients of these rows where each row has its own."""
        return self.features.score.series(self.rows)

    def query_features(self) -> Float[Tensor, "N F R"]:
        """φ(q) with multinomials and coefficients."""
        out = self.memory.block("query", self.q.shape[0], self.features.count, self.q.shape[1])
        return self.features.query(self.query_at_start().mT, self.rows, out)

    def query_at_start(self) -> Float[Tensor, "N R D"]:
        """The queries as they read the state before the chunk."""
        return self.q if self.channels is None else self.q * self.channels.from_start

    def key_features(self) -> Float[Tensor, "N F C"]:
        """φ(k)."""
        out = self.memory.block("key", self.k.shape[0], self.features.count, self.k.shape[1])
        return self.features.key(self.key_at_end().mT, out)

    def key_at_end(self) -> Float[Tensor, "N C D"]:
        """The keys as they enter the state after the chunk."""
        return self.k if self.channels is None else self.k * self.channels.to_end

    def query_gradient(self, inside: Float[Tensor, "N R D"], at_start: Float[Tensor, "N R D"]) -> Tensor:
        """The gradient of the given queries, from that of ``q``, in place, and that of `query_at_start`."""
        if self.channels is None:
            return inside.add_(at_start)
        return inside.addcmul_(at_start, self.channels.from_start).mul_(self.channels.query)

    def key_gradient(self, inside: Tensor | None = None, at_end: Tensor | None = None) -> Tensor:
        """The gradient of the given keys, from that of ``k`` or from that of `key_at_end`."""
        grad = at_end if inside is None else inside
        assert grad is not None
        if self.channels is None:
            return grad
        return (grad if at_end is None else grad * self.channels.to_end) * self.channels.key

    def products(self) -> Float[Tensor, "N R C"]:
        """q·k; 0 for hidden keys where channels decay, whose factors overflow there."""
        x = torch.bmm(self.q, self.k.mT)
        if self.channels is None:
            return x
        inside = self.passing.inside
        return x.tril_(self.passing.diagonal) if inside is None else x.masked_fill_(inside == 0, 0)

    def decay_and_mask_(self, weights: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
        """Weights between the positions of the chunk, in place."""
        self.mask_(weights)
        if self.passing.row is None or self.passing.column is None:
            return weights
        return weights.mul_(self.passing.row).mul_(self.passing.column.mT)

    def mask_(self, weights: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
        """The same, where ``row`` and ``column`` are multiplied in by the caller."""
        if self.passing.inside is not None:
            return weights.mul_(self.passing.inside)
        # The rows of each of the G heads are a lower triangle of their own.
        weights.view(weights.shape[0], -1, weights.shape[2], weights.shape[2]).tril_(self.passing.diagonal)
        return weights

    def keep(self) -> Float[Tensor, "N M 1"] | None:
        """How much of each row of the state passes through the chunk."""
        if self.channels is None:
            return self.passing.keep
        through = (self.channels.from_start * self.channels.to_end).mT
        return times(self.features.key(through), self.passing.keep)

    def advance(self, state: Tensor) -> Tensor:
        """The state after the chunk, in the memory of the one before it."""
        keep = self.keep()
        if keep is not None:
            state.mul_(keep)
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
    decay: RunningDecay | ChannelDecay | None
    rows: Float[Tensor, "M G T O"] | None
    layout: Layout

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of chunks and states."""
        return torch.float64 if isinstance(self.decay, ChannelDecay) else self.q.dtype

    def chunks(self, group: Group, places: Iterable[slice]) -> Iterator[Chunk]:
        """The chunks of a group at these places."""
        heads, layout = group.heads, self.layout
        like = torch.empty(0, dtype=self.dtype, device=self.q.device)
        memory = Scratch(like, group.count * layout.features.count * layout.chunk * layout.group_size)
        for place in places:
            q, k = self.q[heads, :, place].flatten(1, 2), self.k[heads, place]
            channels = self.decay.chunk(heads, place) if isinstance(self.decay, ChannelDecay) else None
            if channels is not None:
                q, k = q * channels.query, k * channels.key
            yield Chunk(
                place,
                q,
                k,
                self.u[heads, place].to(self.dtype),
                None if self.rows is None else self.rows[heads, :, place].flatten(1, 2).to(self.dtype),
                memory,
                layout.features,
                self._passing(group, place),
                channels,
            )

    @cached_property
    def _factors_are_floats(self) -> bool:
        """Whether no decay inside a chunk is known to be too strong for a product of two factors with large values."""
        assert isinstance(self.decay, RunningDecay)
        if not may_look(self.decay.c):
            return False
        c, chunk = self.decay.c, self.layout.chunk
        spans = [c[:, start : start + chunk] for start in range(0, c.shape[1], chunk)]
        widest = torch.stack([(span.amax(1) - span.amin(1)).amax() for span in spans]).amax()
        return float(widest) < (30.0 if self.dtype == torch.float32 else 300.0)

    def _factored(self, decay: RunningDecay, group: Group, place: slice) -> Passing:
        c = decay.c[group.heads, place]
        before = decay.c[group.heads, place.start - 1, None] if place.start else torch.zeros_like(c[:, :1])
        middle, end = (c.amin(1, keepdim=True) + c.amax(1, keepdim=True)) / 2, c[:, -1:]
        logs = (c - before, end - c, end - before, c - middle, middle - c)
        from_past, into_state, keep, row, column = (torch.exp(log).to(self.dtype)[..., None] for log in logs)
        groups = self.q.shape[1]
        if groups > 1:
            from_past, row = from_past.repeat(1, groups, 1), row.repeat(1, groups, 1)
        return Passing(from_past, into_state, keep, row=row, column=column)

    def _passing(self, group: Group, place: slice) -> Passing:
        first_key, dtype, device = self.layout.visibility.first_key, self.dtype, self.q.device
        running = self.decay if isinstance(self.decay, RunningDecay) else None
        if running is not None and first_key is None and self._factors_are_floats:
            return self._factored(running, group, place)
        diagonal = -1 if isinstance(self.decay, ChannelDecay) and self.decay.reads_before_decay else 0
        if running is None and first_key is None:
            return Passing(diagonal=diagonal)
        size = place.stop - place.start
        logs = _no_decay(group.count, size, device) if running is None else running.chunk(group.heads, place)
        allowed = torch.ones(size, size, dtype=torch.bool, device=device).tril(diagonal)
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
