"""Sliding windows and capped scores, which some pretrained models have."""

from __future__ import annotations

from dataclasses import replace

from transformers.configuration_utils import PreTrainedConfig

from softmax_rnn.attention.parts import CappedExp, Exp, Window
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError


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


def with_cap(specs: tuple[AttentionSpec, ...], config: PreTrainedConfig) -> tuple[AttentionSpec, ...]:
    """The specs with the cap that the model puts on its scores, which only exp has."""
    cap = getattr(config, "attn_logit_softcapping", None)
    return specs if cap is None else tuple(_capped(spec, cap) for spec in specs)


def _capped(spec: AttentionSpec, cap: float) -> AttentionSpec:
    if spec.score == CappedExp(scale=spec.score.scale, cap=cap):
        return spec
    if spec.score != Exp(scale=spec.score.scale):
        raise InputError(
            f"attn_logit_softcapping: the model caps its scores at {cap:g}, which needs the score exp without a clamp,"
            f" got {spec.score.kind}"
        )
    return replace(spec, score=CappedExp(scale=spec.score.scale, cap=cap))
