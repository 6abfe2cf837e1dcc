"""Models of a few thousand weights with a byte tokenizer, in a folder, and a text to convert them on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.experiment.small import write_texts
from tests.model.tiny import tiny_model
from transformers import (
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

from softmax_rnn.data.tokenisers import byte_tokenizer

SIZES: dict[str, Any] = {
    "vocab_size": 257,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": 256,
}
FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": True}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": 12}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "gemma": (GemmaConfig, GemmaForCausalLM, {}),
}


def build(family: str) -> PreTrainedModel:
    if family == "ours":
        return tiny_model("softmax", vocab_size=257)
    kind, model, options = FAMILIES[family]
    torch.manual_seed(0)
    return model(kind(**{**SIZES, **options})).eval()


def saved(folder: Path, family: str = "llama") -> str:
    build(family).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    """A conversion that takes a second or two."""
    path = folder / "texts.jsonl"
    if not path.exists():
        write_texts(path)
    data = {"source": str(path), "cache": str(folder / "cache"), "test_fraction": 0.2}
    small = {"context": 24, "batch_size": 4, "tokens": 1200, "calibration_tokens": 480, "eval_tokens": 96}
    values = {"model": str(folder / "model"), "to": "softmax_l2", "data": data, **small, "checkpoint_every": 3}
    return values | more
