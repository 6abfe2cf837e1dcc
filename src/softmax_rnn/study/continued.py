"""A study continued on another machine: the finished runs of a saved result count as finished here.

A folder of saved results gives every run that it has finished, in whichever study: a run is known by the hash of its
settings. Processors round differently, so only runs of one kind of processor are paired. From another kind, a seed is
taken over where all of its runs are finished; seeds that were begun there are trained here from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError, found_in
from softmax_rnn.experiment.config import differences
from softmax_rnn.machine import describe, processor_kind
from softmax_rnn.study.entries import Entry
from softmax_rnn.study.result_file import is_results, read_results
from softmax_rnn.study.runs import PlannedRun


@dataclass(frozen=True)
class Continued:
    """What saved results have finished, by the folder that a run would have here."""

    entries: dict[Path, Entry] = field(default_factory=dict)
    terms: dict[str, Any] | None = None


def continued(path: Path, name: str, scale: str, runs: Sequence[PlannedRun]) -> Continued:
    """The runs that a saved result of this study, or any result in a folder, has finished."""
    with found_in("continue-from"):
        files = [file for file in sorted(path.glob("*.json")) if is_results(file)] if path.is_dir() else [path]
        if not files:
            raise InputError(f"the folder {path} holds no saved results of a study")
        saved = [read_results(file) for file in files]
        if not path.is_dir():
            _check_study(path, saved[0], name, scale, runs)
    own = [one for one in saved if _study(one) == (name, scale)]
    return Continued(_taken(_finished(saved), runs), own[-1].get("terms") if own else None)


def _finished(saved: Iterable[dict[str, Any]]) -> dict[tuple[str, str], Entry]:
    """The finished runs by the hash of their settings and the kind of processor; of equal ones, the last."""
    entries = [entry for one in saved for entry in one["runs"] if entry["state"] == "finished"]
    return {(entry["result"].get("config_hash", ""), entry["processor"]): entry for entry in entries}


def _taken(finished: dict[tuple[str, str], Entry], runs: Sequence[PlannedRun]) -> dict[Path, Entry]:
    """What counts as finished: of this kind of processor everything, of another kind whole seeds."""
    kinds = dict.fromkeys([processor_kind(describe()), *(kind for _, kind in finished)])
    taken: dict[Path, Entry] = {}
    for seed in dict.fromkeys(run.config.seed for run in runs):
        wanted = {run.folder: run.config.content_hash() for run in runs if run.config.seed == seed}
        here, *elsewhere = (
            {folder: finished[one, kind] for folder, one in wanted.items() if (one, kind) in finished} for kind in kinds
        )
        taken |= next((there for there in (here, *elsewhere) if len(there) == len(wanted)), here)
    return taken


def _study(saved: dict[str, Any]) -> tuple[str, str]:
    return saved["study"]["name"], saved["study"].get("scale") or "cpu"


def _check_study(path: Path, saved: dict[str, Any], name: str, scale: str, runs: Sequence[PlannedRun]) -> None:
    """A single file must be a result of this study, and its runs those that are planned under their names."""
    theirs = _study(saved)
    if theirs != (name, scale):
        raise InputError(f"{path} is the result of {theirs[0]} at scale {theirs[1]}, not of {name} at {scale}")
    planned = {run.name: run for run in runs}
    for entry in saved["runs"]:
        if entry["state"] == "finished":
            _check(path, entry, planned.get(entry["name"]))


def _check(path: Path, entry: Entry, run: PlannedRun | None) -> None:
    if run is None:
        raise InputError(f"{path}: {entry['name']} is not a run of this study")
    if entry["result"].get("config_hash") != run.config.content_hash():
        changed = differences(entry["settings"], run.config.content())
        said = "; ".join(f"{name} was {then!r} and is {now!r}" for name, (then, now) in changed.items())
        raise InputError(f"{path}: {entry['name']} had other settings: {said or 'by its hash'}")
