"""transformers' Mamba-2 mixer in place of attention, for the baseline ``linear_mamba``."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import initialization as init
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.cache_layer import MambaLayer
from softmax_rnn.model.configuration import SoftmaxRNNConfig
from softmax_rnn.model.positions import segment_starts


@torch.no_grad()
def reset_mixer(mixer: Mamba2Mixer) -> None:
    """Mamba-2's own start for A, D, Δ and its convolution; its Linear layers start as all others do."""
    mixer.init_mamba2_weights()
    init.kaiming_uniform_(mixer.conv1d.weight, a=math.sqrt(5))
    if mixer.conv1d.bias is not None:
        init.zeros_(mixer.conv1d.bias)


class MambaMixer(nn.Module):
    """The mixer behind the arguments of `SpecAttention`; it has no positions, so it ignores theirs."""

    def __init__(self, config: SoftmaxRNNConfig, layer_idx: int) -> None:
        super().__init__()
        self.spec: AttentionSpec | None = None
        self.layer_idx = layer_idx
        self.mixer = Mamba2Mixer(config.mamba2(), layer_idx, initialize_mixer_weights=False)

    def forward(
        self,
        hidden: Float[Tensor, "B T hidden"],
        *,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        key_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
        past_key_values: SpecCache | None = None,
    ) -> Float[Tensor, "B T hidden"]:
        """Mix the positions of each document."""
        if segment_ids is not None:
            return self._by_document(hidden, key_mask, segment_ids)
        output = self.mixer(hidden, cache_params=past_key_values, attention_mask=key_mask)
        if past_key_values is not None:
            layer = past_key_values.layers[self.layer_idx]
            if not isinstance(layer, MambaLayer):
                raise InputError(f"past_key_values: layer {self.layer_idx} of this cache belongs to attention")
            real = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
            layer.advance(hidden.shape[1], real if key_mask is None else key_mask)
        return output

    def _by_document(self, hidden: Tensor, key_mask: Tensor | None, segment_ids: Tensor) -> Tensor:
        """The mixer does not know documents: give each its own row, padded on the right."""
        starts = segment_starts(segment_ids)
        place = torch.arange(hidden.shape[1], device=hidden.device) - starts
        document = (place == 0).flatten().cumsum(0).view_as(place) - 1
        if key_mask is not None:
            hidden = hidden * key_mask[..., None]
        rows = hidden.new_zeros(int(document.max()) + 1, int(place.max()) + 1, hidden.shape[2])
        rows = rows.index_put((document, place), hidden)
        return self.mixer(rows)[document, place]
