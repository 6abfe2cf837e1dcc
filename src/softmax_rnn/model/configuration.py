"""The configuration: a `LlamaConfig` whose attention is a spec, stored as JSON values in ``config.json``.

>>> config = SoftmaxRNNConfig(attention_spec="linear_elu", num_hidden_layers=2)
>>> config.spec.normaliser
RowSum(minimum=None, eps=0.0, detach=False)
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.activations import ACT2FN
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.mamba2.configuration_mamba2 import Mamba2Config

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, unknown_name


class Mixer(StrEnum):
    """What mixes positions in a block."""

    ATTENTION = "attention"
    MAMBA2 = "mamba2"
    """transformers' own Mamba-2, the baseline ``linear_mamba``."""


def as_spec(value: AttentionSpec | dict[str, Any] | str) -> AttentionSpec:
    """The spec that a spec, its JSON values or a name of `VARIANTS` stand for.

    >>> as_spec("softmax") == as_spec(AttentionSpec().to_dict())
    True
    """
    if isinstance(value, AttentionSpec):
        return value
    if isinstance(value, str):
        return VARIANTS[value]
    if isinstance(value, dict):
        return AttentionSpec.from_dict(value)
    raise InputError(f"attention_spec: expected a spec, its JSON values or a variant's name, got {value!r}")


def _as_values(value: Any) -> dict[str, Any] | list[dict[str, Any]]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_spec(one).to_dict() for one in value]
    return as_spec(value).to_dict()


@strict
class SoftmaxRNNConfig(LlamaConfig):
    """Llama's options, the spec of the attention, and the options of the block around it.

    ``attention_spec`` takes an `AttentionSpec`, its JSON values, a name of `VARIANTS`, or a list of these, one a
    layer. The block's options stand beside it: they are no part of the attention.
    """

    model_type = "softmax_rnn"
    base_model_tp_plan = None
    base_model_pp_plan = None

    attention_spec: Any = "softmax"
    mixer: str = "attention"
    use_rope: bool = True
    learned_positions: bool = False
    """A learned vector for every position up to ``max_position_embeddings``, added to the embeddings."""
    conv_width: int | None = None
    """Causal depthwise convolution over q, k and v with this many taps, in front of RoPE."""
    conv_activation: str | None = None
    conv_bias: bool = False
    use_mlp: bool = True
    mamba_state_size: int = 64
    mamba_conv_width: int = 2
    mamba_expand: int = 1

    def __post_init__(self, **kwargs: Any) -> None:
        self.attention_spec = _as_values(self.attention_spec)
        super().__post_init__(**kwargs)
        self._check()

    def _check(self) -> None:
        if self.mixer not in list(Mixer):
            raise unknown_name("mixer", self.mixer, [kind.value for kind in Mixer])
        specs = self.attention_spec
        if isinstance(specs, list) and len(specs) != self.num_hidden_layers:
            raise InputError(f"attention_spec: expected {self.num_hidden_layers} specs, one a layer, got {len(specs)}")
        if self.attention_dropout:
            raise InputError(f"attention_dropout: no spec has dropout, expected 0, got {self.attention_dropout}")
        if self.conv_width is not None and self.conv_width < 1:
            raise InputError(f"conv_width: expected 1 or more, or None, got {self.conv_width}")
        if self.conv_activation is not None and self.conv_activation not in ACT2FN:
            raise unknown_name("conv_activation", self.conv_activation, list(ACT2FN))
        assert self.num_key_value_heads is not None
        if self.num_attention_heads % self.num_key_value_heads:
            heads = f"the {self.num_attention_heads} query heads"
            raise InputError(f"num_key_value_heads: expected a divisor of {heads}, got {self.num_key_value_heads}")

    @property
    def specs(self) -> tuple[AttentionSpec | None, ...]:
        """The spec of every layer; None where a Mamba-2 mixer stands in place of attention."""
        if self.mixer == Mixer.MAMBA2:
            return (None,) * self.num_hidden_layers
        values = self.attention_spec
        if isinstance(values, list):
            return tuple(AttentionSpec.from_dict(one) for one in values)
        return (AttentionSpec.from_dict(values),) * self.num_hidden_layers

    @property
    def spec(self) -> AttentionSpec:
        """The one spec of all layers."""
        found = set(self.specs)
        spec = found.pop()
        if spec is None:
            raise InputError("spec: a Mamba-2 mixer has no attention spec")
        if found:
            raise InputError("spec: the layers have different specs; read .specs")
        return spec

    @property
    def position_limit(self) -> int | None:
        """The number of positions the model knows; None where nothing in it counts positions, or RoPE is scaled."""
        rope: Any = self.rope_parameters or {}
        scaled = rope.get("rope_type", "default") != "default"
        counts = self.use_rope and self.mixer != Mixer.MAMBA2 and not scaled
        return self.max_position_embeddings if self.learned_positions or counts else None

    def mamba2(self) -> Mamba2Config:
        """The mixer's configuration: heads of the same size as attention's."""
        assert self.head_dim is not None
        width = self.mamba_expand * self.hidden_size
        if width % self.head_dim:
            raise InputError(f"mamba_expand: {width} channels cannot be split into heads of {self.head_dim}")
        return Mamba2Config(
            num_heads=width // self.head_dim,
            head_dim=self.head_dim,
            hidden_size=self.hidden_size,
            state_size=self.mamba_state_size,
            num_hidden_layers=self.num_hidden_layers,
            layer_norm_epsilon=self.rms_norm_eps,
            expand=self.mamba_expand,
            conv_kernel=self.mamba_conv_width,
            n_groups=1,
        )
