"""A study in the terminal: a live table of its runs; plain lines where there is no terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from rich.live import Live
from rich.table import Table

from softmax_rnn.console import ERR, about, plural, say
from softmax_rnn.study.runner import Event
from softmax_rnn.study.runs import PlannedRun
from softmax_rnn.train.folder import RunFolder

_MARKS = {"finished": "[green]finished[/]", "failed": "[bold red]failed[/]", "started": "[cyan]running[/]"}
_SHOWN = 24
"""Rows of the table at most: what runs, what failed, and the next of the rest."""


class StudyTable:
    """Called with events; reads the folders of the runs in progress."""

    def __init__(
        self, title: str, runs: Sequence[PlannedRun], left: Sequence[PlannedRun], jobs: Callable[[], int] = lambda: 1
    ) -> None:
        self._title, self._runs, self._jobs = title, list(runs), jobs
        waiting = {run.folder for run in left}
        self._states = {str(run.folder): "waiting" if run.folder in waiting else "finished" for run in runs}
        self._seconds: list[float] = []
        self._known: dict[str, list[str]] = {}
        self._since: dict[str, float] = {}
        self._live: Live | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if ERR.is_terminal:
            self._live = Live(get_renderable=self._table, console=ERR, refresh_per_second=1)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def watch(self, event: Event) -> None:
        """Something happened to a run."""
        with self._lock:
            key = str(event.run.folder)
            self._states[key] = event.state
            if event.state == "started":
                self._since[key] = time.monotonic()
            if event.state == "finished":
                self._seconds.append(event.seconds)
        if self._live is None:
            say(self._line(event))

    def _line(self, event: Event) -> str:
        done = sum(state == "finished" for state in self._states.values())
        said = f"{self._title} {done}/{len(self._states)} {event.run.label} {event.state}"
        if event.error:
            return f"{said}: {event.error}"
        if event.state == "finished":
            result = RunFolder(event.run.folder).result() or {}
            loss = _number(result, "test_loss", ".4f") or "not finite"
            note = f" ({event.note})" if event.note else ""
            return f"{said} in {event.seconds:.0f} s, test loss {loss}{note}{self._left()}"
        return said

    def _left(self) -> str:
        """The time left, judged by the runs so far; what the running ones have done counts."""
        if not self._seconds:
            return ""
        mean = sum(self._seconds) / len(self._seconds)
        waiting = sum(state == "waiting" for state in self._states.values())
        begun = [self._since[key] for key, state in self._states.items() if state == "started"]
        going = [max(0.0, mean - (time.monotonic() - since)) for since in begun]
        if not waiting and not going:
            return ""
        seconds = max((waiting * mean + sum(going)) / self._jobs(), max(going, default=0.0))
        return f", {about(seconds)} left"

    def _table(self) -> Table:
        with self._lock:
            done = sum(state == "finished" for state in self._states.values())
            table = Table(title=f"{self._title}: {done} of {plural(len(self._states), 'run')} finished{self._left()}")
            for heading in ("run", "state", "step", "loss", "test loss", "tokens/s"):
                table.add_column(heading, justify="left" if heading in ("run", "state") else "right", overflow="fold")
            for run in self._interesting():
                table.add_row(*self._cells(run))
            return table

    def _interesting(self) -> list[PlannedRun]:
        rank = {"started": 0, "failed": 1, "finished": 2, "waiting": 3, "stopped": 1}
        unique = list({str(run.folder): run for run in self._runs}.values())
        return sorted(unique, key=lambda run: rank[self._states[str(run.folder)]])[:_SHOWN]

    def _cells(self, run: PlannedRun) -> list[str]:
        state = self._states[str(run.folder)]
        cells = [run.label, _MARKS.get(state, state)]
        if state in ("waiting", "failed"):
            return [*cells, "", "", "", ""]
        if (folder := str(run.folder)) in self._known:
            return self._known[folder]
        metrics = RunFolder(run.folder).metrics()
        trained = next((line for line in reversed(metrics) if "loss" in line), {})
        tested = next((line for line in reversed(metrics) if "test_loss" in line), {})
        step = f"{metrics[-1]['step'] if metrics else 0}/{run.config.steps}"
        cells += [step, _number(trained, "loss", ".4f"), _number(tested, "test_loss", ".4f")]
        cells.append(_number(trained, "tokens_per_second", ",.0f"))
        if state == "finished":  # its metrics no longer change
            self._known[folder] = cells
        return cells


def _number(line: dict[str, Any], name: str, text_format: str) -> str:
    value = line.get(name)
    return "" if value is None else format(value, text_format)
