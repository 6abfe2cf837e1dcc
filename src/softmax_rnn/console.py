"""The two streams of the terminal, and progress on them; plain lines where there is no terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def _console(stderr: bool = False) -> Console:
    """The terminal's width, and a wide page where there is none."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=160)


OUT = _console()
ERR = _console(stderr=True)


def say(text: str) -> None:
    """A plain line on standard error."""
    ERR.print(text, markup=False, highlight=False, soft_wrap=True)


_SAID: set[str] = set()


def say_once(text: str) -> None:
    """A line that this process says once, however often it is asked to."""
    if text not in _SAID:
        _SAID.add(text)
        say(text)


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """A number with its noun.

    >>> plural(1, "run"), plural(0, "run"), plural(2000, "entry", "entries")
    ('1 run', '0 runs', '2,000 entries')
    """
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def about(seconds: float) -> str:
    """A time to wait for, no finer than anybody can know it.

    >>> about(4), about(59), about(90), about(3600 * 5)
    ('less than 10 s', 'about 60 s', 'about 2 min', 'about 5 h')
    """
    if seconds < 10:
        return "less than 10 s"
    if seconds < 75:
        return f"about {math.ceil(seconds / 10) * 10} s"
    if seconds < 90 * 60:
        return f"about {math.ceil(seconds / 60)} min"
    return f"about {seconds / 3600:.1f}".removesuffix(".0") + " h"


def bar_with_text(title: str, field: str, *, transient: bool = False) -> Progress:
    """A bar on standard error between its title and the text of a field of its task."""
    columns = (
        TextColumn(title, markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn(f"{{task.fields[{field}]}}", markup=False),
    )
    return Progress(*columns, console=ERR, transient=transient)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on standard error, called with each item before its turn; one line per item without a terminal."""
    if not ERR.is_terminal:
        done = 0

        def line(item: str) -> None:
            nonlocal done
            done += 1
            say(f"{title} {done}/{total} {item}")

        yield line
        return
    with bar_with_text(title, "item", transient=True) as bar:
        task = bar.add_task(title, total=total, item="")
        started = False

        def advance(item: str) -> None:
            nonlocal started
            bar.update(task, advance=int(started), item=item)
            started = True

        yield advance


@contextmanager
def byte_progress(title: str) -> Iterator[Callable[[int], None]]:
    """A counter with MB/s, called with the number of new bytes; the total is not known. Ends with a line."""
    from rich.progress import DownloadColumn, SpinnerColumn, TransferSpeedColumn

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
    say(f"{title}: {done / 1e6:.1f} MB in {seconds:.1f} s ({done / 1e6 / seconds:.1f} MB/s)")
