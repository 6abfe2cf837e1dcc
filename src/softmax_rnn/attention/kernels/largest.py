"""Sums of exp in units of the row's largest weight, where that largest weight is part of the function.

Forms divide by it as a constant. Here its gradient is put in: of the key that has it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.host_sync import traced

QUERIES = 256
"""Queries of a block."""


def with_largest(job: Contraction, sums: Sums) -> Sums:
    """The sums, with gradients through the maximum that they are divided by."""
    place = _largest_keys(job)[..., None]
    keys = job.k[:, :, None].expand(-1, -1, job.q.shape[2], -1, -1)
    largest = (job.q * keys.gather(3, place.expand(-1, -1, -1, -1, keys.shape[-1]))).sum(-1)
    decay = job.running_decay
    if decay is not None:
        c = decay.c[:, :, None].expand(-1, -1, job.q.shape[2], -1)
        largest = largest + (c[..., job.past :] - c.gather(3, place[..., 0])).to(largest.dtype)
    factor = torch.exp(largest.detach() - largest)
    row_sum = None if sums.row_sum is None else sums.row_sum * factor
    return replace(sums, numerator=sums.numerator * factor[..., None], row_sum=row_sum)


@torch.no_grad()
def _largest_keys(job: Contraction) -> Int[Tensor, "B K G Tq"]:
    """The key of each query that has the largest weight, a block of queries at a time."""
    indices, time = [], job.k.shape[2]
    if traced(job.q):  # in a graph for any length there are no blocks
        everything = slice(0, time)
        allowed = job.visibility.allowed(slice(job.past, time), everything, job.q.device)[:, None, None]
        return _logarithms(job, slice(job.past, time), everything).masked_fill(~allowed, -torch.inf).argmax(-1)
    for first in range(job.past, time, QUERIES):
        queries = slice(first, min(first + QUERIES, time))
        logs, keys = [], []
        for place in _stretches(job, queries):
            x = _logarithms(job, queries, place)
            allowed = job.visibility.allowed(queries, place, x.device)[:, None, None]
            logs.append(x.masked_fill(~allowed, -torch.inf))
            keys.append(torch.arange(place.start, place.stop, device=x.device))
        indices.append(torch.cat(keys)[torch.cat(logs, -1).argmax(-1)])
    return torch.cat(indices, -1)


def _stretches(job: Contraction, queries: slice) -> list[slice]:
    """The keys that some of the queries see: sinks, and what the windows reach."""
    near = job.visibility.near
    if near is None or not job.visibility.is_plain:
        return [slice(0, queries.stop)]
    start = queries.start - near.width + 1
    return [slice(0, queries.stop)] if start <= near.sinks else [slice(0, near.sinks), slice(start, queries.stop)]


def _logarithms(job: Contraction, queries: slice, keys: slice) -> Float[Tensor, "B K G Q J"]:
    here = slice(queries.start - job.past, queries.stop - job.past)
    x = torch.einsum("bkgid,bkjd->bkgij", job.q[:, :, :, here], job.k[:, :, keys])
    decay = job.running_decay
    if decay is None:
        return x
    return x + (decay.c[:, :, queries, None] - decay.c[:, :, None, keys])[:, :, None].to(x.dtype)
