"""States between chunks as an autograd function; the weights inside a chunk come from the blockwise kernels."""

# Launches give numbers to what a kernel declares as constexpr.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.kernels.triton import blockwise
from softmax_rnn.attention.kernels.triton.tiles import padded, precision, tile, value_columns, wide_tile
from softmax_rnn.attention.kernels.triton.visible import Seen
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.second_derivative import once
from softmax_rnn.attention.visibility import Visibility

MAX_DEGREE = 2
"""A tile of features of degree 2 is a product of columns; higher degrees have none."""


@dataclass(frozen=True)
class Passing:
    """What passes through chunks: from the state to each position, from each position to the state, and through."""

    from_past: Tensor | None = None
    into_state: Tensor | None = None
    keep: Tensor | None = None

    @classmethod
    def of(cls, seen: Visibility, decay: Tensor | None, heads: int, like: Tensor, chunk: int) -> Passing:
        """Of the running log decay (N, T) and the masks (B, T), each of which belongs to ``heads`` rows of N."""
        if decay is None and seen.is_plain:
            return cls()
        count, time = like.shape[:2]
        c = torch.zeros(count, time, dtype=torch.float64, device=like.device) if decay is None else decay
        position = torch.arange(time, device=like.device)
        begin = position // chunk * chunk
        end = (begin + chunk - 1).clamp(max=time - 1)
        before = torch.where(begin > 0, c[:, (begin - 1).clamp(min=0)], 0)
        from_past, into_state = torch.exp(c - before), torch.exp(c[:, end] - c)
        last = end[::chunk]
        keep = torch.exp(c[:, last] - before[:, ::chunk])
        if seen.first_key is not None:
            first = seen.first_key.repeat_interleave(heads, 0)
            from_past = from_past * (first < begin)
            into_state = into_state * (position >= first[:, end])
            keep = keep * (first[:, last] < begin[::chunk])
        if seen.key_mask is not None:
            into_state = into_state * seen.key_mask.repeat_interleave(heads, 0)
        return cls(*(x.float().contiguous() for x in (from_past, into_state, keep)))


@dataclass(frozen=True)
class Layout:
    """Where the rows of each degree stand in a state, and how long a chunk is."""

    score: Polynomial
    dim: int
    width: int
    chunk: int
    wants_row_sum: bool
    dtype: torch.dtype

    @property
    def bases(self) -> dict[str, int]:
        """The first row of each degree, −1 where there is none."""
        at, offsets = 0, {"BASE0": -1, "BASE1": -1, "BASE2": -1}
        for order in self.score.orders:
            offsets[f"BASE{order}"] = at
            at += comb(self.dim + order - 1, order)
        return offsets

    @property
    def features(self) -> int:
        """F."""
        return sum(comb(self.dim + order - 1, order) for order in self.score.orders)

    def classes(self) -> Iterator[tuple[int, int, int]]:
        """Columns W, and the first and the last index a of the monomials that lie in them."""
        start, columns = 0, padded(self.dim)
        while columns > 16 and padded(self.dim) // columns < 8:
            yield columns, start, min(start + columns // 2, self.dim)
            start, columns = start + columns // 2, columns // 2
        yield columns, start, self.dim

    def chunks(self, time: int) -> int:
        """How many chunks so many positions have."""
        return -(-time // self.chunk)

    def constants(self, rows: Tensor | None) -> dict[str, Any]:
        """What all kernels are compiled for."""
        return {
            "CHUNK": self.chunk,
            "D": self.dim,
            "E": self.width,
            "F": self.features,
            "BD": padded(self.dim),
            "BE": self.columns,
            "COUNT": self.score.degree + 1,
            "HAS_ROWS": rows is not None,
            "WANTS_SUM": self.wants_row_sum,
            "PRECISION": precision(self.dtype),
        }

    @property
    def value_tiles(self) -> int:
        """Programs side by side that share the columns of a value."""
        return -(-self.width // self.columns)

    @property
    def columns(self) -> int:
        """Columns of a value in one program."""
        return value_columns(self.width, str(self.dtype).removeprefix("torch."))


@dataclass(frozen=True)
class Side:
    """Queries with their coefficients, or keys without: (N·G, T, D)."""

    x: Tensor
    groups: int
    coefficients: Tensor | None
    rows: Tensor | None
    layout: Layout

    @property
    def constants(self) -> dict[str, Any]:
        """What the kernels are compiled for."""
        return self.layout.constants(self.rows) | {"QUERY": self.coefficients is not None}

    def states(self, u: Tensor, factor: Tensor | None, ones: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What each chunk adds to the state: Σ_j φ(x_j) factor_j u_jᵀ, and the same with ones_j in place of u_j."""
        from softmax_rnn.attention.kernels.triton.device.states import chunk_states

        layout, (heads, time, _) = self.layout, self.x.shape
        chunks, count = layout.chunks(time), heads // self.groups
        state = torch.empty(count, chunks, layout.features, layout.width, device=u.device)
        sums = torch.empty(count, chunks, layout.features, device=u.device) if layout.wants_row_sum else None
        shared = self.constants | layout.bases | {"HAS_FACTOR": factor is not None, "HAS_ONES": ones is not None}
        arguments = (self.x, u, factor, ones, self.coefficients, state, sums, time, chunks, self.groups)
        rest = (chunks, count * layout.value_tiles)
        dims = (layout.dim, layout.width, layout.dtype)
        launch = {name: n for name, n in tile("chunk_states", *dims).launch.items() if name != "BM"}
        if 2 in layout.score.orders:
            for columns, start, stop in layout.classes():
                grid = (stop - start, *rest)
                chunk_states[grid](*arguments, W=columns, A0=start, SQUARES=True, **shared, **launch)
        if {0, 1} & set(layout.score.orders):
            columns = padded(layout.dim)
            chunk_states[(1, *rest)](*arguments, W=columns, A0=0, SQUARES=False, **shared, **launch)
        return state, sums

    def read(self, states: tuple[Tensor, Tensor | None], factor: Tensor | None, y: Tensor, r: Tensor | None) -> None:
        """y_i += factor_i φ(x_i) S, and r_i with the sums in place of S."""
        from softmax_rnn.attention.kernels.triton.device.states import read_states

        layout, (heads, time, _) = self.layout, self.x.shape
        chosen = tile("read_states", layout.dim, layout.width, layout.dtype)
        launch = {name: n for name, n in chosen.launch.items() if name != "BN"}
        read_states[(-(-time // chosen.queries), heads, layout.value_tiles)](
            self.x, *states, factor, self.coefficients, y, r, time, layout.chunks(time), self.groups,
            HAS_FACTOR=factor is not None, **self.constants, **layout.bases, **launch,
        )  # fmt: skip

    def gradient(
        self, states: tuple[Tensor, Tensor | None], factor: Tensor | None, u: Tensor, ones: Tensor | None, dx: Tensor
    ) -> None:
        """The gradient of x through its features, added to dx."""
        from softmax_rnn.attention.kernels.triton.device.states import feature_gradients

        layout, (heads, time, _) = self.layout, self.x.shape
        chosen = tile("feature_gradients", layout.dim, layout.width, layout.dtype)
        bases = {name: row for name, row in layout.bases.items() if name != "BASE0"}
        launch = {name: n for name, n in chosen.launch.items() if name != "BN"}
        first = True
        classes = list(layout.classes()) if 2 in layout.score.orders else [(padded(layout.dim), 0, 0)]
        for columns, start, stop in classes:
            feature_gradients[(-(-time // chosen.queries), heads)](
                self.x, u, ones, *states, factor, self.coefficients, dx, time, layout.chunks(time), self.groups,
                W=columns, A0=start, A1=stop, FIRST=first, HAS_FACTOR=factor is not None, HAS_ONES=ones is not None,
                **self.constants, **bases, **launch,
            )  # fmt: skip
            first = False


def scanned(
    added: Tensor, keep: Tensor | None, start: Tensor | None, dtype: torch.dtype, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """The state before each chunk (behind it, in reverse) in a dtype for products, and the one at the end."""
    from softmax_rnn.attention.kernels.triton.device.states import scan

    count, chunks = added.shape[:2]
    numbers, block = added[0, 0].numel(), wide_tile()
    before = torch.empty_like(added, dtype=dtype)
    end = torch.empty_like(added[:, 0])
    scan[(-(-numbers // block), count)](
        added, keep, start, before, end, chunks, numbers,
        HAS_KEEP=keep is not None, HAS_START=start is not None, REVERSE=reverse, BLOCK=block,
    )  # fmt: skip
    return before, end


def all_scanned(
    added: tuple[Tensor, Tensor | None],
    keep: Tensor | None,
    start: tuple[Tensor, Tensor | None] | None,
    dtype: torch.dtype,
    reverse: bool = False,
) -> tuple[tuple[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]:
    """`scanned` for the matrix and for the sums, which stay float32."""
    first, then = (None, None) if start is None else start
    before, end = scanned(added[0], keep, first, dtype, reverse)
    if added[1] is None:
        return (before, None), (end, None)
    sums_before, sums_end = scanned(added[1], keep, then, torch.float32, reverse)
    return (before, sums_before), (end, sums_end)


def split(state: Tensor | None, wants_row_sum: bool) -> tuple[Tensor, Tensor | None] | None:
    """A state (N, F, U) as matrix and sums."""
    if state is None:
        return None
    state = state.float()
    return (state[..., :-1].contiguous(), state[..., -1].contiguous()) if wants_row_sum else (state.contiguous(), None)


def joined(parts: tuple[Tensor, Tensor | None]) -> Tensor:
    """The inverse of `split`."""
    return parts[0] if parts[1] is None else torch.cat([parts[0], parts[1][..., None]], -1)


@dataclass(frozen=True)
class Setting:
    """What stays the same in both passes."""

    block: blockwise.Setting
    layout: Layout
    passing: Passing

    def sides(self, q: Tensor, k: Tensor, rows: Tensor | None) -> tuple[Side, Side]:
        """Queries and keys."""
        coefficients = self.block.coefficients(rows, q.device)
        return Side(q.flatten(0, 1), q.shape[1], coefficients, rows, self.layout), Side(k, 1, None, None, self.layout)


def chunked(job: Contraction, state: Tensor | None, dtype: torch.dtype, chunk: int) -> tuple[Sums, Tensor]:
    """The sums of `parallel`, continued from a state, and the state after the last position."""
    score = job.score.as_polynomial
    assert score is not None and score.degree <= MAX_DEGREE
    batch, kv_heads = job.k.shape[:2]
    decay = None if job.running_decay is None else job.running_decay.c
    flat = [None if x is None else x.flatten(0, 1) for x in (job.q, job.k, job.v, decay, state, job.rows)]
    seen = Seen.of(job.visibility, batch, job.k.shape[2], job.q.device, chunk)
    block = blockwise.Setting(score, kv_heads, seen, job.wants_row_sum, None, dtype)
    layout = Layout(score, job.k.shape[-1], job.v.shape[-1], chunk, job.wants_row_sum, dtype)
    still = None if decay is None else decay.detach().flatten(0, 1)
    passing = Passing.of(job.visibility, still, kv_heads, job.k.flatten(0, 1), chunk)
    y, r, end = _Chunked.apply(*flat, Setting(block, layout, passing))  # type: ignore[misc]
    shape = (batch, kv_heads)
    row_sum = None if r is None else r.unflatten(0, shape)
    return Sums(y.unflatten(0, shape), row_sum, job.log_scale), end.unflatten(0, shape)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, decay, state, rows, setting: Setting):  # type: ignore[override]
        layout, passing = setting.layout, setting.passing
        q, k, v = (x.to(layout.dtype).contiguous() for x in (q, k, v))
        decay, rows = (None if x is None else x.contiguous() for x in (decay, rows))
        rows = None if rows is None else rows.float()
        queries, keys = setting.sides(q, k, rows)
        y, r, _ = blockwise.forward(q, k, v, decay, rows, setting.block)
        added = keys.states(v, passing.into_state, None)
        before, end = all_scanned(added, passing.keep, split(state, layout.wants_row_sum), layout.dtype)
        ctx.has_past = state is not None or layout.chunks(k.shape[1]) > 1
        if ctx.has_past:
            queries.read(before, passing.from_past, y, r)
        end = joined(end)
        kept = (y, r) if blockwise.needs_sums(decay, r, layout.dtype) else (None, None)
        ctx.save_for_backward(q, k, v, decay, rows, *before, *kept, None if decay is None else end)
        ctx.setting, ctx.has_state = setting, state is not None
        ctx.set_materialize_grads(False)
        return y, r, end

    @staticmethod
    @once("triton")
    def backward(ctx, dy, dr, d_end):  # type: ignore[override]
        q, k, v, decay, rows, state, sums, y, r, end = ctx.saved_tensors
        setting: Setting = ctx.setting
        layout, passing = setting.layout, setting.passing
        queries, keys = setting.sides(q, k, rows)
        dy = torch.zeros(*q.shape[:3], v.shape[-1], device=q.device) if dy is None else dy
        if layout.wants_row_sum and dr is None:
            dr = torch.zeros(q.shape[:3], device=q.device)
        dy, dr = blockwise.rounded(dy, dr, y, r, v.dtype)
        dq, dk, dv, ones = blockwise.backward(q, k, v, decay, rows, dy, dr, None, setting.block)
        if ctx.has_past:
            queries.gradient((state, sums), passing.from_past, dy, dr, dq)
        added = queries.states(dy, passing.from_past, dr)
        start = None if d_end is None else split(d_end, layout.wants_row_sum)
        behind, d_state = all_scanned(added, passing.keep, start, layout.dtype, reverse=True)
        if layout.wants_row_sum and ones is None:
            ones = torch.zeros(k.shape[:2], device=q.device)
        keys.read(behind, passing.into_state, dv, ones)
        keys.gradient(behind, passing.into_state, v, None, dk)
        d_decay = None
        if decay is not None:
            d_decay = blockwise.decay_gradient(decay, v, dv, ones, dy, dr, y, r)
            if d_end is not None:
                d_decay[:, -1] += (d_end.double() * end).sum((1, 2))
        return dq, dk, dv, d_decay, joined(d_state) if ctx.has_state else None, None, None
