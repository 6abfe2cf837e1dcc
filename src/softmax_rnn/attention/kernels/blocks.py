"""The walk of the blockwise form: groups of heads, blocks of queries, blocks of the keys that they may see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.forms import blockwise as form
from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.visibility import Near, Visibility


@dataclass(frozen=True)
class Group:
    """Heads worked on together: ``heads`` of the flattened B·K axis, which belong to ``batches``."""

    heads: slice
    batches: slice

    @property
    def count(self) -> int:
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
    """The geometry of one contraction; ``group_size`` query heads share each of the ``kv_heads``."""

    batch: int
    kv_heads: int
    group_size: int
    queries: int
    keys: int
    visibility: Visibility
    device: torch.device
    has_levels: bool = False
    row_by_row: bool = False
    """Whether each row of the batch is worked on by itself."""

    @property
    def past(self) -> int:
        """Keys before the first query."""
        return self.keys - self.queries

    @property
    def block(self) -> int:
        """Positions per block of keys."""
        return min(form.BLOCK.get(self.device.type, form.DEFAULT_BLOCK), self.keys)

    @property
    def query_block(self) -> int:
        """Positions per block of queries; the heads of a group stand side by side in its rows."""
        size = max(self.block // self.group_size, 16)
        if self.has_levels:  # a power of two: blocks of one level
            size = 1 << size.bit_length() - 1
        return min(size, self.queries)

    @property
    def numbers_per_head(self) -> int:
        """Weights of one head in a block."""
        return self.block * self.query_block * self.group_size

    def groups(self) -> list[Group]:
        """All heads, in groups that fit the memory: several batch rows with all their heads, or part of one row."""
        limit = form.GROUP_NUMBERS.get(self.device.type, form.DEFAULT_GROUP_NUMBERS)
        at_once = max(1, limit // self.numbers_per_head)
        heads = self.kv_heads
        if at_once >= heads and not self.row_by_row:
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
        for start in range(0, self.queries, self.query_block):
            yield slice(start, min(start + self.query_block, self.queries))

    def key_blocks(self, group: Group, queries: slice) -> Iterator[slice]:
        """Blocks of the keys that some query of the block can see, as far as that is known."""
        first, first_key = 0, self.visibility.first_key
        if first_key is not None and may_sync(first_key):
            # Segments follow each other: the first query of the block looks back farthest.
            first = int(first_key[group.batches, self.past + queries.start].min())
        stop = self.past + queries.stop
        starts = range(first - first % self.block, stop, self.block)
        near = self.visibility.near
        if near is not None:
            window, sinks = self._window(near, group, queries)
            starts = [start for start in starts if start + self.block > window or start < sinks]
        for start in starts:
            yield slice(start, min(start + self.block, stop))

    def _window(self, near: Near, group: Group, queries: slice) -> tuple[int, int]:
        """Where the window of the first query begins, and where the sinks end."""
        place = slice(self.past + queries.start, self.past + queries.stop)
        if self.visibility.is_plain:
            return place.start - near.width + 1, near.sinks
        if not may_sync(near.start):
            return 0, 0
        starts, stops = near.start[group.batches, place.start], near.sink_stop[group.batches, place]
        return int(starts.min()), int(stops.max())


class Masks:
    """What the queries of a block may not see: −inf to be added to logarithms, or 0 to be multiplied with weights."""

    def __init__(self, walk: Walk, like: Tensor) -> None:
        self.walk = walk
        self.like = like
        self._causal: dict[tuple[float, ...], Tensor] = {}

    def add_(self, logarithms: Tensor, group: Group, queries: slice, keys: slice) -> None:
        """−inf for hidden keys, in place; the block has the shape (heads, G · queries, keys)."""
        mask = self._of(group, queries, keys, 0.0, -torch.inf)
        if mask is not None:
            self._by_batch(logarithms, mask).add_(mask)

    def multiply_(self, blocks: Sequence[Tensor], group: Group, queries: slice, keys: slice) -> None:
        """0 for hidden keys in each of the blocks, in place."""
        mask = self._of(group, queries, keys, 1.0, 0.0)
        if mask is None:
            return
        for block in blocks:
            self._by_batch(block, mask).mul_(mask)

    def _of(
        self, group: Group, queries: slice, keys: slice, visible: float, hidden: float
    ) -> Float[Tensor, "N 1 1 Q J"] | None:
        """One number for visible keys, another for hidden ones; None where all are visible."""
        walk = self.walk
        place = slice(walk.past + queries.start, walk.past + queries.stop)
        if walk.visibility.is_plain:
            near = walk.visibility.near
            if keys.stop <= place.start + 1 and (near is None or _inside(near, place, keys)):
                return None
            sizes = (place.start - keys.start, queries.stop - queries.start, keys.stop - keys.start)
            # Blocks at the same distance look alike, but for the sinks.
            key = (*sizes, hidden, -1 if near is None or keys.start >= near.sinks else keys.start)
            if key not in self._causal:
                allowed = walk.visibility.batches(0, 1).allowed(place, keys, walk.device)
                self._causal[key] = self._numbers(allowed, visible, hidden)
            return self._causal[key]
        allowed = walk.visibility.batches(group.batches.start, group.batches.stop).allowed(place, keys, walk.device)
        return None if may_sync(allowed) and bool(allowed.all()) else self._numbers(allowed, visible, hidden)

    def _numbers(self, allowed: Tensor, visible: float, hidden: float) -> Tensor:
        mask = torch.full(allowed.shape, visible, dtype=self.like.dtype, device=self.like.device)
        return mask.masked_fill_(~allowed, hidden)[:, None, None]

    def _by_batch(self, block: Tensor, mask: Tensor) -> Tensor:
        """A block as (rows of the batch, heads, G, queries, keys)."""
        rows, size, count = mask.shape[0], *mask.shape[-2:]
        return block.view(rows, block.shape[0] // rows, -1, size, count)


def _inside(near: Near, queries: slice, keys: slice) -> bool:
    """Whether all keys are in the window of every query, or are sinks."""
    return keys.start >= queries.stop - near.width or keys.stop <= near.sinks
