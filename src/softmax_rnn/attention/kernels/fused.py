"""The platform's softmax kernel, for all specs in which exp is divided by its row sum, openly or by a norm."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.host_sync import traced
from softmax_rnn.attention.kernels.banded import in_window
from softmax_rnn.attention.second_derivative import differentiable_once
from softmax_rnn.attention.visibility import Near, Piece


def fused(job: Contraction) -> Sums:
    """softmax(q·k) v: the numerator divided by the row sum; packed and padded rows piece by piece."""
    if job.levels is not None:
        from softmax_rnn.attention.kernels.fused_levels import fused_levels

        return fused_levels(job)
    kv_heads, groups, queries = job.q.shape[1:4]
    width = job.v.shape[3]
    dim = max(job.q.shape[-1], width)
    q, k, v = differentiable_once("fused", job.q, job.k, job.v)
    # The kernels want one head dimension for q, k and v; zero columns change nothing.
    q = _pad(q.flatten(1, 2), dim)
    k, v = (_pad(x.repeat_interleave(groups, dim=1) if groups > 1 else x, dim) for x in (k, v))
    near = job.visibility.near
    if job.visibility.is_plain and not (near is not None and traced(q)):
        out = _attention(q, k, v, causal=bool(queries > 1), near=near)
    else:
        pieces = None if job.visibility.is_plain else job.visibility.pieces
        out = _masked(job, q, k, v) if pieces is None else _by_pieces(pieces, q, k, v, near)
    out = out if width == dim else out[..., :width]
    return Sums(out.unflatten(1, (kv_heads, groups)), normalised=True)


def _masked(job: Contraction, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """With a mask of all pairs. A query that sees no key gets its own, which is 0, so that its row is finite."""
    time = job.k.shape[2]
    allowed = job.visibility.allowed(slice(job.past, time), slice(0, time), q.device)
    own = torch.eye(time, dtype=torch.bool, device=q.device)[job.past :]
    allowed = allowed | (own & ~allowed.any(-1, keepdim=True))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed[:, None], scale=1.0)


def _by_pieces(pieces: list[Piece], q: Tensor, k: Tensor, v: Tensor, near: Near | None) -> Tensor:
    batch, heads, time, dim = v.shape
    rows: list[list[Tensor]] = [[] for _ in range(batch)]
    filled = [0] * batch
    for piece in pieces:
        row = slice(piece.row, piece.row + 1)
        rows[piece.row].append(v.new_zeros(1, heads, piece.queries.start - filled[piece.row], dim))
        rows[piece.row].append(
            _attention(q[row, :, piece.queries], k[row, :, piece.keys], v[row, :, piece.keys], piece.causal, near)
        )
        filled[piece.row] = piece.queries.stop
    for row in range(batch):
        rows[row].append(v.new_zeros(1, heads, time - filled[row], dim))
    return torch.cat([torch.cat(row, dim=2) for row in rows])


def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, near: Near | None) -> Tensor:
    if near is None or k.shape[2] <= near.width + near.sinks:
        return _plain(q, k, v, causal)
    if causal:
        return in_window(q, k, v, near)[0]
    k, v = (torch.cat([x[:, :, : near.sinks], x[:, :, -near.width :]], dim=2) for x in (k, v))
    return _plain(q, k, v, causal=False)


def _plain(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1.0)


def _pad(x: Tensor, dim: int) -> Tensor:
    return F.pad(x, (0, dim - x.shape[-1])) if x.shape[-1] < dim else x
