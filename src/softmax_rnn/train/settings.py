"""How to train, as values: what a user writes in a file, checked once.

>>> TrainSettings(steps=100, batch_size=8).decay_end
100
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from softmax_rnn.errors import InputError

NonNegative = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
# So that no product of them leaves the range of float32.
Rate = Annotated[float, Field(gt=0, le=1e20)]


class TrainSettings(BaseModel):
    """Everything about training that is not the network and not the data."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    steps: PositiveInt = 400
    """Optimiser steps of the whole run."""
    batch_size: PositiveInt = 16
    """Rows per step, over all processes and accumulated parts."""
    accumulate: PositiveInt = 1
    """A process computes its share of a step in this many parts, one after another."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Of the weights and of the order of the data."""

    learning_rate: Rate = 2e-3
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate falls after the warm-up."""
    warmup_steps: NonNegative = 40
    decay_steps: PositiveInt | None = None
    """The step at which the learning rate reaches 0; None: the last one."""
    weight_decay: Annotated[float, Field(ge=0, le=1e8)] = 0.01
    decay_all: bool = False
    """Weight decay also on biases and gains (tensors of one dimension)."""
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: Rate = 1e-8
    clip: Rate | None = None
    """Largest norm of the gradient; None: no clipping."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: weights stay in float32, the computation runs under autocast."""

    log_every: PositiveInt = 10
    eval_every: PositiveInt | None = None
    """Steps between evaluations; None: only at the start and at the end."""
    eval_batch_size: PositiveInt | None = None
    """Rows evaluated at once, per process; None: as in training, or more where rows are short."""
    checkpoint_every: PositiveInt = 100
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    nonfinite: Literal["stop", "skip"] = "stop"
    """What to do when the loss or the gradient is not finite: stop the run, or leave the step out."""

    recompute: bool = False
    """Recompute activations in the backward pass instead of keeping them."""
    compile: Literal["inductor", "aot_eager", "eager"] | None = None
    """Train and evaluate what torch.compile makes of the network with this backend; None: the network itself."""
    fsdp: bool = False
    """Shard weights, gradients and optimiser over the processes instead of copying them (FSDP2)."""
    device: Literal["auto", "cpu"] = "auto"
    """auto: GPUs where there are any."""
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Also report to these, through accelerate."""

    @model_validator(mode="after")
    def _decay_follows_warmup(self) -> Self:
        if self.decay_steps is not None and self.decay_steps <= self.warmup_steps:
            raise InputError(
                f"decay_steps: expected more than warmup_steps = {self.warmup_steps}, got {self.decay_steps}"
            )
        return self

    @property
    def decay_end(self) -> int:
        """The step at which the learning rate is 0."""
        return self.steps if self.decay_steps is None else self.decay_steps

    def rows_of_process(self, processes: int) -> int:
        """Rows that a process computes at once."""
        parts = processes * self.accumulate
        if self.batch_size % parts:
            raise InputError(
                f"batch_size: expected a multiple of processes × accumulate = {processes} × {self.accumulate},"
                f" got {self.batch_size}"
            )
        return self.batch_size // parts
