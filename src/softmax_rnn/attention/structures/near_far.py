"""Exact near, compressed far: exp on window and sinks, the spec's polynomial on the keys that have left the window.

Two contractions over disjoint sets of keys. At most one key leaves the window at each position, so the far one is an
ordinary causal contraction of the queries with keys that arrive late, each when it leaves: every form can compute it,
and its state lags behind the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention.algebra import n_features
from softmax_rnn.attention.call import Call
from softmax_rnn.attention.centre import assumed_variance, hermite_coefficients, moved_coefficients
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.fitting import KeySummary
from softmax_rnn.attention.host_sync import may_sync, traced
from softmax_rnn.attention.kernels.largest import with_largest
from softmax_rnn.attention.parts import Exp, NearFar, NearKeys, power_score
from softmax_rnn.attention.parts.near_far import Alone, Both
from softmax_rnn.attention.prologue import running_sum
from softmax_rnn.attention.start import Start
from softmax_rnn.attention.state import GrowingState, State
from softmax_rnn.attention.structures.whole import longer
from softmax_rnn.attention.structures.window import WindowPast
from softmax_rnn.attention.visibility import Visibility, gather
from softmax_rnn.attention.work import Work
from softmax_rnn.errors import InputError


@dataclass(frozen=True)
class NearFarState(GrowingState):
    """Keys and values of window and sinks, and the sums over those that left; it grows until the window is full."""

    matrix: Float[Tensor, "B K F U"] | None = None
    key_norm: Float[Tensor, "B K"] | None = None
    """The largest |k| of the sums, for scores that read it."""
    extent: Float[Tensor, "B K S"] | None = None
    key_sum: Float[Tensor, "B K D"] | None = None
    """Σ k of those that left, where the far part is expanded at their mean."""

    @property
    def summed(self) -> tuple[Any, KeySummary]:
        return self.matrix, KeySummary(self.key_norm, self.extent)


@dataclass(frozen=True)
class NearFarPast(WindowPast):
    """Two contractions, joined as the structure says."""

    structure: NearFar

    def start(self, start: Start) -> State:
        if start.score is None:
            raise InputError("structure: the far keys of near_far need a state of fixed size; lower the degree")
        features, centred = start.features, self.structure.centred
        lists = start.lists(features if start.spec.feature_map is None else start.shape.key_dim + features)
        key_sum = start.zeros(features, dtype=torch.float64) if centred else None
        return NearFarState(*start.carried(), *lists, None, None, None, *start.sums(), key_sum)

    def has_sums(self, state: State, time: int) -> bool:
        return not (state.fresh and time > 1) and longer(state, self.structure.near)

    def keys(self, call: Call, k: Tensor) -> Tensor:
        """Where a feature map changes the keys, the plain ones, which the near part reads, stand before them."""
        return k if call.spec.feature_map is None else torch.cat([call.k, k], dim=-1)

    def run(self, work: Work) -> tuple[Sums, State | None]:
        """The sums of both contractions, and the state of both after them."""
        call, structure, job = work.now.call, self.structure, work.job
        near_k = far_k = job.k
        if call.spec.feature_map is not None:
            near_k, far_k = job.k[..., : call.shape.key_dim], job.k[..., call.shape.key_dim :]
        far_count = (work.now.counts - structure.near).clamp(min=0)
        lagging = _lagging(replace(job, k=far_k), structure)
        if structure.centred:
            far, matrix, known, key_sum = _centred(work, lagging, far_count, structure.gaussian)
        else:
            (far, matrix, known), key_sum = work.contract(lagging, work.summed), None
        sums = self._joined(work, replace(job, k=near_k), far, far_count)
        if work.now.state is None:
            return sums, None
        carried = {"matrix": matrix, "key_norm": known.key_norm, "extent": known.extent, "key_sum": key_sum}
        return sums, self.trimmed(NearFarState(*work.lists(), **carried))

    def _joined(self, work: Work, job: Contraction, far: Sums, far_count: Int[Tensor, "B Tq"]) -> Sums:
        """Those of the far keys with those of ``job``, of window and sinks."""
        structure = self.structure
        if job.wants_row_sum:
            far = replace(far, numerator=far.numerator[..., :-1], row_sum=far.numerator[..., -1])
        is_far = (far_count > 0)[:, None, None]
        if structure.alone is Alone.FAR:
            # A row of which nothing is far is 0, and nothing to report.
            return replace(far, row_sum=None if far.row_sum is None else torch.where(is_far, far.row_sum, 1))
        near = self._near(work, job)
        if type(structure) is NearFar and may_sync(far_count) and not bool((far_count > 0).any()):
            return near
        if structure.alone is Alone.NEAR:
            nothing = None if far.row_sum is None else torch.zeros_like(far.row_sum)
            far, is_far = Sums(torch.zeros_like(far.numerator), nothing), torch.zeros_like(is_far)
        given, heads = work.now.call.tensors, job.q.shape[1:3]
        tensors = {one.name: given[one.name].unflatten(0, heads)[..., None] for one in structure.tensors}
        return structure.join(Both(near, far, is_far, tensors))

    def _near(self, work: Work, job: Contraction) -> Sums:
        """exp on window and sinks."""
        q, call, structure = job.q, work.now.call, self.structure
        if call.spec.feature_map is not None:
            q = call.q.unflatten(1, q.shape[1:3]) * call.shape.key_dim**-0.5
        job = replace(job, score=Exp(), q=q, negative=None, reads_largest=structure.reads_largest)
        if structure.divides_apart:
            job = replace(job, decay=None, wants_row_sum=True)
        near = work.form.sums(job)
        return with_largest(job, near) if structure.reads_largest and call.needs_grad else near


def _centred(
    work: Work, job: Contraction, far_count: Int[Tensor, "B Tq"], gaussian: bool
) -> tuple[Sums, Tensor | None, KeySummary, Tensor]:
    """e^m f(x − m), m = q·μ, as a sum of powers of x whose coefficients are the query's (see `centre`).

    So the state has bare monomials, as any polynomial's, beside the sum of the keys. In float64: the powers cancel.
    """
    score, state = job.score.as_polynomial, work.now.state
    assert score is not None and (state is None or isinstance(state, NearFarState))
    job = replace(job.widened(), negative=None)
    key_sum = running_sum(job.k, job.visibility, None if state is None else state.key_sum)
    mean = key_sum / far_count.clamp(min=1)[:, None, :, None]
    m = torch.einsum("bkgtd,bktd->bkgt", job.q, mean)
    before = work.summed[1]
    known, parts, matrices, first = before, [], [], 0
    for p in score.orders:
        power = power_score(p, score.scale)
        last = first + n_features(power, job.k.shape[-1])
        matrix = None if state is None or state.matrix is None else state.matrix[:, :, first:last].double()
        part, after, known = work.contract(replace(job, score=power), (matrix, before))
        parts.append(part)
        matrices.append(after)
        first = last
    coefficients, scale = score.coefficients, m
    if gaussian:
        s = assumed_variance(_variance(parts, m))
        coefficients, scale = hermite_coefficients(score.degree, s), m + s / 2
    total = Sums(job.v.new_zeros(*m.shape, job.v.shape[-1]), None, torch.zeros_like(m))
    for part, c in zip(parts, moved_coefficients(coefficients, m).unbind(-1), strict=True):
        total = total.plus(replace(part, numerator=part.numerator * c[..., None]))
    matrix = None if matrices[0] is None else torch.cat(matrices, dim=2)
    assert total.log_scale is not None
    return replace(total, log_scale=total.log_scale + scale), matrix, known, key_sum[:, :, -1]


def _variance(parts: Sequence[Sums], m: Tensor) -> Tensor:
    """The mean of (x − m)², from Σ x^p for p = 0, 1, 2: the last columns, which have 1 for a value."""
    none, one, two = (
        part.numerator[..., -1] * (1 if part.log_scale is None else torch.exp(part.log_scale)) for part in parts[:3]
    )
    count = torch.where(none > 0, none, 1)
    return ((two - 2 * m * one) / count + m * m * (none > 0)).clamp(min=0)


def _lagging(job: Contraction, structure: NearKeys) -> Contraction:
    """The far part as an ordinary contraction: at each position arrives the key that leaves the window there."""
    past, time = job.past, job.k.shape[2]
    k, v = job.k, job.v
    if job.wants_row_sum:
        v = torch.cat([v, v.new_ones(*v.shape[:-1], 1)], dim=-1)
    if job.visibility.is_plain and job.decay is None and not traced(k):
        place = slice(max(past - structure.width, structure.sinks), max(time - structure.width, structure.sinks))
        missing = time - past - (place.stop - place.start)
        k, v = (x[:, :, place] for x in (k, v))
        if missing:
            k, v = (torch.nn.functional.pad(x, (0, 0, missing, 0)) for x in (k, v))
        valid = (torch.arange(time - past, device=k.device) >= missing).expand(k.shape[0], -1) if missing else None
        return replace(job, k=k, v=v, visibility=Visibility(valid), wants_row_sum=False)
    index, valid = _leaving(job.visibility, structure, past, time, job.k)
    k, v = gather(k, index, 2), gather(v, index, 2)
    decay = None
    if job.decay is not None:
        assert isinstance(job.decay, RunningDecay), "a decay per channel is refused"
        c = job.decay.c
        now, then = c[..., past:], gather(c, index, 2)
        late = torch.where(valid[:, None], now - then, 0)
        v = v * torch.exp(late).to(v.dtype)[..., None]
        decay = RunningDecay(now - c[..., past - 1 : past] if past else now)
    first_key = None if job.visibility.first_key is None else job.visibility.first_key[:, past:]
    seen = Visibility(None if may_sync(valid) and bool(valid.all()) else valid, first_key)
    return replace(job, k=k, v=v, decay=decay, visibility=seen, wants_row_sum=False)


def _leaving(
    seen: Visibility, structure: NearKeys, past: int, time: int, like: Tensor
) -> tuple[Int[Tensor, "B Tq"], Bool[Tensor, "B Tq"]]:
    """The key that leaves the window at each new position, and whether one does."""
    batch, device = like.shape[0], like.device
    if seen.is_plain:
        index = torch.arange(past - structure.width, time - structure.width, device=device).expand(batch, -1)
        return index.clamp(min=0), index >= structure.sinks
    real = seen.key_mask
    if real is None:
        real = torch.ones(batch, time, dtype=torch.bool, device=device)
    counted = real.cumsum(-1)
    first = torch.zeros_like(counted) if seen.first_key is None else seen.first_key
    before = torch.nn.functional.pad(counted, (1, 0)).gather(1, first)[:, past:]
    number = counted[:, past:] - structure.width
    valid = real[:, past:] & (number > before + structure.sinks)
    return torch.searchsorted(counted, number.contiguous()).clamp(max=time - 1), valid
