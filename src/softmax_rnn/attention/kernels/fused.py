"""The platform's softmax kernel, for all specs in which exp is divided by its row sum, openly or by a norm."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.forms import fused as form
from softmax_rnn.attention.looking import traced
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
        out = _attention(q, k, v, causal=queries > 1, near=near)
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
        return _in_window(q, k, v, near)
    k, v = (torch.cat([x[:, :, : near.sinks], x[:, :, -near.width :]], dim=2) for x in (k, v))
    return _plain(q, k, v, causal=False)


def _in_window(q: Tensor, k: Tensor, v: Tensor, near: Near) -> Tensor:
    """Blocks of queries, each with the keys that some of them see; blocks that look alike in one call."""
    time, width, sinks = q.shape[2], near.width, near.sinks
    size = form.window_block(width)
    first = -(-(width + sinks - 1) // size) * size  # the first block whose window is whole and free of sinks
    count = max((time - first) // size, 0)
    alike = slice(first, first + count * size) if count else slice(time, time)
    outputs = [_window_block(q, k, v, near, slice(b, min(b + size, alike.start))) for b in range(0, alike.start, size)]
    if count:
        keys = slice(first - width + 1, alike.stop)
        queries = q[:, :, alike].unflatten(2, (count, size)).transpose(1, 2).flatten(0, 1)
        some = [_overlapping(x[:, :, keys], x[:, :, :sinks], size + width - 1, size) for x in (k, v)]
        hidden = _hidden(slice(first, first + size), slice(keys.start, first + size), near, sinks, q)
        out = F.scaled_dot_product_attention(queries, *some, attn_mask=hidden, scale=1.0)
        outputs.append(out.unflatten(0, (-1, count)).transpose(1, 2).flatten(2, 3))
    if count and alike.stop < time:
        outputs.append(_window_block(q, k, v, near, slice(alike.stop, time)))
    return torch.cat(outputs, dim=2)


def _overlapping(x: Tensor, sinks: Tensor, length: int, size: int) -> Tensor:
    """Stretches of the keys of each block as a batch, (B · blocks, heads, length, D); the sinks stand in front."""
    blocks = x.unfold(2, length, size).permute(0, 2, 1, 4, 3)
    if sinks.shape[2]:
        blocks = torch.cat([sinks[:, None].expand(-1, blocks.shape[1], -1, -1, -1), blocks], dim=3)
    return blocks.flatten(0, 1)


def _window_block(q: Tensor, k: Tensor, v: Tensor, near: Near, place: slice) -> Tensor:
    start = max(place.start - near.width + 1, 0)
    keys, sinks = slice(start, place.stop), min(near.sinks, start)
    some = (torch.cat([x[:, :, :sinks], x[:, :, keys]], dim=2) for x in (k, v))
    hidden = _hidden(place, keys, near, sinks, q)
    return F.scaled_dot_product_attention(q[:, :, place], *some, attn_mask=hidden, scale=1.0)


def _hidden(queries: slice, keys: slice, near: Near, sinks: int, like: Tensor) -> Tensor:
    """−inf where a query does not see a key; so many sinks stand in front of the keys."""
    query = torch.arange(queries.start, queries.stop, device=like.device)[:, None]
    key = torch.arange(keys.start, keys.stop, device=like.device)
    allowed = (key <= query) & ((key > query - near.width) | (key < near.sinks))
    hidden = torch.zeros(allowed.shape, dtype=like.dtype, device=like.device).masked_fill_(~allowed, -torch.inf)
    return F.pad(hidden, (sinks, 0))


def _plain(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1.0)


def _pad(x: Tensor, dim: int) -> Tensor:
    return F.pad(x, (0, dim - x.shape[-1])) if x.shape[-1] < dim else x
