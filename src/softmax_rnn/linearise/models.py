"""The original and its copy with another attention, and how both read a row of tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.model.convert import convert, refuse_what_cannot_be_converted, specs_of
from softmax_rnn.model.foreign import ForeignModel
from softmax_rnn.model.layer_specs import layer_specs
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM
from softmax_rnn.model.positions import positions_of


def as_original(model: PreTrainedModel) -> PreTrainedModel:
    """The same function with each attention as a spec; a model of this package stays as it is."""
    refuse_what_cannot_be_converted(model)
    if not isinstance(model, (ForeignModel, SoftmaxRNNForCausalLM)):
        model = convert(model, "softmax")
    if any(spec is None for spec in specs_of(model)):
        raise InputError("model: its blocks are Mamba-2 mixers, which have no attention to convert")
    return model.eval().requires_grad_(False)


def converted(
    original: PreTrainedModel, specs: Sequence[AttentionSpec | None], forget_bias: float, seed: int = 0
) -> SoftmaxRNNForCausalLM | ForeignModel:
    """The original with these specs, one per layer; what they add starts neutral, or by the seed.

    Attentions are copied; all other weights stay the original's in memory until `own_what_learns`.
    """
    torch.manual_seed(seed)
    inside = {id(weight) for one in attentions(original) for weight in one.parameters()}
    outside = [weight for weight in original.parameters() if id(weight) not in inside]
    shared = {id(weight): nn.Parameter(weight.data, requires_grad=False) for weight in outside}
    layers: Any = list(specs)
    student = convert(copy.deepcopy(original, shared).float(), layers=layers, forget_bias=forget_bias)  # pyright: ignore[reportArgumentType]
    return student.eval().requires_grad_(True)


def target_specs(original: PreTrainedModel, target: AttentionSpec) -> tuple[AttentionSpec, ...]:
    """The target in every layer; a target without a structure keeps the layer's window."""
    targets = []
    for spec, old in zip(layer_specs(target, original.config.num_hidden_layers, "to"), specs_of(original), strict=True):
        keeps = old is not None and old.structure is not None and spec.structure is None
        targets.append(replace(spec, structure=old.structure) if keeps and old is not None else spec)
    return tuple(targets)


def attentions(model: PreTrainedModel) -> list[nn.Module]:
    """The attention module of every layer."""
    decoder: Any = model.get_decoder()
    return [layer.self_attn for layer in decoder.layers]


class RowReader(nn.Module):
    """A model as the training loop calls it: the tensors of a row in, an object with ``logits`` out."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self._no_split_modules = list(model._no_split_modules or ())

    def gradient_checkpointing_enable(self) -> None:
        self.model.gradient_checkpointing_enable()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        logits_to_keep: int = 0,
    ) -> Any:
        """transformers' classes recognise packed documents by positions that restart; 0 keeps all logits."""
        options: dict[str, Any] = {"attention_mask": attention_mask, "use_cache": False}
        options["logits_to_keep"] = logits_to_keep
        if segment_ids is not None and isinstance(self.model, SoftmaxRNNForCausalLM):
            options["segment_ids"] = segment_ids
        elif segment_ids is not None:
            batch, time = input_ids.shape
            options["position_ids"] = positions_of(batch, time, segment_ids=segment_ids, device=input_ids.device)
        return self.model(input_ids=input_ids, **options)


Shown = Callable[[int, nn.Module, tuple[Any, ...], dict[str, Any], Tensor], None]
"""Called with the layer, its attention module, the positional and named arguments of the call, and the output."""


@contextmanager
def each_attention(model: PreTrainedModel, show: Shown) -> Iterator[None]:
    """Inside, every call of an attention module of the model is shown."""

    def hook(layer: int) -> Callable[..., None]:
        def look(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
            show(layer, module, arguments, options, output[0] if isinstance(output, tuple) else output)

        return look

    modules = attentions(model)
    handles = [one.register_forward_hook(hook(layer), with_kwargs=True) for layer, one in enumerate(modules)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def attention_output(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    """What an attention module gives for the arguments of another one's call, which may have another precision."""
    project: Any = module.o_proj
    given, named = _in_precision((arguments, options), project.weight.dtype)
    output = module(*given, **named)
    return output[0] if isinstance(output, tuple) else output


def _in_precision(value: Any, dtype: torch.dtype) -> Any:
    """The value with its floating-point tensors, at any depth, in this precision."""
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, (tuple, list)):
        return tuple(_in_precision(one, dtype) for one in value)
    if isinstance(value, dict):
        return {name: _in_precision(one, dtype) for name, one in value.items()}
    return value


@contextmanager
def heads_of(module: nn.Module) -> Iterator[list[Tensor]]:
    """Inside, the list receives what the output projection of an attention module reads, (B, T, heads · E)."""
    seen: list[Tensor] = []
    project: Any = module.o_proj
    handle = project.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    try:
        yield seen
    finally:
        handle.remove()


def untie(model: PreTrainedModel) -> bool:
    """Give the output projection a copy of the embeddings; returns whether they were tied."""
    head: Any = model.get_output_embeddings()
    embeddings: Any = model.get_input_embeddings()
    if head is None or head.weight is not embeddings.weight:
        return False
    head.weight = nn.Parameter(embeddings.weight.detach().clone())
    config: Any = model.config
    config.tie_word_embeddings = False
    return True


def own_what_learns(student: PreTrainedModel, original: PreTrainedModel) -> None:
    """Give the student its own copy of what learns or differs from the original; all else is in memory once."""
    known = dict(original.named_parameters())
    for name, weight in student.named_parameters():
        other = known.get(name)
        alike = other is not None and (other.dtype, other.device) == (weight.dtype, weight.device)
        if other is not None and alike and not weight.requires_grad and torch.equal(weight, other):
            weight.data = other.data
        else:
            # Loaded weights are views into their file, of which all that was read stays in memory as long as one does.
            weight.data = weight.data.clone()


def shape_of(module: nn.Module) -> tuple[int, int]:
    """The heads of an attention module, and the dimension of their outputs."""
    project: Any = module.o_proj
    heads = getattr(module, "heads", None)
    if heads is None:
        q_proj: Any = module.q_proj
        heads = q_proj.out_features // module.head_dim  # pyright: ignore[reportOperatorIssue]
    return int(heads), project.in_features // int(heads)


def dtype_of(name: str) -> torch.dtype:
    """fp32 or bf16."""
    return torch.bfloat16 if name == "bf16" else torch.float32
