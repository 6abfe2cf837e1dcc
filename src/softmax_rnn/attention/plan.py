"""Which form runs, and why. Every form is exact, so the choice is only about time.

The cost model counts multiplications and passes over weights; its few rates are those of a CPU core pair and
`softmax-rnn bench attention` compares its choice with the form that was measured to be fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from softmax_rnn.attention.algebra import (
    MAX_STATE_DEGREE,
    MAX_STATE_FEATURES,
    fixed_state_score,
    is_positive_row_factor,
    is_scale_invariant,
    n_features,
    needs_wide_state,
)
from softmax_rnn.attention.forms.blocks import BLOCK
from softmax_rnn.attention.forms.chunked import CHUNK_NUMBERS, chunk_length
from softmax_rnn.attention.parts import Exp, Polynomial, RowSum
from softmax_rnn.attention.ranges.kinds import ExpOnRange
from softmax_rnn.attention.scores import DIRECT_TAYLOR_ORDER
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError, unknown_name


@dataclass(frozen=True)
class Situation:
    """What the choice depends on beside the spec."""

    batch: int = 1
    heads: int = 16
    kv_heads: int = 16
    queries: int = 1024
    keys: int = 1024
    key_dim: int = 64
    value_dim: int = 64
    needs_grad: bool = False
    has_fixed_past: bool = False
    """The past is a state of fixed size: its keys are gone."""
    holes: bool = False
    """Padding stands between real keys of a segment."""
    pairs: int | None = None
    """Pairs of a query and a key that it sees, in one head, over the batch; None for the full triangle."""

    @property
    def seen_pairs(self) -> int:
        """Pairs that count."""
        if self.pairs is not None:
            return self.pairs
        past = self.keys - self.queries
        return self.batch * (self.queries * past + self.queries * (self.queries + 1) // 2)


TYPICAL = Situation()


@dataclass(frozen=True)
class Plan:
    """The chosen form, the reason, and why each other form was not taken."""

    form: str
    reason: str
    others: dict[str, str]


@dataclass(frozen=True)
class Form:
    """A way to compute: why it cannot serve (or None), and its time in nanoseconds."""

    refuse: Callable[[AttentionSpec, Situation], str | None]
    cost: Callable[[AttentionSpec, Situation], float]
    praise: str


# Nanoseconds: a multiply-add pair of a matrix product, a pass over one weight, exp of one weight, one operator call.
PRODUCT = 0.016
PASS = 0.08
EXP = 0.7
CALL = 6_000.0
MEMORY_PASS = 0.35
"""A pass over weights that do not fit the cache."""


def _no_keys_left(situation: Situation) -> str | None:
    return "the past is a state of fixed size, its keys are gone" if situation.has_fixed_past else None


def _refuse_needing_keys(spec: AttentionSpec, situation: Situation) -> str | None:
    return _no_keys_left(situation)


def _refuse_fused(spec: AttentionSpec, situation: Situation) -> str | None:
    reasons = {
        "its score is not exp": not isinstance(spec.score, Exp),
        "its exp is clamped": spec.score.clamp is not None,
        "the forget gate would need a T × T bias": spec.forget_gate is not None,
        "neither a plain row sum nor a scale-invariant norm removes the row's factor": not _kernel_normalises(spec),
        "padding stands between real keys": situation.holes,
        "queries that continue a past need a mask": situation.keys > situation.queries > 1,
    }
    said = [reason for reason, holds in reasons.items() if holds]
    return "; ".join(said) or _no_keys_left(situation)


def _kernel_normalises(spec: AttentionSpec) -> bool:
    """Whether softmax(x) v in place of Σ exp(x) v gives the same output."""
    if isinstance(spec.normaliser, RowSum) and spec.normaliser == RowSum():
        return True
    return is_scale_invariant(spec) and (spec.normaliser is None or is_positive_row_factor(spec))


def _refuse_chunked(spec: AttentionSpec, situation: Situation) -> str | None:
    if isinstance(spec.score, Exp):
        return "exp has infinitely many orders, so no finite features"
    if isinstance(spec.score, ExpOnRange) and not spec.score.range.causal_state:
        return "the true range of a row needs all its keys"
    if spec.score.clamp is not None:
        return "a clamped score is no polynomial, so it has no finite features"
    if fixed_state_score(spec, situation.key_dim) is None:
        return f"more than {MAX_STATE_FEATURES:,} features a head, or a degree above {MAX_STATE_DEGREE}"
    return None


def _refuse_recurrent(spec: AttentionSpec, situation: Situation) -> str | None:
    return None


def _weight_passes(spec: AttentionSpec) -> float:
    """Nanoseconds that the score itself takes per weight, forward."""
    score = spec.score
    cost = PASS if score.clamp is not None else 0.0
    cost += (EXP + 2 * PASS) if spec.forget_gate is not None else 0.0
    if isinstance(score, (Polynomial, ExpOnRange)):
        slow = isinstance(score, ExpOnRange) or (score.is_taylor and score.degree > DIRECT_TAYLOR_ORDER)
        return cost + 2 * PASS * score.degree * (2 if slow else 1)
    return cost + EXP + 2 * PASS


def _cost_parallel(spec: AttentionSpec, s: Situation) -> float:
    pairs = s.heads * s.batch * s.queries * s.keys
    products = (s.key_dim + s.value_dim) * PRODUCT * (3 if s.needs_grad else 1)
    passes = _weight_passes(spec) + 8 * MEMORY_PASS
    return 15 * CALL + pairs * (products + passes * (2.5 if s.needs_grad else 1))


def _cost_fused(spec: AttentionSpec, s: Situation) -> float:
    products = (s.key_dim + s.value_dim) * PRODUCT * (3.5 if s.needs_grad else 1)
    calls = 4 * CALL * (s.batch if s.pairs is not None else 1)
    return calls + s.heads * s.seen_pairs * (products + EXP / 2 * (2 if s.needs_grad else 1))


def _cost_blockwise(spec: AttentionSpec, s: Situation) -> float:
    block = min(BLOCK["cpu"], s.keys)
    pairs = s.heads * (s.seen_pairs + s.batch * s.queries * block / 2)  # the diagonal blocks are whole
    products = (s.key_dim + s.value_dim) * PRODUCT * (3.5 if s.needs_grad else 1)
    blocks = ceil(pairs / (block * block * 16)) + 1
    backward = 2.2 if s.needs_grad else 1
    return blocks * 12 * CALL * backward + pairs * (products + (_weight_passes(spec) + 2 * PASS) * backward)


def _cost_chunked(spec: AttentionSpec, s: Situation) -> float:
    score = spec.polynomial
    assert score is not None
    count, width = n_features(score, s.key_dim), s.value_dim + spec.wants_row_sum
    chunk = chunk_length(count)
    state = count * (width * 2 * PRODUCT + 2 * PASS * max(score.degree, 1))
    inside = min(chunk, s.queries) * ((s.key_dim + width) * PRODUCT + _weight_passes(spec))
    tokens = s.batch * s.queries * (s.heads + s.kv_heads) / 2
    chunks = ceil(s.queries / chunk) * max(1.0, s.batch * s.heads * count * chunk / CHUNK_NUMBERS)
    calls = chunks * (16 + 2 * s.key_dim * max(score.degree - 1, 0)) * CALL
    start = s.batch * s.heads * count * width * 3 * MEMORY_PASS  # the state is made, read and written at least once
    wide = 2.5 if needs_wide_state(spec.score) else 1
    return (calls + start + tokens * (state + inside) * wide) * (3.5 if s.needs_grad else 1)


def _cost_recurrent(spec: AttentionSpec, s: Situation) -> float:
    step = s.batch * s.heads
    score = fixed_state_score(spec, s.key_dim)
    if score is not None:
        step *= n_features(score, s.key_dim) * s.value_dim * 2 * MEMORY_PASS
    else:
        step *= s.keys * (s.key_dim + s.value_dim) * MEMORY_PASS / 2
    return s.queries * (30 * CALL + step) * (3 if s.needs_grad else 1)


FORMS: dict[str, Form] = {
    "parallel": Form(_refuse_needing_keys, _cost_parallel, "few positions: one pass over all weights is cheapest"),
    "fused": Form(_refuse_fused, _cost_fused, "the platform's softmax kernel computes this spec exactly"),
    "blockwise": Form(_refuse_needing_keys, _cost_blockwise, "any score in blocks of weights, O(T) memory"),
    "chunked": Form(_refuse_chunked, _cost_chunked, "finite features: a state of fixed size is cheaper than all pairs"),
    "recurrent": Form(_refuse_recurrent, _cost_recurrent, "a step at a time: only the state is read"),
}


def choose(spec: AttentionSpec, situation: Situation = TYPICAL, form: str | None = None) -> Plan:
    """The fastest form that can serve, or the forced one.

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> choose(VARIANTS["softmax"]).form
    'fused'
    """
    refusals = {name: row.refuse(spec, situation) for name, row in FORMS.items()}
    if form is not None:
        if form not in FORMS:
            raise unknown_name("form", form, FORMS)
        if refusals[form] is not None:
            said = "; ".join(f"{name}: {reason or 'can serve'}" for name, reason in refusals.items())
            raise InputError(f"form: {form!r} cannot serve this spec ({refusals[form]}). All forms: {said}")
        return Plan(form, "asked for", {})
    costs = {name: row.cost(spec, situation) for name, row in FORMS.items() if refusals[name] is None}
    best = min(costs, key=lambda name: costs[name])
    others = {
        name: refusal or f"would take about {costs[name] / costs[best]:.1f} × the time"
        for name, refusal in refusals.items()
        if name != best
    }
    return Plan(best, FORMS[best].praise, others)
