"""A run from its start, or from where it was left, to its final model.

Killed at any moment and started again, a run continues from its last checkpoint and ends with the same weights, losses
and order of data, bit for bit, on the CPU with the same number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from softmax_rnn.data.rows import Row, Rows, RowStream
from softmax_rnn.files import write_folder, write_whole
from softmax_rnn.train.checkpoint import Writer, latest_checkpoint
from softmax_rnn.train.folder import DiskError, RunFolder, disk_errors
from softmax_rnn.train.loop import TrainingLoop
from softmax_rnn.train.nonfinite import Diagnosis
from softmax_rnn.train.objective import Objective
from softmax_rnn.train.processes import this_share, wait_for_all
from softmax_rnn.train.progress import TrainProgress
from softmax_rnn.train.settings import TrainSettings
from softmax_rnn.train.signals import StopSignal
from softmax_rnn.train.training_state import network_weights
from softmax_rnn.validation import is_number

SaveFinal = Callable[[dict[str, Tensor], Path], None]
"""Writes the final model, given its weights, into an empty folder."""


@dataclass(frozen=True)
class Job:
    """What is trained, on what, and where the run is kept."""

    name: str
    network: nn.Module
    train: Rows | RowStream | Sequence[Row]
    test: Rows | Sequence[Row]
    settings: TrainSettings
    folder: RunFolder
    diagnose: Diagnosis = lambda network, module: f"first bad output: {module}" if module else "all outputs are finite"
    measured: Callable[[], Mapping[str, float]] = dict
    """What else is measured with each test, by names that begin with ``test_``."""
    counted: Callable[[], Mapping[str, int]] = dict
    """What else this process has counted so far, by name; kept in checkpoints, its sums are part of the result."""
    objective: Objective = field(default_factory=Objective)
    rate: Callable[[str], float] = lambda name: 1.0
    """The learning rate of a weight, by its name, in units of the settings'."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: at its last step with a result, or earlier because a signal asked for it."""

    folder: Path
    step: int
    stopped_by: str | None
    result: dict[str, Any] | None


def run_job(
    job: Job,
    save_final: SaveFinal,
    *,
    records: Mapping[str, Writer] | None = None,
    facts: dict[str, Any] | None = None,
    quiet: bool = False,
) -> Outcome:
    """Train, evaluate, save. The folder must be visible to all processes.

    ``records`` are files that say what the run is, written when it begins; ``facts`` become part of its result.
    """
    share, steps = this_share(), job.settings.steps
    first = share.rank == 0
    progress = TrainProgress(job.name, steps, quiet=quiet or not first)
    with job.folder.locked() if first else nullcontext(), progress, StopSignal() as stop, _full_disk(job):
        resume = latest_checkpoint(job.folder.checkpoints, lambda text: progress.say(text, always=first))
        wait_for_all()
        if first:
            for name, write in (records or {}).items():
                write_whole(job.folder.path / name, write)
            job.folder.forget_after(resume.step if resume else -1)
            job.folder.add_environment({"step": resume.step if resume else 0, "processes": share.processes})
        wait_for_all()
        if resume:
            progress.say(f"continuing from step {resume.step} of {steps}")
        loop = TrainingLoop(job, progress, stop, resume)
        step = loop.run()
        if step < steps:
            return Outcome(job.folder.path, step, stop.name or "a signal", None)
        return Outcome(job.folder.path, step, None, _finish(job, save_final, facts or {}, loop.state.counts(), first))


@contextmanager
def _full_disk(job: Job) -> Iterator[None]:
    """Errors of the disk in one line, with the checkpoint from which the same command continues."""
    try:
        with disk_errors(f"the run in {job.folder.path}"):
            yield
    except DiskError as error:
        last = latest_checkpoint(job.folder.checkpoints)
        kept = f"the checkpoint of step {last.step} is intact" if last else "there is no checkpoint yet"
        raise DiskError(f"{error}; {kept}") from error


def _finish(
    job: Job, save_final: SaveFinal, facts: dict[str, Any], counts: dict[str, int], first: bool
) -> dict[str, Any] | None:
    weights = network_weights(job.network)
    result = None
    if first:
        write_folder(job.folder.final, lambda path: save_final(weights, path))
        result = facts | summary(job.folder.metrics()) | counts
        job.folder.write_result(result)
    wait_for_all()
    return result


def summary(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """What a run's metrics come to: the last losses, the median speed, the most memory.

    >>> lines = [{"step": 1, "loss": 3.0, "tokens_per_second": 10.0, "memory_bytes": 5}, {"step": 1, "test_loss": 2.5}]
    >>> values = summary(lines)
    >>> values["test_loss"], values["train_loss"], values["tokens_per_second"]
    (2.5, 3.0, 10.0)
    """
    trained = [line for line in metrics if "loss" in line]
    losses = [line["loss"] for line in trained if is_number(line["loss"])]
    tested = [line for line in metrics if "test_loss" in line]
    speeds = sorted(line["tokens_per_second"] for line in trained if is_number(line.get("tokens_per_second")))
    last = {name: value for name, value in tested[-1].items() if name.startswith("test_")} if tested else {}
    return {
        "step": metrics[-1]["step"] if metrics else 0,
        "train_loss": losses[-1] if losses else None,
        **last,
        "tokens": trained[-1].get("tokens") if trained else 0,
        "skipped_steps": trained[-1].get("skipped_steps") if trained else 0,
        "tokens_per_second": speeds[len(speeds) // 2] if speeds else None,
        "memory_bytes": max(
            (line["memory_bytes"] for line in trained if is_number(line.get("memory_bytes"))), default=None
        ),
    }
