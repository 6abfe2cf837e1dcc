"""The decoding state of a whole model as a transformers `Cache`: one attention `State` a layer.

Finite features give a state of fixed size, exp the growing list of keys and values. A layer also keeps the tail of
its short convolution, and a Mamba-2 layer what transformers' own mixer keeps.

>>> cache = SpecCache([AttentionSpec()])
>>> q = k = v = torch.ones(1, 2, 3, 4)
>>> cache.extend(0, q, k, v).shape, cache.get_seq_length()
(torch.Size([1, 2, 3, 4]), 3)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers.cache_utils import Cache

from softmax_rnn.attention.attend import extend
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.start import init_state
from softmax_rnn.errors import InputError
from softmax_rnn.model import cache_file
from softmax_rnn.model.cache_layer import MambaLayer, SpecLayer


class SpecCache(Cache):
    """One layer a spec; ``None`` in place of a spec is a Mamba-2 mixer."""

    layers: list[SpecLayer | MambaLayer]  # pyright: ignore[reportIncompatibleVariableOverride]
    # No layer is made for a fixed address: generate() then leaves the padding mask as it is.
    is_compileable = False  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def __init__(self, specs: Sequence[AttentionSpec | None]) -> None:
        self.specs = tuple(specs)
        if not self.specs:
            raise InputError("specs: expected the spec of every layer, got none")
        layers: list[Any] = [MambaLayer() if spec is None else SpecLayer(spec.over_time) for spec in self.specs]
        super().__init__(layers=layers)

    def extend(
        self,
        layer_idx: int,
        q: Float[Tensor, "B H T D"],
        k: Float[Tensor, "B Hkv T D"],
        v: Float[Tensor, "B Hkv T E"],
        *,
        key_mask: Bool[Tensor, "B T"] | None = None,
        **tensors: Any,
    ) -> Float[Tensor, "B H T E"]:
        """The attention of the next T positions of a layer; its state moves on."""
        spec, layer = self.specs[layer_idx], self.attention_layer(layer_idx)
        assert spec is not None
        state = layer.state
        if state is None:
            (batch, heads, _, key_dim), kv_heads, value_dim = q.shape, k.shape[1], v.shape[-1]
            state = init_state(
                spec,
                batch=batch,
                heads=heads,
                kv_heads=kv_heads,
                key_dim=key_dim,
                value_dim=value_dim,
                dtype=q.dtype,
                device=q.device,
            )
        output, layer.state = extend(spec, q, k, v, state, key_mask=key_mask, **tensors)
        layer.length += q.shape[2]
        return output

    def attention_layer(self, layer_idx: int) -> SpecLayer:
        """The layer, which must be one of attention."""
        layer = self.layers[layer_idx]
        if not isinstance(layer, SpecLayer):
            raise InputError(f"past_key_values: layer {layer_idx} of this cache belongs to a Mamba-2 mixer")
        return layer

    @property
    def lengths(self) -> Int[Tensor, " B"] | None:
        """The number of real positions of every row; None before the first."""
        return self.layers[0].lengths

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions so far, padding included."""
        return self.layers[layer_idx].length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """The number of keys and the position of the first."""
        return self.get_seq_length(layer_idx) + query_length, 0

    @property
    def batch_size(self) -> int:
        """Rows, −1 before the first position."""
        return -1 if self.lengths is None else self.lengths.shape[0]

    def state_bytes(self) -> int:
        """The memory of all layers."""
        tensors = [x for layer in self.layers for x in layer.tensors.values()]
        return sum(x.numel() * x.element_size() for x in tensors)

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows of the batch, in this order and as often as asked."""
        for layer in self.layers:
            layer.select(rows)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """What beam search does."""
        self.select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Some rows of the batch."""
        lengths = self.lengths
        if lengths is not None:
            self.select(torch.arange(len(lengths), device=indices.device)[indices])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row ``repeats`` times."""
        lengths = self.lengths
        if lengths is not None:
            self.select(torch.arange(len(lengths), device=lengths.device).repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last positions (a negative number, as in transformers); a fixed state cannot, a window some."""
        if tokens_to_remove > 0:
            raise InputError(f"crop: expected minus the number of positions to remove, got {tokens_to_remove}")
        for layer in self.layers:
            layer.check_croppable(-tokens_to_remove)
        super().crop(tokens_to_remove)

    def check(self, specs: Sequence[AttentionSpec | None]) -> None:
        """Refuse a model with other specs."""
        cache_file.check_specs("past_key_values", self.specs, tuple(specs))

    def save(self, path: str | Path) -> Path:
        """Write the state as safetensors, whole or not at all."""
        layers = [(layer.length, layer.tensors) for layer in self.layers]
        return cache_file.write(Path(path), self.specs, layers)

    @classmethod
    def load(
        cls,
        path: str | Path,
        specs: Sequence[AttentionSpec | None] | None = None,
        device: torch.device | str = "cpu",
    ) -> SpecCache:
        """Read a saved state; with ``specs`` (such as ``model.config.specs``) refuse one of another spec."""
        saved = cache_file.read(Path(path), device)
        if specs is not None:
            cache_file.check_specs(str(path), saved.specs, tuple(specs))
        cache = cls(saved.specs)
        for layer, (length, tensors) in zip(cache.layers, saved.layers, strict=True):
            if length:
                layer.restore(length, tensors)
        return cache


def cache_bytes(cache: Cache) -> int:
    """The memory of a decoding state, ours or one of transformers' lists of keys and values."""
    if isinstance(cache, SpecCache):
        return cache.state_bytes()
    tensors = [x for layer in cache.layers for x in vars(layer).values() if isinstance(x, Tensor)]
    return sum(x.numel() * x.element_size() for x in tensors)


def as_spec_cache(cache: object, specs: Sequence[AttentionSpec | None]) -> SpecCache:
    """The cache, when it is one of ours and made for these specs; a clear error otherwise."""
    if not isinstance(cache, SpecCache):
        raise InputError(
            f"past_key_values: expected a SpecCache (SpecCache(model.config.specs)), got a {type(cache).__name__}:"
            " keys and values alone are not this model's state"
        )
    cache.check(specs)
    return cache


def prepare_cache(specs: Sequence[AttentionSpec | None], generation_config: Any, model_kwargs: dict[str, Any]) -> None:
    """What generate() decodes with: the specs' own state, the one that was given or a fresh one."""
    if generation_config.cache_implementation is not None:
        kind = generation_config.cache_implementation
        raise InputError(f"cache_implementation: this model decodes with its own state; leave it out, got {kind!r}")
    given = model_kwargs.get("past_key_values")
    if given is not None:
        as_spec_cache(given, specs)._is_user_defined = True  # pyright: ignore[reportAttributeAccessIssue]
    elif generation_config.use_cache:
        model_kwargs["past_key_values"] = SpecCache(specs)
