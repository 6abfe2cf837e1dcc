"""Windows by the platform's softmax kernel: blocks of queries, each with the keys that some of them see.

Blocks that look alike are one call. Where no gradient is asked for on a CPU, the kernel's logarithms of the row sums
are used too: sinks are added to the finished windows, and the caller can add more.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.forms import fused as form
from softmax_rnn.attention.host_sync import traced
from softmax_rnn.attention.parts import Exp
from softmax_rnn.attention.visibility import Near


def gives_log_sums(q: Tensor, *more: Tensor) -> bool:
    """Whether `in_window` gives the logarithms of the row sums for these tensors."""
    if q.device.type != "cpu" or traced(q):
        return False
    return not (torch.is_grad_enabled() and any(x.requires_grad for x in (q, *more)))


def in_window(
    q: Float[Tensor, "B H Tq D"], k: Float[Tensor, "B H T D"], v: Float[Tensor, "B H T D"], near: Near
) -> tuple[Float[Tensor, "B H Tq D"], Float[Tensor, "B H Tq"] | None]:
    """softmax(q·k) v over window and sinks, and log Σ exp(q·k); the queries are the last positions."""
    return _Window(q, k, v, near, gives_log_sums(q, k, v)).run()


def can_band(job: Contraction) -> bool:
    """Whether `banded` can make the sums: nothing but the window restricts the keys, and no gradient is asked for."""
    seen = job.visibility
    plain = seen.is_plain and seen.near is not None and job.decay is None and not job.reads_largest
    return plain and job.score == Exp() and gives_log_sums(job.q, job.k, job.v)


def banded(job: Contraction) -> Sums:
    """exp on window and sinks, in units of the row sum."""
    near, dim = job.visibility.near, max(job.q.shape[-1], job.v.shape[-1])
    assert near is not None
    q, groups = _padded(job.q.flatten(1, 2), dim), job.q.shape[2]
    k, v = (_padded(x.repeat_interleave(groups, dim=1) if groups > 1 else x, dim) for x in (job.k, job.v))
    out, log = in_window(q, k, v, near)
    assert log is not None
    heads = job.q.shape[1:3]
    log = log.unflatten(1, heads)
    row_sum = torch.ones_like(log) if job.wants_row_sum else None
    return Sums(out[..., : job.v.shape[-1]].unflatten(1, heads), row_sum, log)


def _padded(x: Tensor, dim: int) -> Tensor:
    return F.pad(x, (0, dim - x.shape[-1])) if x.shape[-1] < dim else x


@dataclass(frozen=True)
class _Window:
    q: Tensor
    k: Tensor
    v: Tensor
    near: Near
    with_log_sums: bool

    def run(self) -> tuple[Tensor, Tensor | None]:
        queries, width, sinks = self.q.shape[2], self.near.width, self.near.sinks
        size = form.window_block(width)
        # The first block whose window is whole and free of sinks.
        first = min(max(-(-(width + sinks - 1 - self.past) // size) * size, 0), queries)
        count = (queries - first) // size
        alike = slice(first, first + count * size)
        ends = [*range(0, first, size), first] if first else []
        apart = [slice(a, b) for a, b in pairwise(ends)] + (
            [slice(alike.stop, queries)] if alike.stop < queries else []
        )
        if self.with_log_sums:
            return self._filled(apart, alike, count, size)
        done = [(place.start, self._block(place)[0]) for place in apart]
        if count:
            done.append((first, self._alike(alike, count, size)[0].flatten(2, 3)))
        return torch.cat([out for _, out in sorted(done, key=lambda one: one[0])], dim=2), None

    def _filled(self, apart: list[slice], alike: slice, count: int, size: int) -> tuple[Tensor, Tensor]:
        """The same where nothing is kept for a backward pass: each piece is written to its place."""
        out, log = self.q.new_empty(self.q.shape), self.q.new_empty(self.q.shape[:3])
        for place in apart:
            out[:, :, place], log[:, :, place] = self._block(place)  # pyright: ignore[reportArgumentType]
        if count:
            for whole, some in zip((out, log), self._alike(alike, count, size), strict=True):
                whole[:, :, alike].unflatten(2, (count, size)).copy_(some)  # pyright: ignore[reportArgumentType]
            if self.near.sinks:
                self._add_sinks(out[:, :, alike], log[:, :, alike], self.q[:, :, alike])
        return out, log

    @property
    def past(self) -> int:
        return self.k.shape[2] - self.q.shape[2]

    def _block(self, queries: slice) -> tuple[Tensor, Tensor | None]:
        """Some queries, with their sinks before the keys of their windows."""
        place = slice(self.past + queries.start, self.past + queries.stop)
        start = max(place.start - self.near.width + 1, 0)
        keys, sinks = slice(start, place.stop), min(self.near.sinks, start)
        some = (torch.cat([x[:, :, :sinks], x[:, :, keys]], dim=2) for x in (self.k, self.v))
        return self._attention(self.q[:, :, queries], *some, self._hidden(place, keys, sinks))  # pyright: ignore[reportCallIssue]

    def _alike(self, place: slice, count: int, size: int) -> tuple[Tensor, Tensor | None]:
        """Blocks with whole windows, as a batch: (B, H, blocks, size, …)."""
        width, start = self.near.width, self.past + place.start
        keys = slice(start - width + 1, self.past + place.stop)
        inside = 0 if self.with_log_sums else self.near.sinks  # else they are added to the finished windows
        q = self.q[:, :, place].unflatten(2, (count, size)).transpose(1, 2).flatten(0, 1)
        some = (_overlapping(x[:, :, keys], x[:, :, :inside], size + width - 1, size) for x in (self.k, self.v))
        hidden = self._hidden(slice(start, start + size), slice(keys.start, start + size), inside)
        out, log = (
            None if x is None else x.unflatten(0, (-1, count)).transpose(1, 2)
            for x in self._attention(q, *some, hidden)  # pyright: ignore[reportCallIssue]
        )
        assert out is not None
        return out, log

    def _add_sinks(self, out: Tensor, log: Tensor, q: Tensor) -> None:
        """Finished windows and the sinks, in place: a mean, weighted by the row sums."""
        k, v = (x[:, :, : self.near.sinks] for x in (self.k, self.v))
        x = q @ k.mT
        total = torch.logaddexp(log, x.logsumexp(-1))
        weights = x.sub_(total[..., None]).exp_()
        out.mul_(torch.exp(log - total)[..., None])
        out.view(-1, *out.shape[2:]).baddbmm_(weights.flatten(0, 1), v.flatten(0, 1))
        log.copy_(total)

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        if not self.with_log_sums:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=hidden, scale=1.0), None
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=hidden, scale=1.0)

    def _hidden(self, queries: slice, keys: slice, sinks: int) -> Tensor:
        """−inf where a query does not see a key; so many sinks come before the keys."""
        like, near = self.q, self.near
        query = torch.arange(queries.start, queries.stop, device=like.device)[:, None]
        key = torch.arange(keys.start, keys.stop, device=like.device)
        allowed = (key <= query) & ((key > query - near.width) | (key < near.sinks))
        hidden = torch.zeros(allowed.shape, dtype=like.dtype, device=like.device).masked_fill_(~allowed, -torch.inf)
        return F.pad(hidden, (sinks, 0))


def _overlapping(x: Tensor, sinks: Tensor, length: int, size: int) -> Tensor:
    """Stretches of the keys of each block as a batch, (B · blocks, heads, length, D); the sinks come first."""
    blocks = x.unfold(2, length, size).permute(0, 2, 1, 4, 3)
    if sinks.shape[2]:
        blocks = torch.cat([sinks[:, None].expand(-1, blocks.shape[1], -1, -1, -1), blocks], dim=3)
    return blocks.flatten(0, 1)
