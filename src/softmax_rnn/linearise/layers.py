"""Stage 4: which layers to convert under a budget of loss or of state bytes.

After calibration each layer is converted alone and the loss is measured. A hybrid is predicted to cost the sum of what
its layers cost alone; layers are taken in the order of that cost. Prediction and measurement stand side by side.

>>> choice = choose([0.3, 0.01, 0.02], loss=2.0, keep_loss=0.02)
>>> choice.layers, round(choice.predicted, 2)
((1, 2), 2.03)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from softmax_rnn.analysis.one_layer import LayerInputs, can_start_inside
from softmax_rnn.analysis.perplexity import perplexity
from softmax_rnn.errors import InputError
from softmax_rnn.linearise.models import attentions
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM


@dataclass(frozen=True)
class Choice:
    """The layers to convert, and the loss predicted by the sum of their separate costs."""

    layers: tuple[int, ...]
    predicted: float


def costs(original: PreTrainedModel, student: PreTrainedModel, ids: Tensor, context: int) -> tuple[float, list[float]]:
    """The loss of the original on a text, and its increase with one layer at a time replaced by the student's."""
    base = perplexity(original, ids, context).loss
    inputs = None
    if can_start_inside(original, len(ids)):
        assert isinstance(original, SoftmaxRNNForCausalLM)
        inputs = LayerInputs(original, ids, context)
    rises = []
    for layer, attention in enumerate(attentions(student)):
        if inputs is not None:
            rises.append(inputs.loss_with(layer, attention).loss - base)
        else:
            rises.append(_swapped_loss(original, layer, attention, ids, context) - base)
    return base, rises


def _swapped_loss(model: PreTrainedModel, layer: int, attention: nn.Module, ids: Tensor, context: int) -> float:
    decoder: Any = model.get_decoder()
    before = decoder.layers[layer].self_attn
    decoder.layers[layer].self_attn = attention
    try:
        with torch.no_grad():
            return perplexity(model, ids, context).loss
    finally:
        decoder.layers[layer].self_attn = before


def choose(
    rises: Sequence[float],
    *,
    loss: float,
    keep_loss: float | None = None,
    count: int | None = None,
    sizes: Sequence[tuple[int, int]] = (),
    state_bytes: int | None = None,
) -> Choice:
    """Choose layers under one budget: a fraction of the loss, a number of layers, or bytes.

    ``sizes`` gives, layer by layer, the bytes of the state as it is and converted.
    """
    order = sorted(range(len(rises)), key=lambda layer: rises[layer])
    if count is not None:
        if count > len(rises):
            raise InputError(f"convert_layers: expected at most the {len(rises)} layers of the model, got {count}")
        chosen = order[:count]
    elif state_bytes is not None:
        chosen = _within_bytes(order, sizes, state_bytes)
    else:
        assert keep_loss is not None
        chosen, rise = [], 0.0
        for layer in order:
            rise += max(rises[layer], 0.0)
            if rise > keep_loss * loss:
                break
            chosen.append(layer)
    return Choice(tuple(sorted(chosen)), loss + sum(rises[layer] for layer in chosen))


def _within_bytes(order: Sequence[int], sizes: Sequence[tuple[int, int]], most: int) -> list[int]:
    """The fewest layers, cheapest first, whose conversion brings the state within the budget."""
    total, chosen = sum(old for old, _ in sizes), []
    for layer in order:
        if total <= most:
            return chosen
        old, new = sizes[layer]
        if new < old:
            total += new - old
            chosen.append(layer)
    if total > most:
        raise InputError(f"state_bytes: expected at least {total:,}, what all layers converted need, got {most:,}")
    return chosen
