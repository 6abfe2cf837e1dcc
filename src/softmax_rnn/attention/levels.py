"""Levels of pairs of positions, and the blocks into which a Fenwick tree cuts a past.

level(i, j) = bit_length(i XOR j), at most ``top``. The past of position n is cut at the set bits of n: the block of bit
b holds 2^b positions, begins at a multiple of 2^b, and has the level b + 1 for every query between n and the next
multiple of 2^b. For a later query i the level of a block is the larger one of its own and bit_length(i XOR n).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from softmax_rnn.attention.host_sync import may_sync, traced
from softmax_rnn.attention.visibility import Visibility


@dataclass(frozen=True)
class LevelWeights:
    """λ of each query, and where queries and keys stand."""

    weights: Float[Tensor, "B K G Tq L"]
    positions: Int[Tensor, "B T"]
    """How many keys of the segment stand before each key; the queries are the last ones."""
    counted: bool = False
    """Whether they are known to be 0, 1, 2, … in every row, without a look."""

    @property
    def known(self) -> bool:
        """Whether the host knows the positions, or may look at them."""
        return not traced(self.positions) and (self.counted or may_sync(self.positions))

    @property
    def top(self) -> int:
        return self.weights.shape[-1] - 1

    @cached_property
    def rows_differ(self) -> bool:
        """Whether the rows of the batch are at different positions, as far as that is known."""
        return not self.counted and self.known and bool((self.positions != self.positions[:1]).any())

    def row(self, number: int) -> list[int]:
        """The positions of a row of the batch, where they are known."""
        return list(range(self.positions.shape[1])) if self.counted else self.positions[number].tolist()

    def at(self, t: int, stop: int) -> LevelWeights:
        """Those of query t, with the keys before ``stop``."""
        return replace(self, weights=self.weights[:, :, :, t : t + 1], positions=self.positions[:, :stop])

    def widened(self) -> LevelWeights:
        """The same in float64."""
        return replace(self, weights=self.weights.double())

    def of_pairs(self, past: int) -> Float[Tensor, "B K G Tq T"]:
        levels = level_of(self.positions[:, past:, None], self.positions[:, None], self.top)
        index = levels[:, None, None].expand(*self.weights.shape[:3], -1, -1)
        return self.weights.gather(-1, index)


def positions(seen: Visibility, counts: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """How many keys of its segment each position has before it; ``counts`` counts its own as well."""
    return counts - 1 if seen.key_mask is None else counts - seen.key_mask.long()


def bit_length(n: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
    """How many binary digits: 0 of 0, 1 of 1, 2 of 2 and 3.

    >>> bit_length(torch.tensor([0, 1, 2, 3, 4, 255, 256])).tolist()
    [0, 1, 2, 2, 3, 8, 9]
    """
    return ((n.double().view(torch.int64) >> 52) - 1022).clamp(min=0)  # the exponent of the float


def level_of(i: Int[Tensor, ...], j: Int[Tensor, ...], top: int) -> Int[Tensor, ...]:
    """The level of each pair of positions."""
    return bit_length(i ^ j).clamp(max=top)


@dataclass(frozen=True)
class LevelSums:
    """The states of the blocks of a past, by level; 0 in rows that have no such block. Level 1 is always there."""

    sums: dict[int, Float[Tensor, "B K F U"]] = field(default_factory=dict)
    factors: dict[int, Shaped[Tensor, "B M 1 1"]] = field(default_factory=dict)
    """What is left of them; absent where nothing decays."""

    def now(self, dtype: torch.dtype) -> dict[int, Float[Tensor, "B K F U"]]:
        """The states, decayed."""
        return {n: (x * self.factors[n] if n in self.factors else x).to(dtype) for n, x in self.sums.items()}


@dataclass(frozen=True)
class Stretch:
    """Positions start … stop − 1 that have one level for the queries behind them."""

    start: int
    stop: int
    level: int


def blocks(count: int, top: int) -> list[Stretch]:
    """The past of position ``count``, the farthest block first; what lies beyond the last level is one block.

    >>> [(b.start, b.stop, b.level) for b in blocks(13, 14)]
    [(0, 8, 4), (8, 12, 3), (12, 13, 1)]
    >>> [(b.start, b.stop, b.level) for b in blocks(13, 3)]
    [(0, 12, 3), (12, 13, 1)]
    """
    far = count >> (top - 1) << (top - 1)
    made, start = ([Stretch(0, far, top)] if far else []), far
    for bit in range(top - 2, -1, -1):
        if count >> bit & 1:
            made.append(Stretch(start, start + (1 << bit), bit + 1))
            start += 1 << bit
    return made


class PairLevels:
    """The levels of a block of pairs: λ spread over the pairs, and sums over pairs gathered by level.

    With one level in the whole block both are a column. Else the pairs of a query are a product of its λ with a
    table of ones, one table per query, which is faster than to look up each pair.
    """

    def __init__(self, low: int, table: Float[Tensor, "Q L J"] | None) -> None:
        self.low = low
        self.table = table
        self.columns = slice(low, low + (1 if table is None else table.shape[1]))

    def multiply_(self, weights: Float[Tensor, "N R J"], rows: Float[Tensor, "N R L"]) -> Float[Tensor, "N R J"]:
        """Weights times λ, in place; the queries of the heads of a group stand side by side as rows."""
        if self.table is None:
            return weights.mul_(rows[..., self.columns])
        size, _, keys = self.table.shape
        weights.view(weights.shape[0], -1, size, keys).mul_(self._by_head(rows, self.table))
        return weights

    def spread(self, rows: Float[Tensor, "N R L"]) -> Float[Tensor, "N R J"]:
        """The number of its level for each pair; a column where all pairs have one."""
        if self.table is None:
            return rows[..., self.columns]
        return self._by_head(rows, self.table).flatten(1, 2)

    def _by_head(self, rows: Float[Tensor, "N R L"], table: Float[Tensor, "Q C J"]) -> Float[Tensor, "N G Q J"]:
        own = rows[..., self.columns].unflatten(1, (-1, table.shape[0])).permute(2, 0, 1, 3)
        return torch.bmm(own.flatten(1, 2), table).unflatten(1, own.shape[1:3]).permute(1, 2, 0, 3)

    def add_sums_(self, target: Float[Tensor, "N R L"], pairs: Float[Tensor, "N R J"]) -> None:
        """Add the sums over the pairs of each level to its column."""
        if self.table is None:
            target[..., self.low] += pairs.sum(-1)
            return
        size = self.table.shape[0]
        by_query = pairs.unflatten(1, (-1, size)).permute(2, 0, 1, 3)
        sums = torch.bmm(by_query.flatten(1, 2), self.table.mT).unflatten(1, by_query.shape[1:3])
        target[..., self.columns] += sums.permute(1, 2, 0, 3).flatten(1, 2)


class LookedUpLevels:
    """The same where the host does not know the positions: λ is looked up for each pair."""

    def __init__(self, levels: Int[Tensor, "B Q J"]) -> None:
        self.levels = levels

    def _index(self, rows: Float[Tensor, "N R L"]) -> Int[Tensor, "N R J"]:
        """The level of each pair; heads share a row of the batch, and the heads of a group stand side by side."""
        batch, size, keys = self.levels.shape
        heads, groups = rows.shape[0] // batch, rows.shape[1] // size
        return self.levels[:, None, None].expand(-1, heads, groups, -1, -1).reshape(*rows.shape[:2], keys)

    def multiply_(self, weights: Float[Tensor, "N R J"], rows: Float[Tensor, "N R L"]) -> Float[Tensor, "N R J"]:
        """Weights times λ, in place."""
        return weights.mul_(rows.gather(-1, self._index(rows)))

    def add_sums_(self, target: Float[Tensor, "N R L"], pairs: Float[Tensor, "N R J"]) -> None:
        """Add the sums over the pairs of each level to its column."""
        target.scatter_add_(-1, self._index(target), pairs)


class LevelTables:
    """The `PairLevels` of the blocks of a call, each made once."""

    def __init__(self, levels: LevelWeights) -> None:
        self.levels, self.top, self.dtype = levels, levels.top, levels.weights.dtype
        self._known: dict[tuple[int, ...], PairLevels] = {}

    def of(self, rows: slice, queries: slice, keys: slice) -> PairLevels | LookedUpLevels:
        """The levels between two stretches of places; the rows of the batch are alike, or are looked up each."""
        at = self.levels.positions[rows if not self.levels.known else rows.start]
        if not self.levels.known:
            return LookedUpLevels(level_of(at[:, queries, None], at[:, None, keys], self.top))
        if self.levels.counted:
            first_q, last_q, first_k, last_k = queries.start, queries.stop - 1, keys.start, keys.stop - 1
        else:
            first_q, last_q, first_k, last_k = (int(at[n]) for x in (queries, keys) for n in (x.start, x.stop - 1))
        level = (first_q ^ first_k).bit_length()
        if max((first_q ^ last_q).bit_length(), (first_k ^ last_k).bit_length()) < level:
            return PairLevels(min(level, self.top), None)
        # Digits that all positions share are in no XOR: stretches without gaps look alike wherever they begin.
        shared = max((first_q ^ last_k), (first_k ^ last_q)).bit_length()
        base = first_k >> shared << shared
        key = (first_q - base, last_q - base, first_k - base, last_k - base)
        if last_q - first_q != queries.stop - queries.start - 1 or last_k - first_k != keys.stop - keys.start - 1:
            return self._made(at[queries], at[keys], shared)
        if key not in self._known:
            self._known[key] = self._made(at[queries], at[keys], shared)
        return self._known[key]

    def _made(self, queries: Int[Tensor, " Q"], keys: Int[Tensor, " J"], most: int) -> PairLevels:
        levels = level_of(queries[:, None], keys, self.top)
        low, high = (int(levels.min()), int(levels.max())) if may_sync(levels) else (0, min(most, self.top))
        among = torch.arange(low, high + 1, device=levels.device)[:, None]
        return PairLevels(low, (levels[:, None] == among).to(self.dtype))
