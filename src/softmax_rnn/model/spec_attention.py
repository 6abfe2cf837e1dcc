"""Attention with a spec as a module: projections, what the spec needs, an optional short convolution, the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.configuration import SoftmaxRNNConfig
from softmax_rnn.model.conv import ShortConv
from softmax_rnn.model.scan import ChunkScan
from softmax_rnn.model.spec_tensors import SpecTensors
from softmax_rnn.model.token_shift import TokenShift


class SpecAttention(nn.Module):
    """Projections, the parameters that the spec needs, and a call of the core.

    >>> from softmax_rnn.model.sizes import build_config
    >>> attention = SpecAttention(build_config("nano", "softmax_gate"), layer_idx=0)
    >>> [name for name, _ in attention.parts.named_parameters()]
    ['output_gate.weight', 'output_gate.bias']
    """

    def __init__(self, config: SoftmaxRNNConfig, layer_idx: int) -> None:
        super().__init__()
        spec = config.specs[layer_idx]
        assert spec is not None and config.num_key_value_heads is not None
        self.spec: AttentionSpec = spec
        self.layer_idx = layer_idx
        self.head_dim, self.value_dim = config.key_dim, config.value_dim
        self.use_rope = config.use_rope
        hidden, bias = config.hidden_size, config.attention_bias
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.shares_query_key = config.shared_query_key
        queries, keys = (
            (1 if self.shares_query_key else heads) * self.head_dim for heads in (self.heads, self.kv_heads)
        )
        values = self.kv_heads * self.value_dim
        self.q_proj = nn.Linear(hidden, queries, bias=bias)
        self.k_proj = nn.Linear(hidden, keys, bias=bias)
        self.v_proj = nn.Linear(hidden, values, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.value_dim, hidden, bias=bias)
        self.parts = SpecTensors(spec, hidden, self.heads, self.head_dim, self.kv_heads, self.value_dim)
        self.conv = None
        if config.conv_width is not None:
            self.conv = ShortConv(queries + keys + values, config.conv_width, config.conv_activation, config.conv_bias)
        length = spec.over_time.chunk
        self.scan = ChunkScan(hidden, keys, length) if config.chunk_scan and length is not None else None
        self.rope_step = length if config.chunk_positions and length is not None else 1
        """How many positions share a rotation."""
        self.token_shift = None
        if config.token_shift:
            targets = ("q", "k", "v", *self.parts.projections)
            self.token_shift = TokenShift(hidden, targets, layer_idx, config.num_hidden_layers)

    def forward(
        self,
        hidden: Float[Tensor, "B T hidden"],
        *,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        key_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
        past_key_values: SpecCache | None = None,
    ) -> Float[Tensor, "B T hidden"]:
        """Attention over the new positions, and over those of the cache."""
        mixed = self._shifted(hidden, key_mask, segment_ids, past_key_values)
        q, k, v = self._project(mixed, position_embeddings, key_mask, segment_ids, past_key_values)
        tensors: dict[str, Any] = self.parts(mixed) if self.parts.spec.declared else {}
        if past_key_values is None:
            output = attend(self.spec, q, k, v, key_mask=key_mask, segment_ids=segment_ids, **tensors)
        else:
            output = past_key_values.extend(self.layer_idx, q, k, v, key_mask=key_mask, **tensors)
        return self.o_proj(output.transpose(1, 2).flatten(2))

    def project(
        self,
        hidden: Float[Tensor, "B T hidden"],
        position_embeddings: tuple[Tensor, Tensor] | None,
        key_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
        cache: SpecCache | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as the core gets them, (B, heads, T, D)."""
        mixed = self._shifted(hidden, key_mask, segment_ids, cache)
        return self._project(mixed, position_embeddings, key_mask, segment_ids, cache)

    def _shifted(
        self, hidden: Tensor, key_mask: Tensor | None, segment_ids: Tensor | None, cache: SpecCache | None
    ) -> Tensor | Mapping[str, Tensor]:
        """What the projections read: one for all of them, or by their names."""
        if self.token_shift is None:
            return hidden
        layer = None if cache is None else cache.attention_layer(self.layer_idx)
        tail = None if layer is None else layer.tail
        mixed, tail = self.token_shift(hidden, key_mask=key_mask, segment_ids=segment_ids, tail=tail)
        if layer is not None:
            layer.tail = tail
        return mixed

    def _project(
        self,
        mixed: Tensor | Mapping[str, Tensor],
        position_embeddings: tuple[Tensor, Tensor] | None,
        key_mask: Tensor | None,
        segment_ids: Tensor | None,
        cache: SpecCache | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        of_q, of_k, of_v = (mixed,) * 3 if isinstance(mixed, Tensor) else (mixed["q"], mixed["k"], mixed["v"])
        flat = [self.q_proj(of_q), self.k_proj(of_k), self.v_proj(of_v)]
        if self.conv is not None:
            flat = self._convolve(self.conv, flat, key_mask, segment_ids, cache)
        if self.scan is not None:
            layer = None if cache is None else cache.attention_layer(self.layer_idx)
            past = {} if layer is None else {"lengths": layer.lengths, "tail": layer.sums}
            *flat[1:], sums = self.scan(of_v, *flat[1:], key_mask=key_mask, segment_ids=segment_ids, **past)
            if layer is not None:
                layer.sums = sums
        dims, sizes = (self.head_dim, self.head_dim, self.value_dim), flat[0].shape[:-1]
        q, k, v = (x.view(*sizes, -1, dim).transpose(1, 2) for x, dim in zip(flat, dims, strict=True))
        if self.use_rope:
            assert position_embeddings is not None
            q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
            v = v.to(q.dtype)  # under autocast the rotation is float32, as the core's sums are
        if self.shares_query_key:
            q, k = q.expand(-1, self.heads, -1, -1), k.expand(-1, self.kv_heads, -1, -1)
        return q, k, v

    def _convolve(
        self,
        conv: ShortConv,
        flat: list[Tensor],
        key_mask: Tensor | None,
        segment_ids: Tensor | None,
        cache: SpecCache | None,
    ) -> list[Tensor]:
        """The short convolution over q, k and v side by side."""
        layer = None if cache is None else cache.attention_layer(self.layer_idx)
        tail = None if layer is None else layer.tail
        joined, tail = conv(torch.cat(flat, -1), key_mask=key_mask, segment_ids=segment_ids, tail=tail)
        if layer is not None:
            layer.tail = tail
        return list(joined.split([x.shape[-1] for x in flat], -1))
