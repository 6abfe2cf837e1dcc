"""The engine's checkpoints: everything that the rest of a run depends on, taken and put back.

model.safetensors        the weights
optimizer.safetensors    its moments; the numbers of its groups are in optimizer.json
processes.safetensors    of each process: its random numbers, and its loss since the last line of metrics
state.json               counters, the schedule, the place in a stream
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer

from softmax_rnn.train import snapshot
from softmax_rnn.train.checkpoint import Checkpoint, Writer, write_checkpoint
from softmax_rnn.train.disk import DiskError, disk_errors
from softmax_rnn.train.feed import Feed, Share
from softmax_rnn.train.job import Job
from softmax_rnn.train.meter import Meter
from softmax_rnn.train.processes import any_process, gathered

STATE = "trainer_state.json"
"""The name under which Trainer looks for its own counters."""


class Saving(Trainer):
    """The part of the engine that Trainer calls to save and to load."""

    job: Job
    share: Share
    feed: Feed
    meter: Meter
    resume: Checkpoint | None

    @property
    def plain_optimizer(self) -> torch.optim.Optimizer:
        """The optimiser itself, without accelerate's face."""
        optimizer: Any = self.optimizer
        return getattr(optimizer, "optimizer", optimizer)

    def _save_checkpoint(self, model: nn.Module, trial: Any = None) -> None:
        """Everything that the rest of the run depends on, in one folder that is there whole or not at all."""
        what = f"the checkpoint of step {self.state.global_step}"
        problem = None
        with self.meter.aside():
            files = self._checkpoint_files()
            if self.share.rank == 0:
                try:
                    with disk_errors(f"{what} in {self.job.folder.path}"):
                        keep = self.job.settings.keep_checkpoints
                        write_checkpoint(self.job.folder.checkpoints, self.state.global_step, files, keep)
                except DiskError as error:
                    problem = error
            if any_process(problem is not None, self.args.device):
                raise problem or DiskError(f"{what}: the first process could not write it")

    def _checkpoint_files(self) -> dict[str, Writer]:
        network = snapshot.network_state(self.job.network)
        tensors, numbers = snapshot.optimizer_state(self.job.network, self.plain_optimizer)
        random = torch.stack(gathered(snapshot.random_state().to(self.args.device))).cpu()
        losses = torch.stack(gathered(self._tr_loss.detach().clone())).cpu()
        self.state.log_history.clear()
        state = {
            "step": self.state.global_step,
            "meter": self.meter.state_dict(),
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

    def saved(self, name: str) -> Any:
        """The values of a JSON file of the checkpoint from which the run continues."""
        assert self.resume is not None
        return json.loads((self.resume.path / name).read_text(encoding="utf-8"))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        folder = Path(resume_from_checkpoint)
        snapshot.restore_network(self.job.network, snapshot.read_tensors(folder / "model.safetensors"))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        tensors = snapshot.read_tensors(Path(checkpoint) / "optimizer.safetensors")
        numbers = self.saved("optimizer.json")
        snapshot.restore_optimizer(self.job.network, self.plain_optimizer, tensors, numbers)
        schedule: Any = self.lr_scheduler
        schedule.load_state_dict(self.saved("state.json")["schedule"] | {"lr_lambdas": [None]})

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Random numbers, and the loss gathered since the last line of metrics."""
        if checkpoint is None:
            return
        saved = snapshot.read_tensors(Path(checkpoint) / "processes.safetensors")
        state = self.saved("state.json")
        self.meter.load_state_dict(state["meter"])
        self._globalstep_last_logged = state["last_logged"]
        if state["processes"] == self.share.processes:
            snapshot.restore_random(saved["random"][self.share.rank])
            self._tr_loss = saved["losses"][self.share.rank].to(self.args.device)
        else:
            self._tr_loss = saved["losses"].mean().to(self.args.device)


def _values(schedule: Any) -> dict[str, Any]:
    return {name: value for name, value in schedule.state_dict().items() if name != "lr_lambdas"}
