"""Runs that another study has finished: studies whose folders are next to each other share them.

The sections of the paper ask different questions of the same models; a run of softmax is trained once for all of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from softmax_rnn.errors import InputError
from softmax_rnn.experiment.config import config_of
from softmax_rnn.files import write_folder
from softmax_rnn.study.runs import PlannedRun

_NEEDED = ("config.yaml", "data.json", "environment.json", "metrics.jsonl", "final", "result.json")


def finished_in_other_studies(runs: Iterable[PlannedRun], output: Path) -> dict[Path, Path]:
    """Folder of a run → the folder in another study beside ``output`` where the same run is finished.

    >>> finished_in_other_studies([], Path("runs/quick"))
    {}
    """
    missing = {run.folder: run.config.content_hash() for run in runs if not run.folder.exists()}
    if not missing:
        return {}
    candidates: dict[str, list[Path]] = {}
    for folder in sorted(output.parent.glob("*/runs/*")):
        candidates.setdefault(folder.name.rsplit("-", 1)[-1], []).append(folder)
    sources = {}
    for target, wanted in missing.items():
        for folder in candidates.get(wanted[:8], []):
            if all((folder / name).exists() for name in _NEEDED) and _content_hash(folder) == wanted:
                sources[target] = folder
                break
    return sources


def copy_runs(sources: Mapping[Path, Path]) -> None:
    """Copy runs that other studies have finished; checkpoints stay where they are."""
    for folder, source in sources.items():
        write_folder(folder, lambda temporary, source=source: _copy(source, temporary))


def _copy(source: Path, target: Path) -> None:
    for name in _NEEDED:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        else:
            shutil.copy2(source / name, target / name)


def _content_hash(folder: Path) -> str | None:
    try:
        return config_of(folder).content_hash()
    except InputError:
        return None
