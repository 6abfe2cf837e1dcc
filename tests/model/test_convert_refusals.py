"""What cannot be converted exactly is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
)

from softmax_rnn.errors import InputError, UnknownNameError
from softmax_rnn.model.convert import convert, specs_of

from .pretrained_models import SIZES, build


def refused() -> dict[str, tuple[Any, str]]:
    full = {**SIZES, "layer_types": ["full_attention"] * 2}
    return {
        "sinks": (
            GptOssForCausalLM(GptOssConfig(**{**full, "sliding_window": None, "num_local_experts": 2})),
            "sinks: GptOssForCausalLM has attention sinks",
        ),
        "gpt2": (
            GPT2LMHeadModel(GPT2Config(vocab_size=48, n_embd=8, n_layer=1, n_head=2)),
            "model: the attention of GPT2LMHeadModel cannot be swapped; expected one of LlamaForCausalLM",
        ),
        "no head": (LlamaModel(LlamaConfig(**SIZES)), "LlamaModel cannot be swapped"),
        "dropout": (LlamaForCausalLM(LlamaConfig(**SIZES, attention_dropout=0.1)), "attention_dropout"),
        "linear": (torch.nn.Linear(2, 2), "expected a transformers model, got Linear"),
    }


def test_what_cannot_be_converted_is_refused_by_name() -> None:
    for model, message in refused().values():
        with pytest.raises(InputError, match=message):
            convert(model, "softmax")


def test_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'softmax'"):
        convert(build("llama"), "sofmax")
    with pytest.raises(InputError, match="has no specs; convert it first"):
        specs_of(build("llama"))
