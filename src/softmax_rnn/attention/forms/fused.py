"""The platform's softmax kernel, for all specs in which exp is divided by its row sum, openly or by a norm."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.visibility import pieces


def fused(job: Contraction) -> Sums:
    """softmax(q·k) v: the numerator divided by the row sum; packed and padded rows piece by piece."""
    kv_heads, groups, queries = job.q.shape[1:4]
    time, width = job.k.shape[2], job.v.shape[3]
    dim = max(job.q.shape[-1], width)
    # The kernels want one head dimension for q, k and v; zero columns change nothing.
    q = _pad(job.q.flatten(1, 2), dim)
    k, v = (_pad(x.repeat_interleave(groups, dim=1) if groups > 1 else x, dim) for x in (job.k, job.v))
    out = _attention(q, k, v, causal=queries > 1) if job.seen.is_plain else _by_pieces(job, q, k, v, time)
    return Sums(out[..., :width].unflatten(1, (kv_heads, groups)), normalised=True)


def _by_pieces(job: Contraction, q: Tensor, k: Tensor, v: Tensor, time: int) -> Tensor:
    batch = q.shape[0]
    found = pieces(job.seen, batch, time)
    assert found is not None, "the plan refuses the fused form for padding between real keys"
    rows: list[list[Tensor]] = [[] for _ in range(batch)]
    filled = [0] * batch
    for piece in found:
        row = slice(piece.row, piece.row + 1)
        rows[piece.row].append(v.new_zeros(1, v.shape[1], piece.queries.start - filled[piece.row], v.shape[3]))
        rows[piece.row].append(
            _attention(q[row, :, piece.queries], k[row, :, piece.keys], v[row, :, piece.keys], piece.causal)
        )
        filled[piece.row] = piece.queries.stop
    for row in range(batch):
        rows[row].append(v.new_zeros(1, v.shape[1], time - filled[row], v.shape[3]))
    return torch.cat([torch.cat(row, dim=2) for row in rows])


def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1.0)


def _pad(x: Tensor, dim: int) -> Tensor:
    return F.pad(x, (0, dim - x.shape[-1])) if x.shape[-1] < dim else x
