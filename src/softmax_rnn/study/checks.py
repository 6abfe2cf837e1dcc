"""What can be checked before the first run of a study starts: how many runs there are, and whether their data exists.

>>> check_source("shakespear")
Traceback (most recent call last):
softmax_rnn.errors.UnknownNameError: unknown source 'shakespear'; did you mean 'shakespeare'?
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from softmax_rnn.errors import InputError, found_in, unknown_name
from softmax_rnn.installation import CARRIERS, packages_folder

if TYPE_CHECKING:
    from softmax_rnn.study.definition import Study
    from softmax_rnn.study.runs import PlannedRun

MOST_RUNS = 2000
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


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
    """Where a source comes from: a package, a corpus, a path or the hub; an unknown one is refused."""
    from softmax_rnn.data.corpora import CORPORA
    from softmax_rnn.data.tasks.table import TASKS
    from softmax_rnn.data.text_files import READERS, ending, files_of

    path = Path(source).expanduser()
    if source in CARRIERS and source in CORPORA:
        packages_folder(source, argument="source")
        return "package"
    if source in CORPORA:
        return "corpus"
    if path.exists():
        files_of(path)
        return "path"
    if _HUB_NAME.fullmatch(source) and ending(path) not in READERS:
        return "hub"
    if len(path.parts) == 1 and not path.suffix:
        raise unknown_name("source", source, [*CORPORA, *TASKS])
    raise InputError(f"source: there is no file or folder {source!r}")
