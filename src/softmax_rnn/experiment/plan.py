"""What a run will be, before it starts: its size, its tokens, its memory.

The memory is an estimate: weights, gradients and AdamW's two moments take 16 bytes a weight; a position of a layer
keeps about 14 vectors of the hidden size and 3 of the MLP's for the backward pass, and its logits three times.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from softmax_rnn.experiment.config import RunConfig
from softmax_rnn.experiment.material import load_material
from softmax_rnn.experiment.network import model_config, state_bytes
from softmax_rnn.model import SoftmaxRNNConfig, SoftmaxRNNForCausalLM

WEIGHT_BYTES = 16
_HIDDEN_VECTORS, _MLP_VECTORS = 14, 3


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
    material = load_material(config)
    shape = model_config(config, material.vocab_size)
    with torch.device("meta"):
        parameters = sum(weight.numel() for weight in SoftmaxRNNForCausalLM(shape).parameters())
    length = len(material.train) if hasattr(material.train, "__len__") else None  # pyright: ignore[reportArgumentType]
    seen = config.steps * config.batch_size
    return RunPlan(
        parameters=parameters,
        vocab_size=material.vocab_size,
        steps=config.steps,
        batch_size=config.batch_size,
        context=config.context,
        tokens=seen * config.context,
        train_rows=length,
        passes=seen / length if length else None,
        memory_bytes=memory_estimate(config, shape, parameters, rows, processes),
        state_bytes=state_bytes(shape, config.context),
        data=material.facts,
    )


def memory_estimate(config: RunConfig, shape: SoftmaxRNNConfig, parameters: int, rows: int, processes: int) -> int:
    """Bytes of a process at the highest point of a step."""
    weights = WEIGHT_BYTES * parameters // (processes if config.fsdp else 1)
    number = 2 if config.precision == "bf16" else 4
    layer = _HIDDEN_VECTORS * shape.hidden_size + _MLP_VECTORS * shape.intermediate_size * bool(shape.use_mlp)
    kept = shape.hidden_size * shape.num_hidden_layers + layer if config.recompute else layer * shape.num_hidden_layers
    logits = 3 * 4 * shape.vocab_size
    return weights + rows * config.context * (number * kept + logits)
