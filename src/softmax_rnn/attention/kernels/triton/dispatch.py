"""Which kernels serve a contraction."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from math import comb
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention import scores
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.fitting import Fitted, FittedPolynomial
from softmax_rnn.attention.forms import triton as form
from softmax_rnn.attention.kernels.triton import linear
from softmax_rnn.attention.kernels.triton.blockwise import blockwise
from softmax_rnn.attention.kernels.triton.chunked import chunked
from softmax_rnn.attention.kernels.triton.levels import by_level
from softmax_rnn.attention.kernels.triton.step import one_step


def with_keys(job: Contraction) -> Sums:
    """All pairs, block by block."""
    job, scale = _as_given(job)
    if job.levels is not None:
        return by_level(job, _dtype(job), scale)
    return blockwise(job, _dtype(job), scale)


def run(fitted: Fitted, state: Tensor | None, keep_state: bool) -> tuple[Sums, Tensor | None]:
    """The sums after a state, and the state after them where it is asked for."""
    device = fitted.job.q.device
    # Kernels start on the current card, which need not be that of the tensors.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        return _run(fitted, state, keep_state)


def _run(fitted: Fitted, state: Tensor | None, keep_state: bool) -> tuple[Sums, Any]:
    job = _in_range(fitted)
    if job.score.as_polynomial is not None:
        job, _ = _as_given(job)
    score = job.score.as_polynomial
    has_kernel = score is not None and score.degree <= form.MAX_STATE_DEGREE and not score.needs_wide_state
    if score is None or not (fitted.has_fixed_state and has_kernel) or job.levels is not None:
        sums = with_keys(job)
        if not (keep_state and fitted.has_fixed_state):
            return sums, None
        from softmax_rnn.attention.kernels.summing import summed

        return sums, summed(fitted.for_state())
    features = sum(comb(job.k.shape[-1] + order - 1, order) for order in score.orders)
    time = job.q.shape[3]
    needs_grad = _needs_grad(job, state)
    if time == 1 and state is not None and not needs_grad:
        return one_step(job, state)
    pays = time > form.STATE_PAYS * features
    if state is None and not pays and not keep_state:
        return with_keys(job), None
    walks = job.k.shape[0] * job.k.shape[1] >= form.WALKS
    if score.degree == 1 and walks and linear.serves(job, _dtype(job), needs_grad):
        return linear.linear(job, state, _dtype(job), needs_grad)
    chunk = form.CHUNK if pays or time > 4 * form.CHUNK else _whole(time)
    return chunked(job, state, _dtype(job), chunk)


def _needs_grad(job: Contraction, state: Tensor | None) -> bool:
    decay = None if job.running_decay is None else job.running_decay.c
    tensors = (job.q, job.k, job.v, decay, state)
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _whole(time: int) -> int:
    """One chunk, of a length that few kernels have to be compiled for."""
    return max(64, 1 << (time - 1).bit_length())


def _dtype(job: Contraction) -> torch.dtype:
    return job.half or torch.float32


def _odd_factor(job: Contraction) -> float:
    """The scale of the queries without its power of two, 1 ≤ odd < 2; 1 where nothing will be rounded."""
    if job.half is None:
        return 1.0
    scale = job.q.shape[-1] ** -0.5 if job.score.scale is None else job.score.scale
    return 2 * math.frexp(scale)[0]


def _as_given(job: Contraction) -> tuple[Contraction, float]:
    """Queries that half precision holds as they came: of their scale a power of two is left, the rest is in the
    coefficients of a polynomial, or beside the contraction of exp.
    """
    odd = _odd_factor(job)
    if odd == 1 or job.rows is not None:
        return job, 1.0
    score, q = job.score.as_polynomial, job.q / odd
    if score is None:
        return replace(job, q=q), odd
    coefficients = tuple(c * odd**n for n, c in enumerate(score.coefficients))
    clamp = None if score.clamp is None else score.clamp / odd
    return replace(job, q=q, score=replace(score, coefficients=coefficients, clamp=clamp, scale=1.0)), 1.0


def _in_range(fitted: Fitted) -> Contraction:
    """A polynomial of degree 2 or more row by row, so that no weight leaves the range of float32.

    Row i works with q_i/r_i and the coefficients c_n r_i^n / Σ_m |c_m| r_i^m, r_i = |q_i| max_j |k_j|, in half
    precision the next larger number that gives back the queries as they came, times a power of two.
    """
    job = fitted.job
    if not isinstance(fitted, FittedPolynomial):
        return job
    odd = _odd_factor(job)
    with torch.no_grad():
        size = (fitted.query_norms * fitted.key_norm.double()[..., None, None]).clamp(min=1e-30)
        if job.half is not None:
            size = odd * torch.exp2(torch.log2(size / odd).ceil())
        bound = scores.log_bound(fitted.score, size)
        log_size = torch.log(size)
        rows = [c * torch.exp(n * log_size - bound) for n, c in enumerate(fitted.score.coefficients)]
    q = job.q / size[..., None].to(job.q.dtype)
    return replace(job, q=q, rows=torch.stack(rows, dim=-1).float(), log_scale=bound.to(job.q.dtype))
