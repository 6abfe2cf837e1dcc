"""A run as an entry of a study's results: its settings, what was measured, and its state.

A folder is read once, and again only after something has happened to its run: see `Entries`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softmax_rnn.errors import InputError, found_in, shown
from softmax_rnn.machine import processor_kind
from softmax_rnn.study.rules import SCORES
from softmax_rnn.validation import is_number

if TYPE_CHECKING:
    from softmax_rnn.study.runs import PlannedRun

Entry = dict[str, Any]

_TRAINED = ("loss", "tokens", "tokens_per_second", "memory_bytes")
_TESTED = ("test_loss", "test_accuracy", "test_loss_by_position")


class Entries:
    """The entries of planned runs. Grids may share a folder; it is read once for all of them.

    ``known`` has the entries of runs whose folders are elsewhere.
    """

    def __init__(self, runs: Sequence[PlannedRun], known: Mapping[Path, Entry] | None = None) -> None:
        self._runs = list(runs)
        self._errors: dict[Path, str] = {}
        self._read: dict[Path, Entry] = dict(known or {})

    def changed(self, folder: Path, error: str | None = None) -> None:
        """Something has happened to the run in a folder: it is read again when next needed."""
        self._read.pop(folder, None)
        if error is not None:
            self._errors[folder] = error

    @property
    def errors(self) -> dict[str, str]:
        """Why runs failed, by folder."""
        return {str(folder): error for folder, error in self._errors.items()}

    def all(self) -> list[Entry]:
        """One entry per planned run, in the order of the study."""
        for run in self._runs:
            if run.folder not in self._read:
                self._read[run.folder] = _measured(run, self._errors.get(run.folder))
        return [self._read[run.folder] | _asked(run) for run in self._runs]


def run_entry(run: PlannedRun, error: str | None = None) -> Entry:
    """The entry of a single run."""
    return _asked(run) | _measured(run, error)


def _asked(run: PlannedRun) -> Entry:
    # Tables name the variant and the layers with another attention, whether they vary or not.
    always: dict[str, Any] = {"variant": run.config.variant}
    if run.config.layers and not any(name.partition(".")[0] == "layers" for name in run.varied):
        always["layers"] = run.config.layers
    asked = {"name": run.name, "grid": run.grid, "varied": always | dict(run.varied), "folder": str(run.folder)}
    return asked | {"label": run.config.label}


def _measured(run: PlannedRun, error: str | None) -> Entry:
    from softmax_rnn.experiment.config import result_of
    from softmax_rnn.train.folder import RunFolder

    folder = RunFolder(run.folder)
    metrics = checked_metrics(run.folder)
    result = result_of(run.config, folder)
    trained = [line for line in metrics if "loss" in line]
    tested = [line for line in metrics if "test_loss" in line]
    return {
        "state": "finished" if result else "failed" if error else "incomplete" if metrics else "planned",
        "error": error,
        "settings": run.config.content(),
        "result": result,
        "train_curve": [[line["step"], line["loss"]] for line in trained],
        "test_curve": [[line["step"], line["test_loss"]] for line in tested],
        "accuracy_curve": [[line["step"], line["test_accuracy"]] for line in tested],
        "by_position": tested[-1]["test_loss_by_position"] if tested else [],
        "seconds": _seconds(trained),
        **_place(folder.starts()),
        **_score_curves(tested),
    }


def _place(starts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The kind of processor that a run was trained on, several where it went on elsewhere, and how many threads."""
    kinds = "; ".join(dict.fromkeys(map(processor_kind, starts)))
    return {"processor": kinds, "threads": starts[-1].get("threads")} if starts else {}


def _score_curves(tested: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What each test measured about the scores, by name; empty where the run did not measure them."""
    names = [name for name in SCORES if tested and name in tested[0]]
    curves = {name: [[line["step"], line.get(name)] for line in tested] for name in names}
    return {"score_curves": curves} if curves else {}


def checked_metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run; a file that no run has written is refused in one line."""
    from softmax_rnn.train.folder import RunFolder

    lines = RunFolder(folder).metrics()
    with found_in(f"runs: {folder / 'metrics.jsonl'}"):
        for number, line in enumerate(lines, start=1):
            _check_line(line, number)
    return lines


def _check_line(line: dict[str, Any], number: int) -> None:
    wanted = (*(_TRAINED if "loss" in line else ()), *(_TESTED if "test_loss" in line else ()))
    for name in (*wanted, *(name for name in SCORES if name in line)):
        if name not in line:
            raise InputError(f"line {number}: {name} is missing")
        value = line[name]
        values = value if name == "test_loss_by_position" and isinstance(value, list) else [value]
        for one in values:
            if one is not None and not is_number(one):
                raise InputError(f"line {number}: {name}: expected a finite number, got {shown(one)}")
    if "loss" in line and line["tokens"] is None:
        raise InputError(f"line {number}: tokens: expected a number, got None")


def _seconds(trained: Sequence[Mapping[str, Any]]) -> float | None:
    """Time spent in training steps, from the speeds in the metrics."""
    total, before = 0.0, 0
    for line in trained:
        if line["tokens_per_second"]:
            total += (line["tokens"] - before) / line["tokens_per_second"]
        before = line["tokens"]
    return total if trained else None
