"""Levels through the platform's softmax kernel: log λ is a bias of the scores, made block by block of queries.

Off the diagonal a block has one level, so its bias is a column. The kernel gives no gradient of a bias and no
denominator: the backward pass goes through `blockwise`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.forms import blockwise as form
from softmax_rnn.attention.kernels.blocks import Walk
from softmax_rnn.attention.kernels.blockwise import blockwise
from softmax_rnn.attention.levels import LevelTables, PairLevels
from softmax_rnn.attention.second_derivative import once

BIASES = 2**22
"""Numbers of a bias that are in memory at once."""


def fused_levels(job: Contraction) -> Sums:
    """Σ λ exp(x) v / Σ λ exp(x)."""
    assert job.levels is not None
    out = _FusedLevels.apply(job.q, job.k, job.v, job.levels.weights, job)
    assert isinstance(out, Tensor)
    return Sums(out, normalised=True)


class _FusedLevels(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, weights, job: Contraction):  # type: ignore[override]
        ctx.save_for_backward(q, k, v, weights)
        ctx.job = job
        out = v.new_zeros(*q.shape[:4], v.shape[-1])
        biases = _Biases(job)
        for rows, heads, queries in _pieces(job):
            out[rows, heads, :, queries] = _outputs(biases, rows, heads, queries)
        return out

    @staticmethod
    @once("fused")
    def backward(ctx, grad):  # type: ignore[override]
        with torch.enable_grad():
            q, k, v, weights = (x.detach().requires_grad_() for x in ctx.saved_tensors)
            levels = replace(ctx.job.levels, weights=weights)
            sums = blockwise(replace(ctx.job, q=q, k=k, v=v, levels=levels, wants_row_sum=True))
            assert sums.row_sum is not None
            out = sums.numerator / torch.where(sums.row_sum > 0, sums.row_sum, 1)[..., None]
        return *torch.autograd.grad(out, (q, k, v, weights), grad), None


def _pieces(job: Contraction) -> Iterator[tuple[slice, slice, slice]]:
    """Rows of the batch that are at the same positions, some of their heads, and a block of queries."""
    batch, kv_heads, groups, queries, _ = job.q.shape
    assert job.levels is not None
    alike = job.visibility.is_plain and not job.levels.rows_differ
    for rows in [slice(0, batch)] if alike else [slice(b, b + 1) for b in range(batch)]:
        walk = Walk(rows.stop - rows.start, kv_heads, 1, queries, job.k.shape[2], job.visibility, job.q.device, True)
        for place in walk.query_blocks():
            pairs = (rows.stop - rows.start) * groups * (place.stop - place.start) * (job.past + place.stop)
            at_once = max(1, BIASES // pairs)
            for head in range(0, kv_heads, at_once):
                yield rows, slice(head, min(head + at_once, kv_heads)), place


class _Biases:
    """log λ of the pairs of a block of queries, −inf for keys that they do not see."""

    def __init__(self, job: Contraction) -> None:
        assert job.levels is not None
        self.job, self.levels = job, job.levels
        given = job.levels.weights
        self.logs = torch.log(given.clamp(min=torch.finfo(given.dtype).tiny))
        self.tables = LevelTables(job.levels)
        self.block = form.BLOCK.get(given.device.type, form.DEFAULT_BLOCK)

    def keys(self, rows: slice, place: slice) -> slice:
        """The keys that some query of these places may see."""
        first = self.job.visibility.first_key
        return slice(0 if first is None else int(first[rows, place.start].min()), place.stop)

    def of(self, rows: slice, heads: slice, queries: slice, keys: slice) -> Float[Tensor, "B K G Q J"]:
        """The biases of a block of queries."""
        past = self.job.past
        place = slice(past + queries.start, past + queries.stop)
        own = self.logs[rows, heads, :, queries]
        logs = own.flatten(0, 2)
        bias = logs.new_empty(*logs.shape[:2], keys.stop - keys.start)
        for start in range(keys.start - keys.start % self.block, keys.stop, self.block):
            some = slice(max(start, keys.start), min(start + self.block, keys.stop))
            block = slice(some.start - keys.start, some.stop - keys.start)
            pairs = self.tables.of(rows, place, some)
            assert isinstance(pairs, PairLevels)
            bias[..., block] = pairs.spread(logs)
        bias = bias.unflatten(0, own.shape[:3])
        seen = self.job.visibility
        if seen.is_plain:  # only the newest keys are ever hidden
            size = place.stop - place.start
            later = torch.ones(size, size, dtype=torch.bool, device=bias.device).triu_(1)
            bias[..., -size:].masked_fill_(later, -torch.inf)
            return bias
        allowed = seen.batches(rows.start, rows.stop).allowed(place, keys, bias.device)
        return bias.masked_fill_(~allowed[:, None, None], -torch.inf)


def _outputs(biases: _Biases, rows: slice, heads: slice, queries: slice) -> Float[Tensor, "B K G Q E"]:
    job = biases.job
    q = job.q[rows, heads, :, queries]
    keys = biases.keys(rows, slice(job.past + queries.start, job.past + queries.stop))
    bias = biases.of(rows, heads, queries, keys)
    size = max(q.shape[-1], job.v.shape[-1])
    k, v = (x[rows, heads, keys].repeat_interleave(q.shape[2], 1) for x in (job.k, job.v))
    # The kernels want one head dimension for q, k and v; zero columns change nothing.
    padded = (F.pad(x, (0, size - x.shape[-1])) for x in (q.flatten(1, 2), k, v))
    out = F.scaled_dot_product_attention(*padded, attn_mask=bias.flatten(1, 2), scale=1.0)
    out = out[..., : v.shape[-1]].unflatten(1, q.shape[1:3])
    return out if job.visibility.is_plain else out.masked_fill((bias == -torch.inf).all(-1, keepdim=True), 0)
