"""The engine: transformers' Trainer on accelerate, with our own order of data, loss, evaluation and checkpoints.

The network is any module that takes the tensors of a row (without ``targets``) and returns an object with ``logits``.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer
from transformers.trainer_callback import PrinterCallback

from softmax_rnn.data.rows import Row, Rows, RowStream
from softmax_rnn.errors import RunError
from softmax_rnn.machine import peak_bytes
from softmax_rnn.train import snapshot
from softmax_rnn.train.arguments import adamw, learning_rates, training_arguments
from softmax_rnn.train.checkpoint import Checkpoint, Writer, write_checkpoint
from softmax_rnn.train.evaluation import Evaluation, evaluate
from softmax_rnn.train.feed import Feed
from softmax_rnn.train.flow import Flow
from softmax_rnn.train.folder import RunFolder
from softmax_rnn.train.guard import Diagnosis, NonFiniteError, first_bad_module, message
from softmax_rnn.train.loss import counted, loss_sum
from softmax_rnn.train.processes import any_process, gathered, this_share, together_sum
from softmax_rnn.train.progress import TrainProgress
from softmax_rnn.train.settings import TrainSettings
from softmax_rnn.train.signals import StopWish

STATE = "trainer_state.json"
"""The name under which Trainer looks for its own counters."""


class DiskError(RunError):
    """A checkpoint could not be written; those before it are untouched."""


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


class Engine(Trainer):
    """One run of a job, from its start or from a checkpoint."""

    # Our loss is divided by the targets of the whole step, so Trainer must not divide it again.
    loss_is_scaled_for_ga = True

    def __init__(self, job: Job, progress: TrainProgress, wish: StopWish, resume: Checkpoint | None = None) -> None:
        self.job, self.progress, self.wish, self.resume = job, progress, wish, resume
        self.share = this_share()
        arguments = training_arguments(job.settings, job.folder.path, job.name, self.share.processes)
        super().__init__(model=job.network, args=arguments)
        self.loss_is_scaled_for_ga = True
        self.remove_callback(PrinterCallback)
        self.add_callback(Flow(self))
        self.feed = Feed(job.train, job.settings, self.share, resume.step if resume else 0)
        self.tokens = 0
        """Counted targets that were trained on."""
        self.skipped = 0
        """Steps left out because something was not finite."""
        self.last_evaluation: Evaluation | None = None
        self._batches: list[dict[str, Tensor]] = []
        self._step_loss = math.nan
        self._counts = 0
        self._busy = 0.0
        self._window = time.perf_counter()

    # What Trainer asks for

    def get_train_dataloader(self) -> Any:
        """The batches of this process, from the step on at which the run stands."""
        if self.resume and isinstance(self.job.train, RowStream):
            self.job.train.load_state_dict(self._saved("state.json")["feed"])
        return self.feed

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """AdamW of the settings."""
        self.optimizer = adamw(model or self.job.network, self.job.settings)
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LambdaLR:
        """The schedule of the settings."""
        self.lr_scheduler = learning_rates(self._plain_optimizer, self.job.settings)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Tensor]], device: torch.device) -> Tensor:
        """The counted targets of the step, over all processes."""
        self._batches = batch_samples
        number = torch.stack([counted(batch["targets"]) for batch in batch_samples]).sum().to(device)
        number = together_sum(number)
        self._counts += int(number)
        self.tokens += int(number)
        return number

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The sum of this process' losses over the mean number of targets a process: gradients are averaged later."""
        targets = inputs.pop("targets")
        outputs = model(**inputs)
        assert num_items_in_batch is not None
        # A step without any target gives 0, not 0/0.
        number = max(int(num_items_in_batch), 1)
        loss = loss_sum(outputs.logits, targets) * (self.share.processes / number)
        self._step_loss = float(loss.detach())
        return (loss, outputs) if return_outputs else loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> float:
        """The norm before clipping; where it or the loss is not finite, the settings say what happens."""
        found = super()._get_grad_norm(model, grad_norm)
        norm = float(found.full_tensor() if hasattr(found, "full_tensor") else found)
        bad = not (math.isfinite(norm) and math.isfinite(self._step_loss))
        if any_process(bad, self.args.device):
            self._refuse_step(norm)
        return norm

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The loss over the whole test side, recorded with its course over the positions of a row."""
        settings = self.job.settings
        with self.aside():
            found = evaluate(
                self.job.network,
                self.job.test,
                batch_size=settings.eval_batch_size or settings.rows_of_process(self.share.processes),
                share=self.share,
                device=self.args.device,
            )
        self.last_evaluation = found
        values = {
            "test_loss": found.loss,
            "test_perplexity": found.perplexity,
            "test_accuracy": found.accuracy,
            "test_tokens": found.tokens,
        }
        self.record(values | {"test_loss_by_position": list(found.by_position)})
        self._tell_trackers(values)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, values)
        return values

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """A line of training metrics; Trainer's summary at the end is not one."""
        if "loss" not in logs:
            return
        elapsed = time.perf_counter() - self._window - self._busy
        values = {
            "loss": logs["loss"],
            "learning_rate": logs["learning_rate"],
            "gradient_norm": logs["grad_norm"],
            "tokens": self.tokens,
            "skipped_steps": self.skipped,
            "tokens_per_second": self._counts / elapsed if elapsed > 0 else 0.0,
            "memory_bytes": _memory(self.args.device),
        }
        self._counts, self._busy, self._window = 0, 0.0, time.perf_counter()
        self.record(values)
        self._tell_trackers(values)

    # Records

    def record(self, values: dict[str, Any]) -> None:
        """A line of ``metrics.jsonl``, and what people see of it."""
        values = {"step": self.state.global_step, **values}
        if self.share.rank == 0:
            self.job.folder.add_metrics(values)
        self.progress.measured(values)

    def _tell_trackers(self, values: dict[str, Any]) -> None:
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, dict(values))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Time in here is no training time."""
        start = time.perf_counter()
        yield
        self._busy += time.perf_counter() - start

    def _refuse_step(self, norm: float) -> None:
        step = self.state.global_step + 1
        batch = self._prepare_inputs(self._batches[-1])
        module = first_bad_module(self.job.network, batch)
        text = message(step, self._step_loss, norm, batch, self.job.diagnose(self.job.network, module))
        if self.job.settings.nonfinite == "stop":
            raise NonFiniteError(text)
        self.skipped += 1
        self.progress.say(f"left out: {text}")
        # Without gradients the optimiser changes nothing.
        self.job.network.zero_grad(set_to_none=True)

    # Checkpoints

    @property
    def _plain_optimizer(self) -> torch.optim.Optimizer:
        optimizer = self.optimizer
        assert optimizer is not None
        return getattr(optimizer, "optimizer", optimizer)

    def _save_checkpoint(self, model: nn.Module, trial: Any = None) -> None:
        """Everything that the rest of the run depends on, in one folder that is there whole or not at all."""
        with self.aside():
            files = self._checkpoint_files()
            problem = None
            if self.share.rank == 0:
                try:
                    keep = self.job.settings.keep_checkpoints
                    write_checkpoint(self.job.folder.checkpoints, self.state.global_step, files, keep)
                except OSError as error:
                    problem = error
            if any_process(problem is not None, self.args.device):
                said = problem.strerror or str(problem) if problem else "the first process could not write"
                folder = self.job.folder.checkpoints
                raise DiskError(
                    f"the checkpoint of step {self.state.global_step} could not be written to {folder}: {said}"
                )

    def _checkpoint_files(self) -> dict[str, Writer]:
        network = snapshot.network_state(self.job.network)
        tensors, numbers = snapshot.optimizer_state(self.job.network, self._plain_optimizer)
        random = torch.stack(gathered(snapshot.random_state().to(self.args.device))).cpu()
        losses = torch.stack(gathered(self._tr_loss.detach().clone())).cpu()
        self.state.log_history.clear()
        state = {
            "step": self.state.global_step,
            "tokens": self.tokens,
            "skipped": self.skipped,
            "last_logged": self._globalstep_last_logged,
            "schedule": _values(self.lr_scheduler),
            "feed": self.feed.state_dict(),
            "processes": self.share.processes,
        }
        return {
            "model.safetensors": lambda path: snapshot.write_tensors(network, path),
            "optimizer.safetensors": lambda path: snapshot.write_tensors(tensors, path),
            "optimizer.json": lambda path: snapshot.write_values(numbers, path),
            "processes.safetensors": lambda path: snapshot.write_tensors({"random": random, "losses": losses}, path),
            "state.json": lambda path: snapshot.write_values(state, path),
            STATE: lambda path: self.state.save_to_json(str(path)),
        }

    def _saved(self, name: str) -> Any:
        assert self.resume is not None
        return json.loads((self.resume.path / name).read_text(encoding="utf-8"))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        folder = Path(resume_from_checkpoint)
        snapshot.restore_network(self.job.network, snapshot.read_tensors(folder / "model.safetensors"))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        tensors = snapshot.read_tensors(Path(checkpoint) / "optimizer.safetensors")
        numbers = self._saved("optimizer.json")
        snapshot.restore_optimizer(self.job.network, self._plain_optimizer, tensors, numbers)
        assert self.lr_scheduler is not None
        self.lr_scheduler.load_state_dict(self._saved("state.json")["schedule"] | {"lr_lambdas": [None]})

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Random numbers, and the loss gathered since the last line of metrics."""
        if checkpoint is None:
            return
        saved = snapshot.read_tensors(Path(checkpoint) / "processes.safetensors")
        state = self._saved("state.json")
        self.tokens, self.skipped = state["tokens"], state["skipped"]
        self._globalstep_last_logged = state["last_logged"]
        if state["processes"] == self.share.processes:
            snapshot.restore_random(saved["random"][self.share.rank])
            self._tr_loss = saved["losses"][self.share.rank].to(self.args.device)
        else:
            self._tr_loss = saved["losses"].mean().to(self.args.device)


def _values(schedule: Any) -> dict[str, Any]:
    return {name: value for name, value in schedule.state_dict().items() if name != "lr_lambdas"}


def _memory(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_bytes()
