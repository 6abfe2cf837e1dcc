"""What a run would take on cards that are not here, from their data sheets: computed, not measured.

A step is its matrix products at a part of the peak, its attention by the planner's rates, and what goes through memory
besides: activations three times (written, read, and once more for their gradients), and weights, gradients and moments
for the update. At the peak nothing else costs time, which no training reaches; half of it is a good one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from softmax_rnn.attention.forms import FORMS
from softmax_rnn.attention.forms.triton import has_kernel
from softmax_rnn.attention.situation import Situation
from softmax_rnn.experiment.recipes import RECIPES

if TYPE_CHECKING:
    from softmax_rnn.experiment.config import RunConfig
    from softmax_rnn.model import SoftmaxRNNConfig

UPDATE_BYTES = 28
"""Weight, gradient and two moments read, weight and moments written, float32."""
PAPER_CARD_HOURS = 96
"""Two A100s for at most two days: what the paper states of its small models."""


@dataclass(frozen=True)
class Card:
    """A data sheet: bfloat16 operations and bytes per second, and bytes of memory."""

    name: str
    operations: float
    bandwidth: float
    memory: float


CARDS = (
    Card("A100 80 GB", 312e12, 2.0e12, 80e9),
    Card("H100 SXM", 989e12, 3.35e12, 80e9),
    Card("MI300X", 1307e12, 5.3e12, 192e9),
)


@dataclass(frozen=True)
class Prediction:
    """One kind of card: memory per process, seconds of a step at the peak and at half of it, and the whole run."""

    card: str
    processes: int
    memory_bytes: int
    fits: bool
    step_seconds_at_peak: float
    step_seconds: float
    card_hours_at_peak: float
    card_hours: float


def stated_card_hours(config: RunConfig) -> int | None:
    """What the paper states for this run, None where it is another one."""
    known = RECIPES["paper"].settings
    same = all(getattr(config, name) == known[name] for name in ("size", "context", "steps", "batch_size"))
    return PAPER_CARD_HOURS if config.recipe == "paper" and same else None


def predict(
    config: RunConfig, shape: SoftmaxRNNConfig, parameters: int, memory_bytes: int, processes: int
) -> list[Prediction]:
    """The run on each card, its rows divided among the processes; nothing where an attention has no kernel."""
    if not all(spec is not None and has_kernel(spec, shape.head_dim or 0) for spec in shape.specs):
        return []
    return [_on(card, config, shape, parameters, memory_bytes, processes) for card in CARDS]


def _on(
    card: Card, config: RunConfig, shape: SoftmaxRNNConfig, parameters: int, memory_bytes: int, processes: int
) -> Prediction:
    rows = config.batch_size / processes
    tokens = rows * config.context
    embedded = shape.vocab_size * shape.hidden_size  # looked up, not multiplied
    passes = 8 if config.recompute else 6
    products = passes * (parameters - embedded) * tokens / card.operations
    layer = 20 * shape.hidden_size + 4 * shape.intermediate_size * bool(shape.use_mlp)
    logits = 4 * shape.vocab_size
    moved = tokens * (3 * 2 * layer * shape.num_hidden_layers + 3 * 4 * logits) + UPDATE_BYTES * parameters / (
        processes if config.fsdp else 1
    )
    attention = attention_seconds(config, shape, rows) * 312e12 / card.operations
    at_peak = products + attention / 2 + moved / card.bandwidth
    usual = 2 * products + attention + moved / card.bandwidth
    hours = config.steps * processes / 3600
    fits = memory_bytes < 0.9 * card.memory
    return Prediction(card.name, processes, memory_bytes, fits, at_peak, usual, at_peak * hours, usual * hours)


def attention_seconds(config: RunConfig, shape: SoftmaxRNNConfig, rows: float) -> float:
    """All layers' attention on an A100 at half of its peak, forward and backward, by the form that is cheaper."""
    heads, dim = shape.num_attention_heads, shape.head_dim or 0
    here: dict[str, Any] = {"device": "cuda", "half": True, "needs_grad": True}
    situation = Situation(max(round(rows), 1), heads, heads, config.context, config.context, dim, dim, **here)
    total = 0.0
    for spec in shape.specs:
        assert spec is not None
        costs = [FORMS["triton"].cost(spec, situation)]
        if FORMS["fused"].refuse(spec, situation) is None:
            costs.append(FORMS["fused"].cost(spec, situation))
        total += min(costs) * 1e-9
    return total
