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

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.channel_decay import ChannelDecay
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.kernels.blocks import Group
from softmax_rnn.attention.kernels.chunks import Inputs, Layout, times
from softmax_rnn.attention.kernels.stacked_chunks import can_stack, stacked
from softmax_rnn.attention.looking import traced
from softmax_rnn.attention.second_derivative import once


def values_and_ones(job: Contraction) -> Float[Tensor, "B K T U"]:
    """U = [v, 1], with 0 for keys that nobody sees."""
    u = torch.nn.functional.pad(job.v, (0, 1), value=1.0) if job.wants_row_sum else job.v
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
    polynomial = job.score.finite_features
    assert polynomial is not None
    features = SymmetricFeatures(polynomial, job.k.shape[-1])
    u = values_and_ones(job)
    batch, kv_heads = u.shape[:2]
    by_channel = isinstance(job.decay, ChannelDecay)
    apart = isinstance(job.decay, ChannelDecay) and job.decay.reads_before_decay  # own keys are counted apart
    layout = Layout(features, job.visibility, batch, kv_heads, job.q.shape[2], job.k.shape[2], by_channel, apart)
    if state is None:
        state = u.new_zeros(batch, kv_heads, features.count, u.shape[-1])
    decay = None if job.decay is None else job.decay.memory
    state = state.to(torch.float64 if by_channel else u.dtype)
    flat = [None if x is None else x.flatten(0, 1) for x in (job.q, job.k, u, decay, state, job.rows)]
    if traced(job.q):
        from softmax_rnn.attention.kernels.operators import chunked_sums

        y, state = chunked_sums(flat, layout)
    else:
        y, state = _Chunked.apply(*flat, layout)  # type: ignore[misc]
    assert isinstance(y, Tensor) and isinstance(state, Tensor)
    y = y.unflatten(0, (batch, kv_heads))
    if apart:
        y = y + job.score.series(job.rows).differentiable(job.own_scores()[..., None]) * u[:, :, None]
    return split_sums(job, y), state.unflatten(0, (batch, kv_heads)).to(u.dtype)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, u, decay, state, rows, layout: Layout):  # type: ignore[override]
        y, end = walk_forward(Inputs(q, k, u, layout.decay(decay), rows, layout), state)
        ctx.save_for_backward(q, k, u, decay, state, rows, *((None, None) if decay is None else (y, end)))
        ctx.layout = layout
        ctx.set_materialize_grads(False)
        return y, end

    @staticmethod
    @once("chunked")
    def backward(ctx, dy, d_end):  # type: ignore[override]
        q, k, u, decay, state, rows, y, end = ctx.saved_tensors
        inputs = Inputs(q, k, u, ctx.layout.decay(decay), rows, ctx.layout)
        dy = q.new_zeros(*q.shape[:3], u.shape[-1]) if dy is None else dy
        d_end = torch.zeros_like(state) if d_end is None else d_end
        needs_decay = ctx.needs_input_grad[3] or isinstance(inputs.decay, ChannelDecay)
        return *walk_backward(inputs, state, y, end, dy, d_end, needs_decay), None, None


def walk_forward(inputs: Inputs, state: Float[Tensor, "M F U"]) -> tuple[Tensor, Tensor]:
    """The sums, and the state after them."""
    if can_stack(inputs):
        return stacked(inputs, state)
    layout, groups = inputs.layout, inputs.q.shape[1]
    y = inputs.q.new_empty(*inputs.q.shape[:3], inputs.u.shape[-1])
    end = torch.empty_like(state)
    for group in layout.groups():
        running = state[group.heads].clone()
        for chunk in inputs.chunks(group, layout.places()):
            weights = chunk.series.value(chunk.products())
            inside = torch.bmm(chunk.mask_(weights), times(chunk.u, chunk.passing.column))
            past = torch.bmm(chunk.query_features().mT, running)
            total = times(inside, chunk.passing.row).add_(times(past, chunk.passing.from_past))
            y[group.heads, :, chunk.place] = total.unflatten(1, (groups, -1))
            running = chunk.advance(running)
        end[group.heads] = running
    return y, end


def walk_backward(
    inputs: Inputs,
    state: Tensor,
    y: Tensor | None,
    end: Tensor | None,
    dy: Tensor,
    d_end: Tensor,
    needs_decay: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]:
    """The gradients of q, k, u, the decay and the state."""
    q, k, u, layout = inputs.q, inputs.k, inputs.u, inputs.layout
    grads = _Gradients(dy, *(torch.empty_like(x, dtype=inputs.dtype) for x in (q, k, u)))
    d_state = torch.empty_like(state)
    for group in layout.groups():
        _backward_queries(inputs, group, grads, state[group.heads].clone())
        d_state[group.heads] = _backward_keys(inputs, group, grads, d_end[group.heads])
    d_decay = None
    if needs_decay and isinstance(inputs.decay, RunningDecay):
        d_decay = inputs.decay.gradient((dy.double() * y).sum((1, 3)), (grads.u.double() * u).sum(-1))
        d_decay[:, -1] += (d_end.double() * end).sum((1, 2))
    elif needs_decay and isinstance(inputs.decay, ChannelDecay):
        at_query, at_key = (grads.q * q).sum(1), grads.k * k
        at_key[:, -1] -= _exponents(layout.features, (d_end * end).sum(-1))
        d_decay = inputs.decay.gradient(at_query, at_key).to(inputs.decay.steps.dtype)
    return grads.q.to(q.dtype), grads.k.to(k.dtype), grads.u.to(u.dtype), d_decay, d_state


def _exponents(features: SymmetricFeatures, weights: Float[Tensor, "M F"]) -> Float[Tensor, "M D"]:
    """Σ over monomials of weight times the channel's exponent: the slope of Σ weight · monomial at 1."""
    ones = weights.new_ones(weights.shape[0], features.dim, 1)
    return features.key_backward(ones, weights[..., None])[..., 0]


@dataclass(frozen=True)
class _Gradients:
    """The gradient of the outputs, and those that are being filled."""

    y: Float[Tensor, "M G T U"]
    q: Float[Tensor, "M G T D"]
    k: Float[Tensor, "M T D"]
    u: Float[Tensor, "M T U"]


def _backward_queries(inputs: Inputs, group: Group, grads: _Gradients, state: Float[Tensor, "N F U"]) -> None:
    """First walk: the gradient of the queries, and all gradients of the weights inside the chunks."""
    features, heads = inputs.layout.features, group.heads
    for chunk in inputs.chunks(group, inputs.layout.places()):
        place = chunk.place
        dy = grads.y[heads, :, place].flatten(1, 2).to(state.dtype)
        x = chunk.products()
        d_inside = times(dy, chunk.passing.row)
        dw = torch.bmm(d_inside, times(chunk.u, chunk.passing.column).mT)
        dx = dw.mul_(chunk.mask_(chunk.series.slope(x)))
        weights = chunk.mask_(chunk.series.value(x))
        grads.u[heads, place] = times(torch.bmm(weights.mT, d_inside), chunk.passing.column)
        grads.k[heads, place] = chunk.key_gradient(inside=torch.bmm(dx.mT, chunk.q))
        d_features = torch.bmm(state, times(dy, chunk.passing.from_past).mT)
        d_past = features.query_backward(chunk.query_at_start().mT.contiguous(), d_features, chunk.rows)
        total = chunk.query_gradient(torch.bmm(dx, chunk.k), d_past.mT)
        grads.q[heads, :, place] = total.unflatten(1, (grads.q.shape[1], -1))
        state = chunk.advance(state)


def _backward_keys(
    inputs: Inputs, group: Group, grads: _Gradients, d_state: Float[Tensor, "N F U"]
) -> Float[Tensor, "N F U"]:
    """Second walk, from the end: the gradients of keys and values through the state; returns that of the state."""
    features, heads = inputs.layout.features, group.heads
    for chunk in inputs.chunks(group, reversed(inputs.layout.places())):
        place, passing = chunk.place, chunk.passing
        grads.u[heads, place] += times(torch.bmm(chunk.key_features().mT, d_state), passing.into_state)
        d_features = torch.bmm(d_state, times(chunk.u, passing.into_state).mT)
        d_key = features.key_backward(chunk.key_at_end().mT.contiguous(), d_features).mT
        grads.k[heads, place] += chunk.key_gradient(at_end=d_key)
        dy_past = times(grads.y[heads, :, place].flatten(1, 2).to(d_state.dtype), passing.from_past)
        step = torch.bmm(chunk.query_features(), dy_past)
        d_state = step.add_(times(d_state, chunk.keep()))
    return d_state
