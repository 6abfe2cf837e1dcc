"""The sliding windows that some pretrained models have in all layers, or in every other one."""

from __future__ import annotations

from dataclasses import replace

from transformers.configuration_utils import PreTrainedConfig

from softmax_rnn.attention.parts import Window
from softmax_rnn.attention.spec import AttentionSpec


def layer_windows(config: PreTrainedConfig) -> tuple[int | None, ...]:
    """How many keys each layer sees; None for all.

    >>> from transformers import MistralConfig
    >>> layer_windows(MistralConfig(num_hidden_layers=2, sliding_window=64))
    (64, 64)
    """
    layers = config.num_hidden_layers
    width = getattr(config, "sliding_window", None)
    if width is None or not getattr(config, "use_sliding_window", True):
        return (None,) * layers
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * layers
    return tuple(width if "sliding" in str(kind) else None for kind in kinds)


def with_windows(specs: tuple[AttentionSpec, ...], config: PreTrainedConfig) -> tuple[AttentionSpec, ...]:
    """The specs inside the windows of the model; one that has its own structure keeps it."""
    pairs = zip(specs, layer_windows(config), strict=True)
    return tuple(
        spec if width is None or spec.structure is not None else replace(spec, structure=Window(width))
        for spec, width in pairs
    )
