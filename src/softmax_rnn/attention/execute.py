"""How a call runs: plan, prologue, the form, epilogue, and the state after it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softmax_rnn.attention import prologue
from softmax_rnn.attention.algebra import can_be_negative, fixed_state_score
from softmax_rnn.attention.call import Call
from softmax_rnn.attention.channel_decay import ChannelDecay
from softmax_rnn.attention.chunk_ends import ends_and_own
from softmax_rnn.attention.contraction import Contraction, NegativeRows, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.epilogue import Rows, epilogue
from softmax_rnn.attention.fitting import KeySummary
from softmax_rnn.attention.forms import Form
from softmax_rnn.attention.host_sync import hint, may_sync, traced
from softmax_rnn.attention.kept_keys import through_kept_keys
from softmax_rnn.attention.kept_weights import all_weights
from softmax_rnn.attention.levels import LevelSums, LevelWeights, positions
from softmax_rnn.attention.near_far import near_and_far
from softmax_rnn.attention.parts import ChunkEnds, Forgetting, KeptKeys, Levels, NearFar, NearKeys
from softmax_rnn.attention.parts.base import Along
from softmax_rnn.attention.plan import FORMS, Plan, Situation, choose, choose_for_step
from softmax_rnn.attention.quick_step import enable_quick_steps
from softmax_rnn.attention.state import (
    FixedState,
    GrowingState,
    KeptState,
    LevelState,
    NearFarState,
    State,
    init_state,
)
from softmax_rnn.attention.visibility import Visibility, visibility
from softmax_rnn.attention.write import written

SPAN = 2048
"""Positions that a long forward pass works on at once."""


def run(call: Call, form: str | None) -> Tensor:
    """The outputs of a whole sequence."""
    now = _Positions.of(call, None)
    plan = _plan(call, now, None, form)
    if _goes_in_spans(call, plan):
        return _run_in_spans(call, plan)
    return _run(call, now, None, plan, keep_state=False)[0]


def run_on(call: Call, state: State, form: str | None) -> tuple[Tensor, State]:
    """The outputs of the positions after a state, and the state after them."""
    now = _Positions.of(call, state)
    # A step, asked for by its form, has no choice.
    plan = _STEP if form == _STEP.form and not traced(call.q) else _plan(call, now, state, form)
    output, after = _run(call, now, state, plan, keep_state=True)
    assert after is not None
    if traced(call.q):
        return output, after
    if call.shape.time == 1:
        enable_quick_steps(call, state, after)
    return output, after.made_for(call.use, None if state.fed is None else state.fed + call.shape.time)


_STEP = Plan("recurrent", "asked for", {})


def full_precision(device: str) -> AbstractContextManager[object]:
    """Autocast off, where it is on."""
    on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)  # pyright: ignore
    return torch.autocast(device, enabled=False) if on else nullcontext()


def _goes_in_spans(call: Call, plan: Plan) -> bool:
    """Whether a long input goes through the state span by span: nothing is kept for a backward pass."""
    if plan.form != "chunked" or traced(call.q) or call.shape.time <= SPAN:
        return False
    return call.segment_ids is None and not call.spec.score.needs_wide_state and not call.needs_grad


def _run_in_spans(call: Call, plan: Plan) -> Tensor:
    """The same outputs with temporary tensors of a span's length: these stay in the cache, their memory is reused."""
    shape, state = call.shape, _fresh(call)
    output = call.v.new_empty(*call.q.shape[:3], shape.value_dim, dtype=call.dtype)
    for start in range(0, shape.time, SPAN):
        piece = call.span(slice(start, min(start + SPAN, shape.time)))
        now = _Positions.of(piece, state)
        output[:, :, start : start + SPAN], after = _run(piece, now, state, plan, keep_state=True)
        assert after is not None
        state = after
    return output


def _fresh(call: Call) -> State:
    """The state before the first position."""
    shape = call.shape
    return init_state(
        call.spec,
        batch=shape.batch,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
        dtype=call.q.dtype,
        device=call.q.device,
    )


def _run_kept(
    call: Call, job: Contraction, now: _Positions, structure: KeptKeys, state: State, plan: Plan, keep_state: bool
) -> tuple[Tensor, State | None]:
    """The same where what a query sees depends on the weights of earlier ones."""
    assert isinstance(state, KeptState)
    if plan.form == "parallel":
        sums, after = all_weights(job, structure, state if keep_state else None)
    else:
        sums, after = through_kept_keys(job, structure, now.new.key_mask, state)
    output = _epilogue(call, sums, now, job.negative).to(call.dtype)
    if not keep_state or after is None:
        return output, None
    places = {"keys": call.kept(after.keys), "values": call.kept(after.values)}
    return output, replace(after, lengths=now.counts[:, -1], running=now.last, **places)


def _run(call: Call, now: _Positions, state: State | None, plan: Plan, keep_state: bool) -> tuple[Tensor, State | None]:
    """Prologue, contraction, epilogue; the outputs, and the state after them where it is asked for."""
    # Reduced precision belongs to the caller's matrices; sums over keys are made in float32 at least.
    with full_precision(call.q.device.type):
        job, buffers = _prologue(call, state, now)
        if isinstance(call.spec.structure, KeptKeys):
            before = state if isinstance(state, KeptState) else _fresh(call)
            return _run_kept(call, job, now, call.spec.structure, before, plan, keep_state)
        form, has_fixed_state = FORMS[plan.form], fixed_state_score(call.spec, call.shape.key_dim) is not None
        if call.spec.write_rule is not None:
            past = state if isinstance(state, FixedState) else None
            job = written(call.spec, job, call.tensors, now.new.key_mask, past, form, has_fixed_state)
        done = _contracted(call, now, state, job, form, has_fixed_state, keep_state)
        output = _epilogue(call, done.sums, now, job.negative).to(call.dtype)
        return output, _state_after(call, now, job, buffers, done) if keep_state else None


@dataclass(frozen=True)
class _Contracted:
    """The sums, and what a state needs to go on with."""

    sums: Sums
    matrix: Any
    """Of a fixed state, a stack of them with levels; None where keys are kept."""
    summary: KeySummary
    ends: tuple[Any, ...] | None = None
    """What is kept of the ends of chunks."""
    key_sum: Tensor | None = None
    """Of far keys, where they are expanded at their mean."""


def _contracted(
    call: Call,
    now: _Positions,
    state: State | None,
    job: Contraction,
    form: Form,
    has_fixed_state: bool,
    keep_state: bool,
) -> _Contracted:
    """The contraction, as the structure has it."""
    structure = call.spec.structure
    if isinstance(structure, NearFar):
        past = state if isinstance(state, NearFarState) else None
        sums, far = near_and_far(call, job, now.counts, past, form, keep_state)
        return _Contracted(sums, far.matrix, far.summary, key_sum=far.key_sum)
    if isinstance(structure, ChunkEnds):
        at = positions(now.new, now.counts)
        return _Contracted(*ends_and_own(job, structure, at, state, form, has_fixed_state, keep_state))
    before, matrix = KeySummary(), None
    if isinstance(state, (FixedState, LevelState)):
        before = KeySummary(state.key_norm, state.extent)
        matrix = state.stack if isinstance(state, LevelState) else state.matrix
    fitted = call.spec.score.fit(job, before, has_fixed_state)
    return _Contracted(*form.run(fitted, matrix, keep_state), fitted.summary)


def _state_after(call: Call, now: _Positions, job: Contraction, buffers: tuple[Any, Any], done: _Contracted) -> State:
    lengths, running = now.counts[:, -1], now.last
    known = (done.summary.key_norm, done.summary.extent)
    structure, matrix = call.spec.structure, done.matrix
    if isinstance(matrix, LevelSums):
        return LevelState(lengths, running, matrix, *known)
    if done.ends is not None:
        return GrowingState(lengths, running, *done.ends)
    if matrix is not None and not isinstance(structure, NearKeys):
        return FixedState(lengths, running, matrix, *known)
    decay = None if job.decay is None else job.decay.memory
    stand = zip((job.k, job.v), buffers, strict=True)
    k, v = (call.kept(x) if b is None else b.memory[:, :, : x.shape[2]] for x, b in stand)
    kept = (lengths, running, k, v, decay, job.visibility.key_mask, *buffers)
    after = GrowingState(*kept) if matrix is None else NearFarState(*kept, matrix, *known, done.key_sum)
    return after.trimmed(structure) if isinstance(structure, NearKeys) else after


@dataclass(frozen=True)
class _Positions:
    """What the new positions know of the whole: which keys they see, how many, what parts carry along time."""

    new: Visibility
    """Among the new positions."""
    whole: Visibility
    """With the keys of a growing state in front of them."""
    keys: int
    """How many keys these are."""
    counts: Int[Tensor, "B T"]
    """How many keys of the segment there are up to each position."""
    lengths: Float[Tensor, "B T"]
    """How many of them it sees."""
    running: dict[str, Float[Tensor, "B H T *more"]]

    @property
    def last(self) -> dict[str, Tensor]:
        """What parts carry after the last position."""
        return {slot: x[:, :, -1] for slot, x in self.running.items()}

    @classmethod
    def of(cls, call: Call, state: State | None) -> _Positions:
        new = whole = visibility(call.key_mask, call.segment_ids)
        keys = call.shape.time
        past = None if state is None else state.lengths
        counts = new.lengths(call.shape.batch, keys, call.q.device, past)
        if isinstance(state, GrowingState) and state.time and not isinstance(call.spec.structure, ChunkEnds):
            whole = replace(new, key_mask=_join_masks(state, new.key_mask, call))
            keys += state.time
        structure, seen = call.spec.structure, counts
        if structure is not None:
            seen = structure.seen(counts, new.key_mask)
        if isinstance(structure, NearKeys):
            whole = whole.within(structure.width, structure.sinks, call.shape.batch, keys, call.q.device)
        seen = seen.to(call.q.dtype)
        along = Along(call.spec, call.k, call.v, call.tensors, new, seen)
        with full_precision(call.q.device.type):
            running = prologue.running(along, {} if state is None else state.running)
        return cls(new, whole, keys, counts, seen, running)


def _join_masks(state: GrowingState, key_mask: Tensor | None, call: Call) -> Tensor | None:
    if state.key_mask is None and key_mask is None:
        return None
    batch, device = call.shape.batch, call.q.device
    sizes = ((state.key_mask, state.time), (key_mask, call.shape.time))
    masks = [torch.ones(batch, n, dtype=torch.bool, device=device) if m is None else m for m, n in sizes]
    return torch.cat(masks, 1)


def _plan(call: Call, now: _Positions, state: State | None, form: str | None) -> Plan:
    shape, plain = call.shape, now.whole.is_plain
    unread = not plain and not may_sync(call.q)
    pieces = None if plain or now.keys > shape.time else now.whole.pieces
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
        has_fixed_past=_has_fixed_past(call, state),
        holes=not plain and not unread and pieces is None,
        unread=unread,
        traced=traced(call.q),
        pairs=None if pieces is None else sum(piece.pairs for piece in pieces),
    )
    if form is None and situation.queries == 1 < situation.keys:
        return choose_for_step(call.spec, situation)
    return choose(call.spec, situation, form)


def _has_fixed_past(call: Call, state: State | None) -> bool:
    """Whether keys may have been summed up."""
    # One position goes through the state anyway: whether it is empty need not be known.
    if not isinstance(state, (FixedState, LevelState, NearFarState, KeptState)):
        return False
    if state.fresh and call.shape.time > 1:
        return False
    if not may_sync(state.lengths) or (not isinstance(state, NearFarState) and call.shape.time == 1):
        return True
    structure = call.spec.structure
    whole = structure.near if isinstance(state, NearFarState) and isinstance(structure, NearKeys) else 0
    return bool((state.lengths > whole).any())


def _prologue(call: Call, state: State | None, now: _Positions) -> tuple[Contraction, tuple[Any, Any]]:
    """Features, gated values, decay, behind the keys of a growing state; and the memory that holds them."""
    spec, shape = call.spec, call.shape
    places = now.lengths if spec.structure is None else now.counts.to(call.q.dtype)
    q, k = prologue.features(spec, call.q, call.k, call.tensors, places)
    v = prologue.values(spec, call.v, call.tensors, now.lengths, shape.heads)
    if isinstance(spec.structure, NearFar) and spec.feature_map is not None:
        k = torch.cat([call.k, k], dim=-1)
    decay = None
    if spec.forget_gate is not None:
        decay = _decay(spec.forget_gate, spec.forget_gate.log_decay(call.tensors, call.k, shape.heads), now.new)
    heads = shape.heads if spec.differs_by_head else shape.kv_heads
    k, v = (x.repeat_interleave(heads // x.shape[1], dim=1) if x.shape[1] < heads else x for x in (k, v))
    buffers = (None, None)
    if isinstance(state, GrowingState) and state.time and not isinstance(spec.structure, ChunkEnds):
        k, v, buffers = state.append(k, v, call.kept)
        if decay is not None and state.decay is not None:
            decay = decay.after(state.decay)
    negative = None
    if spec.wants_row_sum and can_be_negative(spec):
        size = (shape.batch * heads, shape.heads // heads, shape.time)
        negative = NegativeRows(torch.zeros(size, dtype=torch.bool, device=q.device))
    grouped = q.unflatten(1, (heads, -1))
    bonus = None if spec.forget_gate is None else spec.forget_gate.bonus_weight(call.tensors)
    job = Contraction(
        spec.score, grouped, k, v, decay, now.whole, spec.wants_row_sum, negative=negative, bonus=bonus, half=call.half
    )
    if isinstance(spec.structure, Levels):
        counts = now.counts if now.keys == shape.time else now.whole.lengths(shape.batch, now.keys, q.device)
        weights = spec.structure.weights(call.tensors).unflatten(1, (heads, -1))
        goes_on = isinstance(state, LevelState) and (not state.fresh or shape.time == 1)
        counted = now.whole.is_plain and not goes_on
        job = replace(job, levels=LevelWeights(weights, positions(now.whole, counts), counted))
    return job, buffers


def _decay(part: Forgetting, log_decay: Tensor, seen: Visibility) -> RunningDecay | ChannelDecay:
    if part.by_channel:
        return ChannelDecay.of(log_decay, seen.key_mask, part.reads_before_decay)
    return RunningDecay.of(log_decay, seen.key_mask)


def _epilogue(call: Call, sums: Sums, now: _Positions, negative: NegativeRows | None) -> Tensor:
    dtype = call.q.dtype

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
    return epilogue(wide, rows).to(dtype)
