"""Which form runs, and why. Every form is exact, so the choice is only about time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from softmax_rnn.attention.forms import FORMS
from softmax_rnn.attention.situation import TYPICAL, Situation
from softmax_rnn.attention.spec import AttentionSpec, check_spec
from softmax_rnn.errors import InputError, unknown_name

__all__ = ["FORMS", "TYPICAL", "Plan", "Situation", "choose"]


@dataclass(frozen=True)
class Plan:
    """The chosen form, the reason, and why each other form was not taken."""

    form: str
    reason: str
    others: dict[str, str]


def choose(spec: AttentionSpec, situation: Situation = TYPICAL, form: str | None = None) -> Plan:
    """The fastest form that can compute the spec, or the forced one.

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> choose(VARIANTS["softmax"]).form
    'fused'
    """
    check_spec(spec)
    if form is not None:
        return _forced(spec, situation, form)
    refusals = {name: row.refuse(spec, situation) for name, row in FORMS.items()}
    costs = {name: row.cost(spec, situation) for name, row in FORMS.items() if refusals[name] is None}
    best = min(costs, key=lambda name: costs[name])
    others = {
        name: refusal or f"would take about {costs[name] / costs[best]:.1f} × the time"
        for name, refusal in refusals.items()
        if name != best
    }
    return Plan(best, FORMS[best].reason, others)


def choose_for_step(spec: AttentionSpec, situation: Situation) -> Plan:
    """`choose` for one query, with a memory: the number of keys counts by its binary digits only."""
    situation = replace(situation, keys=1 << situation.keys.bit_length())
    known = _STEPS.get((spec.text, situation))
    if known is None:
        known = _STEPS[spec.text, situation] = choose(spec, situation)
    return known


_STEPS: dict[tuple[str, Situation], Plan] = {}


def _forced(spec: AttentionSpec, situation: Situation, form: str) -> Plan:
    if form not in FORMS:
        raise unknown_name("form", form, FORMS)
    refusal = FORMS[form].refuse(spec, situation)
    if refusal is not None:
        all_forms = {name: row.refuse(spec, situation) for name, row in FORMS.items()}
        said = "; ".join(f"{name}: {reason or 'can compute it'}" for name, reason in all_forms.items())
        raise InputError(f"form: {form!r} cannot compute this spec ({refusal}). All forms: {said}")
    return Plan(form, "asked for", {})
