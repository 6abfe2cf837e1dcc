"""What can be checked before the first run of a study starts: how many runs there are, and whether their data exists.

>>> check_source("shakespear")
Traceback (most recent call last):
softmax_rnn.errors.UnknownNameError: unknown source 'shakespear'; did you mean 'shakespeare'?
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from softmax_rnn.errors import InputError, found_in
from softmax_rnn.installation import CARRIERS, packages_folder

if TYPE_CHECKING:
    from softmax_rnn.study.definition import Study
    from softmax_rnn.study.runs import PlannedRun

MOST_RUNS = 2000


def check_count(study: Study, scale: str, most: int = MOST_RUNS) -> None:
    """Refuse a study of very many runs before they are even listed."""
    count = sum(grid.count for grid in study.scale(scale).grids.values())
    if count > most:
        raise InputError(f"study: expected at most {most:,} runs, got {count:,}; --max-runs {count} allows them")


def check_data(runs: Iterable[PlannedRun], *, network: bool = False) -> None:
    """Check that every data source exists; with ``network``, those on the hub too."""
    from softmax_rnn.data.records import load_records
    from softmax_rnn.data.tasks.task import Task

    checked: set[str] = set()
    for run in runs:
        data = run.config.data
        if isinstance(data, Task) or str(data) in checked:
            continue
        checked.add(str(data))
        with found_in(f"grids.{run.grid}"):
            if check_source(data.source) == "hub" and network:
                load_records(data)


def check_source(source: str) -> str:
    """Where a source comes from; an unknown one is refused, and so is one whose package or files are missing."""
    from softmax_rnn.data.records import source_kind
    from softmax_rnn.data.text_files import files_of

    kind = source_kind(source)
    if kind == "corpus" and source in CARRIERS:
        packages_folder(source, argument="source")
    if kind == "path":
        files_of(Path(source).expanduser())
    return kind
