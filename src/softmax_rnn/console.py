"""The two streams of the terminal, and progress on them; plain lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def _console(stderr: bool = False) -> Console:
    """The terminal's own width, and a wide page where there is none."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=160)


OUT = _console()
ERR = _console(stderr=True)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error that is told each item before its turn; one line an item when it is no terminal."""
    if not ERR.is_terminal:
        done = 0

        def line(item: str) -> None:
            nonlocal done
            done += 1
            ERR.print(f"{title} {done}/{total} {item}", markup=False, highlight=False, soft_wrap=True)

        yield line
        return
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[item]}", markup=False),
    )
    with Progress(*columns, console=ERR, transient=True) as bar:
        task = bar.add_task(title, total=total, item="")
        started = False

        def advance(item: str) -> None:
            nonlocal started
            bar.update(task, advance=int(started), item=item)
            started = True

        yield advance
