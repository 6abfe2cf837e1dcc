"""What a run will be, before it starts: its size, its tokens, its memory.

The memory is an estimate for training in float32:

    16 bytes per weight               weights, gradients and AdamW's two moments
    20 hidden + 4 MLP vectors        of each position and layer, kept for the backward pass
    4 vectors of the vocabulary      of each position: logits, their gradient, and what the loss makes of them
    0.55 GB                          Python and its libraries, where the device is the CPU

It was within 15 % of the measured peaks of nano and micro (softmax, gated, linear and Taylor variants, 4,096 to 16,384
tokens a step, with and without recomputing); other shapes may be further off.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import asdict, dataclass
from typing import Any

import torch

from softmax_rnn.experiment.config import RunConfig
from softmax_rnn.experiment.network import model_config, state_bytes
from softmax_rnn.experiment.run_data import load_run_data
from softmax_rnn.model import SoftmaxRNNConfig, SoftmaxRNNForCausalLM
from softmax_rnn.train.processes import on_cpu

WEIGHT_BYTES = 16
LIBRARY_BYTES = 550_000_000
_HIDDEN_VECTORS, _MLP_VECTORS, _LOGIT_VECTORS = 20, 4, 4


@dataclass(frozen=True)
class RunPlan:
    """The facts of a run that has not started."""

    parameters: int
    vocab_size: int
    steps: int
    batch_size: int
    context: int
    tokens: int
    """Positions that the run sees, padding and borders included."""
    train_rows: int | None
    """None: a stream."""
    passes: float | None
    """How often the run sees the train side."""
    memory_bytes: int
    """An estimate for one process."""
    state_bytes: int
    """What decoding carries after one context."""
    data: dict[str, Any]

    def values(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def plan_run(config: RunConfig, processes: int = 1) -> RunPlan:
    """The plan; loads (and where needed tokenises) the data, and builds the model without memory for its weights."""
    rows = config.rows_of_process(processes)
    data = load_run_data(config)
    shape = model_config(config, data.vocab_size)
    with torch.device("meta"):
        parameters = sum(weight.numel() for weight in SoftmaxRNNForCausalLM(shape).parameters())
    length = len(data.train) if isinstance(data.train, Sized) else None
    seen = config.steps * config.batch_size
    return RunPlan(
        parameters=parameters,
        vocab_size=data.vocab_size,
        steps=config.steps,
        batch_size=config.batch_size,
        context=config.context,
        tokens=seen * config.context,
        train_rows=length,
        passes=seen / length if length else None,
        memory_bytes=memory_estimate(config, shape, parameters, rows, processes),
        state_bytes=state_bytes(shape, config.context),
        data=data.facts,
    )


def memory_estimate(config: RunConfig, shape: SoftmaxRNNConfig, parameters: int, rows: int, processes: int) -> int:
    """Bytes of a process at the highest point of a step."""
    weights = WEIGHT_BYTES * parameters // (processes if config.fsdp else 1)
    number = 2 if config.precision == "bf16" else 4
    layer = _HIDDEN_VECTORS * shape.hidden_size + _MLP_VECTORS * shape.intermediate_size * bool(shape.use_mlp)
    kept = shape.hidden_size * shape.num_hidden_layers + layer if config.recompute else layer * shape.num_hidden_layers
    logits = 4 * _LOGIT_VECTORS * shape.vocab_size
    libraries = LIBRARY_BYTES if on_cpu(config) else 0
    return libraries + weights + rows * config.context * (number * kept + logits)
