"""Parameter-free variants inside any transformers model: ``attn_implementation="softmax_rnn:NAME"``.

Importing this file registers every name of `VARIANTS` whose spec needs no tensors besides q, k and v, together with
a mask function: without one transformers silently drops the padding mask.

>>> import softmax_rnn.model.interface
>>> from transformers import LlamaConfig, LlamaForCausalLM
>>> config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
>>> model = LlamaForCausalLM._from_config(config, attn_implementation="softmax_rnn:linear_elu")
>>> model(torch.tensor([[1, 2, 3]])).logits.shape
torch.Size([1, 3, 8])

A number that the table does not list (``taylor_6``) is registered when it is asked for.
Here decoding uses transformers' own cache of keys and values, also for scores that have a state of fixed size;
`softmax_rnn.model.convert` swaps the cache as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, wraps
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface, PreTrainedModel

from softmax_rnn.attention.algebra import fixed_state_score
from softmax_rnn.attention.attend import attend, extend
from softmax_rnn.attention.call import working_dtype
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.parts import Window
from softmax_rnn.attention.parts.base import Along
from softmax_rnn.attention.prologue import features, running
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import GrowingState
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.attention.visibility import Visibility
from softmax_rnn.errors import InputError, unknown_name
from softmax_rnn.model.masks import read_mask, visible_keys

PREFIX = "softmax_rnn:"

REFUSED_ARGUMENTS = {
    "softcap": "soft-capping of scores",
    "s_aux": "attention sinks",
    "position_bias": "a bias on scores",
    "output_attentions": "returning the weights",
}
"""Arguments that some models pass to their attention, and what they ask for."""


def register_attention(name: str | None = None) -> list[str]:
    """Register one variant, or all that need no parameters, with transformers; their names there.

    >>> register_attention("taylor_6")
    ['softmax_rnn:taylor_6']
    """
    if name is not None:
        name = name.removeprefix(PREFIX)
        needed = VARIANTS[name].tensors
        if needed:
            raise InputError(
                f"{name}: an attention function has no parameters and this variant needs {', '.join(needed)};"
                " swap the attention modules with softmax_rnn.model.convert.convert"
            )
    names = [name] if name is not None else [n for n in VARIANTS if not VARIANTS[n].tensors]
    for variant in names:
        AttentionInterface.register(PREFIX + variant, attention_function(VARIANTS[variant]))
        AttentionMaskInterface.register(PREFIX + variant, visible_keys)
    return [PREFIX + variant for variant in names]


def with_scaling(spec: AttentionSpec, scaling: float | None) -> AttentionSpec:
    """The spec with the model's factor where it has 1/√d; a variant that fixes its own scale keeps it."""
    if scaling is None or spec.score.scale is not None:
        return spec
    return _with_scale(spec, float(scaling))


@cache
def _with_window(spec: AttentionSpec, width: int) -> AttentionSpec:
    return replace(spec, structure=Window(width))


@cache
def _with_scale(spec: AttentionSpec, scaling: float) -> AttentionSpec:
    return replace(spec, score=replace(spec.score, scale=scaling))


def attention_function(spec: AttentionSpec) -> Callable[..., tuple[Tensor, None]]:
    """The spec in the calling convention of transformers' attention functions."""

    def attention(
        module: torch.nn.Module,
        query: Float[Tensor, "B H Tq D"],
        key: Float[Tensor, "B Hkv T D"],
        value: Float[Tensor, "B Hkv T E"],
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> tuple[Float[Tensor, "B Tq H E"], None]:
        refuse_arguments(dropout, kwargs)
        if not kwargs.get("is_causal", getattr(module, "is_causal", True)):
            raise InputError("is_causal: softmax_rnn attention is causal; this model asks for both directions")
        scaled, window = with_scaling(spec, scaling), kwargs.get("sliding_window")
        if window is not None and scaled.structure is None:
            scaled = _with_window(scaled, int(window))
        mask = attention_mask
        if mask is not None and mask.dim() == 4:
            allowed = mask[:, 0] if mask.dtype == torch.bool else mask[:, 0] == 0
            mask = read_mask(allowed, key.shape[2], window)
        if mask is not None:
            # A static cache is longer than what has been written to it; the mask ends with the newest key.
            key, value = key[:, :, : mask.shape[1]], value[:, :, : mask.shape[1]]
        padding = mask if mask is not None and mask.dtype == torch.bool else None
        if query.shape[2] < key.shape[2]:
            output = attend_at_end(scaled, query, key, value, padding)
        else:
            segments = mask if padding is None else None
            output = attend(scaled, query, key, value, key_mask=padding, segment_ids=segments)
        return output.transpose(1, 2).contiguous(), None

    return attention


def refuse_arguments(dropout: float, kwargs: dict[str, Any]) -> None:
    """What a model asks of its attention and a spec does not have is refused by name."""
    if dropout:
        raise InputError(f"attention_dropout: dropout of weights is not supported; expected 0, got {dropout}")
    for name, meaning in REFUSED_ARGUMENTS.items():
        given = kwargs.get(name)
        if given is not None and given is not False:
            came = "a tensor" if isinstance(given, Tensor) else repr(given)
            raise InputError(f"{name}: {meaning} is not supported by softmax_rnn attention, got {came}")


def attend_at_end(
    spec: AttentionSpec,
    q: Float[Tensor, "B H Tq D"],
    k: Float[Tensor, "B Hkv T D"],
    v: Float[Tensor, "B Hkv T E"],
    key_mask: Bool[Tensor, "B T"] | None,
) -> Float[Tensor, "B H Tq E"]:
    """`attend` for the last Tq positions only, from all keys: decoding from a cache that is not ours."""
    past = k.shape[2] - q.shape[2]
    before = None if key_mask is None else key_mask[:, :past]
    lengths = torch.full((k.shape[0],), past, device=k.device) if before is None else before.sum(-1)
    dtype = working_dtype(spec, q, k)
    keys, values = k[:, :, :past].to(dtype), v[:, :, :past].to(dtype)
    if before is not None:
        padding = ~before[:, None, :, None]
        keys, values = keys.masked_fill(padding, 0), values.masked_fill(padding, 0)
    real = torch.ones(k.shape[0], past, device=k.device) if before is None else before
    positions = real.to(dtype).cumsum(-1)
    carried = running(Along(spec, keys, values, {}, Visibility(before), positions), {})
    last = {slot: x[:, :, -1] for slot, x in carried.items()}
    decay = None
    if spec.forget_gate is not None:
        decay = RunningDecay.of(spec.forget_gate.log_decay({}, keys, q.shape[1]), before).c
    keys = features(spec, keys, keys, {}, positions)[1]
    if spec.differs_by_head:
        keys, values = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (keys, values))
    state = GrowingState(lengths, last, keys, values, decay, before)
    if spec.over_time.needs_own_state is not None:
        raise InputError(f"structure: {spec.over_time.needs_own_state}; decode after convert()")
    if spec.score.as_polynomial is not None:
        spec = spec if spec.polynomial is None else _that_keeps_keys(spec, q, k)
    elif fixed_state_score(spec, q.shape[-1]) is not None:
        raise InputError("score: this polynomial on a range has a state of fixed size; decode after convert()")
    after = None if key_mask is None else key_mask[:, past:]
    return extend(spec, q, k[:, :, past:], v[:, :, past:], state, key_mask=after)[0]


def _that_keeps_keys(spec: AttentionSpec, q: Tensor, k: Tensor) -> AttentionSpec:
    """The same function for these q and k, as a spec whose state is the list of keys: a clamp no score reaches."""
    positions = torch.ones(k.shape[0], k.shape[2], device=k.device).cumsum(-1)
    q, k = q.detach().float(), k.detach().float()
    q, k = features(spec, q, q, {}, positions[:, -q.shape[2] :])[0], features(spec, k, k, {}, positions)[1]
    largest = float(q.norm(dim=-1).max()) * float(k.norm(dim=-1).max())
    if not math.isfinite(largest):
        raise InputError("query: expected finite queries and keys")
    # A power of two, so that few different specs are made.
    return _with_clamp(spec, 2.0 ** (math.frexp(largest)[1] + 1))


@cache
def _with_clamp(spec: AttentionSpec, clamp: float) -> AttentionSpec:
    return replace(spec, score=replace(spec.score, clamp=clamp))


def _find_names_of_ours() -> None:
    """transformers checks a name against a fixed list; one of ours is registered first, or refused with the nearest."""
    check = PreTrainedModel.get_correct_attn_implementation

    @wraps(check)
    def get_correct_attn_implementation(
        self: PreTrainedModel, requested_attention: str | None, is_init_check: bool = False
    ) -> str:
        name = requested_attention
        if isinstance(name, str) and name.startswith(PREFIX) and name not in ALL_ATTENTION_FUNCTIONS:
            variant = name.removeprefix(PREFIX)
            if variant not in VARIANTS:
                raise InputError(f"attn_implementation: {unknown_name('variant', variant, VARIANTS)}")
            register_attention(variant)
        return check(self, name, is_init_check)

    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation


_find_names_of_ours()
register_attention()
