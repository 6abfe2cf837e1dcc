"""How a call runs: plan, prologue, the contraction of its structure, epilogue, and the state after it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention import prologue
from softmax_rnn.attention.algebra import can_be_negative, n_features
from softmax_rnn.attention.buffer import Buffers
from softmax_rnn.attention.call import Call
from softmax_rnn.attention.channel_decay import ChannelDecay
from softmax_rnn.attention.contraction import Contraction, NegativeRows, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.epilogue import Rows, epilogue
from softmax_rnn.attention.forms.chunked import span_length
from softmax_rnn.attention.host_sync import hint, may_sync, traced
from softmax_rnn.attention.plan import FORMS, Plan, Situation, choose, choose_for_step
from softmax_rnn.attention.quick_step import enable_quick_steps
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import State
from softmax_rnn.attention.structures import past_of
from softmax_rnn.attention.work import Positions, Work
from softmax_rnn.attention.write import written
from softmax_rnn.errors import InputError


def check_graph(spec: AttentionSpec, time: int) -> None:
    """Refuse a graph of so many positions where each of them chooses keys."""
    if spec.over_time.step_by_step and time > 1:
        raise InputError(
            "structure: a graph for any length cannot choose keys one by one, only a step; call attention outside it"
        )


def run(call: Call, form: str | None) -> Tensor:
    """The outputs of a whole sequence."""
    with _full_precision(call.q.device.type):
        now = _positions(call, None)
        plan = _plan(now, form)
        return _run_in_spans(call, plan) if _goes_in_spans(call, plan) else _run(now, plan)[0]


def run_on(call: Call, state: State, form: str | None) -> tuple[Tensor, State]:
    """The outputs of the positions after a state, and the state after them."""
    with _full_precision(call.q.device.type):
        now = _positions(call, state)
        # A step, asked for by its form, has no choice.
        plan = _STEP if form == _STEP.form and not traced(call.q) else _plan(now, form)
        output, after = _run(now, plan)
    assert after is not None
    if traced(call.q):
        return output, after
    if call.shape.time == 1:
        enable_quick_steps(call, state, after)
    return output, after.made_for(call.use, None if state.fed is None else state.fed + call.shape.time)


_STEP = Plan("recurrent", "asked for", {})


def _positions(call: Call, state: State | None) -> Positions:
    return Positions.of(call, state, past_of(call.spec.over_time))


def _full_precision(device: str) -> AbstractContextManager[object]:
    """Reduced precision belongs to the caller's matrices; sums over keys are made in float32 at least."""
    on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)  # pyright: ignore
    return torch.autocast(device, enabled=False) if on else nullcontext()


def _goes_in_spans(call: Call, plan: Plan) -> bool:
    """Whether a long input goes through the state span by span: nothing is kept for a backward pass."""
    if plan.form != "chunked" or traced(call.q) or call.segment_ids is not None:
        return False
    return not call.spec.score.needs_wide_state and not call.needs_grad and call.shape.time > _span(call)


def _span(call: Call) -> int:
    shape, score = call.shape, call.spec.polynomial
    assert score is not None
    return span_length(n_features(score, call.spec.width(shape.key_dim)), shape.batch * shape.heads * shape.key_dim)


def _run_in_spans(call: Call, plan: Plan) -> Tensor:
    """The same outputs with temporary tensors of a span's length: these stay in the cache, their memory is reused."""
    shape, state, length = call.shape, call.fresh_state(), _span(call)
    output = call.v.new_empty(*call.q.shape[:3], shape.value_dim, dtype=call.dtype)
    for start in range(0, shape.time, length):
        piece = call.span(slice(start, min(start + length, shape.time)))
        output[:, :, start : start + length], after = _run(_positions(piece, state), plan)
        assert after is not None
        state = after
    return output


def _run(now: Positions, plan: Plan) -> tuple[Tensor, State | None]:
    """The outputs, and the state after them where there was one before."""
    job, buffers = _prologue(now)
    sums, after = now.past.run(written(Work(now, job, buffers, FORMS[plan.form])))
    return _epilogue(now, sums, job.negative).to(now.call.dtype), after


def _plan(now: Positions, form: str | None) -> Plan:
    call, shape, plain = now.call, now.call.shape, now.whole.is_plain
    if traced(call.q):
        check_graph(call.spec, shape.time)
    unread = not plain and not may_sync(call.q)
    pieces = None if plain or now.listed is not None else now.whole.pieces
    situation = Situation(
        batch=hint(shape.batch),
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        queries=hint(shape.time),
        keys=hint(now.keys),
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
        device=call.q.device.type,
        dtype=str(call.q.dtype).removeprefix("torch."),
        half=call.half is not None,
        needs_grad=call.needs_grad,
        has_fixed_past=now.has_fixed_past,
        holes=not plain and not unread and pieces is None,
        unread=unread,
        traced=traced(call.q),
        pairs=None if pieces is None else sum(piece.pairs for piece in pieces),
    )
    if form is None and situation.queries == 1 < situation.keys:
        return choose_for_step(call.spec, situation)
    return choose(call.spec, situation, form)


def _prologue(now: Positions) -> tuple[Contraction, Buffers]:
    """Features, gated values, decay, behind the keys of a growing state; and the memory that holds them."""
    call, spec, shape = now.call, now.call.spec, now.call.shape
    q, k = prologue.features(spec, call.q, call.k, call.tensors, now.places)
    k = now.past.keys(call, k)
    v = prologue.values(spec, call.v, call.tensors, now.lengths, shape.heads)
    decay, bonus = _decay(now)
    heads = shape.heads if spec.differs_by_head else shape.kv_heads
    k, v = (x.repeat_interleave(heads // x.shape[1], dim=1) if x.shape[1] < heads else x for x in (k, v))
    buffers: Buffers = (None, None)
    if now.listed is not None:
        k, v, buffers = now.listed.append(k, v, call.kept)
        if decay is not None and now.listed.decay is not None:
            decay = decay.after(now.listed.decay)
    negative = None
    if spec.wants_row_sum and can_be_negative(spec):
        size = (shape.batch * heads, shape.heads // heads, shape.time)
        negative = NegativeRows(torch.zeros(size, dtype=torch.bool, device=q.device))
    q = q.unflatten(1, (heads, -1))
    job = Contraction(
        spec.score, q, k, v, decay, now.whole, spec.wants_row_sum, negative=negative, bonus=bonus, half=call.half
    )
    return now.past.prepared(job, now), buffers


def _decay(now: Positions) -> tuple[RunningDecay | ChannelDecay | None, Tensor | None]:
    """The decay of the new positions, and what multiplies a query's own key in its place."""
    call, part = now.call, now.call.spec.forget_gate
    if part is None:
        return None, None
    log_decay, bonus = part.log_decay(call.tensors, call.k, call.shape.heads), part.bonus_weight(call.tensors)
    if part.by_channel:
        return ChannelDecay.of(log_decay, now.new.key_mask, part.reads_before_decay), bonus
    return RunningDecay.of(log_decay, now.new.key_mask), bonus


def _epilogue(now: Positions, sums: Sums, negative: NegativeRows | None) -> Tensor:
    call = now.call

    def by_head(x: Tensor | None) -> Any:
        return None if x is None else x.flatten(1, 2)

    wide = Sums(by_head(sums.numerator), by_head(sums.row_sum), by_head(sums.log_scale), sums.normalised)
    rows = Rows(
        call.spec,
        wide.row_sum,
        now.lengths,
        call.tensors,
        call.q,
        call.v,
        now.running,
        call.nonpositive,
        None if negative is None else negative.count(now.new.key_mask),
        real=now.new.key_mask,
    )
    return epilogue(wide, rows).to(call.q.dtype)
