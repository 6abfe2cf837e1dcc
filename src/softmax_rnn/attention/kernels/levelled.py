"""Levels with finite features, in O(T log T): between chunks a stack of states, one for each block of the past.

S_ℓ = Σ_j φ(k_j) U_jᵀ over the block of level ℓ (see `levels`). A chunk of C positions from position a on reads

    y_i = Σ_ℓ λ_i[ℓ] · e^(c_i − c_{a−1}) · φ(q_i) S_ℓ  +  Σ_{a≤j≤i} λ_i[level(i, j)] f(q_i·k_j) e^(c_i − c_j) U_j

and then closes its own block, with which full ones are joined as the digits of a counter carry. Chunks begin at
multiples of C where they can, so that a block has one level for all queries of a chunk; they may begin anywhere. The
backward pass walks twice, as `chunked` does: forwards with the states again, backwards with their gradients.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.kernels.blocks import Group
from softmax_rnn.attention.kernels.chunked import row_dots, split_sums, values_and_ones
from softmax_rnn.attention.kernels.chunks import Chunk, Inputs, times
from softmax_rnn.attention.kernels.stack import LevelLayout, Stack, Visit, read_column, visits
from softmax_rnn.attention.levels import LevelSums, blocks
from softmax_rnn.attention.second_derivative import once


def levelled(job: Contraction, past: LevelSums | None = None) -> tuple[Sums, LevelSums]:
    """The sums of `parallel`, continued from a stack, and the stack after the last position."""
    polynomial, levels = job.score.finite_features, job.levels
    assert polynomial is not None and levels is not None
    features = SymmetricFeatures(polynomial, job.k.shape[-1])
    u = values_and_ones(job)
    batch, kv_heads = u.shape[:2]
    known = {} if past is None else past.now(u.dtype)
    layout = LevelLayout(
        features,
        job.visibility,
        batch,
        kv_heads,
        job.q.shape[2],
        job.k.shape[2],
        levels=levels,
        past_levels=tuple(known),
    )
    decay = None if job.decay is None else job.decay.memory
    flat = [None if x is None else x.flatten(0, 1) for x in (job.q, job.k, u, decay, levels.weights, job.rows)]
    y, *ends = _Levelled.apply(*flat, layout, *(x.flatten(0, 1) for x in known.values()))  # type: ignore[misc]
    after = {level: x.unflatten(0, (batch, kv_heads)) for level, x in zip(layout.end_levels, ends, strict=True)}
    return split_sums(job, y.unflatten(0, (batch, kv_heads))), LevelSums(after)


class _Levelled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, u, decay, weights, rows, layout: LevelLayout, *past):  # type: ignore[override]
        inputs = Inputs.of(q, k, u, decay, rows, layout)
        y = q.new_empty(*q.shape[:3], u.shape[-1])
        ends = tuple(u.new_zeros(u.shape[0], layout.features.count, u.shape[-1]) for _ in layout.end_levels)
        for group in layout.groups():
            stack = Stack.of(layout, group, past)
            for chunk, visit in visits(inputs, group):
                stack.enter(visit)
                own = weights[group.heads, :, chunk.place].flatten(1, 2)
                y[group.heads, :, chunk.place] = _outputs(chunk, visit, stack, own).unflatten(1, (q.shape[1], -1))
                stack.advance(chunk, visit)
            for entry in stack.entries:
                ends[layout.end_levels.index(entry.block.level)][group.heads] = entry.now()
        ctx.save_for_backward(q, k, u, decay, weights, rows, *((None,) if decay is None else (y,)), *past, *ends)
        ctx.layout, ctx.n_past = layout, len(past)
        ctx.set_materialize_grads(False)
        return y, *ends

    @staticmethod
    @once("chunked")
    def backward(ctx, dy, *d_ends):  # type: ignore[override]
        q, k, u, decay, weights, rows, y, *states = ctx.saved_tensors
        past, ends, layout = states[: ctx.n_past], states[ctx.n_past :], ctx.layout
        inputs = Inputs.of(q, k, u, decay, rows, layout)
        dy = torch.zeros(*q.shape[:3], u.shape[-1], dtype=q.dtype, device=q.device) if dy is None else dy
        grads = _Gradients(inputs, weights, dy)
        d_past = tuple(torch.zeros_like(x) for x in past)
        for group in layout.groups():
            grads.walk_queries(group, Stack.of(layout, group, past))
            grads.walk_keys(group, d_ends, d_past)
        d_decay = None
        if isinstance(inputs.decay, RunningDecay) and ctx.needs_input_grad[3]:
            d_decay = inputs.decay.gradient(row_dots(dy, y).sum(1), row_dots(grads.u, u))
            for end, d_end in zip(ends, d_ends, strict=True):
                if d_end is not None:
                    d_decay[:, -1] += (d_end.double() * end).sum((1, 2))
        return grads.q, grads.k, grads.u, d_decay, grads.weights, None, None, *d_past


def _outputs(chunk: Chunk, visit: Visit, stack: Stack, own: Float[Tensor, "N R L"]) -> Float[Tensor, "N R U"]:
    """The rows of a chunk; ``own`` are the λ of its queries."""
    passing = chunk.passing
    inside = visit.pairs.multiply_(chunk.mask_(chunk.series.value(chunk.products())), own)
    total = torch.bmm(inside, chunk.u)
    if stack.entries:
        query = chunk.query_features().mT
        for entry in stack.entries:
            factor = times(times(read_column(own, entry.block, visit), passing.from_past), entry.factor)
            total.addcmul_(torch.bmm(query, entry.sums), factor)
    return total


class _Gradients:
    """The gradient of the outputs, and those that are being filled."""

    def __init__(self, inputs: Inputs, weights: Float[Tensor, "M G T L"], y: Float[Tensor, "M G T U"]) -> None:
        assert isinstance(inputs.layout, LevelLayout)
        self.inputs, self.layout, self.level_weights, self.y = inputs, inputs.layout, weights, y
        self.q, self.k, self.u = (torch.empty_like(x) for x in (inputs.q, inputs.k, inputs.u))
        self.weights = torch.empty_like(weights)

    def _rows(self, x: Tensor, group: Group, place: slice) -> Tensor:
        return x[group.heads, :, place].flatten(1, 2)

    def walk_queries(self, group: Group, stack: Stack) -> None:
        """First walk: the gradients of queries and λ, and all gradients of the weights inside the chunks."""
        heads, groups = group.heads, self.q.shape[1]
        for chunk, visit in visits(self.inputs, group):
            stack.enter(visit)
            place, pairs = chunk.place, visit.pairs
            dy, own = (self._rows(x, group, place) for x in (self.y, self.level_weights))
            d_own = torch.zeros_like(own)
            x = chunk.products()
            dw = torch.bmm(dy, chunk.u.mT)
            slope = pairs.multiply_(chunk.mask_(chunk.series.slope(x)), own)
            weights = chunk.mask_(chunk.series.value(x))
            pairs.add_sums_(d_own, dw * weights)
            pairs.multiply_(weights, own)
            dx = dw.mul_(slope)
            self.u[heads, place] = torch.bmm(weights.mT, dy)
            self.k[heads, place] = torch.bmm(dx.mT, chunk.q)
            dq = torch.bmm(dx, chunk.k)
            if stack.entries:
                dq.add_(_through_stack(chunk, visit, stack, dy, own, d_own).mT)
            self.q[heads, :, place] = dq.unflatten(1, (groups, -1))
            self.weights[heads, :, place] = d_own.unflatten(1, (groups, -1))
            stack.advance(chunk, visit)

    def walk_keys(self, group: Group, d_ends: tuple[Tensor | None, ...], d_past: tuple[Tensor, ...]) -> None:
        """Second walk, from the end: the gradients of keys and values through the states; fills that of the past."""
        layout, top = self.layout, self.layout.levels.top
        after = layout.visits_of(group)[-1].after
        by_level = dict(zip(layout.end_levels, d_ends, strict=True))
        later = {b.start: by_level[b.level] for b in blocks(after, top)}
        # By the first position of a block: the gradient of its state as it stands after the chunk.
        grads = {start: x[group.heads] for start, x in later.items() if x is not None}
        first = None
        for chunk, visit in visits(self.inputs, group, backwards=True):
            grads = self._key_gradients(group, chunk, visit, grads)
            first = visit
        assert first is not None
        for block in blocks(first.before, top):
            if block.start in grads:
                d_past[layout.past_levels.index(block.level)][group.heads] = grads[block.start]

    def _key_gradients(
        self, group: Group, chunk: Chunk, visit: Visit, later: dict[int, Tensor]
    ) -> dict[int, Float[Tensor, "N F U"]]:
        """The gradients of the states before a chunk from those of the states after it; keys and values get theirs."""
        heads, place, passing, top = group.heads, chunk.place, chunk.passing, self.layout.levels.top
        before, earlier = blocks(visit.before, top), {}
        entering, keep = times(chunk.u, passing.into_state), passing.keep
        keys = d_features = None
        for block in blocks(visit.after, top):
            grad = later.get(block.start)
            if grad is None:
                continue
            if block.stop > visit.before:
                if keys is None or d_features is None:
                    keys = chunk.key_features()
                    d_features = torch.zeros_like(keys)
                some = visit.columns(block)
                read = torch.bmm(keys[..., some].mT, grad)
                into = passing.into_state
                self.u[heads, place][:, some] += times(read, None if into is None else into[:, some])
                d_features[..., some] = torch.bmm(grad, entering[:, some].mT)
            for part in before:
                if block.start <= part.start < block.stop:
                    earlier[part.start] = grad.clone() if keep is None else grad * keep
        if d_features is not None:
            d_key = self.layout.features.key_backward(chunk.k.mT, d_features)
            self.k[heads, place] += d_key.mT
        if before:
            query = chunk.query_features()
            dy, own = (self._rows(x, group, place) for x in (self.y, self.level_weights))
            dy = times(dy, passing.from_past)
            for part in before:
                step = torch.bmm(query, dy * read_column(own, part, visit))
                earlier[part.start] = step if part.start not in earlier else earlier[part.start].add_(step)
        return earlier


def _through_stack(
    chunk: Chunk, visit: Visit, stack: Stack, dy: Tensor, own: Tensor, d_own: Tensor
) -> Float[Tensor, "N D R"]:
    """The gradient of the queries as they read the stack; that of their λ is added to ``d_own``."""
    query, d_features = chunk.query_features().mT, None
    for entry in stack.entries:
        decayed = times(times(dy, chunk.passing.from_past), entry.factor)
        read = (torch.bmm(query, entry.sums) * decayed).sum(-1, keepdim=True)
        d_own.scatter_add_(-1, visit.read_levels(entry.block).expand(read.shape), read)
        step = torch.bmm(entry.sums, (decayed * read_column(own, entry.block, visit)).mT)
        d_features = step if d_features is None else d_features.add_(step)
    assert d_features is not None
    return chunk.layout.features.query_backward(chunk.q.mT, d_features, chunk.rows)
