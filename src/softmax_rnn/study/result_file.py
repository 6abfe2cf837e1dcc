"""Results of a study as a file: read back with verdicts by the rules as they stand now, and saved small.

A saved file keeps every loss in full. Curves are thinned, and what can be computed from the runs is left out; reading
computes it again. So a rule that has changed changes the verdicts of all results that are read, and
``softmax-rnn report FILE --save FILE`` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError
from softmax_rnn.files import finite, write_whole
from softmax_rnn.study.collect import decided
from softmax_rnn.study.definition import STUDIES, Claim, load_study
from softmax_rnn.study.summary import summary, thinned
from softmax_rnn.validation import checked, read_json

LARGEST = 500_000
"""Bytes of a saved file at most."""
_POINTS = (80, 40, 20, 10, 5)
_DIGITS = 5
_CURVES = ("train_curve", "test_curve", "accuracy_curve")
_KEYS = ("study", "machine", "runs", "variants")
_ENTRY = frozenset({"name", "grid", "varied", "folder", "state", "error", "settings", "result", *_CURVES})


def is_results(path: Path) -> bool:
    """Whether a JSON file looks like one that a study has written."""
    try:
        value = read_json(path, "runs")
    except InputError:
        return False
    return isinstance(value, dict) and all(key in value for key in _KEYS)


def read_results(path: Path) -> dict[str, Any]:
    """The results in a file that a study has left, or that was saved from it."""
    value = read_json(path, "runs")
    missing = [key for key in _KEYS if not isinstance(value, dict) or key not in value]
    if missing:
        raise InputError(f"runs: {path} is not what a study writes: it lacks {', '.join(missing)}")
    if not isinstance(value["runs"], list) or not all(
        isinstance(entry, dict) and set(entry) >= _ENTRY for entry in value["runs"]
    ):
        raise InputError(f"runs: {path} is not what a study writes: its runs lack one of {', '.join(sorted(_ENTRY))}")
    for entry in value["runs"]:
        if entry["result"] is not None and "by_position" in entry:
            entry["result"].setdefault("test_loss_by_position", entry["by_position"])
    return judged(value)


def judged(results: dict[str, Any]) -> dict[str, Any]:
    """The results with summary and verdicts computed from their runs.

    The rules are those of the study's file now where the package has it, else those that the results carry.
    """
    claims = _claims(results)
    verdicts = results.get("claims", []) if claims is None else decided(claims, results["runs"])
    return results | {"summary": summary(results["runs"]), "claims": verdicts}


def _claims(results: dict[str, Any]) -> Sequence[Claim] | None:
    name = str(results["study"].get("name", ""))
    if (STUDIES / f"{name}.yaml").is_file():
        return load_study(name)[1].claims
    carried = [one.get("definition") for one in results.get("claims", [])]
    return [checked(Claim, one) for one in carried] if carried and all(carried) else None


def save_results(results: dict[str, Any], path: Path) -> Path:
    """The results as one small file; curves get fewer points until it is small enough."""
    text = ""
    for points in _POINTS:
        text = json.dumps(finite(_small(results, points)), ensure_ascii=False, allow_nan=False)
        if len(text.encode()) < LARGEST:
            break
    else:
        raise InputError(
            f"save: {path} would be larger than {LARGEST:,} bytes even with curves of {_POINTS[-1]} points"
        )
    return write_whole(path, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))


def _small(results: dict[str, Any], points: int) -> dict[str, Any]:
    kept = {name: results["summary"][name] for name in ("baseline", "final")}
    return results | {"runs": [_small_entry(entry, points) for entry in results["runs"]], "summary": kept}


def _small_entry(entry: dict[str, Any], points: int) -> dict[str, Any]:
    small = dict(entry)
    for name in _CURVES:
        small[name] = [[step, _rounded(value)] for step, value in thinned(entry[name], points)]
    small["by_position"] = [_rounded(value) for value in entry.get("by_position", [])]
    if entry["result"] is not None:
        small["result"] = {key: one for key, one in entry["result"].items() if key != "test_loss_by_position"}
    return small


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
