"""The results of a study so far, as plain values: the file that the report reads.

study      name, title, question, what the paper found, command, scale, expected minutes
machine    where and when
runs       one entry per run: name, grid, varied settings, state, settings, result, curves
summary    for each variant in each setting: means over seeds, gaps to softmax, curves, with intervals
variants   formula, parts, names of the same function, notes, for each variant that occurs
effects    main effects and interactions of the study's factorials
trends     gaps against a size, their slopes, and the line at the size of the paper
claims     claim, state, evidence, what would decide it, margin, rule in words and as in the file, what the paper says
published  numbers that others have published
terms      Taylor terms of a trained model, where the study asks for them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from softmax_rnn.attention.table.model_table import MODEL_VARIANTS
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.console import plural
from softmax_rnn.machine import describe
from softmax_rnn.study.contrasts import METRIC, effects, trend
from softmax_rnn.study.definition import Claim, Study
from softmax_rnn.study.paired import measured_runs, panel_of
from softmax_rnn.study.summary import summary
from softmax_rnn.study.verdicts import decide


def study_results(
    name: str, study: Study, scale: str, entries: Sequence[dict[str, Any]], command: str
) -> dict[str, Any]:
    """Everything that is known about a study's runs, finished or not."""
    facts = {
        "name": name,
        "title": study.title,
        "asks": study.asks,
        "found": study.found,
        "command": command,
        "scale": scale,
        "minutes": study.scale(scale).minutes,
    }
    return collected(facts, entries) | asked_of(study, scale, entries)


def asked_of(study: Study, scale: str, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the file of a study asks of its runs, and the published numbers in it."""
    trends = [trend(one, measured_runs(_of_grid(entries, one.grid), METRIC)) for one in study.trends]
    effects_of = (effects(one, measured_runs(_of_grid(entries, one.grid), METRIC)) for one in study.factorials)
    return {
        "claims": [decided(claim, entries) for claim in study.claims_at(scale)],
        "effects": [row for rows in effects_of for row in rows],
        "trends": [one for one in trends if one is not None],
        "published": published_numbers(study),
    }


def _of_grid(entries: Sequence[dict[str, Any]], grid: str) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["grid"] == grid]


def collected(study: dict[str, Any], entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What runs say by themselves, without the claims and the published numbers of a study."""
    return {
        "study": study,
        "machine": describe(),
        "runs": list(entries),
        "summary": summary(entries),
        "variants": variant_facts(entries),
        "claims": [],
        "published": [],
        "terms": None,
    }


def decided(claim: Claim, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A claim with its verdict from the finished runs, its rule and the margin of that rule."""
    runs = _of_grid(entries, claim.grid)
    decision = decide(claim, measured_runs(runs, claim.metric, claim.step))
    asked = [one for one in runs if str(one["varied"].get(claim.compares)) in claim.rule.named()]
    left = sum(entry["state"] in ("planned", "incomplete") for entry in asked)
    lost = _lost(claim, asked)
    # The number of runs was fixed beforehand: a claim is decided by all of its runs, not by those that went well.
    state, evidence, needed = decision.state, decision.evidence, decision.needed
    if left:
        state, evidence, needed = "undecided", f"so far {evidence}", f"the other {left} of its {_runs(asked)}"
    elif lost:
        state, evidence = "undecided", f"without {lost} of its {_runs(asked)}: {evidence}"
        needed = f"a number from the {_runs(asked[:lost])} that failed or diverged"
    return {
        "claim": claim.says,
        "paper": claim.paper,
        "state": state,
        "evidence": evidence,
        "needed": needed,
        "left": left,
        "margin": claim.rule.margin(),
        "rule": claim.rule_text(),
        "definition": claim.model_dump(),
    }


def _lost(claim: Claim, asked: Sequence[dict[str, Any]]) -> int:
    """How many runs are over and have no number; of a sweep of learning rates, those at the rate that lacks fewest."""
    missing: dict[Any, Counter[str]] = {}
    for entry in asked:
        varied = entry["varied"]
        rates = missing.setdefault((varied.get(claim.compares), panel_of(varied)), Counter())
        rates[str(varied.get("learning_rate"))] += not measured_runs([entry], claim.metric, claim.step)
    return sum(min(rates.values()) for rates in missing.values())


def _runs(entries: Sequence[Any]) -> str:
    return plural(len(entries), "run")


def variant_facts(entries: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What each variant computes, by the name that tables show."""
    names = dict.fromkeys(entry["settings"]["variant"] for entry in entries)
    return {VARIANTS.short(name): _facts(name) for name in names}


def _facts(name: str) -> dict[str, Any]:
    from softmax_rnn.attention.algebra import same_names
    from softmax_rnn.attention.explain import explain

    row = MODEL_VARIANTS[name]
    explanation = explain(row.spec)
    others = [VARIANTS.short(other) for other in same_names(row.spec)]
    full = [f"in full: {name}"] if VARIANTS.short(name) != name else []
    return {
        "formula": explanation.formula,
        "parts": explanation.parts,
        "same_as": [other for other in dict.fromkeys(others) if other != VARIANTS.short(name)],
        "notes": [*full, *explanation.notes, *([row.note] if row.note else [])],
        "cancellations": explanation.cancellations,
    }


def published_numbers(study: Study) -> list[dict[str, Any]]:
    """Numbers that others have published, under the variant names that tables show."""
    numbers = [one.model_dump() for one in study.published]
    return [one | {"variant": one["variant"] and VARIANTS.short(one["variant"])} for one in numbers]
