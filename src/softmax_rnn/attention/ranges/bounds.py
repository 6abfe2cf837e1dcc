"""The range of each query's scores from running values of the keys that it sees.

Letters: B batch, K key heads, G query heads that share one, T keys, Tq queries (the last positions), D key dimension.
``extent`` is what a range remembers of the keys so far, (B, K, numbers): part of a state of fixed size. All of it is
float64 and without gradient: a range chooses the coefficients, it is not a path of learning.

>>> q, k = torch.ones(1, 1, 1, 2, 3), torch.tensor([[[[1.0, 0, 0], [0, 2, 0]]]])
>>> box = running_bounds(kinds.BoxRange(), q, k, Visibility(), None)
>>> box.low.flatten().tolist(), box.high.flatten().tolist()
([1.0, 0.0], [1.0, 3.0])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from softmax_rnn.attention.ranges import kinds
from softmax_rnn.attention.visibility import Visibility
from softmax_rnn.errors import InputError

BLOCK = 128
"""Queries of a block, where a range needs scores."""


@dataclass(frozen=True)
class Bounds:
    """The range of each query, and what the range remembers after the last key."""

    low: Float[Tensor, "B K G Tq"]
    high: Float[Tensor, "B K G Tq"]
    extent: Float[Tensor, "B K S"] | None = None


@dataclass(frozen=True)
class Keys:
    """What a range is made from: queries, keys, which keys are real, and what was remembered of earlier keys."""

    q: Float[Tensor, "B K G Tq D"]
    k: Float[Tensor, "B K T D"]
    real: Bool[Tensor, "B T"] | None
    before: Float[Tensor, "B K S"] | None

    def filled(self, x: Float[Tensor, "B K T *rest"], value: float) -> Tensor:
        """x with ``value`` at padding."""
        if self.real is None:
            return x
        return x.masked_fill(~self.real[:, None].view(x.shape[0], 1, -1, *[1] * (x.dim() - 3)), value)

    def at_queries(self, x: Float[Tensor, "B K T *rest"]) -> Tensor:
        """The running values at the queries' positions, with an axis for G."""
        return x[:, :, x.shape[2] - self.q.shape[3] :][:, :, None]

    def score_blocks(self) -> Iterator[tuple[slice, Float[Tensor, "B K G C T"], Bool[Tensor, "B C T"]]]:
        """Blocks of queries: their scores with all keys, and who sees whom."""
        past = self.k.shape[2] - self.q.shape[3]
        visibility = Visibility(self.real)
        for start in range(0, self.q.shape[3], BLOCK):
            place = slice(start, min(start + BLOCK, self.q.shape[3]))
            positions = slice(past + place.start, past + place.stop)
            allowed = visibility.allowed(positions, slice(0, positions.stop), self.q.device)
            yield place, self.q[:, :, :, place] @ self.k[:, :, None, : positions.stop].mT, allowed[:, None, None]


def running_bounds(
    part: kinds.Range,
    q: Float[Tensor, "B K G Tq D"],
    k: Float[Tensor, "B K T D"],
    visibility: Visibility,
    before: Float[Tensor, "B K S"] | None,
) -> Bounds:
    """The bounds of all queries, continued from what was remembered; 0 for rows that see no key."""
    with torch.no_grad():
        q, k = q.detach().double(), k.detach().double()
        if visibility.first_key is not None:
            return _by_segment(part, q, k, visibility.key_mask, visibility.first_key)
        ends = bounds(part, Keys(q, k, visibility.key_mask, before))
        finite = ends.low.isfinite() & ends.high.isfinite()
        return Bounds(torch.where(finite, ends.low, 0), torch.where(finite, ends.high, 0), ends.extent)


def _by_segment(part: kinds.Range, q: Tensor, k: Tensor, key_mask: Tensor | None, first_key: Tensor) -> Bounds:
    """Each packed document by itself."""
    low, high = q.new_zeros(q.shape[:-1]), q.new_zeros(q.shape[:-1])
    time = k.shape[2]
    for row in range(k.shape[0]):
        starts = first_key[row].unique().tolist()
        for start, stop in zip(starts, [*starts[1:], time], strict=True):
            mask = None if key_mask is None else key_mask[row : row + 1, start:stop]
            place = (slice(row, row + 1), slice(None), slice(None), slice(start, stop))
            ends = running_bounds(part, q[place], k[row : row + 1, :, start:stop], Visibility(mask), None)
            low[place], high[place] = ends.low, ends.high
    return Bounds(low, high)


@singledispatch
def empty_extent(part: kinds.Range, dim: int) -> Float[Tensor, " S"] | None:
    """What a range remembers before the first key; None where it remembers nothing."""
    return None


@empty_extent.register
def _(part: kinds.NormRange, dim: int) -> Tensor:
    return torch.zeros(1, dtype=torch.float64)


@empty_extent.register
def _(part: kinds.BoxRange, dim: int) -> Tensor:
    return torch.tensor([torch.inf, -torch.inf], dtype=torch.float64).repeat_interleave(dim)


@empty_extent.register
def _(part: kinds.MeanPoint, dim: int) -> Tensor:
    return torch.zeros(1 + dim, dtype=torch.float64)


@empty_extent.register
def _(part: kinds.MomentRange, dim: int) -> Tensor:
    return torch.zeros(1 + dim + dim * dim, dtype=torch.float64)


@empty_extent.register
def _(part: kinds.ExtremeKeys, dim: int) -> Tensor:
    # NaN marks places that hold no key yet.
    return torch.full((2 * dim * dim,), torch.nan, dtype=torch.float64)


@singledispatch
def bounds(part: kinds.Range, keys: Keys) -> Bounds:
    """Low and high of each query; a new range registers its function here."""
    raise TypeError(f"no function is registered for the range {part.kind}")


@bounds.register
def _(part: kinds.FixedRange, keys: Keys) -> Bounds:
    shape = keys.q.shape[:4]
    heads = shape[1] * shape[2]
    if len(part.low) not in (1, heads):
        raise InputError(f"range: expected 1 or {heads} pairs of ends, one per query head, got {len(part.low)}")
    ends = [torch.tensor(x, dtype=torch.float64, device=keys.q.device) for x in (part.low, part.high)]
    low, high = (x.expand(heads).view(1, shape[1], shape[2], 1).expand(shape) for x in ends)
    return Bounds(low, high)


@bounds.register
def _(part: kinds.NormRange, keys: Keys) -> Bounds:
    norms = keys.filled(torch.linalg.vector_norm(keys.k, dim=-1), 0.0)
    if keys.before is not None:
        norms = torch.maximum(norms, keys.before)
    largest = norms.cummax(-1).values
    high = torch.linalg.vector_norm(keys.q, dim=-1) * keys.at_queries(largest)
    return Bounds(-high, high, largest[..., -1:])


@bounds.register
def _(part: kinds.BoxRange, keys: Keys) -> Bounds:
    least, most = keys.filled(keys.k, torch.inf).cummin(2).values, keys.filled(keys.k, -torch.inf).cummax(2).values
    if keys.before is not None:
        before = keys.before[:, :, None].chunk(2, -1)
        least, most = torch.minimum(least, before[0]), torch.maximum(most, before[1])
    a, b = keys.q * keys.at_queries(least), keys.q * keys.at_queries(most)
    extent = torch.cat([least[:, :, -1], most[:, :, -1]], -1)
    return Bounds(torch.minimum(a, b).sum(-1), torch.maximum(a, b).sum(-1), extent)


def _running_mean(keys: Keys) -> tuple[Tensor, Tensor, Tensor]:
    """q·k̄ and the number of keys at each query, and count and sum after the last key."""
    ones = keys.filled(torch.ones_like(keys.k[..., :1]), 0.0)
    sums = torch.cat([ones, keys.filled(keys.k, 0.0)], -1).cumsum(2)
    if keys.before is not None:
        sums = sums + keys.before[:, :, None, : sums.shape[-1]]
    here = keys.at_queries(sums)
    count = here[..., 0]
    return (keys.q * here[..., 1:]).sum(-1) / count, count, sums[:, :, -1]


@bounds.register
def _(part: kinds.MeanPoint, keys: Keys) -> Bounds:
    mean, _, extent = _running_mean(keys)
    return Bounds(mean, mean, extent)


@bounds.register
def _(part: kinds.MomentRange, keys: Keys) -> Bounds:
    mean, count, extent = _running_mean(keys)
    squares = torch.zeros_like(mean)
    for place, scores, allowed in keys.score_blocks():
        squares[..., place] = torch.where(allowed, scores, 0).square().sum(-1)
    k = keys.filled(keys.k, 0.0)
    second = k.mT @ k
    if keys.before is not None:
        past = keys.before[..., -(second.shape[-1] ** 2) :].unflatten(-1, second.shape[-2:])
        squares = squares + torch.einsum("bkgtd,bkde,bkgte->bkgt", keys.q, past, keys.q)
        second = second + past
    deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
    extent = torch.cat([extent, second.flatten(-2)], -1)
    return Bounds(mean - part.below * deviation, mean + part.above * deviation, extent)


@bounds.register
def _(part: kinds.ExtremeKeys, keys: Keys) -> Bounds:
    """The kept keys stand in front of the new ones: the running extremes are then those of all keys."""
    batch, _, time, dim = keys.k.shape
    k, real = keys.k, keys.real
    if keys.before is not None:
        kept = keys.before.unflatten(-1, (2 * dim, dim))
        there = ~kept[..., :1].isnan()
        k = torch.cat([torch.where(there, kept, 0), k], 2)
        now = torch.ones(batch, time, dtype=torch.bool, device=k.device) if real is None else real
        real = torch.cat([there[:, 0, :, 0], now], 1)
    whole = Keys(keys.q, k, real, None)
    most, least = whole.filled(k, -torch.inf).cummax(2), whole.filled(k, torch.inf).cummin(2)
    places = torch.cat([most.indices, least.indices], -1)
    low, high = torch.empty_like(keys.q[..., 0]), torch.empty_like(keys.q[..., 0])
    first = k.shape[2] - keys.q.shape[3]
    for place, scores, allowed in whole.score_blocks():
        chosen = places[:, :, None, first + place.start : first + place.stop].expand(*scores.shape[:-1], -1)
        held = scores.gather(-1, chosen)
        visible = allowed.expand_as(scores).gather(-1, chosen)  # a row that sees no key has places of padding
        low[..., place] = torch.where(visible, held, torch.inf).amin(-1)
        high[..., place] = torch.where(visible, held, -torch.inf).amax(-1)
    width = high - low
    extent = k.gather(2, places[:, :, -1, :, None].expand(-1, -1, -1, dim))
    if real is not None:
        empty = ~real.any(1)[:, None, None, None]
        extent = extent.masked_fill(empty, torch.nan)
    return Bounds(low - part.below * width, high + part.above * width, extent.flatten(2))


@bounds.register
def _(part: kinds.TrueRange, keys: Keys) -> Bounds:
    low, high = torch.empty_like(keys.q[..., 0]), torch.empty_like(keys.q[..., 0])
    for place, scores, allowed in keys.score_blocks():
        low[..., place] = torch.where(allowed, scores, torch.inf).amin(-1)
        high[..., place] = torch.where(allowed, scores, -torch.inf).amax(-1)
    return Bounds(low, high)
