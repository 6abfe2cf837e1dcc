"""The model: transformers' Llama blocks around an attention that is a spec.

>>> from softmax_rnn.model.sizes import build_config
>>> model = SoftmaxRNNForCausalLM(build_config("nano", "taylor_2", vocab_size=64))
>>> model(torch.ones(1, 5, dtype=torch.int64)).logits.shape
torch.Size([1, 5, 64])
"""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.generation.utils import GenerationMixin
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import slice_logits_to_keep
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaPreTrainedModel,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer
from transformers.utils.generic import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from softmax_rnn.attention.algebra import fixed_state_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.model.cache import SpecCache, as_spec_cache, prepare_cache
from softmax_rnn.model.configuration import Mixer, SoftmaxRNNConfig
from softmax_rnn.model.conv import ShortConv
from softmax_rnn.model.mamba import MambaMixer, reset_mixer
from softmax_rnn.model.model_card import WithCard
from softmax_rnn.model.positions import check_positions, key_mask_of, positions_of
from softmax_rnn.model.scan import ChunkScan
from softmax_rnn.model.spec_attention import SpecAttention
from softmax_rnn.model.spec_tensors import SpecTensors
from softmax_rnn.model.token_shift import TokenShift
from softmax_rnn.model.tokens import check_embedded, check_tokens, outside_vocabulary


class SoftmaxRNNBlock(GradientCheckpointingLayer):
    """Llama's block: norm, mixer, residual; norm, SwiGLU, residual (left out without an MLP)."""

    def __init__(self, config: SoftmaxRNNConfig, layer_idx: int) -> None:
        super().__init__()
        mixer = MambaMixer if config.mixer == Mixer.MAMBA2 else SpecAttention
        self.self_attn = mixer(config, layer_idx)
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = LlamaMLP(config) if config.use_mlp else None
        if config.use_mlp:
            self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, hidden: Float[Tensor, "B T hidden"], **kwargs: Any) -> Float[Tensor, "B T hidden"]:
        """The arguments besides ``hidden`` are the mixer's."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), **kwargs)
        if self.mlp is not None:
            hidden = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return hidden


class SoftmaxRNNPreTrainedModel(LlamaPreTrainedModel):
    """Loading, saving and initialising."""

    config: SoftmaxRNNConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    config_class = SoftmaxRNNConfig
    _no_split_modules = ["SoftmaxRNNBlock"]  # noqa: RUF012
    _supports_flash_attn = False
    _supports_flex_attn = False
    _supports_attention_backend = False
    _can_compile_fullgraph = False
    _can_record_outputs = {"hidden_states": SoftmaxRNNBlock}  # noqa: RUF012

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Linear and embedding weights N(0, initializer_range), biases 0; what is neither says itself how it starts."""
        super()._init_weights(module)  # pyright: ignore[reportArgumentType]
        if isinstance(module, SpecTensors):
            module.reset_vectors()
        elif isinstance(module, (ShortConv, TokenShift)):
            module.reset_parameters()
        elif isinstance(module, ChunkScan):
            module.reset_bias()
        elif isinstance(module, Mamba2Mixer):
            reset_mixer(module)


class SoftmaxRNNModel(SoftmaxRNNPreTrainedModel):
    """Embeddings, blocks and the last norm."""

    def __init__(self, config: SoftmaxRNNConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.embed_positions = None
        if config.learned_positions:
            self.embed_positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.layers = nn.ModuleList(SoftmaxRNNBlock(config, i) for i in range(config.num_hidden_layers))
        self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        rotates = config.use_rope and config.mixer != Mixer.MAMBA2
        self.rotary_emb = _rotation(config) if rotates else None
        self.gradient_checkpointing = False
        self.post_init()

    @property
    def specs(self) -> tuple[AttentionSpec | None, ...]:
        """The spec of every layer as it is now: conversion may have swapped it."""
        return tuple(block.self_attn.spec for block in self.layers)  # pyright: ignore[reportAttributeAccessIssue, reportReturnType]

    @capture_outputs
    def forward(
        self,
        input_ids: Int[Tensor, "B T"] | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Int[Tensor, "B T"] | None = None,
        past_key_values: SpecCache | None = None,
        inputs_embeds: Float[Tensor, "B T hidden"] | None = None,
        use_cache: bool | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """``segment_ids`` marks packed documents: each sees only itself, and its positions start at 0."""
        if (input_ids is None) == (inputs_embeds is None):
            raise InputError("input_ids: expected exactly one of input_ids and inputs_embeds")
        if kwargs.get("output_attentions", self.config.output_attentions):
            raise InputError("output_attentions: attention weights are never materialised; leave it out")
        if input_ids is not None:
            check_tokens("input_ids", input_ids)
        hidden = self._embedded(input_ids) if inputs_embeds is None else inputs_embeds
        check_embedded(hidden, self.config.hidden_size)
        batch, time = hidden.shape[:2]
        if segment_ids is not None:
            check_tokens("segment_ids", segment_ids, (batch, time))
        cache = self._cache(past_key_values, use_cache, segment_ids)
        past = 0 if cache is None else cache.get_seq_length()
        key_mask = key_mask_of(attention_mask, batch, time, past)
        limit = self.config.position_limit
        if position_ids is None:
            lengths = None if cache is None else cache.lengths
            position_ids = positions_of(
                batch, time, key_mask=key_mask, segment_ids=segment_ids, lengths=lengths, device=hidden.device
            )
            # Counted here, no position is beyond what the cache has seen: the largest need not be looked for.
            limit = None if limit is None or past + time <= limit else limit
        check_positions(position_ids, limit)
        if self.embed_positions is not None:
            hidden = hidden + self.embed_positions(position_ids)
        rotations: dict[int, Any] = {}
        for block in self.layers:
            attention: Any = block.self_attn
            step = None if self.rotary_emb is None else attention.rope_step
            if self.rotary_emb is not None and step is not None and step not in rotations:
                steps = position_ids if step == 1 else position_ids // step
                rotations[step] = self.rotary_emb(hidden, position_ids=steps)
            hidden = block(
                hidden,
                position_embeddings=None if step is None else rotations[step],
                key_mask=key_mask,
                segment_ids=segment_ids,
                past_key_values=cache,
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden), past_key_values=cache)

    def _embedded(self, input_ids: Int[Tensor, "B T"] | None) -> Float[Tensor, "B T hidden"]:
        assert input_ids is not None
        try:
            return self.embed_tokens(input_ids)
        except IndexError as error:
            raise outside_vocabulary("input_ids", input_ids, self.config.vocab_size) from error

    def _cache(self, given: SpecCache | None, use_cache: bool | None, segment_ids: Tensor | None) -> SpecCache | None:
        """The cache of this call. Unasked, none is made where gradients are, or documents are packed."""
        if given is not None and segment_ids is not None:
            raise InputError("segment_ids: a state continues one document per row; leave them out with a cache")
        if given is not None:
            return as_spec_cache(given, self.specs)
        if use_cache is None:
            use_cache = self.config.use_cache and not torch.is_grad_enabled()
        if self.gradient_checkpointing and self.training:
            use_cache = False
        return SpecCache(self.specs) if use_cache and segment_ids is None else None


class SoftmaxRNNForCausalLM(WithCard, SoftmaxRNNPreTrainedModel, GenerationMixin):
    """The language model."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: SoftmaxRNNConfig) -> None:
        super().__init__(config)
        self.model = SoftmaxRNNModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        # What generate() calls stateful cannot take back a token.
        self._is_stateful = not _can_crop(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "B T"] | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Int[Tensor, "B T"] | None = None,
        past_key_values: SpecCache | None = None,
        inputs_embeds: Float[Tensor, "B T hidden"] | None = None,
        labels: Int[Tensor, "B T"] | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        segment_ids: Int[Tensor, "B T"] | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits, with ``labels`` also the loss of the next token."""
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            segment_ids=segment_ids,
            **kwargs,
        )
        logits = self.lm_head(slice_logits_to_keep(outputs.last_hidden_state, logits_to_keep))
        loss = None
        if labels is not None:
            check_tokens("labels", labels, tuple(logits.shape[:2]))
            try:
                loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
            except IndexError as error:
                raise outside_vocabulary("labels", labels, self.config.vocab_size) from error
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
        )

    def _prepare_cache_for_generation(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """generate() decodes with the spec's own state."""
        prepare_cache(self.model.specs, generation_config, model_kwargs)


def _rotation(config: SoftmaxRNNConfig) -> LlamaRotaryEmbedding:
    """RoPE over the dimension of queries and keys."""
    narrow = copy(config)
    narrow.head_dim = config.key_dim
    return LlamaRotaryEmbedding(narrow)


def _can_crop(config: SoftmaxRNNConfig) -> bool:
    """Whether every layer keeps a list of keys and values, and nothing that only runs forwards."""
    if config.token_shift:
        return False
    for spec in config.specs:
        if spec is None or config.conv_width is not None or config.chunk_scan or spec.running_parts:
            return False
        if spec.structure is not None or fixed_state_score(spec, config.key_dim) is not None:
            return False
    return True
