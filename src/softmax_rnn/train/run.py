"""A run from its start, or from where it was left, to its final model.

Killed at any moment and started again, a run continues from its last checkpoint and ends with the same weights, losses
and order of data, bit for bit, on the CPU with the same number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from softmax_rnn.errors import InputError
from softmax_rnn.files import write_folder, write_whole
from softmax_rnn.train import snapshot
from softmax_rnn.train.arguments import on_cpu
from softmax_rnn.train.checkpoint import Checkpoint, Writer, latest_checkpoint
from softmax_rnn.train.disk import DiskError, disk_errors
from softmax_rnn.train.engine import Engine
from softmax_rnn.train.job import Job
from softmax_rnn.train.processes import shard, this_share, wait_for_all
from softmax_rnn.train.progress import TrainProgress
from softmax_rnn.train.settings import TrainSettings
from softmax_rnn.train.signals import StopWish
from softmax_rnn.train.trackers import tracker_places

SaveFinal = Callable[[dict[str, Tensor], Path], None]
"""Writes the final model, given its weights, into an empty folder."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: at its last step with a result, or earlier because a signal asked for it."""

    folder: Path
    step: int
    stopped_by: str | None
    result: dict[str, Any] | None


@contextmanager
def process_group(settings: TrainSettings) -> Iterator[None]:
    """The processes that torchrun started, joined; one process alone needs nothing."""
    if this_share().processes == 1:
        if settings.fsdp:
            raise InputError(
                "fsdp: expected 2 or more processes; start with torchrun --nproc_per_node=N -m softmax_rnn …"
            )
        yield
        return
    from accelerate import PartialState

    if on_cpu(settings):
        _share_cores()
        PartialState(cpu=True, backend="gloo")
    else:
        PartialState()
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _share_cores() -> None:
    """Divide the cores among the processes of this machine, where nobody has said how many threads each may have."""
    if "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        torch.set_num_threads(min(threads, torch.get_num_threads()))
        os.environ["OMP_NUM_THREADS"] = str(threads)


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
    share = this_share()
    first = share.rank == 0
    progress = TrainProgress(job.name, job.settings.steps, quiet=quiet or not first)
    with job.folder.locked() if first else nullcontext(), progress, StopWish() as wish, _one_line_for_a_full_disk(job):
        resume = latest_checkpoint(job.folder.checkpoints, lambda text: progress.say(text, always=first))
        wait_for_all()
        if first:
            for name, write in (records or {}).items():
                write_whole(job.folder.path / name, write)
            job.folder.forget_after(resume.step if resume else -1)
            job.folder.add_environment({"step": resume.step if resume else 0, "processes": share.processes})
        wait_for_all()
        if resume:
            progress.say(f"continuing from step {resume.step} of {job.settings.steps}")
        if job.settings.fsdp:
            shard(job.network.to("cpu" if on_cpu(job.settings) else torch.accelerator.current_accelerator()))
        with tracker_places(job.folder.path):
            step = _train(job, progress, wish, resume)
        if step < job.settings.steps:
            return Outcome(job.folder.path, step, wish.name or "a signal", None)
        return Outcome(job.folder.path, step, None, _finish(job, save_final, facts or {}, first))


@contextmanager
def _one_line_for_a_full_disk(job: Job) -> Iterator[None]:
    """Errors of the disk, with the checkpoint from which the same command continues."""
    try:
        with disk_errors(f"the run in {job.folder.path}"):
            yield
    except DiskError as error:
        last = latest_checkpoint(job.folder.checkpoints)
        said = f"the checkpoint of step {last.step} is intact" if last else "there is no checkpoint yet"
        raise DiskError(f"{error}; {said}") from error


def _train(job: Job, progress: TrainProgress, wish: StopWish, resume: Checkpoint | None) -> int:
    """All steps that are left; returns the last one done."""
    engine = Engine(job, progress, wish, resume)
    if resume is not None and resume.step >= job.settings.steps:
        snapshot.restore_network(job.network, snapshot.read_tensors(resume.path / "model.safetensors"))
        return resume.step
    engine.train(resume_from_checkpoint=str(resume.path) if resume else None)
    return engine.state.global_step


def _finish(job: Job, save_final: SaveFinal, facts: dict[str, Any], first: bool) -> dict[str, Any] | None:
    weights = snapshot.network_state(job.network)
    result = None
    if first:
        write_folder(job.folder.final, lambda path: save_final(weights, path))
        result = facts | summary(job.folder.metrics())
        job.folder.write_result(result)
    wait_for_all()
    return result


def summary(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """What a run's metrics come to: the last losses, the median speed, the most memory.

    >>> lines = [{"step": 1, "loss": 3.0, "tokens_per_second": 10.0, "memory_bytes": 5}, {"step": 1, "test_loss": 2.5}]
    >>> found = summary(lines)
    >>> found["test_loss"], found["train_loss"], found["tokens_per_second"]
    (2.5, 3.0, 10.0)
    """
    trained = [line for line in metrics if "loss" in line]
    losses = [line["loss"] for line in trained if line["loss"] is not None]
    tested = [line for line in metrics if "test_loss" in line]
    speeds = sorted(line["tokens_per_second"] for line in trained)
    last = {name: value for name, value in tested[-1].items() if name.startswith("test_")} if tested else {}
    return {
        "step": metrics[-1]["step"] if metrics else 0,
        "train_loss": losses[-1] if losses else None,
        **last,
        "tokens": trained[-1].get("tokens") if trained else 0,
        "skipped_steps": trained[-1].get("skipped_steps") if trained else 0,
        "tokens_per_second": speeds[len(speeds) // 2] if speeds else None,
        "memory_bytes": max((line["memory_bytes"] for line in trained), default=None),
    }
