"""Results of a study as a file: read back with verdicts by the current rules, and saved small.

A saved file keeps every loss in full. Curves have fewer points, and what can be computed from the runs is left out;
reading computes it again. So a rule that has changed changes the verdicts of all results that are read, and
``softmax-rnn report FILE --save FILE`` writes them.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Container, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from softmax_rnn.errors import InputError, found_in
from softmax_rnn.experiment.config import run_label
from softmax_rnn.files import finite, write_text
from softmax_rnn.machine import processor_kind
from softmax_rnn.study.collect import asked_of, decided
from softmax_rnn.study.definition import STUDIES, Claim, load_study
from softmax_rnn.study.result_check import check_claims, check_results
from softmax_rnn.study.summary import summary, thinned
from softmax_rnn.validation import checked, read_json

LARGEST = 500_000
"""Bytes of a saved file at most."""
_POINTS = (80, 40, 20, 10, 5)
_DIGITS = 5
_REPEATED = ("test_loss_by_position",)
_IMPLIED = ("data",)
"""Left out of a result: what the entry has too, and where space is short what the settings imply."""
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
        raise InputError(f"runs: {path} was not written by a study: it lacks {', '.join(missing)}")
    known = isinstance(value["runs"], list) and all(isinstance(entry, dict) for entry in value["runs"])
    whole = [entry for entry in value["runs"] if "same_as" not in entry] if known else []
    if not known or not all(set(entry) >= _ENTRY for entry in whole):
        raise InputError(f"runs: {path} was not written by a study: its runs lack one of {', '.join(sorted(_ENTRY))}")
    common, by_grid = value.pop("common_settings", {}), value.pop("grid_settings", {})
    with found_in(f"runs: {path}"):
        for entry in whole:
            of_grid = by_grid.get(entry["grid"], {}) if isinstance(by_grid, dict) else None
            if not all(isinstance(one, dict) for one in (common, of_grid, entry["settings"])):
                raise InputError("settings: expected an object")
            entry["settings"] = common | of_grid | entry["settings"]
        value["runs"] = [_written_out(entry, whole) for entry in value["runs"]]
        check_results(value)
        for entry in value["runs"]:
            entry.setdefault("processor", processor_kind(value["machine"]))
            if entry["result"] is not None and "by_position" in entry:
                entry["result"].setdefault("test_loss_by_position", entry["by_position"])
        results = judged(value)
        check_claims(results.get("claims", []))
    return results


def _written_out(entry: dict[str, Any], whole: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A run that an earlier grid has too is saved by the name of that one."""
    if "same_as" not in entry:
        return entry
    base = next((one for one in whole if one["name"] == entry["same_as"]), None)
    if base is None:
        raise InputError(f"same_as: expected the name of a run, got {entry['same_as']!r}")
    return copy.deepcopy(base) | {name: one for name, one in entry.items() if name != "same_as"}


def judged(results: dict[str, Any]) -> dict[str, Any]:
    """The results with summary and verdicts computed from their runs.

    The rules and the published numbers are those of the study's file now where the package has it, else those that the
    results carry.
    """
    name = str(results["study"].get("name", ""))
    study = load_study(name)[1] if (STUDIES / f"{name}.yaml").is_file() else None
    runs = [entry | {"label": _label(entry["settings"])} for entry in results["runs"]]
    new = results | {"runs": runs, "summary": summary(runs)}
    if study is not None:
        scale = str(results["study"].get("scale", "cpu"))
        return new | asked_of(study, scale, runs)
    carried = [one.get("definition") for one in results.get("claims", [])]
    if carried and all(carried):
        new["claims"] = [decided(checked(Claim, one), runs) for one in carried]
    return new


def _label(settings: dict[str, Any]) -> str:
    layers = settings.get("layers")
    return run_label(settings["variant"], layers if isinstance(layers, dict) else {})


def save_results(results: dict[str, Any], path: Path) -> Path:
    """The results as one small file; curves get fewer points until it is small enough."""
    for left_out, points in itertools.product((_REPEATED, (*_REPEATED, *_IMPLIED)), _POINTS):
        text = json.dumps(finite(_small(results, points, left_out)), ensure_ascii=False, allow_nan=False)
        if len(text.encode()) < LARGEST:
            break
    else:
        raise InputError(f"save: {path} would exceed {LARGEST:,} bytes even with curves of {_POINTS[-1]} points")
    return write_text(path, text + "\n")


def _small(results: dict[str, Any], points: int, left_out: Sequence[str]) -> dict[str, Any]:
    kept = {name: _shortened(results["summary"][name]) for name in ("baseline", "final")}
    common = _common([entry["settings"] for entry in results["runs"]])
    by_grid = {
        grid: _common([entry["settings"] for entry in results["runs"] if entry["grid"] == grid], common)
        for grid in dict.fromkeys(entry["grid"] for entry in results["runs"])
    }
    runs, first = [], dict[str, str]()
    for entry in results["runs"]:
        if first.setdefault(entry["folder"], entry["name"]) == entry["name"]:
            runs.append(_small_entry(entry, points, {*common, *by_grid[entry["grid"]]}, left_out))
        else:
            same = {"same_as": first[entry["folder"]]}
            runs.append(same | {name: entry[name] for name in ("name", "grid", "varied")})
    return results | {"runs": runs, "summary": kept, "common_settings": common, "grid_settings": by_grid}


def _common(settings: Sequence[dict[str, Any]], known: Container[str] = ()) -> dict[str, Any]:
    """The settings that are the same in all runs, without those that are known already."""
    first = settings[0] if settings else {}
    same = {name: first[name] for name in first if all(one.get(name, one) == first[name] for one in settings)}
    return {name: value for name, value in same.items() if name not in known}


def _small_entry(entry: dict[str, Any], points: int, said: Container[str], left_out: Sequence[str]) -> dict[str, Any]:
    small = dict(entry)
    small["settings"] = {name: value for name, value in entry["settings"].items() if name not in said}
    kept = {name: _some(entry[name], points) for name in _CURVES}
    kept["train_curve"] = thinned(entry["train_curve"], points)
    small |= {name: [[step, _rounded(value)] for step, value in curve] for name, curve in kept.items()}
    if "score_curves" in entry:
        small["score_curves"] = {
            name: [[step, _rounded(value)] for step, value in curve] for name, curve in entry["score_curves"].items()
        }
    small["by_position"] = [_rounded(value) for value in _wider(entry.get("by_position", []), points)]
    if entry["result"] is not None:
        small["result"] = {key: one for key, one in entry["result"].items() if key not in left_out}
    return small


def _some(curve: Sequence[Any], points: int) -> list[Any]:
    """At most so many points of a curve as they are, the first and the last among them.

    >>> _some([[0, 5.0], [10, 4.0], [20, 3.0], [30, 2.0], [40, 1.0]], 3)
    [[0, 5.0], [20, 3.0], [40, 1.0]]
    """
    last = len(curve) - 1
    return [curve[round(i * last / (points - 1))] for i in range(points)] if last >= points else list(curve)


def _wider(parts: Sequence[float | None], points: int) -> list[float | None]:
    """The means of equal parts as those of at most so many wider equal parts.

    >>> _wider([4.0, 2.0, 1.0, 3.0, 5.0, 3.0], 4)
    [3.0, 2.0, 4.0]
    """
    size = next((one for one in range(1, len(parts) + 1) if len(parts) % one == 0 and len(parts) // one <= points), 1)
    groups = [parts[start : start + size] for start in range(0, len(parts), size)]
    return [None if any(one is None for one in group) else fmean(one or 0.0 for one in group) for group in groups]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _shortened(value: Any) -> Any:
    """All numbers inside with few digits: what reading computes again from the runs."""
    if isinstance(value, dict):
        return {name: _shortened(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_shortened(one) for one in value]
    return _rounded(value) if isinstance(value, float) else value
