"""What a study has found so far, as plain values: the file that the report reads.

study      name, title, question, what the paper found, command, scale, expected minutes
machine    where and when
runs       one entry a run: name, grid, varied settings, state, settings, result, curves
summary    for each variant in each setting: means over seeds, gaps to softmax, curves, with intervals
variants   formula, parts, names of the same function, notes, for each variant that occurs
claims     claim, state, evidence, rule, what the paper says
published  other people's numbers
terms      Taylor terms of a trained model, where the study asks for them
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from softmax_rnn.attention.algebra import same_names
from softmax_rnn.attention.explain import explain
from softmax_rnn.experiment.network import model_config, state_bytes
from softmax_rnn.machine import describe
from softmax_rnn.model.blocks import MODEL_VARIANTS
from softmax_rnn.study.definition import Study
from softmax_rnn.study.runs import PlannedRun
from softmax_rnn.study.summary import summary
from softmax_rnn.study.verdicts import Measured, decide
from softmax_rnn.train.folder import RunFolder


def study_results(
    name: str, study: Study, scale: str, runs: Sequence[PlannedRun], errors: dict[str, str], command: str
) -> dict[str, Any]:
    """Everything that is known of a study's runs, finished or not."""
    entries = [run_entry(run, errors.get(str(run.folder))) for run in runs]
    facts = {
        "name": name,
        "title": study.title,
        "asks": study.asks,
        "found": study.found,
        "command": command,
        "scale": scale,
        "minutes": study.scale(scale).minutes,
    }
    return collected(facts, entries) | {
        "claims": [claim_entry(study, number, entries) for number in range(len(study.claims))],
        "published": [one.model_dump() for one in study.published],
    }


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


def run_entry(run: PlannedRun, error: str | None) -> dict[str, Any]:
    """A run as the report shows it."""
    folder = RunFolder(run.folder)
    metrics = folder.metrics()
    result = folder.result()
    trained = [line for line in metrics if "loss" in line]
    tested = [line for line in metrics if "test_loss" in line]
    state = "finished" if result else "failed" if error else "incomplete" if metrics else "planned"
    return {
        "name": run.name,
        "grid": run.grid,
        "varied": dict(run.varied),
        "folder": str(run.folder),
        "state": state,
        "error": error,
        "settings": run.config.content(),
        "result": result,
        "train_curve": [[line["step"], line["loss"]] for line in trained],
        "test_curve": [[line["step"], line["test_loss"]] for line in tested],
        "accuracy_curve": [[line["step"], line["test_accuracy"]] for line in tested],
        "by_position": tested[-1]["test_loss_by_position"] if tested else [],
        "seconds": _seconds(trained),
        "state_bytes": state_bytes(model_config(run.config), run.config.context),
    }


def _seconds(trained: Sequence[dict[str, Any]]) -> float | None:
    """Time spent in training steps, from the speeds in the metrics."""
    total, before = 0.0, 0
    for line in trained:
        if line["tokens_per_second"]:
            total += (line["tokens"] - before) / line["tokens_per_second"]
        before = line["tokens"]
    return total if trained else None


def claim_entry(study: Study, number: int, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A claim with its verdict."""
    claim = study.claims[number]
    metric = claim.metric
    measured = [
        Measured(entry["varied"], entry["result"])
        for entry in entries
        if entry["grid"] == claim.grid and entry["result"] and _finite(entry["result"][metric])
    ]
    decision = decide(claim, measured)
    return {
        "claim": claim.says,
        "paper": claim.paper,
        "state": decision.state,
        "evidence": decision.evidence,
        "rule": decision.rule,
    }


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def variant_facts(entries: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What each variant computes."""
    facts = {}
    for entry in entries:
        name = entry["settings"]["variant"]
        if name in facts:
            continue
        row = MODEL_VARIANTS[name]
        told = explain(row.spec)
        facts[name] = {
            "formula": told.formula,
            "parts": told.parts,
            "same_as": [other for other in same_names(row.spec) if other != name],
            "notes": [*told.notes, *([row.note] if row.note else [])],
            "cancellations": told.cancellations,
        }
    return facts
