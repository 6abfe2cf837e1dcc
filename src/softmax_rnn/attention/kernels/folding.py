"""Decays as factors that are multiplied in once for a whole sequence, so that its chunks have none.

Inside a chunk with the middle o, decay(i, j) = e^(c_i − o) · e^(o − c_j), c the running log decay. One decay per head
puts the first factor into the outputs and the second into the values; decays per channel put them into the queries and
keys. The state is kept as the middle of a chunk sees it: from chunk to chunk it is multiplied by e^(o′ − o).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from softmax_rnn.attention.host_sync import may_sync

WIDEST_LOG = {torch.float32: 30.0, torch.float64: 300.0}
"""A decay inside a chunk is at least e^−this: both factors then leave a margin for large values."""
WIDEST_CHANNEL_LOG = 80.0
"""The same for decays per channel in float32; products of a query with a later key are e^this, and are masked."""


@dataclass(frozen=True)
class Fold:
    """The factors of N heads; F is 1, or the number of channels."""

    query: Float[Tensor, "N T F"]
    """e^(c_i − o)."""
    key: Float[Tensor, "N T F"]
    """e^(o − c_j)."""
    between: Float[Tensor, "N F edges"]
    """e^(o′ − o): from the start to the first middle, from each middle to the next, from the last to the end."""


def fold(c: Float[Tensor, "N T"], chunk: int, dtype: torch.dtype) -> Fold | None:
    """One running log decay per head; None where a chunk is not known to decay little enough for two factors."""
    if not may_sync(c):
        return None
    chunks = in_chunks(c[..., None], chunk, c[:, -1:, None])[..., 0]
    low, high = torch.aminmax(chunks, dim=-1, keepdim=True)
    if not float((high - low).max()) < WIDEST_LOG[dtype]:
        return None
    middle = (low + high) / 2
    log = (chunks - middle).flatten(1)[:, : c.shape[1], None]
    edges = torch.cat([torch.zeros_like(c[:, :1]), middle[..., 0], c[:, -1:]], 1)
    return Fold(*(torch.exp(x).to(dtype) for x in (log, -log, edges.diff(dim=1)[:, None])))


def fold_channels(steps: Float[Tensor, "N T F"], chunk: int, reads_before_decay: bool) -> Fold:
    """Log decays of steps and channels, in their dtype."""
    time = steps.shape[1]
    chunks = in_chunks(steps, chunk, torch.zeros_like(steps[:, :1]))
    c = chunks.cumsum(2)
    half = c[:, :, -1:] / 2
    c = c.sub_(half)
    key = torch.exp(-c)
    query = torch.exp(c.sub_(chunks)) if reads_before_decay else key.reciprocal()
    halves = half[:, :, 0]
    none = torch.zeros_like(halves[:, :1])
    between = torch.exp(torch.cat([none, halves], 1) + torch.cat([halves, none], 1))
    return Fold(query.flatten(1, 2)[:, :time], key.flatten(1, 2)[:, :time], between.mT)


def channels_fit_float32(steps: Float[Tensor, "N T F"], chunk: int, degree: int) -> bool:
    """Whether the factors of all chunks, and their powers in monomials, are known to be floats, with a margin."""
    if not may_sync(steps):
        return False
    sums = in_chunks(steps, chunk, torch.zeros_like(steps[:, :1])).sum(2)
    return float(sums.min()) * max(degree, 1) > -WIDEST_CHANNEL_LOG


def in_chunks(x: Shaped[Tensor, "N T F"], chunk: int, last: Shaped[Tensor, "N 1 F"]) -> Shaped[Tensor, "N chunks C F"]:
    """The last chunk is filled up with ``last``."""
    missing = -x.shape[1] % chunk
    whole = torch.cat([x, last.expand(-1, missing, -1)], 1) if missing else x
    return whole.unflatten(1, (-1, chunk))
