"""The walk of the blockwise form: groups of heads, blocks of queries, blocks of the keys that they may see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.visibility import Visibility

BLOCK = {"cpu": 256}
"""Positions a block; 256 × 256 weights of a head fit the second-level cache of a CPU core. Elsewhere larger."""
DEFAULT_BLOCK = 1024
GROUP_NUMBERS = {"cpu": 2**20}
"""Weights that are in work at once, over all heads of a group."""
DEFAULT_GROUP_NUMBERS = 2**26


@dataclass(frozen=True)
class Group:
    """Heads worked on together: ``heads`` of the flattened B·K axis, which belong to ``batches``."""

    heads: slice
    batches: slice

    @property
    def count(self) -> int:
        """How many heads."""
        return self.heads.stop - self.heads.start


@dataclass
class Scratch:
    """Memory for blocks of weights, taken once and used for every block."""

    like: Tensor
    numbers: int
    _slots: dict[str, Tensor] = field(default_factory=dict)

    def block(self, name: str, *shape: int) -> Tensor:
        """An uninitialised tensor of this shape on the memory of that name."""
        if name not in self._slots:
            self._slots[name] = torch.empty(self.numbers, dtype=self.like.dtype, device=self.like.device)
        size = 1
        for n in shape:
            size *= n
        return self._slots[name][:size].view(shape)


@dataclass(frozen=True)
class Walk:
    """The geometry of one contraction: B batch rows, K heads, G queries a head share them, Tq queries, T keys."""

    batch: int
    kv_heads: int
    group_size: int
    queries: int
    keys: int
    seen: Visibility
    device: torch.device

    @property
    def past(self) -> int:
        """Keys before the first query."""
        return self.keys - self.queries

    @property
    def block(self) -> int:
        """Positions a block of keys."""
        return min(BLOCK.get(self.device.type, DEFAULT_BLOCK), self.keys)

    @property
    def query_block(self) -> int:
        """Positions a block of queries; the heads of a group stand side by side in its rows."""
        return min(max(self.block // self.group_size, 16), self.queries)

    @property
    def numbers_per_head(self) -> int:
        """Weights of one head in a block."""
        return self.block * self.query_block * self.group_size

    def groups(self) -> list[Group]:
        """All heads, in groups that fit the memory: several batch rows with all their heads, or part of one row."""
        limit = GROUP_NUMBERS.get(self.device.type, DEFAULT_GROUP_NUMBERS)
        at_once = max(1, limit // self.numbers_per_head)
        heads = self.kv_heads
        if at_once >= heads:
            rows = at_once // heads
            starts = range(0, self.batch, rows)
            ends = [min(b + rows, self.batch) for b in starts]
            return [Group(slice(b * heads, e * heads), slice(b, e)) for b, e in zip(starts, ends, strict=True)]
        return [
            Group(slice(b * heads + h, b * heads + min(h + at_once, heads)), slice(b, b + 1))
            for b in range(self.batch)
            for h in range(0, heads, at_once)
        ]

    def scratch(self, like: Tensor) -> Scratch:
        """Memory for the blocks of the largest group."""
        return Scratch(like, max(group.count for group in self.groups()) * self.numbers_per_head)

    def query_blocks(self) -> Iterator[slice]:
        """Blocks of queries."""
        for start in range(0, self.queries, self.query_block):
            yield slice(start, min(start + self.query_block, self.queries))

    def key_blocks(self, group: Group, queries: slice) -> Iterator[slice]:
        """Blocks of the keys that some query of the block can see."""
        first = 0
        if self.seen.first_key is not None:
            # Segments follow each other: the first query of the block looks back farthest.
            first = int(self.seen.first_key[group.batches, self.past + queries.start].min())
        stop = self.past + queries.stop
        for start in range(first - first % self.block, stop, self.block):
            yield slice(start, min(start + self.block, stop))


class Masks:
    """Additive masks of blocks: 0 where a query sees a key, −inf elsewhere; None where it sees all."""

    def __init__(self, walk: Walk, like: Tensor) -> None:
        self.walk = walk
        self.like = like
        self._causal: dict[tuple[int, int, int], Tensor] = {}

    def of(self, group: Group, queries: slice, keys: slice) -> Float[Tensor, "N 1 1 Q J"] | None:
        """The mask of a block, to be added to weights seen as (rows of the batch, heads, G, queries, keys)."""
        walk = self.walk
        place = slice(walk.past + queries.start, walk.past + queries.stop)
        if walk.seen.is_plain:
            if keys.stop <= place.start + 1:
                return None
            key = (place.start - keys.start, queries.stop - queries.start, keys.stop - keys.start)
            if key not in self._causal:
                self._causal[key] = self._additive(walk.seen.allowed(place, keys, walk.device))
            return self._causal[key]
        seen = walk.seen.batches(group.batches.start, group.batches.stop)
        allowed = seen.allowed(place, keys, walk.device)
        return None if bool(allowed.all()) else self._additive(allowed)

    def _additive(self, allowed: Tensor) -> Tensor:
        mask = torch.zeros(allowed.shape, dtype=self.like.dtype, device=self.like.device)
        return mask.masked_fill_(~allowed, -torch.inf)[:, None, None]

    def add(self, mask: Tensor | None, weights: Tensor, queries: slice) -> None:
        """Add a mask to weights of shape (heads, G · queries, keys) in place."""
        if mask is None:
            return
        rows = mask.shape[0]
        size = queries.stop - queries.start
        weights.view(rows, weights.shape[0] // rows, -1, size, weights.shape[-1]).add_(mask)
