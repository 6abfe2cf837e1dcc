"""A run as a study's results tell it: what was asked, what was measured, and in which state it is.

A folder is read once, and again only after something has happened to its run: see `Entries`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softmax_rnn.errors import InputError, found_in

if TYPE_CHECKING:
    from softmax_rnn.study.runs import PlannedRun

Entry = dict[str, Any]

_NUMBER = (int, float, type(None))
_TRAINED = {"step": int, "loss": _NUMBER, "tokens": int, "tokens_per_second": _NUMBER, "memory_bytes": _NUMBER}
_TESTED = {"step": int, "test_loss": _NUMBER, "test_accuracy": _NUMBER, "test_loss_by_position": list}


class Entries:
    """The entries of planned runs. Grids may share a folder; it is read once for all of them."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self._runs = list(runs)
        self._errors: dict[Path, str] = {}
        self._read: dict[Path, Entry] = {}

    def changed(self, folder: Path, error: str | None = None) -> None:
        """Something has happened to the run of a folder: it is read again when asked for."""
        self._read.pop(folder, None)
        if error is not None:
            self._errors[folder] = error

    @property
    def errors(self) -> dict[str, str]:
        """Why runs have failed, by their folders."""
        return {str(folder): error for folder, error in self._errors.items()}

    def all(self) -> list[Entry]:
        """One entry per planned run, in the order of the study."""
        for run in self._runs:
            if run.folder not in self._read:
                self._read[run.folder] = _measured(run, self._errors.get(run.folder))
        return [_asked(run) | self._read[run.folder] for run in self._runs]


def run_entry(run: PlannedRun, error: str | None = None) -> Entry:
    """The entry of a single run."""
    return _asked(run) | _measured(run, error)


def _asked(run: PlannedRun) -> Entry:
    asked = {"name": run.name, "grid": run.grid, "varied": dict(run.varied), "folder": str(run.folder)}
    return asked | {"label": run.config.label}


def _measured(run: PlannedRun, error: str | None) -> Entry:
    from softmax_rnn.train.folder import RunFolder

    folder = RunFolder(run.folder)
    metrics = checked_metrics(run.folder)
    result = folder.result()
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
    }


def checked_metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run; a file that no run has written is refused in one line."""
    from softmax_rnn.train.folder import RunFolder

    path = folder / "metrics.jsonl"
    try:
        lines = RunFolder(folder).metrics()
    except (OSError, ValueError) as error:
        raise InputError(f"runs: {path} cannot be read: {' '.join(str(error).split())}") from error
    with found_in(f"runs: {path}"):
        for number, line in enumerate(lines, start=1):
            _check_line(line, number)
    return lines


def _check_line(line: Any, number: int) -> None:
    if not isinstance(line, dict):
        raise InputError(f"line {number}: expected measurements by name, got {str(line)[:40]!r}")
    wanted: dict[str, Any] = {"step": int}
    wanted |= _TRAINED if "loss" in line else {}
    wanted |= _TESTED if "test_loss" in line else {}
    for name, kinds in wanted.items():
        if name not in line:
            raise InputError(f"line {number}: {name} is missing")
        if not isinstance(line[name], kinds) or isinstance(line[name], bool):
            raise InputError(f"line {number}: {name}: expected a number, got {str(line[name])[:40]!r}")


def _seconds(trained: Sequence[Mapping[str, Any]]) -> float | None:
    """Time spent in training steps, from the speeds in the metrics."""
    total, before = 0.0, 0
    for line in trained:
        if line["tokens_per_second"]:
            total += (line["tokens"] - before) / line["tokens_per_second"]
        before = line["tokens"]
    return total if trained else None
