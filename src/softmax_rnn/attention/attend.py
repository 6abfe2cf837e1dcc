"""Attention as functions: the whole sequence, a piece that continues a state, one step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention import pointwise
from softmax_rnn.attention.algebra import can_be_negative, fixed_state_score, needs_wide_state
from softmax_rnn.attention.arguments import (
    Shape,
    check_extras,
    check_key_mask,
    check_nonpositive,
    check_qkv,
    check_segment_ids,
)
from softmax_rnn.attention.contraction import Contraction, NegativeRows, Sums, fit_polynomial, largest_norm, widen
from softmax_rnn.attention.forms.blockwise import blockwise
from softmax_rnn.attention.forms.chunked import chunked
from softmax_rnn.attention.forms.fused import fused
from softmax_rnn.attention.forms.parallel import parallel
from softmax_rnn.attention.forms.recurrent import recurrent_features, recurrent_rows
from softmax_rnn.attention.plan import Plan, Situation, choose
from softmax_rnn.attention.pointwise import Extras, OnNonPositive, Rows
from softmax_rnn.attention.spec import AttentionSpec, CumulativeGate, EluPlusOne, Polynomial, RowSum
from softmax_rnn.attention.state import FixedState, GrowingState, State, init_state
from softmax_rnn.attention.visibility import Visibility, pieces, visibility
from softmax_rnn.errors import InputError

SUMS_FROM_KEYS = {"parallel": parallel, "fused": fused, "blockwise": blockwise, "recurrent": recurrent_rows}
SUMS_FROM_STATE = {"chunked": chunked, "recurrent": recurrent_features}
UNKNOWN = torch.zeros(0, dtype=torch.int64)
SPAN = 2048
"""Positions that a long forward pass works on at once."""


def attend(
    spec: AttentionSpec,
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv T D"],
    v: Float[Tensor, "B Hkv T E"],
    *,
    input_gate: Float[Tensor, "B H T"] | None = None,
    output_gate: Float[Tensor, "B H T"] | None = None,
    forget_gate: Float[Tensor, "B H T"] | None = None,
    norm_weight: Float[Tensor, " E"] | None = None,
    norm_bias: Float[Tensor, " E"] | None = None,
    length_exponent: Float[Tensor, " H"] | None = None,
    key_mask: Bool[Tensor, "B T"] | None = None,
    segment_ids: Int[Tensor, "B T"] | None = None,
    form: str | None = None,
    nonpositive: str = "warn",
) -> Float[Tensor, "B H T E"]:
    """Causal attention: o_i = epilogue( Σ_{j≤i} f(φ(q_i)·φ(k_j)) · decay(i, j) · u_j ).

    ``input_gate`` and ``output_gate`` are the values g of the formulas, after the sigmoid (the raw projection
    for a cumulative gate); ``forget_gate`` the log decay of each step; ``length_exponent`` the parameter c of
    n^σ(c), before the sigmoid. ``key_mask`` is True for real positions; positions see only keys of their own
    segment. ``form`` forces a form, ``nonpositive="error"`` raises where a row sum is not positive.

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> q = k = v = torch.ones(1, 2, 5, 4)
    >>> attend(VARIANTS["softmax"], q, k, v).shape
    torch.Size([1, 2, 5, 4])
    """
    given = {
        "input_gate": input_gate,
        "output_gate": output_gate,
        "forget_gate": forget_gate,
        "norm_weight": norm_weight,
        "norm_bias": norm_bias,
        "length_exponent": length_exponent,
    }
    call = _check(spec, q, k, v, given, key_mask, segment_ids, nonpositive)
    if _can_run_in_spans(call, form):
        return _run_in_spans(call)
    output, _ = _run(call, None, form, keep_state=False)
    return output


def extend(
    spec: AttentionSpec,
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv T D"],
    v: Float[Tensor, "B Hkv T E"],
    state: State,
    *,
    key_mask: Bool[Tensor, "B T"] | None = None,
    form: str | None = None,
    nonpositive: str = "warn",
    **tensors: Tensor | None,
) -> tuple[Float[Tensor, "B H T E"], State]:
    """`attend` for the next T positions after a state: their outputs, and the state after them.

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> spec, (q, k, v) = VARIANTS["taylor_2"], torch.randn(3, 1, 2, 6, 4)
    >>> first, state = extend(spec, q[:, :, :4], k[:, :, :4], v[:, :, :4],
    ...                       init_state(spec, batch=1, heads=2, key_dim=4))
    >>> rest, state = extend(spec, q[:, :, 4:], k[:, :, 4:], v[:, :, 4:], state)
    >>> torch.allclose(torch.cat([first, rest], 2), attend(spec, q, k, v), atol=1e-5)
    True
    """
    unknown = set(tensors) - set(Extras.__dataclass_fields__)
    if unknown:
        raise InputError(f"{unknown.pop()}: extend() takes no such argument")
    call = _check(spec, q, k, v, tensors, key_mask, None, nonpositive)
    _check_state(call, state)
    output, after = _run(call, state, form, keep_state=True)
    assert after is not None
    return output, after


def step(
    spec: AttentionSpec,
    q_t: Float[Tensor, "B H D"],
    k_t: Float[Tensor, "B Hkv D"],
    v_t: Float[Tensor, "B Hkv E"],
    state: State,
    *,
    key_mask: Bool[Tensor, " B"] | None = None,
    nonpositive: str = "warn",
    **tensors: Tensor | None,
) -> tuple[Float[Tensor, "B H E"], State]:
    """One position in the recurrent form; gates have the shape (B, H).

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> spec = VARIANTS["linear_elu"]
    >>> state = init_state(spec, batch=1, heads=2, key_dim=4)
    >>> out, state = step(spec, *torch.randn(3, 1, 2, 4), state)
    >>> out.shape
    torch.Size([1, 2, 4])
    """
    for name, x in (("q_t", q_t), ("k_t", k_t), ("v_t", v_t)):
        if not isinstance(x, Tensor) or x.dim() != 3:
            came = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise InputError(f"{name}: expected 3 axes (batch, heads, dim), got {came}")
    timed = {"input_gate", "output_gate", "forget_gate"}
    widened = {name: x.unsqueeze(-1) if name in timed and isinstance(x, Tensor) else x for name, x in tensors.items()}
    output, state = extend(
        spec,
        q_t.unsqueeze(2),
        k_t.unsqueeze(2),
        v_t.unsqueeze(2),
        state,
        key_mask=None if key_mask is None else key_mask.unsqueeze(-1),
        form="recurrent",
        nonpositive=nonpositive,
        **widened,
    )
    return output[:, :, 0], state


@dataclass(frozen=True)
class _Call:
    """A checked call: tensors in the dtype of the computation."""

    spec: AttentionSpec
    shape: Shape
    q: Tensor
    k: Tensor
    v: Tensor
    extras: Extras
    key_mask: Tensor | None
    segment_ids: Tensor | None
    nonpositive: OnNonPositive
    dtype: torch.dtype

    @property
    def needs_grad(self) -> bool:
        """Whether a backward pass may follow."""
        tensors = (self.q, self.k, self.v, *vars(self.extras).values())
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)

    def span(self, place: slice) -> _Call:
        """The call for some of the positions."""
        return replace(
            self,
            shape=replace(self.shape, time=place.stop - place.start),
            q=self.q[:, :, place],
            k=self.k[:, :, place],
            v=self.v[:, :, place],
            extras=self.extras.span(place),
            key_mask=None if self.key_mask is None else self.key_mask[:, place],
        )


def _check(
    spec: AttentionSpec,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    given: dict[str, Tensor | None],
    key_mask: Tensor | None,
    segment_ids: Tensor | None,
    nonpositive: str,
) -> _Call:
    if not isinstance(spec, AttentionSpec):
        raise InputError(f"spec: expected an AttentionSpec, such as VARIANTS[name], got {type(spec).__name__}")
    shape = check_qkv(q, k, v)
    check_key_mask(key_mask, shape, q.device)
    check_segment_ids(segment_ids, shape, q.device)
    wide = _working_dtype(spec, q, k)
    like = torch.empty(0, dtype=wide, device=q.device)
    extras = check_extras(spec, shape, like, given)
    if key_mask is not None:
        q, extras = _clean_padding(key_mask, q, extras)
    return _Call(
        spec,
        shape,
        q.to(wide),
        k.to(wide),
        v.to(wide),
        extras,
        key_mask,
        segment_ids,
        check_nonpositive(nonpositive),
        q.dtype,
    )


LOWEST_ELU = -30.0


def _working_dtype(spec: AttentionSpec, q: Tensor, k: Tensor) -> torch.dtype:
    """float32 or wider; float64 where the product of two features exp(x) would leave float32."""
    if q.dtype == torch.float64:
        return torch.float64
    if isinstance(spec.feature_map, EluPlusOne) and min(float(q.detach().min()), float(k.detach().min())) < LOWEST_ELU:
        return torch.float64
    return torch.float32


def _clean_padding(key_mask: Tensor, q: Tensor, extras: Extras) -> tuple[Tensor, Extras]:
    """What stands at padding may be anything: 0 in place of numbers that are not finite, which would spread."""
    padding = ~key_mask[:, None]

    def clean(x: Tensor) -> Tensor:
        where = padding if x.dim() == padding.dim() else padding[..., None]
        return x.masked_fill(where & ~x.isfinite(), 0)

    timed = {"input_gate": extras.input_gate, "output_gate": extras.output_gate, "forget_gate": extras.forget_gate}
    return clean(q), replace(extras, **{name: clean(x) for name, x in timed.items() if x is not None})


def _check_state(call: _Call, state: State) -> None:
    kind, expected = _expected_state(call.spec, call.shape)
    if type(state) is not kind:
        came = type(state).__name__
        raise InputError(f"state: this spec has a {kind.__name__}, got a {came}; make it with init_state")
    for name, size in expected.items():
        came = state.tensors.get(name)
        if came is None or _without_time(tuple(came.shape), kind) != _without_time(size, kind):
            found = None if came is None else tuple(came.shape)
            raise InputError(f"state: its {name} has shape {found}, the call needs {size}")


@cache
def _expected_state(spec: AttentionSpec, shape: Shape) -> tuple[type[State], dict[str, tuple[int, ...]]]:
    fresh = init_state(
        spec,
        batch=shape.batch,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
        device="meta",
    )
    return type(fresh), {name: tuple(x.shape) for name, x in fresh.tensors.items()}


def _without_time(size: tuple[int, ...], kind: type[State]) -> tuple[int, ...]:
    """The shape, without the axis along which a growing state grows."""
    return size[:2] + size[3:] if kind is GrowingState else size


def _run(call: _Call, state: State | None, form: str | None, keep_state: bool) -> tuple[Tensor, State | None]:
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


def _can_run_in_spans(call: _Call, form: str | None) -> bool:
    """Whether a long input can go through the state span by span: finite features, nothing kept for a backward."""
    score = fixed_state_score(call.spec, call.shape.key_dim)
    if score is None or needs_wide_state(score) or call.segment_ids is not None or call.needs_grad:
        return False
    if call.shape.time <= SPAN:
        return False
    shape = call.shape
    sizes = (shape.batch, shape.heads, shape.kv_heads, shape.time, shape.time, shape.key_dim, shape.value_dim)
    return choose(call.spec, Situation(*sizes), form).form == "chunked"


def _run_in_spans(call: _Call) -> Tensor:
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
        output[:, :, start : start + SPAN], after = _run(piece, state, "chunked", keep_state=True)
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
    def of(cls, call: _Call, state: State | None) -> _Positions:
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


def _prologue(call: _Call, state: State | None, now: _Positions) -> Contraction:
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
    wants_row_sum = isinstance(spec.normaliser, RowSum)
    negative = NegativeRows() if wants_row_sum and can_be_negative(spec) else None
    return Contraction(
        spec.score, q.unflatten(1, (heads, -1)), k, v, decay, seen, wants_row_sum, negative=negative, rooms=rooms
    )


def _join_masks(state: GrowingState, key_mask: Tensor | None, shape: Shape) -> Tensor | None:
    if state.key_mask is None and key_mask is None:
        return None
    sizes = ((state.key_mask, state.time), (key_mask, shape.time))
    device = state.keys.device
    masks = [torch.ones(shape.batch, n, dtype=torch.bool, device=device) if m is None else m for m, n in sizes]
    return torch.cat(masks, 1)


def _plan(call: _Call, job: Contraction, state: State | None, form: str | None) -> Plan:
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
    call: _Call, job: Contraction, state: State | None, plan: Plan, keep_state: bool
) -> tuple[Sums, State | None]:
    """Run the form; the state after it lacks what only `_Positions` knows."""
    if fixed_state_score(call.spec, call.shape.key_dim) is None:
        fitted = fit_polynomial(job, largest_norm(job.k), True) if isinstance(job.score, Polynomial) else job
        sums = SUMS_FROM_KEYS[plan.form](fitted)
        if not keep_state:
            return sums, None
        return sums, GrowingState(UNKNOWN, None, job.k, job.v, job.decay, job.seen.key_mask, *job.rooms)
    key_norm = largest_norm(job.k)
    matrix = None
    if isinstance(state, FixedState):
        key_norm = torch.maximum(key_norm, state.key_norm.to(key_norm.dtype))
        matrix = state.matrix
    score = job.score
    assert isinstance(score, Polynomial)
    through_state = SUMS_FROM_STATE.get(plan.form)
    if needs_wide_state(score) and (keep_state or through_state):
        job = widen(job)
    if through_state:
        sums, matrix = through_state(fit_polynomial(job, key_norm, sees_keys=False), matrix)
    else:
        sums = SUMS_FROM_KEYS[plan.form](fit_polynomial(job, key_norm, sees_keys=True))
        matrix = chunked(fit_polynomial(job, key_norm, sees_keys=False))[1] if keep_state else None
    return sums, FixedState(UNKNOWN, None, matrix, key_norm) if matrix is not None else None


def _epilogue(call: _Call, sums: Sums, now: _Positions, negative: NegativeRows | None) -> Tensor:
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
        0 if negative is None else negative.count,
        real=now.seen.key_mask,
    )
    return pointwise.epilogue(wide, rows, call.extras.output_gate).to(dtype)
