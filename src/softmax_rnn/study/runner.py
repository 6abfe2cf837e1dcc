"""Runs side by side on one machine: workers with their share of the threads, each training one run after another.

A run that fails is reported and the others continue; a worker that dies takes only its run with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from softmax_rnn.study.runs import PlannedRun


@dataclass(frozen=True)
class Event:
    """What happened to a run: started, finished, failed (with the reason) or stopped."""

    run: PlannedRun
    state: str
    error: str | None = None
    seconds: float = 0.0
    note: str | None = None
    """A remark on a finished run."""


Watch = Callable[[Event], None]


class Runner(Protocol):
    """Carries out runs and reports on each; returns when all are done or have failed."""

    jobs: int
    """How many runs train at the same time."""

    def __call__(self, runs: Sequence[PlannedRun], watch: Watch) -> None:
        """Carry out the runs."""
        ...


def default_jobs() -> int:
    """Small models train fastest with one run per core; a GPU trains one run at a time."""
    import torch

    return 1 if torch.accelerator.is_available() else min(4, os.cpu_count() or 1)


class LocalRunner:
    """``jobs`` workers on this machine; the cores are divided among them."""

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = jobs
        self._workers: set[subprocess.Popen[str]] = set()
        self._stopping = False

    def __call__(self, runs: Sequence[PlannedRun], watch: Watch) -> None:
        """Carry out the runs. Ctrl-C or SIGTERM lets the workers write their checkpoints, then ends."""
        waiting: queue.SimpleQueue[PlannedRun] = queue.SimpleQueue()
        for run in runs:
            waiting.put(run)
        count = min(self.jobs, len(runs))
        # Leaving the pool waits for its threads, and so for the last messages of their workers.
        with _signals_as_interrupts(), ThreadPoolExecutor(count) as pool:
            serving = [pool.submit(self._serve, waiting, watch) for _ in range(count)]
            try:
                for thread in serving:
                    thread.result()
            except BaseException:
                self._stop()
                raise

    def _stop(self) -> None:
        self._stopping = True
        for worker in list(self._workers):
            worker.send_signal(signal.SIGTERM)

    def _serve(self, waiting: queue.SimpleQueue[PlannedRun], watch: Watch) -> None:
        worker: subprocess.Popen[str] | None = None
        while not self._stopping:
            try:
                run = waiting.get_nowait()
            except queue.Empty:
                break
            if worker is None or worker.poll() is not None:
                self._end(worker)
                worker = self._start()
            watch(Event(run, "started"))
            start = time.monotonic()
            answer = _ask(worker, run)
            seconds = time.monotonic() - start
            if self._stopping and worker.poll() == -signal.SIGTERM:  # it was asked to stop before it began to train
                answer = {"state": "stopped"}
            watch(Event(run, answer["state"], answer.get("error"), seconds, answer.get("note")))
        self._end(worker)

    def _end(self, worker: subprocess.Popen[str] | None) -> None:
        """A worker whose standard input ends stops by itself."""
        if worker is not None:
            # Leaving the context closes the pipes and waits.
            with contextlib.suppress(BrokenPipeError), worker:
                pass
            self._workers.discard(worker)

    def _start(self) -> subprocess.Popen[str]:
        # A limit on the threads of this process is meant for all its workers together.
        cores = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
        threads = max(1, cores // self.jobs)
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        worker = subprocess.Popen(
            [sys.executable, "-m", "softmax_rnn.study.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            # Ctrl-C reaches the runner alone, which then asks the workers to stop.
            start_new_session=True,
        )
        self._workers.add(worker)
        if self._stopping:  # it was asked to stop meanwhile
            worker.send_signal(signal.SIGTERM)
        return worker


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """SIGTERM ends a study as Ctrl-C does, and Ctrl-C does where the shell had it ignored (`softmax-rnn study … &`)."""
    if threading.current_thread() is not threading.main_thread():  # it may not set handlers
        yield
        return
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def order_of(run: PlannedRun) -> dict[str, Any]:
    """What is sent to a worker."""
    return {"config": run.config.values(), "output": str(run.folder)}


def _ask(worker: subprocess.Popen[str], run: PlannedRun) -> dict[str, Any]:
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(json.dumps(order_of(run)) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except OSError:
        line = ""
    if line:
        return json.loads(line)
    return {"state": "failed", "error": f"the process that trained it ended with code {worker.wait()}"}


def unfinished(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """The runs that are left, each folder once, seed by seed: a study that is cut short has compared whole seeds."""
    left: dict[str, PlannedRun] = {}
    for run in runs:
        if not (run.folder / "result.json").exists():
            left.setdefault(str(run.folder), run)
    return sorted(left.values(), key=lambda run: run.config.seed)
