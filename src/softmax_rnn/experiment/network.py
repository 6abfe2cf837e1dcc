"""The network of a run, what there is to say about it, and what to suspect when its numbers are no longer finite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from softmax_rnn.attention.algebra import can_be_negative, state_numbers
from softmax_rnn.attention.spec import AttentionSpec, Exp, RowSum
from softmax_rnn.model import SoftmaxRNNConfig, SoftmaxRNNForCausalLM, build_config
from softmax_rnn.model.blocks import MODEL_VARIANTS
from softmax_rnn.model.loading import quiet

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

    from softmax_rnn.experiment.config import RunConfig


def has_gates(variant: str) -> bool:
    """Whether the variant has learned gates.

    >>> has_gates("softmax"), has_gates("gated_softmax")
    (False, True)
    """
    spec = MODEL_VARIANTS[variant].spec
    return any(gate is not None for gate in (spec.input_gate, spec.output_gate, spec.forget_gate))


def model_config(config: RunConfig, vocab_size: int) -> SoftmaxRNNConfig:
    """The configuration of the run's model."""
    options: dict[str, Any] = {"vocab_size": vocab_size, "max_position_embeddings": max(config.context, 1)}
    return build_config(config.size, config.variant, **{**options, **config.model})


def build_network(config: RunConfig, vocab_size: int) -> SoftmaxRNNForCausalLM:
    """The model with the weights of the run's seed."""
    torch.manual_seed(config.seed)
    return SoftmaxRNNForCausalLM(model_config(config, vocab_size))


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
    """The bytes that decoding carries after so many tokens, in float32, over all layers and heads."""
    assert config.head_dim is not None
    numbers = 0
    for spec in config.specs:
        if spec is None:
            continue
        fixed = state_numbers(spec, config.head_dim, config.head_dim)
        numbers += config.num_key_value_heads * (2 * config.head_dim * tokens if fixed is None else fixed)
    return 4 * numbers


def suspicion(network: nn.Module, module: str | None) -> str:
    """Where it began, and the part of the attention that is known to do such things."""
    where = f"the first output that is not finite is that of {module}" if module else "all outputs are finite"
    assert isinstance(network, SoftmaxRNNForCausalLM)
    specs = [spec for spec in dict.fromkeys(network.config.specs) if spec is not None]
    reasons = [reason for spec in specs for reason in suspects(spec)]
    return f"{where}; suspect {' and '.join(dict.fromkeys(reasons)) or 'the learning rate'}"


def suspects(spec: AttentionSpec) -> list[str]:
    """Parts of a spec that can leave the range of floating point.

    >>> suspects(MODEL_VARIANTS["taylor_3"].spec)
    ['the row sum, which can be 0 or negative']
    >>> suspects(MODEL_VARIANTS["softmax"].spec)
    []
    """
    found = []
    if isinstance(spec.normaliser, RowSum) and can_be_negative(spec):
        found.append("the row sum, which can be 0 or negative")
    if isinstance(spec.score, Exp) and not isinstance(spec.normaliser, RowSum):
        if spec.output_norm is None and spec.score.clamp is None:
            found.append("exp of the scores, which nothing divides or clamps")
    elif not isinstance(spec.score, Exp) and spec.normaliser is None and spec.output_norm is None:
        found.append("the sum of the weights, which grows with the length")
    return found
