"""A process that trains one run after another: a line of JSON in, a line of JSON out.

It belongs to the runner that started it; when that ends, for whatever reason, the worker writes a checkpoint and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from softmax_rnn.quick_imports import quick_imports


def work(order: dict[str, Any]) -> dict[str, Any]:
    """Train one run; an error is an answer and does not end the worker."""
    with quick_imports():
        from softmax_rnn.console import plural
        from softmax_rnn.experiment.config import resolve
        from softmax_rnn.experiment.training import ROW_SUMS, run_training
        from softmax_rnn.machine import forget_peak

    forget_peak()
    try:
        outcome = run_training(resolve(order["config"]), Path(order["output"]), quiet=True)
    except Exception as error:  # the study continues with its other runs
        return {"state": "failed", "error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    if outcome.stopped_by is not None:
        return {"state": "stopped", "step": outcome.step}
    row_sums = (outcome.result or {}).get(ROW_SUMS, 0)
    return {"state": "finished", "note": f"{plural(row_sums, 'row sum')} not positive" if row_sums else None}


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
