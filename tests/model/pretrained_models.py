"""Small random models of the families that can be converted, and what is compared of them."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SIZES: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}
ROPE = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SLIDING = {"use_sliding_window": True, "sliding_window": 4}
MIXED = ["sliding_attention", "full_attention"]
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "llama, biases, tied": (
        LlamaConfig,
        LlamaForCausalLM,
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama, scaled rope": (
        LlamaConfig,
        LlamaForCausalLM,
        {"rope_parameters": {**ROPE, "original_max_position_embeddings": 16}},
    ),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "gemma": (GemmaConfig, GemmaForCausalLM, {}),
    "mistral, window": (MistralConfig, MistralForCausalLM, {"sliding_window": 4}),
    "qwen2, window": (Qwen2Config, Qwen2ForCausalLM, {**SLIDING, "max_window_layers": 1}),
    "qwen3, window": (Qwen3Config, Qwen3ForCausalLM, {**SLIDING, "max_window_layers": 1}),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM, {"sliding_window": 4, "layer_types": MIXED}),
}
L2 = "gated_softmax_no_gate_L2norm_nodivS_noclamp"


def build(name: str, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    kind, model, options = MODELS[name]
    torch.manual_seed(0)
    built = model(kind(**{**SIZES, **options})).to(dtype=dtype).eval()
    with torch.no_grad():
        for parameter_name, parameter in built.named_parameters():
            if "norm" in parameter_name or "bias" in parameter_name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return built


def batch() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    ids = torch.randint(1, 48, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, :2] = mask[2, :5] = 0
    return ids, {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}


def logits(model: PreTrainedModel) -> torch.Tensor:
    ids, options = batch()
    with torch.no_grad():
        return model(input_ids=ids, **options).logits[options["attention_mask"].bool()]


def greedy(model: Any, **options: Any) -> torch.Tensor:
    ids, inputs = batch()
    mask = inputs["attention_mask"]
    return model.generate(ids, attention_mask=mask, max_new_tokens=7, do_sample=False, **options)
