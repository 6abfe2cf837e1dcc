"""Configurations of converted models whose blocks are not ours: the class's own options and the specs of its layers.

They are registered with `AutoConfig`; the models themselves are imported when the first configuration is made.
"""

from __future__ import annotations

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, Gemma2Config, Gemma3TextConfig, GemmaConfig, Qwen3Config

from softmax_rnn.model.configuration import LayerSpecsConfig


class ConvertedConfig(LayerSpecsConfig):
    """A configuration of a transformers class with specs."""

    def __post_init__(self, **kwargs: Any) -> None:
        import softmax_rnn.model.foreign  # noqa: F401, it registers the models

        super().__post_init__(**kwargs)


@strict
class ConvertedQwen3Config(ConvertedConfig, Qwen3Config):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Qwen3's options and the specs of its layers."""

    model_type = "softmax_rnn_qwen3"
    attention_spec: Any = "softmax"


@strict
class ConvertedGemmaConfig(ConvertedConfig, GemmaConfig):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Gemma's options and the specs of its layers."""

    model_type = "softmax_rnn_gemma"
    attention_spec: Any = "softmax"


@strict
class ConvertedGemma2Config(ConvertedConfig, Gemma2Config):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Gemma 2's options and the specs of its layers."""

    model_type = "softmax_rnn_gemma2"
    attention_spec: Any = "softmax"


@strict
class ConvertedGemma3Config(ConvertedConfig, Gemma3TextConfig):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Gemma 3's options and the specs of its layers."""

    model_type = "softmax_rnn_gemma3"
    attention_spec: Any = "softmax"


for kind in (ConvertedQwen3Config, ConvertedGemmaConfig, ConvertedGemma2Config, ConvertedGemma3Config):
    AutoConfig.register(kind.model_type, kind, exist_ok=True)
