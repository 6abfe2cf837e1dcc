"""How a call runs: prologue, the planned form, epilogue, and the state after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention import pointwise
from softmax_rnn.attention.algebra import can_be_negative, fixed_state_score, needs_wide_state
from softmax_rnn.attention.arguments import Shape
from softmax_rnn.attention.call import Call
from softmax_rnn.attention.contraction import Contraction, NegativeRows, Sums, fit_polynomial, largest_norm, widen
from softmax_rnn.attention.forms.blockwise import blockwise
from softmax_rnn.attention.forms.chunked import chunked
from softmax_rnn.attention.forms.fused import fused
from softmax_rnn.attention.forms.parallel import parallel
from softmax_rnn.attention.forms.recurrent import recurrent_features, recurrent_rows
from softmax_rnn.attention.parts import CumulativeGate, Polynomial
from softmax_rnn.attention.plan import Plan, Situation, choose
from softmax_rnn.attention.pointwise import Rows
from softmax_rnn.attention.ranges import series
from softmax_rnn.attention.ranges.bounds import Bounds, running_bounds
from softmax_rnn.attention.ranges.kinds import ExpOnRange
from softmax_rnn.attention.state import FixedState, GrowingState, State, init_state
from softmax_rnn.attention.visibility import Visibility, pieces, visibility

SUMS_FROM_KEYS = {"parallel": parallel, "fused": fused, "blockwise": blockwise, "recurrent": recurrent_rows}
SUMS_FROM_STATE = {"chunked": chunked, "recurrent": recurrent_features}
UNKNOWN = torch.zeros(0, dtype=torch.int64)
SPAN = 2048
"""Positions that a long forward pass works on at once."""


def run(call: Call, state: State | None, form: str | None, keep_state: bool) -> tuple[Tensor, State | None]:
    """Prologue, plan, contraction, epilogue; the outputs, and the state after them where it is asked for."""
    # Reduced precision belongs to the caller's matrices; sums over keys are made in float32 at least.
    with torch.autocast(call.q.device.type, enabled=False):
        now = _Positions.of(call, state)
        job = _prologue(call, state, now)
        plan = _plan(call, job, state, form)
        sums, after = _contract(call, job, state, plan, keep_state)
        output = _epilogue(call, sums, now, job.negative)
    if keep_state:
        assert after is not None
        after = replace(after, lengths=now.lengths[:, -1].long(), gate_mass=_last(now.gate_mass))
    return output.to(call.dtype), after


def can_run_in_spans(call: Call, form: str | None) -> bool:
    """Whether a long input can go through the state span by span: finite features, nothing kept for a backward."""
    score = fixed_state_score(call.spec, call.shape.key_dim)
    if score is None or needs_wide_state(call.spec.score) or call.segment_ids is not None or call.needs_grad:
        return False
    if call.shape.time <= SPAN:
        return False
    shape = call.shape
    sizes = (shape.batch, shape.heads, shape.kv_heads, shape.time, shape.time, shape.key_dim, shape.value_dim)
    return choose(call.spec, Situation(*sizes), form).form == "chunked"


def run_in_spans(call: Call) -> Tensor:
    """The same outputs with temporary tensors of a span's length: these stay in the cache, their memory is reused."""
    state: State = init_state(
        call.spec,
        batch=call.shape.batch,
        heads=call.shape.heads,
        kv_heads=call.shape.kv_heads,
        key_dim=call.shape.key_dim,
        value_dim=call.shape.value_dim,
        dtype=call.q.dtype,
        device=call.q.device,
    )
    output = call.v.new_empty(*call.q.shape[:3], call.shape.value_dim, dtype=call.dtype)
    for start in range(0, call.shape.time, SPAN):
        piece = call.span(slice(start, min(start + SPAN, call.shape.time)))
        output[:, :, start : start + SPAN], after = run(piece, state, "chunked", keep_state=True)
        assert after is not None
        state = after
    return output


def _last(x: Tensor | None) -> Tensor | None:
    return None if x is None else x[..., -1]


@dataclass(frozen=True)
class _Positions:
    """What the new positions know of the whole: whom they see, how many, the mass of the cumulative gate."""

    seen: Visibility
    lengths: Float[Tensor, "B T"]
    gate_mass: Float[Tensor, "B H T"] | None

    @classmethod
    def of(cls, call: Call, state: State | None) -> _Positions:
        seen = visibility(call.key_mask, call.segment_ids)
        lengths = seen.lengths(call.shape.batch, call.shape.time, call.q.device)
        if state is not None:
            lengths = lengths + state.lengths[:, None]
        mass = None
        if isinstance(call.spec.normaliser, CumulativeGate):
            assert call.extras.output_gate is not None
            before = None if state is None else state.gate_mass
            mass = pointwise.gate_mass(call.extras.output_gate, seen.key_mask, seen.first_key, before)
        return cls(seen, lengths.to(call.q.dtype), mass)


def _prologue(call: Call, state: State | None, now: _Positions) -> Contraction:
    """Features, gated values, decay; in front of them the keys of a growing state."""
    spec, shape = call.spec, call.shape
    k, v = call.k, call.v
    if now.seen.key_mask is not None:
        # What stands at padding may be anything, NaN included.
        padding = ~now.seen.key_mask[:, None, :, None]
        k, v = k.masked_fill(padding, 0), v.masked_fill(padding, 0)
    q, k = pointwise.features(spec, call.q, k)
    v = pointwise.values(spec, v, call.extras, now.lengths, shape.heads)
    decay = None
    if call.extras.forget_gate is not None:
        decay = pointwise.running_decay(call.extras.forget_gate, now.seen.key_mask)
    heads = shape.heads if pointwise.keys_differ_by_head(spec) else shape.kv_heads
    k, v = (x.repeat_interleave(heads // x.shape[1], dim=1) if x.shape[1] < heads else x for x in (k, v))
    seen, rooms = now.seen, (None, None)
    if isinstance(state, GrowingState) and state.time:
        seen = replace(seen, key_mask=_join_masks(state, seen.key_mask, shape))
        k, v, rooms = state.append(k, v)
        if decay is not None and state.decay is not None:
            decay = torch.cat([state.decay, decay + state.decay[..., -1:]], 2)
    negative = None
    if spec.wants_row_sum and can_be_negative(spec):
        shared = shape.heads // heads
        rows = torch.zeros(shape.batch * heads, shared, shape.time, dtype=torch.bool, device=q.device)
        negative = NegativeRows(rows)
    return Contraction(
        spec.score, q.unflatten(1, (heads, -1)), k, v, decay, seen, spec.wants_row_sum, negative=negative, rooms=rooms
    )


def _join_masks(state: GrowingState, key_mask: Tensor | None, shape: Shape) -> Tensor | None:
    if state.key_mask is None and key_mask is None:
        return None
    sizes = ((state.key_mask, state.time), (key_mask, shape.time))
    device = state.keys.device
    masks = [torch.ones(shape.batch, n, dtype=torch.bool, device=device) if m is None else m for m, n in sizes]
    return torch.cat(masks, 1)


def _plan(call: Call, job: Contraction, state: State | None, form: str | None) -> Plan:
    shape = call.shape
    plain = job.seen.is_plain
    found = None if plain else pieces(job.seen, shape.batch, job.k.shape[2]) if job.past == 0 else None
    pairs = None
    if found is not None:
        sizes = [(p.queries.stop - p.queries.start, p.keys.stop - p.keys.start, p.causal) for p in found]
        pairs = sum(queries * keys // (1 + causal) for queries, keys, causal in sizes)
    situation = Situation(
        batch=shape.batch,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        queries=shape.time,
        keys=job.k.shape[2],
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
        needs_grad=call.needs_grad,
        has_fixed_past=isinstance(state, FixedState) and bool((state.lengths > 0).any()),
        holes=not plain and found is None,
        pairs=pairs,
    )
    return choose(call.spec, situation, form)


def _contract(
    call: Call, job: Contraction, state: State | None, plan: Plan, keep_state: bool
) -> tuple[Sums, State | None]:
    """Run the form; the state after it lacks what only `_Positions` knows."""
    score = fixed_state_score(call.spec, call.shape.key_dim)
    bounds = None
    if isinstance(job.score, ExpOnRange):
        before = state.extent if isinstance(state, FixedState) else None
        bounds = running_bounds(job.score.range, job.q, job.k, job.seen, before)
    if score is None:
        sums = SUMS_FROM_KEYS[plan.form](_fit(job, bounds, largest_norm(job.k), sees_keys=True))
        if not keep_state:
            return sums, None
        return sums, GrowingState(UNKNOWN, None, job.k, job.v, job.decay, job.seen.key_mask, *job.rooms)
    key_norm = largest_norm(job.k)
    matrix = None
    if isinstance(state, FixedState):
        key_norm = torch.maximum(key_norm, state.key_norm.to(key_norm.dtype))
        matrix = state.matrix
    through_state = SUMS_FROM_STATE.get(plan.form)
    if needs_wide_state(job.score) and (keep_state or through_state):
        job = widen(job)
    if through_state:
        sums, matrix = through_state(_fit(job, bounds, key_norm, sees_keys=False), matrix)
    else:
        sums = SUMS_FROM_KEYS[plan.form](_fit(job, bounds, key_norm, sees_keys=True))
        matrix = chunked(_fit(job, bounds, key_norm, sees_keys=False))[1] if keep_state else None
    extent = None if bounds is None else bounds.extent
    return sums, FixedState(UNKNOWN, None, matrix, key_norm, extent) if matrix is not None else None


def _fit(job: Contraction, bounds: Bounds | None, key_norm: Tensor, sees_keys: bool) -> Contraction:
    """The contraction with weights inside the number range, each row reduced by its own log_scale where needed."""
    if bounds is not None:
        return series.for_keys(job, bounds) if sees_keys else series.for_state(job, bounds)
    return fit_polynomial(job, key_norm, sees_keys) if isinstance(job.score, Polynomial) else job


def _epilogue(call: Call, sums: Sums, now: _Positions, negative: NegativeRows | None) -> Tensor:
    dtype = call.q.dtype

    def by_head(x: Tensor | None) -> Any:
        return None if x is None else x.flatten(1, 2)

    wide = Sums(by_head(sums.numerator), by_head(sums.row_sum), by_head(sums.log_scale), sums.normalised)
    rows = Rows(
        call.spec,
        wide.row_sum,
        now.lengths,
        now.gate_mass,
        call.extras,
        call.nonpositive,
        0 if negative is None else negative.count(now.seen.key_mask),
        real=now.seen.key_mask,
    )
    return pointwise.epilogue(wide, rows, call.extras.output_gate).to(dtype)
