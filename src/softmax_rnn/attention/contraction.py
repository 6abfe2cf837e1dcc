"""The only step that mixes positions, as a value: what a form gets and what it gives back.

Letters: B batch, K heads of keys and values, G query heads that share one (H = K·G), T time, D key dimension,
E value dimension, O orders.

    numerator_i = e^(−log_scale_i) · Σ_{j seen by i} f(q_i·k_j) · decay(i, j) · v_j
    row_sum_i   = e^(−log_scale_i) · Σ_{j seen by i} f(q_i·k_j) · decay(i, j)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from softmax_rnn.attention import scores
from softmax_rnn.attention.parts import Polynomial, Score
from softmax_rnn.attention.visibility import Visibility

LARGEST_LOG = {torch.float32: 60.0, torch.float64: 690.0}
"""Weights up to e^this are summed as they are; the number range ends at about e^88 and e^709."""


@dataclass(frozen=True)
class NegativeRows:
    """In which rows the form has seen a weight below 0; forms that see no weights leave it as it is."""

    found: Bool[Tensor, "BK G Tq"]

    def see(self, weights: Float[Tensor, "N R T"], heads: slice, queries: slice) -> None:
        """Note the rows of a block of weights: R rows are the G heads of a group side by side."""
        below = weights.detach().amin(-1).unflatten(1, (self.found.shape[1], -1)) < 0
        self.found[heads, :, queries] |= below

    def at(self, query: int) -> NegativeRows:
        """The same for one query."""
        return NegativeRows(self.found[..., query : query + 1])

    def count(self, real: Bool[Tensor, "B Tq"] | None) -> int:
        """How many rows of real positions."""
        found = self.found if real is None else self.found.unflatten(0, (real.shape[0], -1)) & real[:, None, None]
        return int(found.sum())


@dataclass(frozen=True)
class Contraction:
    """The input of a form: features of queries and keys (scale included), values, decay and who sees whom.

    The queries stand at the last positions of the keys. ``rows`` gives each query its own polynomial
    coefficients; they then belong to the q given here, and ``log_scale`` says by how much all weights of the
    row are reduced.
    """

    score: Score
    q: Float[Tensor, "B K G Tq D"]
    k: Float[Tensor, "B K T D"]
    v: Float[Tensor, "B K T E"]
    decay: Float[Tensor, "B K T"] | None
    """The running sum of log decays, float64: decay(i, j) = exp(decay_i − decay_j)."""
    seen: Visibility
    wants_row_sum: bool
    rows: Float[Tensor, "B K G Tq O"] | None = None
    log_scale: Float[Tensor, "B K G Tq"] | None = None
    negative: NegativeRows | None = None
    rooms: tuple[Any, Any] = (None, None)
    """Where the keys and values of a growing state stand; only the state looks at it."""

    @property
    def past(self) -> int:
        """How many keys stand before the first query."""
        return self.k.shape[2] - self.q.shape[3]


@dataclass(frozen=True)
class Sums:
    """The output of a form. ``normalised``: the numerator is already divided by the row sum."""

    numerator: Float[Tensor, "B K G Tq E"]
    row_sum: Float[Tensor, "B K G Tq"] | None = None
    log_scale: Float[Tensor, "B K G Tq"] | None = None
    normalised: bool = False


def largest_norm(x: Float[Tensor, "*batch T D"]) -> Float[Tensor, "*batch"]:
    """max_t |x_t|, in float64 where float32 has no squares."""
    norms = torch.linalg.vector_norm(x.detach(), dim=-1).amax(-1)
    return norms if bool(norms.isfinite().all()) else torch.linalg.vector_norm(x.detach().double(), dim=-1).amax(-1)


def widen(job: Contraction) -> Contraction:
    """The same in float64."""
    return replace(job, q=job.q.double(), k=job.k.double(), v=job.v.double())


def fit_polynomial(job: Contraction, key_norm: Float[Tensor, "B K"], sees_keys: bool) -> Contraction:
    """Keep a polynomial's weights inside the number range: in float32, else in float64, else row by row.

    |q·k| ≤ |q||k| bounds each row. Where even float64 ends, the true largest |q·k| takes the bound's place (the
    forms that see keys can afford it); and where that is too large as well, row i works with q_i/r_i and the
    coefficients c_n r_i^n / Σ_m |c_m| r_i^m, r_i the row's bound: the same function reduced by a known factor.
    """
    score = job.score
    assert isinstance(score, Polynomial)
    if score.degree <= 1:
        return job
    norms = torch.linalg.vector_norm(job.q.detach().double(), dim=-1)
    query_size, key_size = float(norms.max()), float(key_norm.max())
    limit = LARGEST_LOG[job.q.dtype]
    # A state multiplies entries of one side only: their powers must be floats as well.
    apart = score.degree * max(abs(math.log(max(size, 1e-9))) for size in (query_size, key_size))
    if _largest_log(score, query_size * key_size) <= limit and (sees_keys or apart <= limit):
        return job
    wide = widen(job)
    if _largest_log(score, query_size * key_size) <= LARGEST_LOG[torch.float64] or score.clamp is not None:
        return wide
    size = _largest_scores(wide) if sees_keys else norms * key_norm.double()[..., None, None]
    size = size.clamp(min=1e-30)
    bound = scores.log_bound(score, size)
    if float(bound.max()) <= LARGEST_LOG[torch.float64]:
        return wide
    rows = torch.stack([c * torch.exp(n * torch.log(size) - bound) for n, c in enumerate(score.coefficients)], dim=-1)
    return replace(wide, q=wide.q / size[..., None], rows=rows, log_scale=bound)


def _largest_log(score: Polynomial, size: float) -> float:
    size = max(size, 1e-30 if score.clamp is None else abs(score.clamp))
    return float(scores.log_bound(score, torch.tensor(size, dtype=torch.float64)))


def _largest_scores(job: Contraction) -> Float[Tensor, "B K G Tq"]:
    """max_j |q_i·k_j| over all keys, some of which i may not see, a block at a time."""
    with torch.no_grad():
        largest = torch.zeros(job.q.shape[:-1], dtype=job.q.dtype, device=job.q.device)
        for start in range(0, job.k.shape[2], 256):
            keys = job.k[:, :, None, start : start + 256].mT
            for first in range(0, job.q.shape[3], 256):
                place = slice(first, first + 256)
                found = (job.q[:, :, :, place] @ keys).abs().amax(-1)
                largest[..., place] = torch.maximum(largest[..., place], found)
        return largest
