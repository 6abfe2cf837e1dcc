"""The blocks of queries and keys that `blockwise` walks over: what both of its passes share.

A `Work` is one pass over all blocks, a `QueryBlock` some queries of some heads, a `Block` these queries and some keys.
Weights are made in place in scratch memory: for exp their logarithms, so that the caller can subtract the row's
largest; for other scores the weights themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from softmax_rnn.attention.contraction import NegativeRows
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.exponential import exp_
from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.kernels.blocks import Group, Masks, Scratch, Walk
from softmax_rnn.attention.levels import LevelTables, LookedUpLevels, PairLevels
from softmax_rnn.attention.parts import Score
from softmax_rnn.attention.scores import Series

SMALL_SCORE = 40.0
"""e^±40 and its sums are float32 with all their digits."""
NEGLIGIBLE_LOG = {torch.float32: -60.0, torch.float64: -600.0}
"""A weight smaller than this part of its row's largest vanishes in every sum. Made 0, because products of such
numbers would be subnormal, and those take processors a hundred times as long."""


@dataclass(frozen=True)
class Setting:
    """What stays the same for all blocks of a call."""

    score: Score
    walk: Walk
    wants_row_sum: bool
    negative: NegativeRows | None
    largest_score: float
    """No score is larger: the clamp, or |q||k|. Only the decay asks for it."""
    tables: LevelTables | None = None
    """The levels of pairs, where they count."""
    is_bounded: bool = False
    """Whether all scores of an exp are known to be small: exp is then taken as it is, without the row's largest."""


@dataclass
class Work:
    """One pass: the flattened tensors q (N, G, Tq, D), k (N, T, D), v (N, T, E), rows (N, G, Tq, O), λ, and memory."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: RunningDecay | None
    rows: Tensor | None
    setting: Setting
    levels: Tensor | None = None
    """λ (N, G, Tq, L)."""

    def __post_init__(self) -> None:
        self.q, self.k, self.v = self.q.contiguous(), self.k.contiguous(), self.v.contiguous()
        self.scratch: Scratch = self.setting.walk.scratch(self.q)
        self.masks = Masks(self.setting.walk, self.q)

    def query_blocks(self, group: Group) -> Iterator[QueryBlock]:
        """The blocks of queries of some heads."""
        return (QueryBlock(self, group, queries) for queries in self.setting.walk.query_blocks())


@dataclass
class QueryBlock:
    """Some queries of the heads of a group; these stand side by side as rows: (heads, G · queries, …)."""

    work: Work
    group: Group
    queries: slice

    @cached_property
    def q(self) -> Tensor:
        return self.rows_of(self.work.q)

    @cached_property
    def series(self) -> Series:
        """f, with the coefficients of these rows where each row has its own."""
        rows = self.work.rows
        return self.work.setting.score.series(None if rows is None else self.rows_of(rows))

    @cached_property
    def decay(self) -> Tensor | None:
        """c_i from the first query on."""
        if self.work.decay is None:
            return None
        past = self.work.setting.walk.past
        place = slice(past + self.queries.start, past + self.queries.stop)
        c = self.work.decay.from_origin(self.group.heads, place.start, place)
        return c.repeat(1, self.work.q.shape[1])[..., None]

    @cached_property
    def levels(self) -> Tensor | None:
        return None if self.work.levels is None else self.rows_of(self.work.levels)

    def rows_of(self, x: Tensor) -> Tensor:
        return x[self.group.heads, :, self.queries].flatten(1, 2)

    def write(self, target: Tensor, rows: Tensor) -> None:
        """Write rows to their place."""
        target[self.group.heads, :, self.queries] = rows.unflatten(1, (-1, self.queries.stop - self.queries.start))

    def blocks(self) -> list[Block]:
        """The keys that some of the queries can see, in order."""
        keys = self.work.setting.walk.key_blocks(self.group, self.queries)
        return [Block(self, place) for place in keys]


@dataclass
class Block:
    """Some queries and some keys."""

    row: QueryBlock
    keys: slice

    @property
    def k(self) -> Tensor:
        return self.row.work.k[self.row.group.heads, self.keys]

    @property
    def v(self) -> Tensor:
        return self.row.work.v[self.row.group.heads, self.keys]

    @cached_property
    def decay(self) -> Tensor | None:
        """c_j from the first query on, so that the difference of two large numbers is taken once."""
        work = self.row.work
        if work.decay is None:
            return None
        origin = work.setting.walk.past + self.row.queries.start
        return work.decay.from_origin(self.row.group.heads, origin, self.keys)[:, None]

    def has_faded(self, largest: Tensor) -> bool:
        """Whether every weight is known to be negligible beside the largest of its row (without the row's decay)."""
        if self.decay is None or not may_sync(largest):
            return False
        most = self.row.work.setting.largest_score - float(self.decay.min()) - float(largest.min())
        return most < NEGLIGIBLE_LOG[self.row.q.dtype]

    def scratch(self, name: str) -> Tensor:
        """Memory for one number per pair."""
        q = self.row.q
        return self.row.work.scratch.block(name, q.shape[0], q.shape[1], self.keys.stop - self.keys.start)

    def dots(self) -> Tensor:
        """q·k, in scratch memory."""
        return torch.bmm(self.row.q, self.k.transpose(1, 2), out=self.scratch("x"))

    def logarithms_(self, x: Tensor) -> Tensor:
        """log of the weights from the dot products, in place, up to the row's own decay."""
        self.row.work.setting.score.cut_(x)
        if self.decay is not None:
            x.sub_(self.decay.to(x.dtype))
        self.row.work.masks.add_(x, self.row.group, self.row.queries, self.keys)
        return x

    @cached_property
    def pairs(self) -> PairLevels | LookedUpLevels:
        tables, queries = self.row.work.setting.tables, self.row.queries
        past = self.row.work.setting.walk.past
        assert tables is not None
        return tables.of(self.row.group.batches, slice(past + queries.start, past + queries.stop), self.keys)

    def level_(self, *blocks: Tensor) -> None:
        """Multiply weights, or what is proportional to them, by the λ of their levels, in place."""
        if self.row.levels is not None:
            for block in blocks:
                self.pairs.multiply_(block, self.row.levels)

    def decay_and_mask_(self, *blocks: Tensor) -> None:
        """Multiply weights, or what is proportional to them, by decay and mask, in place."""
        masks, place = self.row.work.masks, (self.row.group, self.row.queries, self.keys)
        if self.row.decay is None or self.decay is None:
            masks.multiply_(blocks, *place)
            return
        logarithm = (self.row.decay - self.decay).to(self.row.q.dtype)
        masks.add_(logarithm, *place)
        factor = exp_(logarithm)
        for block in blocks:
            block.mul_(factor)


def relative_exp_(x: Tensor) -> Tensor:
    """exp of logarithms whose row has its largest at 0, in place; 0 for what is negligible."""
    return exp_(torch.threshold_(x, NEGLIGIBLE_LOG[x.dtype], -torch.inf))
