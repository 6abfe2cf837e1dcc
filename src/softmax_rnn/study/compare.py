"""The difference of two runs, of two studies or of two variants, as plain values.

>>> result = compare("softmax", "softmax_divs")
>>> result["same_function"], list(result["parts"])
(False, ['score', 'normaliser'])
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError
from softmax_rnn.study.entries import checked_metrics
from softmax_rnn.study.folders import RESULTS, results_of

METRICS = ("step", "test_loss", "train_loss", "test_accuracy", "tokens_per_second", "memory_bytes", "parameters")


def compare(a: str, b: str) -> dict[str, Any]:
    """Two folders of runs, two of studies, or two variants by name, inline, or by the path of a spec's JSON file."""
    kinds = [_kind(name) for name in (a, b)]
    if kinds[0] != kinds[1]:
        raise InputError(f"compare: expected two of the same kind, got the {kinds[0]} {a} and the {kinds[1]} {b}")
    if kinds[0] == "run":
        return compare_runs(Path(a), Path(b))
    if kinds[0] == "study":
        return compare_studies(Path(a), Path(b))
    return compare_specs(a, b)


def _kind(name: str) -> str:
    path = Path(name)
    try:
        if (path / "config.yaml").is_file():
            return "run"
        if (path / RESULTS).is_file():
            return "study"
        is_folder = path.is_dir()
    except OSError:  # JSON text, which is too long for the name of a file
        return "variant"
    if is_folder:
        raise InputError(f"compare: the folder {name} is neither a run (no config.yaml) nor a study (no {RESULTS})")
    if "/" in name and not name.endswith(".json"):
        raise InputError(
            f"compare: there is no folder {name}; expected a run, a study, a variant or a spec's .json file"
        )
    return "variant"


def compare_studies(a: Path, b: Path) -> dict[str, Any]:
    """What both say about each claim, and their final numbers side by side."""
    both = [results_of([path]) for path in (a, b)]
    claims = [{one["claim"]: f"{one['state']} ({one.get('margin', '')})" for one in each["claims"]} for each in both]
    final = [{_place(row): row[row["metric"]]["mean"] for row in each["summary"]["final"]} for each in both]
    facts = [each["study"] | each["machine"] for each in both]
    names = [name for name in ("name", "title", "scale", "command", "date", "processor", "torch") if name in facts[0]]
    return {
        "kind": "studies",
        "names": [str(a), str(b)],
        "finished": [all(run["state"] == "finished" for run in each["runs"]) for each in both],
        "settings": {
            name: [fact.get(name) for fact in facts] for name in names if facts[0][name] != facts[1].get(name)
        },
        "claims": {name: [each.get(name) for each in claims] for name in {**claims[0], **claims[1]}},
        "metrics": {name: [each.get(name) for each in final] for name in {**final[0], **final[1]}},
    }


def _place(row: dict[str, Any]) -> str:
    words = [row["variant"], row["grid"], *(f"{name} {value}" for name, value in row["setting"].items())]
    return ", ".join([*words, row["metric"].replace("_", " ")])


def compare_runs(a: Path, b: Path) -> dict[str, Any]:
    """Settings that differ, and what both have measured."""
    from softmax_rnn.experiment.config import config_of, differences, result_of
    from softmax_rnn.train.folder import RunFolder

    configs = [config_of(path) for path in (a, b)]
    settings = differences(*(config.content() for config in configs))
    results = [result_of(config, RunFolder(path)) for config, path in zip(configs, (a, b), strict=True)]
    metrics = [_measured(path, result) for path, result in zip((a, b), results, strict=True)]
    known = [name for name in METRICS if any(one.get(name) is not None for one in metrics)]
    return {
        "kind": "runs",
        "names": [str(a), str(b)],
        "finished": [result is not None for result in results],
        "settings": settings,
        "metrics": {name: [one.get(name) for one in metrics] for name in known},
        "specs": compare_specs(*(config.variant for config in configs)) if "variant" in settings else None,
    }


def _measured(folder: Path, result: dict[str, Any] | None) -> dict[str, Any]:
    """The result of a finished run; for any other run, its metrics so far."""
    metrics = checked_metrics(folder)
    if result is not None or not metrics:
        return result or {}
    from softmax_rnn.train.job import summary

    return summary(metrics)


def compare_specs(a: str, b: str) -> dict[str, Any]:
    """Formulas, the parts that differ, and whether the functions do."""
    from softmax_rnn.attention.algebra import diff, same_function
    from softmax_rnn.attention.custom import variant_from
    from softmax_rnn.attention.explain import part_text
    from softmax_rnn.attention.formula import formula
    from softmax_rnn.attention.table.model_table import MODEL_VARIANTS
    from softmax_rnn.attention.variants import VARIANTS
    from softmax_rnn.experiment.config import differences

    rows = [MODEL_VARIANTS[name if name in MODEL_VARIANTS else variant_from(name)] for name in (a, b)]
    one, other = (row.spec for row in rows)
    blocks = [dict(row.options) for row in rows]
    return {
        "kind": "specs",
        "names": [VARIANTS.short(name) for name in (a, b)],
        "formulas": [formula(one), formula(other)],
        "parts": {
            name: [None if part is None else part_text(part) for part in pair]
            for name, pair in diff(one, other).items()
        },
        "block": differences(*blocks),
        "same_function": same_function(one, other) and blocks[0] == blocks[1],
    }
