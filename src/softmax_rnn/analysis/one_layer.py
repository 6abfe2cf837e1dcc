"""The loss of a model in which one layer has another attention, without recomputing the layers before it.

The input of every layer is kept from one pass of the model as it is. A layer is then given its attention, and the model
runs from there. Numbers are those of the whole model, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from softmax_rnn.analysis.perplexity import Perplexity, mean_loss
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM
from softmax_rnn.model.spec_attention import SpecAttention

MOST_BYTES = 2**30
"""So much is kept of the inputs of layers."""


def can_start_inside(model: PreTrainedModel, tokens: int) -> bool:
    """Whether layers can be fed directly, and their inputs for so many tokens may be kept."""
    if not isinstance(model, SoftmaxRNNForCausalLM) or model.config.learned_positions:
        return False
    config = model.config
    return tokens * config.hidden_size * config.num_hidden_layers * 8 <= MOST_BYTES


class LayerInputs:
    """A model and a text, with the inputs of all its layers; the model must keep its attention."""

    def __init__(self, model: SoftmaxRNNForCausalLM, ids: Tensor, context: int) -> None:
        self.model, self.ids, self.context = model, ids, context
        self.inputs: dict[tuple[int, int], Tensor] = {}
        self.start = 0
        layers = model.model.layers
        handles = [block.register_forward_pre_hook(partial(self._keep, i)) for i, block in enumerate(layers)]
        try:
            with torch.no_grad():
                mean_loss(self._whole, ids, context)
        finally:
            for handle in handles:
                handle.remove()

    def _keep(self, layer: int, block: nn.Module, given: tuple[Any, ...]) -> None:
        self.inputs[self.start, layer] = given[0]

    def _whole(self, start: int, window: Tensor) -> Tensor:
        self.start = start
        return self.model(input_ids=window[None], use_cache=False).logits[0]

    def loss(self, layer: int, spec: AttentionSpec) -> Perplexity:
        """The loss with this spec, which needs no parameters, in one layer."""
        attention: Any = self.model.model.layers[layer].self_attn
        assert isinstance(attention, SpecAttention) and not spec.tensors and not attention.spec.tensors
        before, attention.spec = attention.spec, spec
        try:
            return self._loss_from(layer)
        finally:
            attention.spec = before

    def loss_with(self, layer: int, attention: nn.Module) -> Perplexity:
        """The loss with another attention module in one layer."""
        block: Any = self.model.model.layers[layer]
        before, block.self_attn = block.self_attn, attention
        try:
            return self._loss_from(layer)
        finally:
            block.self_attn = before

    def _loss_from(self, layer: int) -> Perplexity:
        with torch.no_grad(), self._layers_from(layer):
            return mean_loss(lambda start, window: self._rest(layer, start), self.ids, self.context)

    def _rest(self, layer: int, start: int) -> Tensor:
        return self.model(inputs_embeds=self.inputs[start, layer], use_cache=False).logits[0]

    @contextmanager
    def _layers_from(self, layer: int) -> Iterator[None]:
        decoder = self.model.model
        before = decoder.layers
        decoder.layers = nn.ModuleList(list(before)[layer:])
        try:
            yield
        finally:
            decoder.layers = before
