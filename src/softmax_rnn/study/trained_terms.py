"""The Taylor terms of a model that a study has trained: a variant's first finished run, on the first test rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softmax_rnn.files import write_json
from softmax_rnn.study.runs import PlannedRun

ORDERS = 20


def trained_terms(runs: Sequence[PlannedRun], variant: str, output: Path) -> dict[str, Any] | None:
    """The record of ``softmax-rnn terms`` without losses; None while no run of the variant is finished."""
    kept = output / "terms.json"
    run = next((one for one in runs if one.config.variant == variant and (one.folder / "result.json").exists()), None)
    if run is None:
        return None
    if kept.exists():
        before = json.loads(kept.read_text(encoding="utf-8"))
        if before.get("config_hash") == run.config.content_hash():
            return before
    value = _measure(run) | {"variant": variant, "run": run.name, "config_hash": run.config.content_hash()}
    write_json(kept, value)
    return value


def _measure(run: PlannedRun) -> dict[str, Any]:
    from softmax_rnn.analysis.terms import terms_record
    from softmax_rnn.experiment.run_data import load_run_data
    from softmax_rnn.experiment.score_probe import first_tokens
    from softmax_rnn.model.loading import load_model

    ids = first_tokens(load_run_data(run.config).test, run.config.context)
    model = load_model(run.folder / "final")
    value = terms_record(model, ids, orders=ORDERS, context=run.config.context, methods=())
    return {name: value[name] for name in ("tokens", "context", "orders", "epsilon", "layers")}
