"""v′ of a write rule by each form; see `attention.write` for the equations.

A `Solver` walks along time twice at most: forwards for v′, backwards for λ. Everything else, the gradients of queries,
keys, decay and state, comes from the ordinary contraction of the same form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.kernels.chunked import values_and_ones
from softmax_rnn.attention.kernels.recurrent import keep_of
from softmax_rnn.attention.second_derivative import once
from softmax_rnn.attention.visibility import Visibility

State = Float[Tensor, "B K F U"]


def literally(job: Contraction, rate: Float[Tensor, "B K T"]) -> Float[Tensor, "B K T E"]:
    """All weights in memory, and one triangular solve."""
    time, past = job.k.shape[2], job.past
    place = torch.arange(time, device=job.q.device)
    allowed = job.visibility.allowed(slice(past, time), slice(0, time), job.q.device)[:, None]
    allowed = allowed & (place < place[past:, None])
    x = torch.einsum("bktd,bkjd->bktj", job.q[:, :, 0], job.k)
    x = job.score.cut(x)
    log_decay = None if job.running_decay is None else job.running_decay.between(past, x.dtype)[:, :, 0]
    if job.score.is_exponential:
        x = torch.where(allowed, x if log_decay is None else x + log_decay, -torch.inf)
        largest = x.detach().amax(-1, keepdim=True) if job.wants_row_sum else torch.zeros_like(x[..., :1])
        weights = torch.exp(x - torch.where(torch.isfinite(largest), largest, 0))
    else:
        weights = job.score.series(None if job.rows is None else job.rows[:, :, 0]).differentiable(x)
        if log_decay is not None:
            weights = weights * torch.exp(torch.where(allowed, log_decay, 0))
        weights = torch.where(allowed, weights, 0)
    if job.wants_row_sum:
        mass = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(mass == 0, 1, mass)
    elif job.log_scale is not None:
        weights = weights * torch.exp(job.log_scale[:, :, 0, :, None])
    weights = weights * rate[..., None].to(weights.dtype)
    values = job.v[:, :, past:] - weights[..., :past] @ job.v[:, :, :past] if past else job.v
    return torch.linalg.solve_triangular(weights[..., past:], values, upper=False, unitriangular=True)


def through_keys(job: Contraction, rate: Float[Tensor, "B K T"]) -> Float[Tensor, "B K T E"]:
    """Position after position, each of them one row of the literal form."""
    v = job.v[:, :, : job.past]
    for t in range(rate.shape[2]):
        one = job.at(t)
        new = literally(replace(one, v=torch.cat([v, one.v[:, :, -1:]], 2)), rate[:, :, t : t + 1])
        v = torch.cat([v, new], 2)
    return v[:, :, job.past :]


def through_features(job: Contraction, rate: Float[Tensor, "B K T"], state: State | None) -> Float[Tensor, "B K T E"]:
    """Position after position, each of them one read of the state."""
    polynomial = job.score.finite_features
    assert polynomial is not None
    features = SymmetricFeatures(polynomial, job.k.shape[-1])
    u, size, written = values_and_ones(job), job.v.shape[-1], []
    state = u.new_zeros(*u.shape[:2], features.count, u.shape[-1]) if state is None else state.to(u.dtype)
    for t in range(rate.shape[2]):
        keep = keep_of(job, t, features)
        if keep is not None:
            state = state * keep.to(state.dtype)
        rows = None if job.rows is None else job.rows[:, :, 0, t : t + 1].flatten(0, 1)
        query = features.query(job.q[:, :, 0, t].flatten(0, 1)[..., None], rows).unflatten(0, u.shape[:2])
        read = (query.mT @ state)[:, :, 0]
        if job.wants_row_sum:
            read = read[..., :size] * inverse(read[..., size:])
        elif job.log_scale is not None:
            read = read * torch.exp(job.log_scale[:, :, 0, t, None])
        new = u[:, :, t, :size] - rate[:, :, t, None].to(read.dtype) * read
        written.append(new)
        if t + 1 < rate.shape[2]:
            key = features.key(job.k[:, :, t].flatten(0, 1)[..., None]).unflatten(0, u.shape[:2])
            state = torch.addcmul(state, key, torch.cat([new, u[:, :, t, size:]], -1)[:, :, None])
    return torch.stack(written, 2)


def inverse(mass: Tensor) -> Tensor:
    """1 / mass, and 0 where nothing was seen."""
    return torch.where(mass == 0, 0, 1 / torch.where(mass == 0, 1, mass))


def in_true_size(sums: Sums) -> Float[Tensor, "B K T E"]:
    """What a read gives: divided by the sum of weights where there is one."""
    if sums.row_sum is not None:
        return sums.numerator[:, :, 0] * inverse(sums.row_sum[:, :, 0, :, None])
    y = sums.numerator[:, :, 0]
    return y if sums.log_scale is None else y * torch.exp(sums.log_scale[:, :, 0, :, None])


class Solution(NamedTuple):
    """The result of a solver."""

    values: Float[Tensor, "N S E"]
    """The values with v′ in their place."""
    scale: Float[Tensor, "N T 1"]
    """What makes true weights of the form's, row by row."""
    read: Float[Tensor, "N T E"] | None = None
    """Σ_{j<i} a_ij v′_j, where the solver has it."""


class ReadGradients(NamedTuple):
    """Those of the tensors that a read depends on."""

    q: Tensor | None
    k: Tensor | None
    v: Tensor | None
    decay: Tensor | None
    state: Tensor | None
    read: Tensor | None = None
    """The read itself, where the solution does not have it."""


@dataclass(frozen=True)
class Solver(ABC):
    """The triangular system of a contraction, batch and heads as one axis N."""

    job: Contraction
    rate: Float[Tensor, "B K T"]
    state: State | None

    @property
    def pull(self) -> Float[Tensor, "N T 1"]:
        """The rates, in the dtype of the weights."""
        return self.rate.flatten(0, 1)[..., None].to(self.job.q.dtype)

    @abstractmethod
    def solve(self) -> Solution:
        """From the start."""

    @abstractmethod
    def solve_back(self, grad: Float[Tensor, "N T E"], scale: Float[Tensor, "N T 1"]) -> Float[Tensor, "N T E"]:
        """λ."""

    @abstractmethod
    def read_gradients(self, weight: Float[Tensor, "B K T E"], solution: Solution) -> ReadGradients:
        """The gradients of ⟨weight, Σ_{j<i} a_ij v_j⟩; the job's values are v′."""


def solved(solver: Solver) -> Float[Tensor, "B K T E"]:
    """v′, with gradients."""
    job = solver.job
    decay = None if job.running_decay is None else job.running_decay.c
    return _Solved.apply(job.q, job.k, job.v, decay, solver.state, solver.rate, solver)  # type: ignore[no-any-return]


def _with(solver: Solver, q, k, v, decay, state, rate) -> Solver:  # type: ignore[no-untyped-def]
    job = replace(solver.job, q=q, k=k, v=v, decay=None if decay is None else RunningDecay(decay))
    return replace(solver, job=job, rate=rate, state=state)


class _Solved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, decay, state, rate, solver: Solver):  # type: ignore[override]
        full, scale, read = _with(solver, q, k, v, decay, state, rate).solve()
        full = full.unflatten(0, v.shape[:2])
        # The solver keeps what is the same for every call; its tensors are saved by autograd and are only shapes here.
        shapes = (None if x is None else torch.empty_like(x, device="meta") for x in (q, k, v, decay, state, rate))
        ctx.solver = _with(solver, *shapes)
        ctx.save_for_backward(q, k, full, decay, state, rate, scale, read)
        return full[:, :, -rate.shape[2] :]

    @staticmethod
    @once("the forms with blocks and chunks")
    def backward(ctx, grad):  # type: ignore[override]
        q, k, v, decay, state, rate, scale, read = ctx.saved_tensors
        time = rate.shape[2]
        solver = _with(ctx.solver, q, k, v, decay, state, rate)
        total = solver.solve_back(grad.flatten(0, 1), scale).unflatten(0, grad.shape[:2])
        weight = -rate[..., None].to(total.dtype) * total
        dq, dk, dv, d_decay, d_state, read_again = solver.read_gradients(weight, Solution(v.flatten(0, 1), scale, read))
        past = v.shape[2] - time
        if past:
            total = torch.cat([torch.zeros_like(v[:, :, :past]) if dv is None else dv[:, :, :past], total], 2)
        read = read_again if read is None else read.unflatten(0, grad.shape[:2])
        assert read is not None
        d_rate = -(total[:, :, past:] * read).sum(-1).to(rate.dtype)
        return dq, dk, total, d_decay, d_state, d_rate, None


def gradients_by_autograd(
    solver: Solver, read: Callable[[Contraction], Sums], weight: Float[Tensor, "B K T E"]
) -> ReadGradients:
    """Those of an ordinary contraction of the form, whose keys have moved one place on."""
    job = solver.job
    decay = None if job.running_decay is None else job.running_decay.c
    leaves = [None if x is None else x.detach().requires_grad_() for x in (job.q, job.k, job.v, decay)]
    with torch.enable_grad():
        moved = _with(solver, *leaves, solver.state, solver.rate)  # pyright: ignore[reportCallIssue]
        read_again = _strict_read(moved.job, read)
    present = [x for x in leaves if x is not None]
    made = iter(torch.autograd.grad(read_again, present, weight, allow_unused=True))
    return ReadGradients(*(None if x is None else next(made) for x in leaves), None, read_again.detach())  # pyright: ignore[reportCallIssue]


def _strict_read(job: Contraction, form: Callable[[Contraction], Sums]) -> Float[Tensor, "B K T E"]:
    """Σ_{j<i} a_ij v_j: every key moves one place on, so that a query's own place holds the key before it."""
    seen = job.visibility

    def later(x: Tensor, axis: int) -> Tensor:
        first = torch.zeros_like(x.narrow(axis, 0, 1))
        return torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)

    mask = seen.key_mask
    if mask is None:
        mask = torch.ones(job.k.shape[0], job.k.shape[2], dtype=torch.bool, device=job.k.device)
    first_key = None if seen.first_key is None else seen.first_key + 1
    decay = None if job.running_decay is None else RunningDecay(later(job.running_decay.c, 2))
    moved = replace(
        job, k=later(job.k, 2), v=later(job.v, 2), decay=decay, visibility=Visibility(later(mask, 1), first_key)
    )
    read = in_true_size(form(moved))
    if job.running_decay is None or job.wants_row_sum or decay is None:
        return read
    step = torch.exp(job.running_decay.c - decay.c)[:, :, job.past :, None]
    return read * step.to(read.dtype)
