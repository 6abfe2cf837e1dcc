"""Ctrl-C and SIGTERM end a run in order: the step is finished, a checkpoint is written, then the run ends.

>>> with StopSignal() as stop:
...     signal.raise_signal(signal.SIGTERM)
...     stop.name
'SIGTERM'
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Catches the first signal and remembers its name; a second Ctrl-C ends the process at once."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Only the main thread may set handlers; in another one, the program around us keeps its handlers.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._caught) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        signal.signal(signal.SIGINT, signal.default_int_handler)
