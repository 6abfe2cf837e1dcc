"""The engine: transformers' Trainer on accelerate, with our own order of data, loss, evaluation and checkpoints.

The network is any module that takes the tensors of a row (without ``targets``) and returns an object with ``logits``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers.trainer_callback import PrinterCallback

from softmax_rnn.data.rows import RowStream
from softmax_rnn.machine import peak_bytes
from softmax_rnn.train.arguments import adamw, learning_rates, training_arguments
from softmax_rnn.train.checkpoint import Checkpoint
from softmax_rnn.train.evaluation import evaluate
from softmax_rnn.train.feed import Feed
from softmax_rnn.train.flow import Flow
from softmax_rnn.train.guard import Batch, NonFiniteError, first_bad_module, message
from softmax_rnn.train.job import Job
from softmax_rnn.train.loss import counted, loss_sum
from softmax_rnn.train.meter import Meter
from softmax_rnn.train.processes import any_process, first_process, this_share, together_sum
from softmax_rnn.train.progress import TrainProgress
from softmax_rnn.train.saving import Saving
from softmax_rnn.train.signals import StopWish

EVALUATED_TOKENS = 2048
"""Tokens that are evaluated at once, at least."""


class Engine(Saving):
    """One run of a job, from its start or from a checkpoint."""

    # Our loss is divided by the targets of the whole step, so Trainer must not divide it again.
    loss_is_scaled_for_ga = True

    def __init__(self, job: Job, progress: TrainProgress, wish: StopWish, resume: Checkpoint | None = None) -> None:
        self.job, self.progress, self.wish, self.resume = job, progress, wish, resume
        self.share = this_share()
        arguments = training_arguments(job.settings, job.folder.path, job.name, self.share.processes)
        super().__init__(model=job.network, args=arguments)
        # A sharded network places itself and adds up its gradients; accelerate must not wrap it again.
        self.is_distributed_loading_by_transformers = job.settings.fsdp
        self.remove_callback(PrinterCallback)
        self.add_callback(Flow(self))
        self.feed = Feed(job.train, job.settings, self.share, resume.step if resume else 0)
        self.meter = Meter()
        self._batches: list[Batch] = []
        self._step_loss = 0.0

    # What Trainer asks for

    def get_train_dataloader(self) -> Any:
        """The batches of this process, from the step on at which the run stands."""
        if self.resume and isinstance(self.job.train, RowStream):
            self.job.train.load_state_dict(self.saved("state.json")["feed"])
        return self.feed

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Not counted: nobody reads it, and Trainer asks in every step."""
        return 0

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        # A sharded network was placed when it was sharded.
        if not self.job.settings.fsdp:
            super()._move_model_to_device(model, device)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """AdamW of the settings."""
        self.optimizer = adamw(model or self.job.network, self.job.settings)
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LambdaLR:
        """The schedule of the settings."""
        self.lr_scheduler = learning_rates(self.plain_optimizer, self.job.settings)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def _get_num_items_in_batch(self, batch_samples: list[Batch], device: torch.device) -> Tensor:
        """The counted targets of the step, over all processes. Here a step begins."""
        number = torch.stack([counted(batch["targets"]) for batch in batch_samples]).sum().to(device)
        number = together_sum(number)
        self.meter.begin_step(int(number))
        self._batches, self._step_loss, self._loss_before = batch_samples, 0.0, self._tr_loss.clone()
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
        self._step_loss += float(loss.detach())
        return (loss, outputs) if return_outputs else loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> float:
        """The norm before clipping; where it or the loss is not finite, the settings say what happens."""
        found: Any = super()._get_grad_norm(model, grad_norm)
        norm = float(found.full_tensor() if hasattr(found, "full_tensor") else found)
        bad = not (math.isfinite(norm) and math.isfinite(self._step_loss))
        if any_process(bad, self.args.device):
            self._refuse_step(norm)
        return norm

    def _refuse_step(self, norm: float) -> None:
        step = self.state.global_step + 1
        parts = [self._prepare_inputs(part) for part in self._batches]
        module = first_bad_module(self.job.network, parts)
        text = message(step, self._step_loss, norm, parts, self.job.diagnose(self.job.network, module))
        culprit = first_process(not math.isfinite(self._step_loss), self.args.device) or 0
        if self.share.rank != culprit:
            text = f"step {step}: see the message of process {culprit}"
        if self.job.settings.nonfinite == "stop":
            raise NonFiniteError(text)
        self.meter.leave_out()
        if self.share.rank == culprit:
            self.progress.say(f"left out: {text}", always=True)
        # Without gradients the optimiser changes nothing.
        self.job.network.zero_grad(set_to_none=True)
        self._tr_loss.copy_(self._loss_before)

    # Records

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The loss over the whole test side, recorded with its course over the positions of a row."""
        settings = self.job.settings
        with self.meter.aside():
            found = evaluate(
                self.job.network,
                self.job.test,
                batch_size=settings.eval_batch_size or self._rows_at_once(),
                share=self.share,
                device=self.args.device,
            )
        values = {
            "test_loss": found.loss,
            "test_perplexity": found.perplexity,
            "test_accuracy": found.accuracy,
            "test_tokens": found.tokens,
        }
        self._record(values | {"test_loss_by_position": list(found.by_position)})
        self._tell_trackers(values)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, values)
        return values

    def _rows_at_once(self) -> int:
        """As many rows as in training, but not so few that calls cost more than what they compute."""
        length = len(self.job.test[0]["targets"])
        return max(self.job.settings.rows_of_process(self.share.processes), EVALUATED_TOKENS // length)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """A line of training metrics; Trainer's summary at the end is not one."""
        if "loss" not in logs:
            return
        values = {
            "loss": self.meter.mean_of_kept(logs["loss"]),
            "learning_rate": logs["learning_rate"],
            "gradient_norm": logs["grad_norm"],
            "tokens": self.meter.tokens,
            "skipped_steps": self.meter.skipped,
            "tokens_per_second": self.meter.end_window(),
            "memory_bytes": _memory(self.args.device),
        }
        self._record(values)
        self._tell_trackers(values)

    def _record(self, values: dict[str, Any]) -> None:
        """A line of ``metrics.jsonl``, and what people see of it."""
        values = {"step": self.state.global_step, **values}
        if self.share.rank == 0:
            self.job.folder.add_metrics(values)
        self.progress.measured(values)

    def _tell_trackers(self, values: dict[str, Any]) -> None:
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, dict(values))


def _memory(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_bytes()
