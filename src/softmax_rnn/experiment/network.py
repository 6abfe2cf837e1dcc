"""The network of a run, what there is to say about it, and why its numbers may no longer be finite."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers.activations import ACT2FN

from softmax_rnn.attention.algebra import can_be_negative, state_bytes_after
from softmax_rnn.attention.parts import CumulativeGate, RowSum
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.model_table import Size
from softmax_rnn.errors import InputError, root_cause, unknown_name
from softmax_rnn.model import MODEL_VARIANTS, SoftmaxRNNConfig, SoftmaxRNNForCausalLM, build_config
from softmax_rnn.model.loading import quiet

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

    from softmax_rnn.experiment.config import RunConfig

# What transformers raises for values that cannot be.
_FAILURES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, StrictDataclassError)
_OTHER_SETTINGS = {
    "attention_spec": "the setting `variant` says which attention is trained",
    "layers": "`layers` belongs beside `model`, not inside it",
    "mixer": "the setting `variant` says what mixes positions",
    "size": "`size` belongs beside `model`, not inside it",
    "variant": "`variant` belongs beside `model`, not inside it",
    "dtype": "weights are float32, and `precision: bf16` computes in half precision",
}
_COUNTS = {field.name for field in fields(Size)} | {"num_key_value_heads", "head_dim"}


def model_options(config: RunConfig) -> dict[str, Any]:
    """The options of ``model``, numbers as numbers; what would contradict the variant's name is refused."""
    variant = MODEL_VARIANTS[config.variant]
    defaults = build_config(config.size, config.variant)
    options = {}
    for name, given in config.model.items():
        if name in _OTHER_SETTINGS:
            raise InputError(f"model.{name}: not an option of a run: {_OTHER_SETTINGS[name]}; got {given!r}")
        if name in variant.options and given != variant.options[name]:
            raise InputError(f"model.{name}: {config.variant} sets it to {variant.options[name]!r}, got {given!r}")
        if name == "hidden_act" and given not in ACT2FN:
            raise unknown_name("model.hidden_act", given, list(ACT2FN))
        options[name] = _number(given) if isinstance(getattr(defaults, name, None), float) else given
    return options


def _number(given: Any) -> Any:
    """YAML reads 1e-6 as text and 1 as a whole number."""
    if isinstance(given, bool) or not isinstance(given, (int, str)):
        return given
    try:
        return float(given)
    except (ValueError, OverflowError):
        return given


def model_config(config: RunConfig, vocab_size: int | None = None) -> SoftmaxRNNConfig:
    """The configuration of the run's model: the one place where a variant becomes one.

    Before the data's ``vocab_size`` is known, all else is right.
    """
    needed = {"max_position_embeddings": config.context} | ({"vocab_size": vocab_size} if vocab_size else {})
    for name, given in config.model.items():
        least = needed.get(name, 1 if name in _COUNTS else given)
        if isinstance(given, int) and given < least:
            raise InputError(f"model.{name}: expected {least} or more, got {given}")
    try:
        options = {"vocab_size": 256, **needed, **config.model}
        shape = build_config(config.size, config.variant, layers=config.layers or None, **options)
        if config.model:
            with torch.device("meta"):
                SoftmaxRNNForCausalLM(shape)
    except InputError:
        raise
    except _FAILURES as error:
        raise InputError(f"model: {' '.join(str(root_cause(error)).split())}") from error
    return shape


def build_network(config: RunConfig, vocab_size: int) -> SoftmaxRNNForCausalLM:
    """The model with the weights of the run's seed."""
    shape = model_config(config, vocab_size)
    torch.manual_seed(config.seed)
    network = SoftmaxRNNForCausalLM(shape)
    network.config.use_cache = False
    return network


def save_network(
    network: nn.Module, weights: dict[str, Tensor], tokenizer: PreTrainedTokenizerBase | None, path: Path
) -> None:
    """An ordinary saved model, with its tokeniser where there is one."""
    assert isinstance(network, SoftmaxRNNForCausalLM)
    network.config.use_cache = True
    with quiet():
        network.save_pretrained(path, state_dict=weights)
    if tokenizer is not None:
        tokenizer.save_pretrained(path)


def state_bytes(config: SoftmaxRNNConfig, tokens: int) -> int:
    """The bytes that decoding carries after so many tokens of a float32 model, over all layers and heads."""
    return sum(layer_bytes(config, spec, tokens) for spec in config.specs)


def layer_bytes(config: Any, spec: AttentionSpec | None, tokens: int) -> int:
    """Those of one layer with this attention in a model of this shape; other models' may lack ``key_dim``.

    A window cannot hold more than it has seen; what a form keeps beside it is not counted.
    """
    if spec is None:
        return 0
    dim, value_dim = (getattr(config, name, None) or config.head_dim for name in ("key_dim", "value_dim"))
    heads = config.num_attention_heads if spec.differs_by_head else config.num_key_value_heads
    return heads * state_bytes_after(spec, dim, value_dim, tokens)


def explanation(network: nn.Module, module: str | None) -> str:
    """Where it began, and the part of the attention that is known to do such things."""
    where = f"the first output that is not finite is that of {module}" if module else "all outputs are finite"
    assert isinstance(network, SoftmaxRNNForCausalLM)
    specs = [spec for spec in dict.fromkeys(network.config.specs) if spec is not None]
    reasons = [reason for spec in specs for reason in causes(spec)]
    return f"{where}; likely causes: {' and '.join(dict.fromkeys(reasons)) or 'the learning rate'}"


def causes(spec: AttentionSpec) -> list[str]:
    """Parts of a spec that can leave the range of floating point, or have gradients that can.

    >>> causes(build_config("nano", "taylor_3").spec)
    ['the row sum, which can be 0 or negative']
    >>> causes(build_config("nano", "softmax").spec)
    []
    """
    reasons = []
    if isinstance(spec.normaliser, RowSum):
        if can_be_negative(spec):
            reasons.append("the row sum, which can be 0 or negative")
        elif (polynomial := spec.score.as_polynomial) is not None and not polynomial.coefficients[0]:
            reasons.append("the row sum, which can be near 0")
    elif isinstance(spec.normaliser, CumulativeGate) and spec.normaliser.minimum is None:
        reasons.append("the cumulative gate, which can be near 0")
    elif spec.score.is_exponential and spec.score.clamp is None and spec.output_norm is None:
        reasons.append("exp of the scores, which nothing divides or clamps")
    elif spec.normaliser is None and spec.output_norm is None:
        reasons.append("the sum of the weights, which grows with the length")
    if spec.output_norm is not None:
        reasons.append("the output norm, which is steep where the sum is near 0")
    return reasons
