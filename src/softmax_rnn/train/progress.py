"""A run in the terminal: a bar with loss, speed and time left; plain lines where there is no terminal."""

from __future__ import annotations

import time
from typing import Any, Self

from rich.progress import Progress

from softmax_rnn.console import ERR, bar_with_text, say


class TrainProgress:
    """Shows the step and each measurement. ``quiet``: prints nothing (all processes but the first)."""

    def __init__(self, title: str, steps: int, *, quiet: bool = False) -> None:
        self._title, self._steps, self._quiet = title, steps, quiet
        self._said = ""
        self._bar: Progress | None = None
        self._first: tuple[int, float] | None = None

    def __enter__(self) -> Self:
        if not self._quiet and ERR.is_terminal:
            self._bar = bar_with_text(self._title, "said")
            self._task = self._bar.add_task(self._title, total=self._steps, said="")
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def at(self, step: int) -> None:
        """A step is done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step)

    def measured(self, values: dict[str, Any]) -> None:
        """Something was measured; it is shown beside the bar until the next."""
        names = (("loss", "loss {:.4f}"), ("test_loss", "test loss {:.4f}"), ("test_accuracy", "accuracy {:.4f}"))
        names += (("tokens_per_second", "{:,.0f} tokens/s"),)
        self._said = ", ".join(text.format(values[name]) for name, text in names if values.get(name) is not None)
        if self._bar is not None:
            self._bar.update(self._task, completed=values["step"], said=self._said)
        elif not self._quiet:
            self.say(f"{self._title} {values['step']}/{self._steps} {self._said}{self._time_left(values['step'])}")

    def _time_left(self, step: int) -> str:
        """At the speed since the first measurement of this process."""
        now = time.monotonic()
        if self._first is None:
            self._first = (step, now)
        began, start = self._first
        if step == began or step >= self._steps:
            return ""
        return f", {duration((now - start) / (step - began) * (self._steps - step))} left"

    def say(self, message: str, *, always: bool = False) -> None:
        """A separate line; ``always``: even where everything else is quiet."""
        if always or not self._quiet:
            say(message)


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(3), duration(400), duration(8000)
    ('3 s', '7 min', '2 h 13 min')
    """
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
