"""How far reading has come, in bytes, when nobody knows how many there will be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from softmax_rnn.console import ERR


@contextmanager
def byte_progress(title: str) -> Iterator[Callable[[int], None]]:
    """A counter with MB/s on standard error that is told of more bytes; one line at the end when it is no terminal."""
    from rich.progress import (
        DownloadColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    columns = (SpinnerColumn(), TextColumn(title), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    begin, done = time.perf_counter(), 0
    with Progress(*columns, console=ERR, transient=True, disable=not ERR.is_terminal) as bar:
        task = bar.add_task(title, total=None)

        def advance(size: int) -> None:
            nonlocal done
            done += size
            bar.update(task, advance=size)

        yield advance
    seconds = time.perf_counter() - begin
    ERR.print(f"{title}: {done / 1e6:.1f} MB in {seconds:.1f} s ({done / 1e6 / seconds:.1f} MB/s)", highlight=False)
