"""What passes through a chunk: decays that are not folded into the inputs, and the segments of packed documents."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.kernels.blocks import Group
from softmax_rnn.attention.kernels.folding import in_chunks
from softmax_rnn.attention.visibility import Visibility

FADED_LOG = {torch.float32: -75.0, torch.float64: -650.0}
PIECE = 16
"""Positions between which decays are made one by one; beyond them they are products of two factors."""


@dataclass(frozen=True)
class Passing:
    """How much of the past, and of the chunk itself, passes on; None where all of it does."""

    between: Float[Tensor, "N _ 1"] | None = None
    """What multiplies each row of the state at the start of the chunk, where decays are folded into the inputs."""
    from_past: Float[Tensor, "N R 1"] | None = None
    """e^(c_i − c_{a−1}), 0 where the segment began inside the chunk."""
    into_state: Float[Tensor, "N C 1"] | None = None
    """e^(c_end − c_j), 0 where the segment ended inside the chunk."""
    keep: Float[Tensor, "N 1 1"] | None = None
    """e^(c_end − c_{a−1}), 0 where the last segment began inside the chunk."""
    inside: Float[Tensor, "N R C"] | None = None
    """e^(c_i − c_j) where i sees j, else 0; None for the plain lower triangle."""


@dataclass(frozen=True)
class Passed:
    """`Passing` of neighbouring chunks, one axis more."""

    from_past: Float[Tensor, "N chunks C"]
    into_state: Float[Tensor, "N chunks C"]
    keep: Float[Tensor, "N chunks 1"]
    inside: Float[Tensor, "N chunks C C"] | None

    def at(self, number: int, size: int, between: Tensor | None, repeat: int) -> Passing:
        """Of one chunk of so many positions, for ``repeat`` query heads side by side."""
        from_past, inside = self.from_past[:, number, :size], None
        if self.inside is not None:
            inside = self.inside[:, number, :size, :size]
        if repeat > 1:
            from_past = from_past.repeat(1, repeat)
            inside = None if inside is None else inside.repeat(1, repeat, 1)
        into_state, keep = self.into_state[:, number, :size, None], self.keep[:, number, :, None]
        return Passing(between, from_past[..., None], into_state, keep, inside)


@dataclass(frozen=True)
class ChunkKind:
    """What all chunks have in common."""

    size: int
    strict: bool
    """Whether a query does not see the key of its own position."""
    dtype: torch.dtype
    device: torch.device


def pass_through(
    decay: RunningDecay | None, seen: Visibility, group: Group, place: slice, kind: ChunkKind, weighs: bool
) -> Passed:
    """The factors of the chunks that lie at ``place``; ``weighs``: those between positions too."""
    if decay is None:
        c = torch.zeros(group.count, place.stop - place.start, dtype=torch.float64, device=kind.device)
        before = c[:, :1]
    else:
        c = decay.c[group.heads, place]
        before = decay.c[group.heads, place.start - 1, None] if place.start else torch.zeros_like(c[:, :1])
    c = in_chunks(c[..., None], kind.size, c[:, -1:, None])[..., 0]
    before, end = torch.cat([before, c[:, :-1, -1]], 1)[..., None], c[..., -1:]
    from_past, into_state, keep = (_faded_exp_(log.to(kind.dtype)) for log in (c - before, end - c, end - before))
    inside = _between_positions(c, kind) if weighs else None
    if seen.first_key is not None:
        first = seen.first_key[group.batches, place]
        first = in_chunks(first[..., None], kind.size, first[:, -1:, None])[..., 0]
        position = torch.arange(place.start, place.start + c.shape[1] * kind.size, device=kind.device)
        position = position.view(-1, kind.size)
        last, begin = first[..., -1:], position[:, :1]
        from_past, keep = from_past * (first < begin), keep * (last < begin)
        into_state = into_state * (position >= last)
        if inside is not None:
            inside = inside * (position[:, None, :] >= first[..., None])
    return Passed(from_past, into_state, keep, inside)


def _between_positions(c: Float[Tensor, "N chunks C"], kind: ChunkKind) -> Float[Tensor, "N chunks C C"]:
    """e^(c_i − c_j) where j comes before i, else 0.

    With e the end of the piece of j, an earlier piece than that of i, it is e^(c_i − e) · e^(e − c_j): where the past
    only fades, both are at most 1.
    """
    many = c.shape[1] > 1  # the pieces of a single chunk would be small
    fades = many and may_sync(c) and bool((c[..., 1:] <= c[..., :-1]).all())
    size = PIECE if fades else kind.size
    pieces = [slice(start, min(start + size, kind.size)) for start in range(0, kind.size, size)]
    inside = torch.zeros(*c.shape, kind.size, dtype=kind.dtype, device=kind.device)
    for number, rows in enumerate(pieces):
        own = c[..., rows]
        log = (own[..., :, None] - own[..., None, :]).to(kind.dtype)
        # Masked before exp: a decay that would look into the future may overflow.
        later = torch.ones(log.shape[-2:], dtype=torch.bool, device=kind.device).triu(0 if kind.strict else 1)
        inside[..., rows, rows] = _faded_exp_(log.masked_fill_(later, -torch.inf))
        for columns in pieces[:number]:
            end = c[..., columns.stop - 1, None]
            row, column = (_faded_exp_(x.to(kind.dtype)) for x in (own - end, end - c[..., columns]))
            torch.mul(row[..., None], column[..., None, :], out=inside[..., rows, columns])
    return torch.threshold_(inside, math.exp(FADED_LOG[kind.dtype]), 0.0)


def _faded_exp_(log: Tensor) -> Tensor:
    """exp in place, 0 where it is negligible beside 1: numbers at the end of the range make products slow."""
    return torch.threshold_(log, FADED_LOG[log.dtype], -torch.inf).exp_()
