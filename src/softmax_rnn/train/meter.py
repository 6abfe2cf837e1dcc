"""What is counted while a run goes on: targets, steps left out, the speed since the last line of metrics.

>>> meter = Meter()
>>> meter.begin_step(100); meter.begin_step(100); meter.leave_out()
>>> meter.tokens, meter.skipped, meter.mean_of_kept(1.5)               # the mean of two steps, one of which was 0
(200, 1, 3.0)
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Meter:
    """Counters of the whole run, and those of the window since the last line of metrics."""

    def __init__(self) -> None:
        self.tokens = 0
        """Counted targets that were trained on."""
        self.skipped = 0
        """Steps left out because something was not finite."""
        self._steps = self._steps_skipped = 0
        self._reset_clock()

    def _reset_clock(self) -> None:
        self._targets, self._away, self._start = 0, 0.0, time.perf_counter()

    def begin_step(self, targets: int) -> None:
        """A step with so many counted targets begins."""
        self._targets += targets
        self.tokens += targets
        self._steps += 1

    def leave_out(self) -> None:
        """The step that began last does not count."""
        self.skipped += 1
        self._steps_skipped += 1

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Time in here is no training time."""
        start = time.perf_counter()
        yield
        self._away += time.perf_counter() - start

    def mean_of_kept(self, mean: float) -> float:
        """The mean over the steps that were kept, from the mean over all steps of the window; those left out gave 0."""
        kept = self._steps - self._steps_skipped
        if kept == self._steps:
            return mean
        return mean * self._steps / kept if kept else math.nan

    def end_window(self) -> float:
        """Counted targets a second since the last line; a new window begins."""
        elapsed = time.perf_counter() - self._start - self._away
        speed = self._targets / elapsed if elapsed > 0 else 0.0
        self._steps = self._steps_skipped = 0
        self._reset_clock()
        return speed

    def state_dict(self) -> dict[str, Any]:
        """All that a run must know again when it continues; clocks start anew."""
        window = {"steps": self._steps, "steps_skipped": self._steps_skipped}
        return {"tokens": self.tokens, "skipped": self.skipped, "window": window}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue counting from a state."""
        self.tokens, self.skipped = state["tokens"], state["skipped"]
        self._steps, self._steps_skipped = state["window"]["steps"], state["window"]["steps_skipped"]
        self._reset_clock()
