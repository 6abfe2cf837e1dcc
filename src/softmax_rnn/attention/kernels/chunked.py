"""Finite features in O(T) time: a state between chunks, the weights themselves inside a chunk.

For a polynomial score f(q·k) = φ(q)·φ(k) with F features, and U = [v, 1] (the 1 only where a row sum is asked
for), the state is S = Σ_j φ(k_j) U_jᵀ, an F × E' matrix per head: the hidden states H^(n) of all orders, one below
the other. A chunk of C positions from position a on, c the running log decay:

    y_i = e^(c_i − c_{a−1}) · φ(q_i) S  +  Σ_{a≤j≤i} f(q_i·k_j) e^(c_i − c_j) U_j
    S   ← e^(c_end − c_{a−1}) · S  +  Σ_j φ(k_j) e^(c_end − c_j) U_jᵀ

The backward pass walks twice, each time with one state: forwards for the queries (S again), backwards for keys
and values (the gradient of S). No state is stored, so its memory does not grow with T.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.channel_decay import ChannelDecay
from softmax_rnn.attention.circular import walk_features
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.host_sync import traced
from softmax_rnn.attention.kernels.blocks import Group
from softmax_rnn.attention.kernels.chunks import Given, Inputs, Layout, times
from softmax_rnn.attention.kernels.folding import channels_fit_float32
from softmax_rnn.attention.kernels.stacked_chunks import can_stack, stacked
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.second_derivative import once


def values_and_ones(job: Contraction) -> Float[Tensor, "B K T U"]:
    """U = [v, 1], with 0 for keys that nobody sees."""
    u = torch.cat([job.v, job.v.new_ones(1).expand(*job.v.shape[:-1], 1)], -1) if job.wants_row_sum else job.v
    mask = job.visibility.key_mask
    return u if mask is None else u * mask[:, None, :, None]


def split_sums(job: Contraction, y: Float[Tensor, "B K G Tq U"]) -> Sums:
    """The numerator and, where it was asked for, the row sum in the last column."""
    if job.wants_row_sum:
        return Sums(y[..., :-1], y[..., -1], job.log_scale)
    return Sums(y, None, job.log_scale)


def chunked(job: Contraction, state: Any = None) -> tuple[Sums, Any]:
    """The sums of `parallel`, continued from a state (B, K, F, U), and the state after the last position.

    With levels a state is a stack of them, `LevelSums`.
    """
    if job.levels is not None:
        from softmax_rnn.attention.kernels.levelled import levelled

        return levelled(job, state)
    dtype, decay = job.q.dtype, job.decay
    strict = isinstance(decay, ChannelDecay) and decay.reads_before_decay
    layout = layout_of(job, strict, walk_features)
    if layout.is_wide:
        job = job.widened()
    u = values_and_ones(job)
    batch, kv_heads = u.shape[:2]
    if state is None:
        state = u.new_zeros(batch, kv_heads, layout.features.count, u.shape[-1])
    memory = None if decay is None else decay.memory
    flat = [None if x is None else x.flatten(0, 1) for x in (job.q, job.k, u, memory, state.to(u.dtype), job.rows)]
    if traced(job.q):
        from softmax_rnn.attention.kernels.operators import chunked_sums

        y, state = chunked_sums(flat, layout)
    else:
        y, state = _Chunked.apply(*flat, layout)  # type: ignore[misc]
    assert isinstance(y, Tensor) and isinstance(state, Tensor)
    y = y.unflatten(0, (batch, kv_heads))
    if layout.strict:  # the queries' own keys are added separately
        y = y + job.score.series(job.rows).differentiable(job.own_scores()[..., None]) * u[:, :, None]
    return split_sums(job, y.to(dtype)), state.unflatten(0, (batch, kv_heads)).to(dtype)


def layout_of(
    job: Contraction,
    strict: bool,
    features_of: Callable[[Polynomial, int], SymmetricFeatures] = SymmetricFeatures,
) -> Layout:
    """How the chunks of a contraction lie."""
    polynomial = job.score.finite_features
    assert polynomial is not None
    features = features_of(polynomial, job.k.shape[-1])
    by_channel = isinstance(job.decay, ChannelDecay)
    sizes = (*job.k.shape[:2], job.q.shape[2], job.k.shape[2])
    layout = Layout(features, job.visibility, *sizes, by_channel=by_channel, strict=strict)  # pyright: ignore[reportCallIssue]
    if not isinstance(job.decay, ChannelDecay):
        return layout
    steps = job.decay.steps.detach().flatten(0, 1)
    narrow = job.q.dtype == torch.float32 and channels_fit_float32(steps, layout.chunk, polynomial.degree)
    return replace(layout, is_wide=not narrow)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, u, decay, state, rows, layout: Layout):  # type: ignore[override]
        y, end = walk_forward((q, k, u, decay, state, rows), layout)
        ctx.save_for_backward(q, k, u, decay, state, rows, *((None, None) if decay is None else (y, end)))
        ctx.layout = layout
        ctx.set_materialize_grads(False)
        return y, end

    @staticmethod
    @once("chunked")
    def backward(ctx, dy, d_end):  # type: ignore[override]
        *given, y, end = ctx.saved_tensors
        q, u, decay = given[0], given[2], given[3]
        dy = q.new_zeros(*q.shape[:3], u.shape[-1]) if dy is None else dy
        wants_decay = decay is not None and ctx.needs_input_grad[3]
        return *walk_backward(given, ctx.layout, (y, end) if wants_decay else None, dy, d_end), None, None


def walk_forward(given: Given, layout: Layout) -> tuple[Float[Tensor, "M G T U"], Float[Tensor, "M F U"]]:
    """The sums, and the state after them."""
    q, u = given[0], given[2]
    y, end = q.new_empty(*q.shape[:3], u.shape[-1]), layout.features.arranged(given[4])
    for place in layout.spans(given[3] is not None):
        inputs, out = Inputs.at(place, given, layout), y[:, :, place]
        if can_stack(inputs):
            y, end = stacked(inputs, end)
            break
        for group in inputs.layout.groups():
            running = end[group.heads]
            for chunk in inputs.chunks(group, inputs.layout.places()):
                chunk.enter_(running)
                weights = chunk.mask_(chunk.series.value(chunk.products()))
                total = chunk.read(running, torch.bmm(weights, chunk.u))
                out[group.heads, :, chunk.place] = total.unflatten(1, (q.shape[1], -1))
                chunk.advance_(running)
            inputs.leave_(running, group.heads)
        if inputs.row_factor is not None:
            out.mul_(inputs.row_factor[:, None])
    return y, layout.features.in_order(end)


def walk_backward(
    given: Given,
    layout: Layout,
    sums: tuple[Tensor, Tensor] | None,
    dy: Float[Tensor, "M G T U"],
    d_end: Float[Tensor, "M F U"] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]:
    """The gradients of q, k, u, the decay and the state; that of the decay where the outputs and the last state are."""
    features, at_query, ends = layout.features, None, None
    if sums is not None:
        y, end = sums
        ends = None if d_end is None else features.arranged(d_end * end)
        at_query = lambda at: row_dots(dy[:, :, at], y[:, :, at]).sum(1)  # noqa: E731
    given = (*given[:4], features.arranged(given[4]), given[5])
    d_end = None if d_end is None else features.arranged(d_end)
    grads = chunk_gradients(given, layout, dy, d_end, at_query, ends)
    return grads.q, grads.k, grads.u, grads.decay, features.in_order(grads.state)


def row_dots(x: Float[Tensor, "*rows U"], y: Float[Tensor, "*rows U"]) -> Float[Tensor, "*rows"]:
    """The dot products of rows, to be summed along time."""
    return (x * y).sum(-1, dtype=torch.float64)


@dataclass
class Gradients:
    """Gradients that the walks fill, of tensors with the factors of a fold in them until a span is finished."""

    y: Float[Tensor, "M G T U"]
    q: Float[Tensor, "M G T D"]
    k: Float[Tensor, "M T D"]
    u: Float[Tensor, "M T U"]
    state: Float[Tensor, "M F U"]
    decay: Tensor | None

    def at(self, place: slice, inputs: Inputs) -> Gradients:
        """Those of a span, to be filled; dy with the factors of its rows."""
        y = self.y[:, :, place]
        y = y if inputs.row_factor is None else y * inputs.row_factor[:, None]
        decay = None if self.decay is None else self.decay[:, place]
        return Gradients(y, self.q[:, :, place], self.k[:, place], self.u[:, place], self.state, decay)


def chunk_gradients(
    given: Given,
    layout: Layout,
    dy: Float[Tensor, "M G T U"],
    d_end: Float[Tensor, "M F U"] | None = None,
    at_query: Callable[[slice], Float[Tensor, "M C"]] | None = None,
    ends: Float[Tensor, "M F U"] | None = None,
) -> Gradients:
    """All gradients of the walks over the chunks, from those of the outputs and of the last state.

    States have the order of the layout's features. The decay has a gradient where ``at_query`` gives dy_i·y_i at some
    places; ``ends`` is d_end ⊙ end.
    """
    q, k, u, decay, state, _ = given
    d_state = torch.zeros_like(state) if d_end is None else d_end.clone()
    d_decay = None if decay is None or at_query is None else torch.empty_like(decay)
    grads = Gradients(dy, *(torch.empty_like(x) for x in (q, k, u)), d_state, d_decay)  # pyright: ignore[reportCallIssue]
    running, spans = state.clone(), layout.spans(decay is not None)

    @lru_cache(maxsize=1)  # the last span of the first walk is the first of the second
    def at(number: int) -> tuple[Inputs, Gradients]:
        inputs = Inputs.at(spans[number], given, layout)
        return inputs, grads.at(spans[number], inputs)

    for number in range(len(spans)):
        inputs, here = at(number)
        for group in inputs.layout.groups():
            _backward_queries(inputs, group, here, running[group.heads])
            inputs.leave_(running[group.heads], group.heads)
        if inputs.fold is not None and layout.by_channel:
            here.q.mul_(inputs.fold.query[:, None])
    later = None if ends is None or d_decay is None else _of_ends(ends, layout)
    for number, place in reversed([*enumerate(spans)]):
        inputs, here = at(number)
        for group in inputs.layout.groups():
            _backward_keys(inputs, group, here)
        if inputs.fold is not None:
            (here.k if layout.by_channel else here.u).mul_(inputs.fold.key)
        if here.decay is not None and at_query is not None:
            tensors = (q[:, :, place], k[:, place], u[:, place])
            later = _decay_gradient(here, tensors, layout, at_query(place), later)
    return grads


def _decay_gradient(
    here: Gradients,
    given: tuple[Tensor, Tensor, Tensor],
    layout: Layout,
    at_query: Float[Tensor, "M C"],
    later: Tensor | None,
) -> Tensor | None:
    """Fill that of a span and give what the spans before it get from here on, from what this one gets.

    A weight depends on c_i as its row does, and on −c_j as the value does; or, channel by channel, as q_i and as k_j.
    """
    q, k, u = given
    assert here.decay is not None
    if not layout.by_channel:
        torch.sub(at_query, row_dots(here.u, u), out=here.decay)
        if later is not None:  # the last state depends on the last c alone
            here.decay[:, -1] += later
        return None
    by_query = (here.q * q).sum(1)
    change = by_query - here.k * k
    total = change.sum(1, keepdim=True) if later is None else change.sum(1, keepdim=True) + later
    # From the end to the position itself.
    torch.sub(change + total, change.cumsum(1), out=here.decay)
    if layout.strict:
        here.decay.sub_(by_query)
    return total


def _of_ends(ends: Float[Tensor, "M F U"], layout: Layout) -> Tensor:
    """What the last state adds to the gradient of the last decay."""
    if not layout.by_channel:
        return ends.sum((1, 2))
    return _exponents(layout.features, ends.sum(-1))[:, None]


def _exponents(features: SymmetricFeatures, weights: Float[Tensor, "M F"]) -> Float[Tensor, "M D"]:
    """Σ over monomials of weight times the channel's exponent: the slope of Σ weight · monomial at 1."""
    ones = weights.new_ones(weights.shape[0], features.dim, 1)
    return features.key_backward(ones, weights[..., None])[..., 0]


def _backward_queries(inputs: Inputs, group: Group, grads: Gradients, state: Float[Tensor, "N F U"]) -> None:
    """First walk: the gradient of the queries, and all gradients of the weights inside the chunks."""
    features, heads = inputs.layout.features, group.heads
    for chunk in inputs.chunks(group, inputs.layout.places()):
        place = chunk.place
        chunk.enter_(state)
        dy = grads.y[heads, :, place].flatten(1, 2)
        x = chunk.products()
        dx = torch.bmm(dy, chunk.u.mT).mul_(chunk.mask_(chunk.series.slope(x)))
        weights = chunk.mask_(chunk.series.value(x))
        grads.u[heads, place] = torch.bmm(weights.mT, dy)
        grads.k[heads, place] = torch.bmm(dx.mT, chunk.q)
        d_features = torch.bmm(state, times(dy, chunk.passing.from_past).mT)
        d_past = features.query_backward(chunk.q.mT, d_features, chunk.rows)
        grads.q[heads, :, place] = torch.bmm(dx, chunk.k).add_(d_past.mT).unflatten(1, (grads.q.shape[1], -1))
        chunk.advance_(state)


def _backward_keys(inputs: Inputs, group: Group, grads: Gradients) -> None:
    """Second walk, from the end: the gradients of keys and values through the state, and that of the state."""
    features, heads = inputs.layout.features, group.heads
    d_state = inputs.leave_(grads.state[heads], heads)
    for chunk in inputs.chunks(group, inputs.layout.places()[::-1], weighs=False):
        place, passing = chunk.place, chunk.passing
        grads.u[heads, place] += times(torch.bmm(chunk.key_features().mT, d_state), passing.into_state)
        d_features = torch.bmm(d_state, times(chunk.u, passing.into_state).mT)
        grads.k[heads, place] += features.key_backward(chunk.k.mT, d_features).mT
        chunk.retreat_(d_state, grads.y[heads, :, place].flatten(1, 2))
