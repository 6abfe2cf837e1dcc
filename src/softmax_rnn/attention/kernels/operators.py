"""Blocks and chunks as operators of torch: what a traced graph holds in place of the loops over time.

A loop would be unrolled for one length, and traced again for every other. An operator is called with whatever length
comes; its gradient is an operator as well. What is not a tensor is a number or text: the score is JSON.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention.circular import walk_features
from softmax_rnn.attention.contraction import Contraction, NegativeRows
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.kernels import blockwise, chunked
from softmax_rnn.attention.kernels.block import Work
from softmax_rnn.attention.kernels.chunks import Layout
from softmax_rnn.attention.parts import Score
from softmax_rnn.attention.spec import part_from_dict, part_to_dict
from softmax_rnn.attention.visibility import Near, Visibility

Flat = list[Tensor | None]


@cache
def _text(score: Score) -> str:
    return json.dumps(part_to_dict(score))


@cache
def _score(text: str) -> Any:
    return part_from_dict("score", json.loads(text))


def _or_empty(x: Tensor | None, like: Tensor) -> Tensor:
    """An operator returns tensors: an empty one stands for None."""
    return like.new_empty(0) if x is None else x


def _laid_out(*results: Tensor) -> Any:
    """A graph relies on the strides that it was told of: results are contiguous, whatever the inputs are."""
    return tuple(x.contiguous() for x in results)


# ---- blocks


def blockwise_sums(job: Contraction, flat: Flat) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The sums of `blockwise` by the operator; ``flat`` has q, k, v, decay, λ (which no graph has) and rows."""
    *flat, levels, rows = flat
    assert levels is None
    seen, near = job.visibility, job.visibility.near
    numerator, row_sum, log_scale, negative = _blockwise(
        *flat,
        rows,
        seen.key_mask,
        seen.first_key,
        None if near is None else near.start,
        None if near is None else near.sink_stop,
        _text(job.score),
        job.wants_row_sum,
        job.negative is not None,
        [*job.q.shape[:2]] + ([0, 0] if near is None else [near.width, near.sinks]),
    )
    if job.negative is not None:
        job.negative.negative.logical_or_(negative)
    return numerator, row_sum if job.wants_row_sum else None, log_scale if job.score.is_exponential else None


def _job(q, k, v, decay, rows, key_mask, first_key, start, sink_stop, score, wants_row_sum, wants_negative, sizes):  # type: ignore[no-untyped-def]
    batch, heads, width, sinks = sizes
    near = None if start is None else Near(width, sinks, start, sink_stop)
    negative = NegativeRows(torch.zeros(q.shape[:3], dtype=torch.bool, device=q.device)) if wants_negative else None
    q, k, v, decay, rows = (None if x is None else x.unflatten(0, (batch, heads)) for x in (q, k, v, decay, rows))
    running = None if decay is None else RunningDecay(decay)
    visibility = Visibility(key_mask, first_key, near)
    # Whether the row's largest weight is read is not handed on: it is always computed.
    parts = (_score(score), q, k, v, running, visibility, wants_row_sum, rows)
    return Contraction(*parts, negative=negative, reads_largest=True)  # pyright: ignore[reportArgumentType]


def _work(q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, rows: Tensor | None, *rest: Any) -> Work:
    return blockwise.work_of(q, k, v, decay, None, rows, blockwise.setting_of(_job(q, k, v, decay, rows, *rest)))


@torch.library.custom_op("softmax_rnn::blockwise", mutates_args=())
def _blockwise(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    rows: Tensor | None,
    key_mask: Tensor | None,
    first_key: Tensor | None,
    near_start: Tensor | None,
    near_sink_stop: Tensor | None,
    score: str,
    wants_row_sum: bool,
    wants_negative: bool,
    sizes: list[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    masks = (key_mask, first_key, near_start, near_sink_stop)
    work = _work(q, k, v, decay, rows, *masks, score, wants_row_sum, wants_negative, sizes)
    numerator, row_sum, log_scale = blockwise.walk_forward(work)
    negative = work.setting.negative
    negative_rows = q.new_empty(0, dtype=torch.bool) if negative is None else negative.negative
    return _laid_out(numerator, _or_empty(row_sum, q), _or_empty(log_scale, q), negative_rows)


@_blockwise.register_fake
def _(
    q, k, v, decay, rows, key_mask, first_key, near_start, near_sink_stop, score, wants_row_sum, wants_negative, sizes
):  # type: ignore[no-untyped-def]
    shape = q.shape[:3]
    return (
        q.new_empty(*shape, v.shape[-1]),
        q.new_empty(shape if wants_row_sum else 0),
        q.new_empty(shape if _score(score).is_exponential else 0),
        q.new_empty(shape if wants_negative else 0, dtype=torch.bool),
    )


@torch.library.custom_op("softmax_rnn::blockwise_backward", mutates_args=())
def _blockwise_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    rows: Tensor | None,
    key_mask: Tensor | None,
    first_key: Tensor | None,
    near_start: Tensor | None,
    near_sink_stop: Tensor | None,
    score: str,
    wants_row_sum: bool,
    sizes: list[int],
    numerator: Tensor,
    row_sum: Tensor,
    log_scale: Tensor,
    d_numerator: Tensor,
    d_row_sum: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    masks = (key_mask, first_key, near_start, near_sink_stop)
    work = _work(q, k, v, decay, rows, *masks, score, wants_row_sum, False, sizes)
    sums = (row_sum, log_scale, d_row_sum)
    row, scale, d_row = (x if x.numel() else None for x in sums)
    dq, dk, dv, d_decay, _ = blockwise.gradients(work, numerator, row, scale, d_numerator, d_row)
    return _laid_out(dq, dk, dv, _or_empty(d_decay, q))


@_blockwise_backward.register_fake
def _(q, k, v, decay, *rest):  # type: ignore[no-untyped-def]
    like = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    return *like, q.new_empty(0) if decay is None else torch.empty(decay.shape, dtype=decay.dtype, device=q.device)


def _save_blockwise(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:9], *output[:3])
    ctx.score, ctx.wants_row_sum, _, ctx.sizes = inputs[9:]


def _backward_blockwise(ctx: Any, d_numerator: Tensor, d_row_sum: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    d_row_sum = d_row_sum if ctx.wants_row_sum else d_numerator.new_empty(0)
    static = (ctx.score, ctx.wants_row_sum, ctx.sizes)
    dq, dk, dv, d_decay = _blockwise_backward(*saved[:9], *static, *saved[9:], d_numerator, d_row_sum)
    return dq, dk, dv, None if saved[3] is None else d_decay, *(None,) * 9


_blockwise.register_autograd(_backward_blockwise, setup_context=_save_blockwise)


# ---- chunks


def chunked_sums(flat: Flat, layout: Layout) -> tuple[Tensor, Tensor]:
    """The sums of `chunked` and the state after them, by the operator."""
    flags = (layout.by_channel, layout.is_wide, layout.strict)
    sizes = [layout.batch, layout.kv_heads, *map(int, flags)]
    return _chunked(*flat, layout.visibility.first_key, _text(layout.features.score), sizes)


def _layout(q: Tensor, k: Tensor, first_key: Tensor | None, score: str, sizes: list[int]) -> Layout:
    polynomial = _score(score).as_polynomial
    assert polynomial is not None
    features = walk_features(polynomial, k.shape[-1])
    flags = (bool(flag) for flag in sizes[2:])
    return Layout(features, Visibility(None, first_key), *sizes[:2], q.shape[1], k.shape[1], *flags)  # pyright: ignore[reportCallIssue]


@torch.library.custom_op("softmax_rnn::chunked", mutates_args=())
def _chunked(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    decay: Tensor | None,
    state: Tensor,
    rows: Tensor | None,
    first_key: Tensor | None,
    score: str,
    sizes: list[int],
) -> tuple[Tensor, Tensor]:
    given = (q, k, u, decay, state, rows)
    return _laid_out(*chunked.walk_forward(given, _layout(q, k, first_key, score, sizes)))


@_chunked.register_fake
def _(q, k, u, decay, state, rows, first_key, score, sizes):  # type: ignore[no-untyped-def]
    return q.new_empty(*q.shape[:3], u.shape[-1]), state.new_empty(state.shape)


@torch.library.custom_op("softmax_rnn::chunked_backward", mutates_args=())
def _chunked_backward(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    decay: Tensor | None,
    state: Tensor,
    rows: Tensor | None,
    first_key: Tensor | None,
    score: str,
    sizes: list[int],
    y: Tensor,
    end: Tensor,
    dy: Tensor,
    d_end: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    layout, sums = _layout(q, k, first_key, score, sizes), None if decay is None else (y, end)
    given = (q, k, u, decay, state, rows)
    dq, dk, du, d_decay, d_state = chunked.walk_backward(given, layout, sums, dy, d_end)
    return _laid_out(dq, dk, du, _or_empty(d_decay, q), d_state)


@_chunked_backward.register_fake
def _(q, k, u, decay, state, *rest):  # type: ignore[no-untyped-def]
    dq, dk, du, d_state = (x.new_empty(x.shape) for x in (q, k, u, state))
    return dq, dk, du, q.new_empty(0) if decay is None else decay.new_empty(decay.shape), d_state


def _save_chunked(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.score, ctx.sizes = inputs[7:]


def _backward_chunked(ctx: Any, dy: Tensor, d_end: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    dq, dk, du, d_decay, d_state = _chunked_backward(*saved[:7], ctx.score, ctx.sizes, *saved[7:], dy, d_end)
    return dq, dk, du, None if saved[3] is None else d_decay, d_state, None, None, None, None


_chunked.register_autograd(_backward_chunked, setup_context=_save_chunked)
