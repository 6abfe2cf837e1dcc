"""A process that trains one run after the other: a line of JSON in, a line of JSON out.

It belongs to the runner that started it; when that goes away, in whatever way, the worker writes a checkpoint and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Self


def work(order: dict[str, Any]) -> dict[str, Any]:
    """Train one run; what goes wrong is an answer, not an end."""
    from softmax_rnn.experiment.config import resolve
    from softmax_rnn.experiment.training import run_training
    from softmax_rnn.machine import forget_peak

    forget_peak()
    counted = NonPositive()
    try:
        with counted:
            outcome = run_training(resolve(order["config"]), Path(order["output"]), quiet=True)
    except Exception as error:  # the study goes on with its other runs
        return {"state": "failed", "error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    if outcome.stopped_by is not None:
        return {"state": "stopped", "step": outcome.step}
    return {"state": "finished", "note": counted.summary()}


class NonPositive:
    """Inside, warnings about row sums and weights that are not positive are counted instead of printed."""

    def __init__(self) -> None:
        self._calls = self._row_sums = self._negative_rows = 0
        self._caught = warnings.catch_warnings()

    def __enter__(self) -> Self:
        from softmax_rnn.attention.nonpositive import NonPositiveWarning

        self._caught.__enter__()
        warnings.simplefilter("always", NonPositiveWarning)
        show = warnings.showwarning

        def count(message: Warning | str, *where: Any, **more: Any) -> None:
            if not isinstance(message, NonPositiveWarning):
                show(message, *where, **more)
                return
            self._calls += 1
            self._row_sums += message.row_sums
            self._negative_rows += message.negative_rows

        warnings.showwarning = count
        return self

    def __exit__(self, *error: Any) -> None:
        self._caught.__exit__(*error)

    def summary(self) -> str | None:
        """One line for the whole run; None where there was nothing to count."""
        if not self._calls:
            return None
        sums = f"{self._row_sums:,} row sums not positive, " if self._row_sums else ""
        return f"{sums}{self._negative_rows:,} rows with weights below 0, in {self._calls:,} calls of attention"


def _end_with(parent: int) -> None:
    """Ask this process to stop once its parent is gone; a killed runner could not do so."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Answer orders until there are no more."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # The answers have standard output for themselves; what libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        answer = work(json.loads(line))
        with contextlib.suppress(BrokenPipeError):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        if answer["state"] == "stopped":
            return


if __name__ == "__main__":
    main()
