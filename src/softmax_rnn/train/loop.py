"""The training loop, on accelerate: the one place where a step happens.

The network is any module that takes the tensors of a row (without ``targets``) and returns an object with ``logits``.
Which rows make a step depends on the seed and the step alone, and everything else that the next step depends on is in
a checkpoint, so a run that continues from one ends bit for bit like a run that was left alone.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from softmax_rnn.machine import peak_bytes
from softmax_rnn.train.batches import Batch, Batches
from softmax_rnn.train.checkpoint import Checkpoint, write_checkpoint
from softmax_rnn.train.evaluation import counted
from softmax_rnn.train.folder import DiskError, disk_errors
from softmax_rnn.train.nonfinite import NonFiniteError, first_bad_module, message
from softmax_rnn.train.optimizer import adamw, set_learning_rate
from softmax_rnn.train.processes import any_process, first_process, gathered, on_cpu, shard, this_share, together_sum
from softmax_rnn.train.progress import TrainProgress
from softmax_rnn.train.signals import StopSignal
from softmax_rnn.train.trackers import trackers_of
from softmax_rnn.train.training_state import Counters, TrainingState

if TYPE_CHECKING:
    from softmax_rnn.train.job import Job

EVALUATED_TOKENS = 2048
"""At least this many tokens are evaluated at once."""


class TrainingLoop:
    """A run of a job, from its start or from a checkpoint, to its last step or to a signal."""

    def __init__(self, job: Job, progress: TrainProgress, stop: StopSignal, resume: Checkpoint | None = None) -> None:
        self.job, self.settings, self.progress, self.stop = job, job.settings, progress, stop
        self.share, self.resumed = this_share(), resume is not None
        trackers: Any = trackers_of(job.settings, job.folder.path, job.name)
        self.accelerator = Accelerator(cpu=on_cpu(job.settings), mixed_precision="no", log_with=trackers or None)
        self.device = self.accelerator.device
        torch.manual_seed(job.settings.seed)
        self.network = self._placed(job.network)
        self.optimizer = adamw(job.network, job.settings, job.rate)
        self.batches = Batches(job.train, job.settings, self.share)
        self.loss = torch.zeros((), device=self.device)
        """The sum of the losses since the last line of metrics."""
        self.counters = Counters()
        self.state = TrainingState(job.network, self.optimizer, self.batches, self.loss, self.counters, job.counted)
        if resume is not None:
            self.state.restore(resume.path)
        self._start_clock()

    def _placed(self, network: nn.Module) -> nn.Module:
        """The network where it is computed: copied to every process (DDP), or its weights spread over them (FSDP2)."""
        if self.settings.recompute:
            recompute: Any = network
            recompute.gradient_checkpointing_enable()
        if self.settings.fsdp:
            shard(network.to(self.device))  # accelerate's own FSDP does nothing on CPUs
        if self.settings.compile is not None:
            network.compile(backend=self.settings.compile)
        return network if self.settings.fsdp else self.accelerator.prepare_model(network)

    def run(self) -> int:
        """All steps that are left; returns the last one done."""
        settings, counters = self.settings, self.counters
        self.accelerator.init_trackers("")
        try:
            if not self.resumed:
                self.evaluate()
            self.network.train()
            while counters.step < settings.steps:
                norm, rate = self.step()
                step, last = counters.step, counters.step == settings.steps
                self.progress.at(step)
                if last or step % settings.log_every == 0:
                    self.log(norm, rate)
                if last or (settings.eval_every is not None and step % settings.eval_every == 0):
                    self.evaluate()
                stopped = any_process(self.stop.name is not None, self.device)
                if last or stopped or step % settings.checkpoint_every == 0:
                    self.save()
                if stopped:
                    break
        finally:
            for tracker in self.accelerator.trackers:
                tracker.finish()
        return counters.step

    def step(self) -> tuple[float, float]:
        """One step of the optimizer; returns the norm of the gradient before clipping, and the learning rate."""
        counters = self.counters
        parts = [self._on_device(part) for part in self.batches.of_step(counters.step)]
        targets = int(together_sum(torch.stack([counted(part["targets"]) for part in parts]).sum()))
        loss = torch.zeros((), device=self.device)
        for number, part in enumerate(parts):
            # Gradients are averaged over the processes once, with the last part.
            last = number == len(parts) - 1
            with nullcontext() if last else self.accelerator.no_sync(self.network):
                part_loss = self._part_loss(part, targets)
                self.accelerator.backward(part_loss)
                loss += part_loss.detach()
        weights = [weight for weight in self.job.network.parameters() if weight.grad is not None]
        total: Any = nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
        norm = float(total.full_tensor() if hasattr(total, "full_tensor") else total)
        rate = set_learning_rate(self.optimizer, self.settings, counters.step)
        counters.step += 1
        counters.tokens += targets
        counters.unlogged_steps += 1
        self._targets += targets
        if any_process(not (math.isfinite(norm) and math.isfinite(float(loss))), self.device):
            self._leave_out(parts, float(loss), norm)
        else:
            if self.settings.clip is not None:
                nn.utils.clip_grads_with_norm_(weights, self.settings.clip, total)
            self.optimizer.step()
            self.loss += loss
        self.optimizer.zero_grad()
        return norm, rate

    def _part_loss(self, part: Batch, targets: int) -> Tensor:
        """The sum of this process' losses over the mean number of targets per process: gradients are averaged."""

        def network(**inputs: Tensor) -> Any:
            with self._autocast():
                return self.network(**inputs)

        # A step without any target gives 0, not 0/0.
        return self.job.objective.loss_sum(network, part) * (self.share.processes / max(targets, 1))

    def _leave_out(self, parts: list[Batch], loss: float, norm: float) -> None:
        """A step whose loss or gradient is not finite: end the run, or skip it, as the settings say.

        The first one that is skipped is looked into and said, all of them are counted.
        """
        job, step = self.job, self.counters.step
        self.counters.skipped += 1
        self.counters.unlogged_skipped += 1
        if self.settings.nonfinite == "skip" and self.counters.skipped > 1:
            return
        with self._autocast():
            module = first_bad_module(job.network, parts)
        text = message(step, loss, norm, parts, job.diagnose(job.network, module))
        culprit = first_process(not math.isfinite(loss), self.device) or 0
        if self.settings.nonfinite == "stop":
            raise NonFiniteError(
                text if self.share.rank == culprit else f"step {step}: see the message of process {culprit}"
            )
        if self.share.rank == culprit:
            self.progress.say(f"skipped: {text}; further ones are counted in skipped_steps", always=True)

    def log(self, norm: float, rate: float) -> None:
        """A line of training metrics, over the steps since the line before; steps that were left out do not count."""
        counters = self.counters
        kept = counters.unlogged_steps - counters.unlogged_skipped
        total = float(torch.stack(gathered(self.loss)).mean())
        elapsed = time.perf_counter() - self._start - self._away
        values = {
            "loss": total / kept if kept else math.nan,
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens": counters.tokens,
            "skipped_steps": counters.skipped,
            "tokens_per_second": self._targets / elapsed if elapsed > 0 else 0.0,
            "memory_bytes": _memory(self.device),
        }
        counters.unlogged_steps = counters.unlogged_skipped = 0
        self.loss.zero_()
        self._start_clock()
        self._record(values)
        self.accelerator.log({f"train/{name}": value for name, value in values.items()}, step=counters.step)

    def evaluate(self) -> None:
        """What the objective measures on the whole test split: by default the loss, also by position."""
        began, settings = time.perf_counter(), self.settings
        length = len(self.job.test[0]["targets"])
        # As many rows as in training, but not so few that calls cost more than what they compute.
        rows = max(settings.rows_of_process(self.share.processes), EVALUATED_TOKENS // length)
        size = settings.eval_batch_size or rows
        with self._autocast():
            values = self.job.objective.measure(self.job.network, self.job.test, size, self.share, self.device)
        values |= self.job.measured()
        self._away += time.perf_counter() - began
        self._record(values)
        named = {n.replace("test_", "test/"): value for n, value in values.items() if not isinstance(value, list)}
        self.accelerator.log(named, step=self.counters.step)
        loss = values["test_loss"]
        if values.get("test_tokens", 1) and not math.isfinite(loss) and settings.nonfinite == "stop":
            hint = "; lower the learning rate" if self.counters.step else ""
            raise NonFiniteError(f"step {self.counters.step}: the test loss is {loss}{hint}")

    def save(self) -> None:
        """Write a checkpoint: a folder that is there whole or not at all."""
        began, problem = time.perf_counter(), None
        what = f"the checkpoint of step {self.counters.step}"
        files = self.state.files()
        if self.share.rank == 0:
            try:
                with disk_errors(f"{what} in {self.job.folder.path}"):
                    keep = self.settings.keep_checkpoints
                    write_checkpoint(self.job.folder.checkpoints, self.counters.step, files, keep)
            except DiskError as error:
                problem = error
        if any_process(problem is not None, self.device):
            raise problem or DiskError(f"{what}: process 0 could not write it")
        self._away += time.perf_counter() - began

    def _record(self, values: dict[str, Any]) -> None:
        """A line of ``metrics.jsonl``, and what people see of it."""
        values = {"step": self.counters.step, **values}
        if self.share.rank == 0:
            self.job.folder.add_metrics(values)
        self.progress.measured(values)

    def _start_clock(self) -> None:
        self._targets, self._away, self._start = 0, 0.0, time.perf_counter()

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16")

    def _on_device(self, part: Batch) -> Batch:
        return {name: x.to(self.device) for name, x in part.items()}


def _memory(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_bytes()
