"""The configuration: a `LlamaConfig` whose attention is a spec, stored as JSON values in ``config.json``.

>>> config = SoftmaxRNNConfig(attention_spec="linear_elu", num_hidden_layers=2)
>>> config.spec.normaliser
RowSum(minimum=None, eps=0.0, detach=False, absolute=False)
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.activations import ACT2FN
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.mamba2.configuration_mamba2 import Mamba2Config

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError, unknown_name
from softmax_rnn.model.layer_specs import as_values, layer_specs


class Mixer(StrEnum):
    """What mixes positions in a block."""

    ATTENTION = "attention"
    MAMBA2 = "mamba2"
    """transformers' own Mamba-2, the baseline ``linear_mamba``."""


class LayerSpecsConfig:
    """What a configuration with the option ``attention_spec`` does: the values are those of specs, checked."""

    attention_spec: Any
    num_hidden_layers: int

    def __post_init__(self, **kwargs: Any) -> None:
        self.attention_spec = as_values(self.attention_spec, self.num_hidden_layers)
        super().__post_init__(**kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def specs(self) -> tuple[AttentionSpec | None, ...]:
        """The spec of every layer."""
        return layer_specs(self.attention_spec, self.num_hidden_layers)


@strict
class SoftmaxRNNConfig(LayerSpecsConfig, LlamaConfig):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Llama's options, the spec of the attention, and the options of the block around it.

    ``attention_spec`` takes an `AttentionSpec`, its JSON values, a name of `VARIANTS`, a list of these with one per
    layer, or layer ranges (`layer_specs`). The block's options are separate: they are not part of the attention.
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
    """Causal depthwise convolution over q, k and v with this many taps, before RoPE."""
    conv_activation: str | None = None
    conv_bias: bool = False
    token_shift: bool = False
    """Each projection reads its own mixture of a position and the one before it, as in RWKV-6."""
    key_expand: float = 1.0
    """The dimension of a head's queries and keys, in units of ``head_dim``: ½ in GLA."""
    value_expand: float = 1.0
    """That of its values: 2 in RetNet."""
    shared_query_key: bool = False
    """One query and one key for all heads, as in Mamba-2: heads differ in their values, decays and gates."""
    chunk_scan: bool = False
    """Keys and values of a layer with chunk ends are gated running sums over their chunk, in front of RoPE."""
    chunk_positions: bool = False
    """RoPE counts chunks, not positions, in a layer with chunk ends."""
    use_mlp: bool = True
    mamba_state_size: int = 64
    mamba_conv_width: int = 2
    mamba_expand: int = 1

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self._check()

    def _check(self) -> None:
        if self.mixer not in list(Mixer):
            raise unknown_name("mixer", self.mixer, [kind.value for kind in Mixer])
        if self.attention_dropout:
            raise InputError(f"attention_dropout: no spec has dropout; expected 0, got {self.attention_dropout}")
        if self.conv_width is not None and self.conv_width < 1:
            raise InputError(f"conv_width: expected 1 or more, or None, got {self.conv_width}")
        if self.conv_width is not None and self.token_shift:
            raise InputError("token_shift: expected a token shift or a convolution (conv_width), got both")
        for name in ("key_expand", "value_expand"):
            dim = (self.head_dim or 0) * getattr(self, name)
            if not (dim >= 1 and dim == round(dim)):
                raise InputError(f"{name}: expected a whole number of channels, got {dim:g} of {self.head_dim}")
        if self.conv_activation is not None and self.conv_activation not in ACT2FN:
            raise unknown_name("conv_activation", self.conv_activation, list(ACT2FN))
        self._check_chunks()
        assert self.num_key_value_heads is not None
        if self.num_attention_heads % self.num_key_value_heads:
            heads = f"the {self.num_attention_heads} query heads"
            raise InputError(f"num_key_value_heads: expected a divisor of {heads}, got {self.num_key_value_heads}")

    def _check_chunks(self) -> None:
        for name in ("chunk_scan", "chunk_positions"):
            if getattr(self, name) and not any(s and s.over_time.chunk for s in self.specs):
                raise InputError(f"{name}: no layer sees the ends of chunks; expected a spec such as rat_16")
        if self.chunk_scan and (self.value_dim not in (None, self.head_dim) or self.shared_query_key):
            raise InputError("chunk_scan: keys and values share their gates, so they need as many channels")

    @property
    def key_dim(self) -> int:
        """The dimension of a head's queries and keys."""
        assert self.head_dim is not None
        return round(self.head_dim * self.key_expand)

    @property
    def value_dim(self) -> int:
        """The dimension of a head's values."""
        assert self.head_dim is not None
        return round(self.head_dim * self.value_expand)

    @property
    def specs(self) -> tuple[AttentionSpec | None, ...]:
        """The spec of every layer; None where a Mamba-2 mixer replaces attention."""
        if self.mixer == Mixer.MAMBA2:
            return (None,) * self.num_hidden_layers
        return super().specs

    @property
    def spec(self) -> AttentionSpec:
        """The one spec of all layers."""
        specs = set(self.specs)
        spec = specs.pop()
        if spec is None:
            raise InputError("spec: a Mamba-2 mixer has no attention spec")
        if specs:
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
