"""Look at the queries, keys and values of every layer while a model reads a text.

A model of transformers gets an attention function that shows what it is given and then computes softmax; one of ours is
asked for its projections. Whatever changes scores in a way that no spec has (a cap, sinks) is refused. A model that
sees a window is read in pieces that are no longer: in these it sees all.

>>> from transformers import LlamaConfig, LlamaForCausalLM
>>> config = LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2)
>>> seen = []
>>> read_windows(LlamaForCausalLM(config), [1, 2, 3, 4, 5], 3, lambda layer, q, k, v: seen.append((layer, q.shape[1])))
>>> seen
[(0, 3), (1, 3), (0, 2), (1, 2)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from softmax_rnn.analysis.perplexity import evaluating
from softmax_rnn.attention.prologue import features
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.model.foreign import ForeignModel
from softmax_rnn.model.interface import PREFIX, attention_function
from softmax_rnn.model.masks import visible_keys
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM
from softmax_rnn.model.spec_attention import SpecAttention
from softmax_rnn.model.windows import layer_windows

Observer = Callable[[int, Tensor, Tensor, Tensor], None]
"""Called with the layer, and of one window q (H, T, D) with the scale of the scores, k (K, T, D) and v (K, T, E)."""

_NAME = PREFIX + "captured"


def read_windows(model: PreTrainedModel, token_ids: Sequence[int] | Tensor, context: int, observe: Observer) -> None:
    """Let the model read the tokens in windows of ``context``, and show every layer of every window."""
    ids = torch.as_tensor(token_ids, device=model.device).flatten()
    if not len(ids):
        raise InputError("token_ids: expected at least 1 token, got none")
    if context < 1:
        raise InputError(f"context: expected 1 or more, got {context}")
    width = visible_width(model)
    if width is not None and context > width:
        kind = type(model).__name__
        raise InputError(f"context: expected at most {width}, the keys that {kind} sees (its window), got {context}")
    layers: set[int] = set()

    def show(layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        layers.add(layer)
        observe(layer, q[0], k[0], v[0])

    with evaluating(model), _captured(model, show):
        for start in range(0, len(ids), context):
            model(input_ids=ids[None, start : start + context], use_cache=False, logits_to_keep=1)
    if len(layers) != model.config.num_hidden_layers:
        kind, count = type(model).__name__, model.config.num_hidden_layers
        raise InputError(f"model: the attention of {kind} cannot be read: {len(layers)} of {count} layers were seen")


def visible_width(model: PreTrainedModel) -> int | None:
    """The fewest keys that a layer of the model sees; None where all see all."""
    if isinstance(model, SoftmaxRNNForCausalLM):
        structures = [spec.over_time for spec in model.model.specs if spec is not None]
        widths = [one.near for one in structures if one.hides_the_rest]
    else:
        widths = [width for width in layer_windows(model.config) if width is not None]
    return min(widths, default=None)


@contextmanager
def _captured(model: PreTrainedModel, show: Observer) -> Iterator[None]:
    if isinstance(model, ForeignModel):
        raise InputError(f"model: a converted {type(model).__name__} cannot be read; give the model before conversion")
    if isinstance(model, SoftmaxRNNForCausalLM):
        with _own_projections(model, show):
            yield
        return
    before = model.config._attn_implementation or "eager"
    AttentionInterface.register(_NAME, _showing(show))
    AttentionMaskInterface.register(_NAME, visible_keys)
    try:
        model.set_attn_implementation(_NAME)
    except (ValueError, NotImplementedError) as error:
        raise InputError(f"model: the attention of {type(model).__name__} cannot be read: {error}") from error
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _showing(show: Observer) -> Callable[..., tuple[Tensor, None]]:
    softmax = attention_function(AttentionSpec())

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
        layer: Any = module.layer_idx
        output = softmax(module, query, key, value, mask, **kwargs)
        show(int(layer), query * scaling, key, value)
        return output

    return attention


@contextmanager
def _own_projections(model: SoftmaxRNNForCausalLM, show: Observer) -> Iterator[None]:
    def look(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        assert isinstance(module, SpecAttention)
        hidden = arguments[0]
        q, k, v = module.project(hidden, options.get("position_embeddings"))
        positions = torch.ones(hidden.shape[:2], device=hidden.device).cumsum(-1)
        q, k = features(module.spec, q, k, module.parts(hidden), positions)
        show(module.layer_idx, q, k, v)

    blocks: Any = model.model.layers
    if not all(isinstance(block.self_attn, SpecAttention) for block in blocks):
        raise InputError("model: the blocks of this model are Mamba-2 mixers, which have no attention to read")
    handles = [block.self_attn.register_forward_pre_hook(look, with_kwargs=True) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
