"""Weights kept inside the number range: each form gets the contraction in terms whose sums are floats.

A form that sees keys and a form that goes through a state need different terms, so a score's `fit` gives both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention import scores
from softmax_rnn.attention.contraction import Contraction
from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.parts.score import DIRECT_TAYLOR_ORDER

LARGEST_LOG = {torch.float32: 60.0, torch.float64: 690.0}
"""Weights up to e^this are summed as they are; the number range ends at about e^88 and e^709."""


@dataclass(frozen=True)
class KeySummary:
    """What a state of fixed size knows of its keys besides the sums."""

    key_norm: Float[Tensor, "B K"] | None = None
    """The largest |k|, for scores that read it."""
    extent: Float[Tensor, "B K S"] | None = None
    """What the range of an exp on a range remembers."""


UNKNOWN = KeySummary()


class Fitted:
    """A contraction that needs no fitting: exp has its own way, and a first power stays where it is."""

    def __init__(self, job: Contraction, has_fixed_state: bool) -> None:
        self.job = job
        self.has_fixed_state = has_fixed_state
        """Whether the past is a state of fixed size, and not a list of keys."""

    @property
    def summary(self) -> KeySummary:
        """What is known of all keys so far."""
        return UNKNOWN

    def for_keys(self) -> Contraction:
        """For forms that see keys."""
        return self.job

    def for_state(self) -> Contraction:
        """For forms that go through a state."""
        return self.job.widened() if self.job.score.needs_wide_state else self.job


class FittedPolynomial(Fitted):
    """A polynomial in float32, else in float64, else row by row.

    |q·k| ≤ |q||k| bounds each row. Where even float64 ends, the true largest |q·k| takes the bound's place (the
    forms that see keys can afford it); and where that is too large as well, row i works with q_i/r_i and the
    coefficients c_n r_i^n / Σ_m |c_m| r_i^m, r_i the row's bound: the same function reduced by a known factor.

    Where the host may read no value, each row has its own coefficients from the start: the polynomial's for a row
    whose weights are floats, the reduced ones for the others.
    """

    def __init__(
        self, job: Contraction, score: Polynomial, before: Float[Tensor, "B K"] | None, has_fixed_state: bool
    ) -> None:
        super().__init__(job, has_fixed_state)
        self.score = score
        self.before = before

    @cached_property
    def key_norm(self) -> Float[Tensor, "B K"]:
        """The largest |k|, those of the past included."""
        norm, dtype = largest_norm(self.job.k), self.job.k.dtype
        if norm.dtype != dtype:
            norm = norm.clamp(max=torch.finfo(dtype).max).to(dtype)
        return norm if self.before is None else torch.maximum(norm, self.before.to(norm.dtype))

    @property
    def query_norms(self) -> Float[Tensor, "B K G Tq"]:
        """|q_i|."""
        return self._queries[0]

    @cached_property
    def _queries(self) -> tuple[Float[Tensor, "B K G Tq"], float]:
        return _norms_and_largest(self.job.q)

    @property
    def summary(self) -> KeySummary:
        """The largest |k|."""
        return KeySummary(key_norm=self.key_norm)

    def for_keys(self) -> Contraction:
        """The true largest score decides, where the bound does not do."""
        return self._fitted(self.job, through_state=False)

    def for_state(self) -> Contraction:
        """The bound decides; and the powers of each side must be floats by themselves."""
        return self._fitted(super().for_state(), through_state=True)

    def _fitted(self, job: Contraction, through_state: bool) -> Contraction:
        if not may_sync(job.q):
            return self._row_by_row(job, through_state)
        query_size, key_size = self._queries[1], float(self.key_norm.max())
        limit = LARGEST_LOG[job.q.dtype]
        log = self._largest_log(query_size * key_size)
        # A state multiplies entries of one side only: their powers must be floats as well.
        apart = self.score.degree * max(abs(math.log(max(size, 1e-9))) for size in (query_size, key_size))
        if log <= limit and (not through_state or apart <= limit):
            return job
        wide = job.widened()
        if log <= LARGEST_LOG[torch.float64] or self.score.clamp is not None:
            return wide
        size = self._bounds() if through_state else _largest_scores(wide)
        size = size.clamp(min=1e-30)
        bound = scores.log_bound(self.score, size)
        if float(bound.max()) <= LARGEST_LOG[torch.float64]:
            return wide
        log_size = torch.log(size)
        rows = [c * torch.exp(n * log_size - bound) for n, c in enumerate(self.score.coefficients)]
        return replace(wide, q=wide.q / size[..., None], rows=torch.stack(rows, dim=-1), log_scale=bound)

    def _row_by_row(self, job: Contraction, through_state: bool) -> Contraction:
        """The rows that need it are reduced; the host reads none of them."""
        high = self.score.is_taylor and self.score.degree > DIRECT_TAYLOR_ORDER
        if high or self.score.clamp is not None:
            job = job.widened()
        if self.score.clamp is not None:
            return job
        limit, dtype = LARGEST_LOG[job.q.dtype], job.q.dtype
        key_norm = self.key_norm.double()[..., None, None]
        size = self._bounds().clamp(min=1e-30)
        bound = scores.log_bound(self.score, size)
        too_large = bound > limit
        if through_state:
            apart = (self.query_norms.clamp(min=1e-9).log().abs(), key_norm.clamp(min=1e-9).log().abs())
            too_large = too_large | (self.score.degree * torch.maximum(*apart) > limit)
        size, bound = torch.where(too_large, size, 1), torch.where(too_large, bound, 0)
        if high and not through_state:
            rows = torch.stack([size, bound], dim=-1)
        else:
            log_size = torch.log(size)
            terms = [c * torch.exp(n * log_size - bound) for n, c in enumerate(self.score.coefficients)]
            rows = torch.stack(terms, dim=-1)
        q = job.q / size.to(dtype)[..., None]
        return replace(job, q=q, rows=rows.to(dtype), log_scale=bound.to(dtype))

    def _bounds(self) -> Float[Tensor, "B K G Tq"]:
        """|q_i| max |k|."""
        return self.query_norms.double() * self.key_norm.double()[..., None, None]

    def _largest_log(self, size: float) -> float:
        size = max(size, 1e-30 if self.score.clamp is None else abs(self.score.clamp))
        return scores.log_bound_of(self.score, size)


def norms(x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch"]:
    """|x|, in float64 where float32 has no squares; 0 for vectors that hold NaN or inf.

    Their weights are not floats whatever the bound is, and those of others must not depend on them.
    """
    return _norms_and_largest(x)[0]


def _norms_and_largest(x: Float[Tensor, "*batch D"]) -> tuple[Float[Tensor, "*batch"], float]:
    """`norms` and their maximum, NaN where the host may not read it."""
    may_read = may_sync(x)
    if may_read:
        lengths = torch.linalg.vector_norm(x.detach(), dim=-1)
        largest = float(lengths.max())
        if math.isfinite(largest):
            return lengths, largest
    lengths = torch.linalg.vector_norm(x.detach().double(), dim=-1)
    lengths = lengths.masked_fill(~x.isfinite().all(-1), 0)
    return lengths, float(lengths.max()) if may_read else math.nan


def largest_norm(x: Float[Tensor, "*batch T D"]) -> Float[Tensor, "*batch"]:
    """max_t |x_t|."""
    return norms(x).amax(-1)


def _largest_scores(job: Contraction) -> Float[Tensor, "B K G Tq"]:
    """max_j |q_i·k_j| over all keys, some of which i may not see, a block at a time."""
    with torch.no_grad():
        largest = torch.zeros(job.q.shape[:-1], dtype=job.q.dtype, device=job.q.device)
        for start in range(0, job.k.shape[2], 256):
            keys = job.k[:, :, None, start : start + 256].mT
            for first in range(0, job.q.shape[3], 256):
                place = slice(first, first + 256)
                block = (job.q[:, :, :, place] @ keys).abs().nan_to_num(0).amax(-1)
                largest[..., place] = torch.maximum(largest[..., place], block)
        return largest
