"""Swap the attention of a pretrained model of the Llama family, keeping its weights.

A model with Llama's blocks (Llama, SmolLM, Mistral, Qwen2) becomes a `SoftmaxRNNForCausalLM`, which is saved and loaded
as any other; Qwen3 and Gemma keep their blocks (see `foreign`). A model's sliding windows become part of the specs of
its layers. What a model has and a spec has not, soft-capped scores or learned sinks, is refused by name. Parameters
that the spec adds start neutral (see `neutral`).
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM
from transformers.configuration_utils import PreTrainedConfig

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.model.configuration import Mixer, SoftmaxRNNConfig
from softmax_rnn.model.foreign import CONVERTED, ForeignModel, swap_attention
from softmax_rnn.model.layer_specs import LayerSpecs, as_spec, layer_specs
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM, SpecAttention
from softmax_rnn.model.neutral import FORGET_BIAS, fold_gates, neutral_tensors
from softmax_rnn.model.windows import with_cap, with_windows
from softmax_rnn.validation import read_json

SpecsLike = LayerSpecs | Path
"""Also a JSON file with a list of specs under ``specs``: an advisor's result."""

WITH_LLAMA_BLOCKS: tuple[type[PreTrainedModel], ...] = (
    LlamaForCausalLM,
    MistralForCausalLM,
    Qwen2ForCausalLM,
    SoftmaxRNNForCausalLM,
)


def convert(
    model: PreTrainedModel,
    spec: SpecsLike | None = None,
    *,
    layers: LayerSpecs | None = None,
    forget_bias: float = FORGET_BIAS,
) -> SoftmaxRNNForCausalLM | ForeignModel:
    """The model with this attention in all layers, or with ``layers``: a list of them, ranges, or those of a file.

    The weights are moved, not copied: use the model that is returned, not the one that was given.

    >>> from transformers import LlamaConfig
    >>> config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=2,
    ...                      num_attention_heads=2)
    >>> model = convert(LlamaForCausalLM(config), layers={"0": "softmax", "1-": "taylor_2"})
    >>> model(torch.tensor([[1, 2, 3]])).logits.shape
    torch.Size([1, 3, 8])
    """
    if not isinstance(model, PreTrainedModel):
        raise InputError(f"model: expected a transformers model, got {type(model).__name__}")
    if (spec is None) == (layers is None):
        raise InputError("spec: expected either an attention for all layers or layers=…")
    refuse_what_cannot_be_converted(model)
    wanted = read_specs(spec) if isinstance(spec, Path) else spec if layers is None else layers
    assert wanted is not None
    specs = layer_specs(wanted, model.config.num_hidden_layers, "spec" if layers is None else "layers")
    specs = with_cap(with_windows(specs, model.config), model.config)
    if type(model) in CONVERTED:
        return swap_attention(model, specs, forget_bias)
    return _rebuild(model, specs, forget_bias)


def specs_of(model: PreTrainedModel) -> tuple[AttentionSpec | None, ...]:
    """The spec of every layer of a converted model, or of one of ours."""
    if isinstance(model, ForeignModel):
        return model.specs
    if isinstance(model.config, SoftmaxRNNConfig):
        return model.config.specs
    raise InputError(f"model: {type(model).__name__} has no specs; convert it first")


def read_specs(path: Path) -> list[AttentionSpec]:
    """The specs of a JSON file: its ``specs``, those of its ``advice``, or the list that it is."""
    values = read_json(path, "spec")
    if isinstance(values, dict) and isinstance(values.get("advice"), dict):
        values = values["advice"]
    if isinstance(values, dict):
        values = values.get("specs")
    if not isinstance(values, list):
        raise InputError(f"spec: {path} has no list of specs; expected one per layer under 'specs'")
    return [as_spec(one) for one in values]


def refuse_what_cannot_be_converted(model: PreTrainedModel) -> None:
    """Whatever the conversion would have to ignore, and classes it does not know."""
    config, kind = model.config, type(model).__name__
    if any(name.endswith("sinks") for name, _ in model.named_parameters()):
        raise InputError(f"sinks: {kind} has attention sinks, which no spec has")
    if getattr(config, "use_bidirectional_attention", None):
        raise InputError(f"use_bidirectional_attention: {kind} attends in both directions; every spec is causal")
    if getattr(config, "mixer", Mixer.ATTENTION) != Mixer.ATTENTION:
        raise InputError(f"mixer: the blocks of this {kind} are Mamba-2 mixers, which have no attention to swap")
    if type(model) not in (*WITH_LLAMA_BLOCKS, *CONVERTED):
        known = ", ".join(one.__name__ for one in (*WITH_LLAMA_BLOCKS, *CONVERTED))
        raise InputError(f"model: the attention of {kind} cannot be swapped; expected one of {known}")
    if config.attention_dropout:
        raise InputError(f"attention_dropout: no spec has dropout; expected 0, got {config.attention_dropout}")


def _config(source: PreTrainedConfig, specs: tuple[AttentionSpec, ...], bias: bool) -> SoftmaxRNNConfig:
    known = {field.name for field in fields(SoftmaxRNNConfig)}
    values = {name: value for name, value in source.to_dict().items() if name in known}
    for name in ("architectures", "model_type", "transformers_version"):
        values.pop(name, None)
    values["attention_spec"] = specs
    values["attention_bias"] = bias
    config = SoftmaxRNNConfig(**values)
    config.name_or_path = source.name_or_path
    return config


def _rebuild(model: PreTrainedModel, specs: tuple[AttentionSpec, ...], forget_bias: float) -> SoftmaxRNNForCausalLM:
    """Our class around the same parameters."""
    old_layers: Any = model.get_decoder().layers
    bias = any(getattr(old_layers[0].self_attn, name).bias is not None for name in ("q_proj", "o_proj"))
    config = _config(model.config, specs, bias)
    with torch.device("meta"):
        new = SoftmaxRNNForCausalLM(config)
    given = {name: x for name, x in model.state_dict(keep_vars=True).items() if ".parts." not in name}
    learns = {id(x): x.requires_grad for x in given.values()}
    new.load_state_dict(given, strict=False, assign=True)
    for old, block, spec in zip(old_layers, new.model.layers, specs, strict=True):
        attention: Any = block.self_attn
        _adopt(old.self_attn, attention, spec, forget_bias)
    decoder: Any = model.get_decoder()
    new.model.rotary_emb = decoder.rotary_emb
    new.tie_weights()
    for x in new.parameters():
        x.requires_grad_(learns.get(id(x), True))
    empty = [name for name, x in (*new.named_parameters(), *new.named_buffers()) if x.is_meta]
    assert not empty, f"weights that no one gave: {empty}"
    new.generation_config = model.generation_config
    if getattr(decoder, "gradient_checkpointing", False):
        new.gradient_checkpointing_enable()
    return new.train(model.training)


def _adopt(old: nn.Module, new: SpecAttention, spec: AttentionSpec, forget_bias: float) -> None:
    """What a block's attention has beside the projections that it took over."""
    before = old if isinstance(old, SpecAttention) else None
    weight: Tensor = new.q_proj.weight
    fold_gates(None if before is None else before.spec, spec, new.v_proj, new.o_proj)
    old_parts = None if before is None else before.parts
    new.parts = neutral_tensors(
        spec, weight, new.heads, new.head_dim, old_parts, forget_bias, new.kv_heads, new.value_dim
    )
    for projection in (new.q_proj, new.k_proj, new.v_proj, new.o_proj):
        if projection.bias is not None and projection.bias.is_meta:
            # Qwen2 has biases on all but the last projection; 0 is none.
            projection.bias = nn.Parameter(weight.new_zeros(projection.out_features))
