"""The only step that mixes positions, as a value: what a form gets and what it gives back.

Letters: B batch, K heads of keys and values, G query heads that share one (H = K·G), T time, D key dimension,
E value dimension, O orders.

    numerator_i = e^(−log_scale_i) · Σ_{j seen by i} f(q_i·k_j) · decay(i, j) · v_j
    row_sum_i   = e^(−log_scale_i) · Σ_{j seen by i} f(q_i·k_j) · decay(i, j)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from softmax_rnn.attention.channel_decay import ChannelDecay
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.levels import LevelWeights
from softmax_rnn.attention.parts import Score
from softmax_rnn.attention.visibility import Visibility


@dataclass(frozen=True)
class NegativeRows:
    """In which rows a form has met a weight below 0; forms that make no weights leave it as it is."""

    negative: Bool[Tensor, "BK G Tq"]

    def note(self, weights: Float[Tensor, "N R T"], heads: slice, queries: slice) -> None:
        """Note the rows of a block of weights: R rows are the G heads of a group side by side."""
        below = weights.detach().amin(-1).unflatten(1, (self.negative.shape[1], -1)) < 0
        self.negative[heads, :, queries] |= below

    def at(self, query: int) -> NegativeRows:
        """The same for one query."""
        return NegativeRows(self.negative[..., query : query + 1])

    def count(self, real: Bool[Tensor, "B Tq"] | None) -> Tensor:
        """How many rows of real positions."""
        rows = self.negative
        if real is not None:
            rows = rows.unflatten(0, (real.shape[0], -1)) & real[:, None, None]
        return rows.sum()


@dataclass(frozen=True)
class Contraction:
    """The input of a form: features of queries and keys (scale included), values, decay and who sees whom.

    The queries are at the last positions of the keys. ``rows`` gives each query its own polynomial
    coefficients; they then belong to the q given here, and ``log_scale`` says by how much all weights of the
    row are reduced.
    """

    score: Score
    q: Float[Tensor, "B K G Tq D"]
    k: Float[Tensor, "B K T C"]
    """As wide as q; with a window that reads raw keys, these come after the features."""
    v: Float[Tensor, "B K T E"]
    decay: RunningDecay | ChannelDecay | None
    visibility: Visibility
    wants_row_sum: bool
    rows: Float[Tensor, "B K G Tq O"] | None = None
    log_scale: Float[Tensor, "B K G Tq"] | None = None
    negative: NegativeRows | None = None
    bonus: Float[Tensor, "K F"] | None = None
    """What multiplies the channels of the product of a query with its own key, in place of a decay."""
    levels: LevelWeights | None = None
    """What multiplies the weights of each level of the past."""
    reads_largest: bool = False
    """Whether log_scale has to be the largest logarithm of the row, which is part of the function."""
    half: torch.dtype | None = None
    """The half-precision dtype that the caller's tensors had: products on a card may take their factors in it."""

    @property
    def running_decay(self) -> RunningDecay | None:
        """The decay, for kernels that know none per channel."""
        assert not isinstance(self.decay, ChannelDecay)
        return self.decay

    @property
    def past(self) -> int:
        """How many keys come before the first query."""
        return self.k.shape[2] - self.q.shape[3]

    def widened(self) -> Contraction:
        """The same in float64."""
        bonus = None if self.bonus is None else self.bonus.double()
        levels = None if self.levels is None else self.levels.widened()
        return replace(self, q=self.q.double(), k=self.k.double(), v=self.v.double(), bonus=bonus, levels=levels)

    def own_scores(self) -> Float[Tensor, "B K G Tq"]:
        """The product of each query with its own key."""
        k = self.k[:, :, self.past :]
        return torch.einsum("bkgtd,bktd->bkgt", self.q, k if self.bonus is None else k * self.bonus[:, None])

    def at(self, t: int) -> Contraction:
        """The contraction of query t alone, with the keys up to its place."""
        stop = self.past + t + 1
        one = (slice(None), slice(None), slice(None), slice(t, t + 1))
        return replace(
            self,
            q=self.q[one],
            k=self.k[:, :, :stop],
            v=self.v[:, :, :stop],
            decay=None if self.decay is None else self.decay.until(stop),
            visibility=self.visibility.until(stop),
            rows=None if self.rows is None else self.rows[one],
            log_scale=None if self.log_scale is None else self.log_scale[one],
            negative=None if self.negative is None else self.negative.at(t),
            levels=None if self.levels is None else self.levels.at(t, stop),
        )


NOTHING = -1e38
"""The log_scale of a row that sees no key, where it is joined with another."""


@dataclass(frozen=True)
class Sums:
    """The output of a form. ``normalised``: the numerator is already divided by the row sum."""

    numerator: Float[Tensor, "B *heads Tq E"]
    row_sum: Float[Tensor, "B *heads Tq"] | None = None
    log_scale: Float[Tensor, "B *heads Tq"] | None = None
    normalised: bool = False

    def plus(self, far: Sums) -> Sums:
        """The sums over both of two disjoint sets of keys, in the units of the larger one."""
        assert self.log_scale is not None
        far_scale = torch.zeros_like(self.log_scale) if far.log_scale is None else far.log_scale
        scale = torch.maximum(self.log_scale.to(far_scale.dtype), far_scale)
        here, there = torch.exp(self.log_scale - scale), torch.exp(far_scale - scale)
        total = torch.addcmul(self.numerator * here[..., None], far.numerator, there[..., None])
        row_sum = None
        if self.row_sum is not None and far.row_sum is not None:
            row_sum = self.row_sum * here + far.row_sum * there
        return Sums(total, row_sum, scale)
