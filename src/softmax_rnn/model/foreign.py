"""Models whose blocks are not ours: transformers' own class with swapped attention modules.

Qwen3 normalises queries and keys, Gemma scales its embeddings and norms: neither is a `SoftmaxRNNForCausalLM`, so the
class stays, and with it its block. It trains, decodes with our states, and is saved with a configuration of its kind
and the specs of its layers (`foreign_configuration`), which the Auto classes read once `softmax_rnn.model` is imported.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    GemmaForCausalLM,
    PreTrainedModel,
    Qwen3ForCausalLM,
)
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.model.cache import SpecCache, as_spec_cache, prepare_cache
from softmax_rnn.model.foreign_configuration import (
    ConvertedGemma2Config,
    ConvertedGemma3Config,
    ConvertedGemmaConfig,
    ConvertedQwen3Config,
)
from softmax_rnn.model.interface import with_scaling
from softmax_rnn.model.masks import read_mask
from softmax_rnn.model.model_card import WithCard
from softmax_rnn.model.neutral import FORGET_BIAS, fold_gates, neutral_tensors
from softmax_rnn.model.spec_tensors import SpecTensors

MASK_IMPLEMENTATION = "softmax_rnn:softmax"
"""The registered name whose mask function the converted model uses: real keys or segments, (batch, keys)."""


class ForeignAttention(nn.Module):
    """The projections (and norms of queries and keys) of a transformers attention, around a call of the core."""

    def __init__(self, source: nn.Module, spec: AttentionSpec, forget_bias: float) -> None:
        super().__init__()
        old = source.parts if isinstance(source, ForeignAttention) else None
        self.layer_idx: int = source.layer_idx  # pyright: ignore[reportAttributeAccessIssue]
        self.head_dim: int = source.head_dim  # pyright: ignore[reportAttributeAccessIssue]
        self.scaling: float = source.scaling  # pyright: ignore[reportAttributeAccessIssue]
        self.sliding_window: int | None = getattr(source, "sliding_window", None)
        """The window in which the model makes the masks of this layer."""
        self.spec = spec if self.scaling == self.head_dim**-0.5 else with_scaling(spec, self.scaling)
        self.q_proj: nn.Linear = source.q_proj  # pyright: ignore[reportAttributeAccessIssue]
        self.k_proj: nn.Linear = source.k_proj  # pyright: ignore[reportAttributeAccessIssue]
        self.v_proj: nn.Linear = source.v_proj  # pyright: ignore[reportAttributeAccessIssue]
        self.o_proj: nn.Linear = source.o_proj  # pyright: ignore[reportAttributeAccessIssue]
        self.q_norm: nn.Module = getattr(source, "q_norm", nn.Identity())
        self.k_norm: nn.Module = getattr(source, "k_norm", nn.Identity())
        heads = self.q_proj.out_features // self.head_dim
        fold_gates(None if old is None else old.spec, spec, self.v_proj, self.o_proj)
        kv_heads = self.k_proj.out_features // self.head_dim
        self.parts: SpecTensors = neutral_tensors(
            self.spec, self.q_proj.weight, heads, self.head_dim, old, forget_bias, kv_heads
        )
        self.train(source.training)

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        past_key_values: SpecCache | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """In the calling convention of transformers' blocks; the mask is that of `interface.visible_keys`."""
        time = hidden_states.shape[1]
        q, k, v = self.project(hidden_states, position_embeddings)
        key_mask = segment_ids = None
        if attention_mask is not None and attention_mask.dim() == 4 and attention_mask.dtype == torch.bool:
            attention_mask = read_mask(attention_mask[:, 0], attention_mask.shape[-1], self.sliding_window)
        if attention_mask is not None and attention_mask.dim() != 2:
            size = tuple(attention_mask.shape)
            raise InputError(f"attention_mask: expected 2 axes (batch, time), 1 = real, got shape {size}")
        if attention_mask is not None and attention_mask.dtype.is_signed:
            segment_ids = attention_mask
        elif attention_mask is not None:
            key_mask = attention_mask[:, -time:]
        tensors: dict[str, Any] = self.parts(hidden_states)
        if past_key_values is None:
            output = attend(self.spec, q, k, v, key_mask=key_mask, segment_ids=segment_ids, **tensors)
        else:
            output = past_key_values.extend(self.layer_idx, q, k, v, key_mask=key_mask, **tensors)
        return self.o_proj(output.transpose(1, 2).flatten(2)), None

    def project(self, hidden: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as the core gets them, (B, heads, T, D)."""
        q, k, v = (
            project(hidden).unflatten(-1, (-1, self.head_dim)) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2)
        return *apply_rotary_pos_emb(q, k, *position_embeddings), v.transpose(1, 2)


class ForeignModel(WithCard):
    """What a converted transformers class does differently: it decodes with the state of its specs."""

    _is_stateful = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        _swap(self, config.specs, FORGET_BIAS)
        self.post_init()

    @property
    def specs(self) -> tuple[AttentionSpec, ...]:
        """The spec of every layer, with the model's own scale."""
        layers: Any = self.get_decoder().layers
        return tuple(layer.self_attn.spec for layer in layers)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> Any:
        """The class's own forward, with our cache where one is wanted."""
        wanted = (self.config.use_cache and not torch.is_grad_enabled()) if use_cache is None else use_cache
        if past_key_values is not None:
            as_spec_cache(past_key_values, self.specs)
        elif wanted:
            past_key_values = SpecCache(self.specs)
        forward: Any = super().forward
        return forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            labels=labels,
            use_cache=wanted,
            logits_to_keep=logits_to_keep,
            **kwargs,
        )

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        prepare_cache(self.specs, generation_config, model_kwargs)


class ConvertedQwen3(ForeignModel, Qwen3ForCausalLM):
    """Qwen3 with swapped attention."""

    config_class = ConvertedQwen3Config


class ConvertedGemma(ForeignModel, GemmaForCausalLM):
    """Gemma with swapped attention."""

    config_class = ConvertedGemmaConfig


class ConvertedGemma2(ForeignModel, Gemma2ForCausalLM):
    """Gemma 2 with swapped attention."""

    config_class = ConvertedGemma2Config


class ConvertedGemma3(ForeignModel, Gemma3ForCausalLM):
    """Gemma 3, the language model alone, with swapped attention."""

    config_class = ConvertedGemma3Config


CONVERTED: dict[type[PreTrainedModel], type[ForeignModel]] = {
    Qwen3ForCausalLM: ConvertedQwen3,
    GemmaForCausalLM: ConvertedGemma,
    Gemma2ForCausalLM: ConvertedGemma2,
    Gemma3ForCausalLM: ConvertedGemma3,
}
for converted in list(CONVERTED.values()):
    CONVERTED[converted] = converted
    AutoModelForCausalLM.register(converted.config_class, converted, exist_ok=True)


def swap_attention(model: PreTrainedModel, specs: tuple[AttentionSpec, ...], forget_bias: float) -> ForeignModel:
    """Swap the attention modules in place; the model becomes one of the classes above."""
    kind = CONVERTED[type(model)]
    assert kind.config_class is not None
    values = model.config.to_dict()
    for name in ("architectures", "model_type", "transformers_version"):
        values.pop(name, None)
    config: Any = kind.config_class(**{**values, "attention_spec": specs})
    config.name_or_path = model.config.name_or_path
    config._attn_implementation = model.config._attn_implementation
    for module in model.modules():
        if isinstance(getattr(module, "config", None), type(model.config)):
            module.config = config
    _swap(model, specs, forget_bias)
    model.__class__ = kind
    assert isinstance(model, ForeignModel)
    return model


def _swap(model: PreTrainedModel, specs: tuple[AttentionSpec, ...], forget_bias: float) -> None:
    layers: Any = model.get_decoder().layers
    for layer, spec in zip(layers, specs, strict=True):
        layer.self_attn = ForeignAttention(layer.self_attn, spec, forget_bias)
    if model.config._attn_implementation != MASK_IMPLEMENTATION:
        model.set_attn_implementation(MASK_IMPLEMENTATION)
