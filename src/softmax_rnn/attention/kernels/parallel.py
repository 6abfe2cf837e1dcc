"""The literal form: all T × T weights, written as the equation says. It is the reference for the others."""

from __future__ import annotations

import torch
from torch import Tensor

from softmax_rnn.attention.channel_decay import ChannelDecay
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.decay import RunningDecay


def parallel(job: Contraction) -> Sums:
    """y_i = Σ_j f(q_i·k_j) · decay(i, j) · v_j with every weight in memory."""
    time, past = job.k.shape[2], job.past
    allowed = job.visibility.allowed(slice(past, time), slice(0, time), job.q.device)[:, None, None]
    if isinstance(job.decay, ChannelDecay):
        # Masked at once: what would look into the future may overflow.
        x = torch.where(allowed, _channel_scores(job, job.decay), 0)
    else:
        x = torch.einsum("bkgid,bkjd->bkgij", job.q, job.k)
    x = job.score.cut(x)
    log_decay = job.decay.between(past, x.dtype) if isinstance(job.decay, RunningDecay) else None
    if job.score.is_exponential:
        return _exp_sums(job, x if log_decay is None else x + log_decay, allowed)
    weights = job.score.series(job.rows).differentiable(x)
    if log_decay is not None:
        weights = weights * torch.exp(torch.where(allowed, log_decay, 0))
    weights = torch.where(allowed, weights, 0)
    if job.levels is not None:
        weights = weights * job.levels.of_pairs(past)
    if job.negative is not None:
        everything = slice(None)
        job.negative.note(weights.flatten(0, 1).flatten(1, 2), everything, everything)
    return _sums(job, weights, job.log_scale)


def _channel_scores(job: Contraction, decay: ChannelDecay) -> Tensor:
    """Products whose channels decay; where a query's own key has a separate weight, that is on the diagonal."""
    x = decay.scores(job.q, job.k)
    if job.bonus is None:
        return x
    diagonal = torch.eye(job.k.shape[2], dtype=torch.bool, device=x.device)[job.past :]
    return torch.where(diagonal, job.own_scores()[..., None], x)


def _exp_sums(job: Contraction, x: Tensor, allowed: Tensor) -> Sums:
    # exp(x − largest) and the factor e^largest apart: the same number, without overflow.
    x = torch.where(allowed, x, -torch.inf)
    largest = x.detach().amax(-1)
    largest = torch.where(torch.isfinite(largest), largest, 0)
    weights = torch.exp(x - largest[..., None])
    return _sums(job, weights if job.levels is None else weights * job.levels.of_pairs(job.past), largest)


def _sums(job: Contraction, weights: Tensor, log_scale: Tensor | None) -> Sums:
    numerator = torch.einsum("bkgij,bkje->bkgie", weights, job.v)
    return Sums(numerator, weights.sum(-1) if job.wants_row_sum else None, log_scale)
