"""Results from folders: of a study as it is now, or of any runs put side by side.

>>> find_runs(Path("no such folder"))
Traceback (most recent call last):
softmax_rnn.errors.InputError: runs: there is no folder no such folder
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softmax_rnn.errors import InputError
from softmax_rnn.study.result_file import judged, read_results

if TYPE_CHECKING:
    from softmax_rnn.experiment.config import RunConfig

RESULTS = "results.json"
FOLLOWS = frozenset({"clip", "data.source"})
"""Settings that follow from others: clipping from a variant's gates, the source from the data."""


def results_of(folders: Sequence[Path]) -> dict[str, Any]:
    """What to report: a single study with all its results, or the runs of all folders together."""
    if len(folders) == 1 and folders[0].suffix == ".json":
        return read_results(folders[0])
    if len(folders) == 1 and (folders[0] / RESULTS).is_file():
        return refreshed(read_results(folders[0] / RESULTS), folders[0])
    runs = [run for folder in folders for run in find_runs(folder)]
    return folder_results(list(dict.fromkeys(runs)), shlex.join(["softmax-rnn", "report", *map(str, folders)]))


def find_runs(folder: Path) -> list[Path]:
    """The runs of a folder: itself, those of a study, or those inside it."""
    if folder.is_file():
        raise InputError(f"runs: expected the folder of a run or of a study, got the file {folder}")
    if not folder.is_dir():
        raise InputError(f"runs: there is no folder {folder}")
    if (folder / "config.yaml").is_file():
        return [folder]
    runs = sorted(path.parent for pattern in ("runs/*/config.yaml", "*/config.yaml") for path in folder.glob(pattern))
    if not runs:
        raise InputError(f"runs: {folder} is not a run and holds none (expected config.yaml, or runs/*/config.yaml)")
    return runs


def folder_results(folders: Sequence[Path], command: str) -> dict[str, Any]:
    """The results of run folders without a study: no claims, everything else."""
    from softmax_rnn.experiment.config import config_of
    from softmax_rnn.study.collect import collected
    from softmax_rnn.study.entries import run_entry
    from softmax_rnn.study.runs import PlannedRun

    configs = [config_of(folder) for folder in folders]
    runs = [
        PlannedRun(folder.name, "runs", varied, config, folder)
        for folder, varied, config in zip(folders, varied_settings(configs), configs, strict=True)
    ]
    facts = {"name": "runs", "title": "Runs", "asks": "", "found": "", "command": command, "scale": "", "minutes": None}
    return collected(facts, [run_entry(run) for run in runs])


def varied_settings(configs: Sequence[RunConfig]) -> list[dict[str, Any]]:
    """Each run's variant, seed and data, and every setting in which runs on the same data differ.

    >>> from softmax_rnn.experiment.config import resolve
    >>> runs = [resolve({"steps": steps, "seed": 1}) for steps in (10, 20)]
    >>> varied_settings(runs)[0]
    {'variant': 'softmax', 'seed': 1, 'data': 'shakespeare', 'steps': 10}
    """
    from softmax_rnn.experiment.config import flat

    settings = [flat(config.content()) for config in configs]
    varied = []
    for run in settings:
        same = [other for other in settings if other["data.source"] == run["data.source"]]
        always = {"variant": run["variant"], "seed": run["seed"], "data": run["data.source"]}
        always |= {name: value for name, value in run.items() if name.startswith("layers.")}
        differing = (name for name in run if any(other.get(name) != run[name] for other in same))
        varied.append(always | {name: run[name] for name in differing if name not in {*always, *FOLLOWS}})
    return varied


def refreshed(results: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A study's results with what its unfinished runs have measured since."""
    entries = [_reread(entry, folder) for entry in results["runs"]]
    if all(new is old for new, old in zip(entries, results["runs"], strict=True)):
        return results
    return judged(results | {"runs": entries})


def _reread(entry: dict[str, Any], study: Path) -> dict[str, Any]:
    """The entry as its run's folder says now; unchanged where there is no such folder or the run is over."""
    path = study / "runs" / Path(entry["folder"]).name
    if entry["state"] == "finished" or not (path / "config.yaml").is_file():
        return entry
    from softmax_rnn.experiment.config import resolve
    from softmax_rnn.study.entries import run_entry
    from softmax_rnn.study.runs import PlannedRun

    run = PlannedRun(entry["name"], entry["grid"], entry["varied"], resolve(entry["settings"]), path)
    return run_entry(run, entry["error"])
