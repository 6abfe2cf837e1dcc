"""What a run will be, before it starts: its size, its tokens, its memory.

The memory is an estimate for training in float32:

    16 bytes per weight               weights, gradients and AdamW's two moments
    20 hidden + 4 MLP vectors        of each position and layer, kept for the backward pass
    4 vectors of the vocabulary      of each position: logits, their gradient, and what the loss makes of them
    0.45 GB                          Python and its libraries, where the device is the CPU

It was within 15 % of the measured peaks of nano and micro (softmax, gated, linear and Taylor variants, 4,096 to 16,384
tokens per step, with and without recomputing); other shapes may be further off.
"""

from __future__ import annotations

import os
from collections.abc import Sized
from dataclasses import asdict, dataclass
from typing import Any

import torch

from softmax_rnn.data.tasks.task import Task
from softmax_rnn.errors import InputError
from softmax_rnn.experiment.config import RunConfig
from softmax_rnn.experiment.network import model_config, state_bytes
from softmax_rnn.experiment.prediction import predict, stated_card_hours
from softmax_rnn.experiment.run_data import load_run_data, on_hub, vocabulary_guess
from softmax_rnn.model import SoftmaxRNNConfig, SoftmaxRNNForCausalLM
from softmax_rnn.train.processes import on_cpu

WEIGHT_BYTES = 16
LIBRARY_BYTES = 450_000_000
CERTAIN = 1.5
"""An estimate that exceeds the memory by this factor is not a matter of its accuracy."""
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
    """How often the run sees the training split."""
    memory_bytes: int
    """An estimate for one process."""
    state_bytes: int
    """What decoding carries after one context."""
    data: dict[str, Any]
    on_cards: list[dict[str, Any]]
    """What it would take on cards, computed from their data sheets; nothing where its attention has no kernel."""
    paper_card_hours: int | None
    """What the paper states, where this is its run."""


def plan_run(config: RunConfig, processes: int = 1) -> RunPlan:
    """The plan, without memory for the weights. Data on this machine is loaded, and tokenised where needed.

    What is on the hub is not loaded: a plan needs no network. Its vocabulary is then an assumption.
    """
    if on_hub(config):
        length, vocab_size = None, vocabulary_guess(config)
        assert not isinstance(config.data, Task)
        facts: dict[str, Any] = {"source": config.data.source, "loaded": False}
    else:
        data = load_run_data(config)
        length = len(data.train) if isinstance(data.train, Sized) else None
        vocab_size, facts = data.vocab_size, data.facts
    shape = model_config(config, vocab_size)
    parameters = count_parameters(shape)
    seen = config.steps * config.batch_size
    memory = memory_estimate(config, shape, parameters, processes)
    on_card = memory - (LIBRARY_BYTES if on_cpu(config) else 0)
    return RunPlan(
        parameters=parameters,
        vocab_size=vocab_size,
        steps=config.steps,
        batch_size=config.batch_size,
        context=config.context,
        tokens=seen * config.context,
        train_rows=length,
        passes=seen / length if length else None,
        memory_bytes=memory,
        state_bytes=state_bytes(shape, config.context),
        data=facts,
        on_cards=[asdict(one) for one in predict(config, shape, parameters, on_card, processes)],
        paper_card_hours=stated_card_hours(config),
    )


def count_parameters(shape: SoftmaxRNNConfig) -> int:
    """The weights of a model that is not built."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in SoftmaxRNNForCausalLM(shape).parameters())


def check_memory(config: RunConfig, processes: int = 1) -> None:
    """Refuse a run that this machine cannot hold, before anything is loaded; what may just fit is tried."""
    shape = model_config(config, vocabulary_guess(config) if not config.model.get("vocab_size") else None)
    needed = memory_estimate(config, shape, count_parameters(shape), processes)
    if on_cpu(config):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        needed *= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    elif torch.cuda.is_available():
        there = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    else:
        return
    if needed > CERTAIN * there:
        raise InputError(
            f"memory: {config.batch_size:,} rows of {config.context:,} tokens per step need about"
            f" {needed / 1e9:,.0f} GB, but there are {there / 1e9:,.0f} GB; lower batch_size, context or size,"
            " or raise accumulate"
        )


def memory_estimate(config: RunConfig, shape: SoftmaxRNNConfig, parameters: int, processes: int) -> int:
    """Bytes of a process at the highest point of a step."""
    rows = config.rows_of_process(processes)
    weights = WEIGHT_BYTES * parameters // (processes if config.fsdp else 1)
    number = 2 if config.precision == "bf16" else 4
    layer = _HIDDEN_VECTORS * shape.hidden_size + _MLP_VECTORS * shape.intermediate_size * bool(shape.use_mlp)
    kept = shape.hidden_size * shape.num_hidden_layers + layer if config.recompute else layer * shape.num_hidden_layers
    logits = 4 * _LOGIT_VECTORS * shape.vocab_size
    libraries = LIBRARY_BYTES if on_cpu(config) else 0
    return libraries + weights + rows * config.context * (number * kept + logits)
