"""A study continued on another machine: the finished runs of a saved result count as finished here.

Processors round differently, so only runs of one kind of processor are paired. From another kind, a seed is taken over
where all of its runs are finished; seeds that were begun there are trained here from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError, found_in
from softmax_rnn.experiment.config import differences
from softmax_rnn.machine import describe, processor_kind
from softmax_rnn.study.entries import Entry
from softmax_rnn.study.result_file import read_results
from softmax_rnn.study.runs import PlannedRun


@dataclass(frozen=True)
class Continued:
    """What a saved result has finished, by the folder that a run would have here."""

    entries: dict[Path, Entry] = field(default_factory=dict)
    terms: dict[str, Any] | None = None


def continued(path: Path, name: str, scale: str, runs: Sequence[PlannedRun]) -> Continued:
    """The runs that a saved result of the same study and scale has finished; other settings are refused."""
    with found_in("continue-from"):
        saved = read_results(path)
        finished = _finished(path, saved, name, scale, runs)
    here = processor_kind(describe())
    entries: dict[Path, Entry] = {}
    for seed in dict.fromkeys(run.config.seed for run in runs):
        wanted = {run.folder: run.name for run in runs if run.config.seed == seed}
        there = {folder: finished[run_name] for folder, run_name in wanted.items() if run_name in finished}
        if len(there) == len(wanted) or all(entry["processor"] == here for entry in there.values()):
            entries |= there
    return Continued(entries, saved.get("terms"))


def _finished(path: Path, saved: dict[str, Any], name: str, scale: str, runs: Sequence[PlannedRun]) -> dict[str, Entry]:
    """The finished runs by name, each the run that is planned under this name."""
    theirs = (saved["study"]["name"], saved["study"].get("scale") or "cpu")
    if theirs != (name, scale):
        raise InputError(f"{path} is the result of {theirs[0]} at scale {theirs[1]}, not of {name} at {scale}")
    finished = {entry["name"]: entry for entry in saved["runs"] if entry["state"] == "finished"}
    planned = {run.name: run for run in runs}
    for run_name, entry in finished.items():
        _check(path, entry, planned.get(run_name))
    return finished


def _check(path: Path, entry: Entry, run: PlannedRun | None) -> None:
    if run is None:
        raise InputError(f"{path}: {entry['name']} is not a run of this study")
    if entry["result"].get("config_hash") != run.config.content_hash():
        changed = differences(entry["settings"], run.config.content())
        said = "; ".join(f"{name} was {then!r} and is {now!r}" for name, (then, now) in changed.items())
        raise InputError(f"{path}: {entry['name']} had other settings: {said or 'by its hash'}")
