"""Models of a few thousand weights, started so wide that attention decides what they say."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from softmax_rnn.model import SoftmaxRNNForCausalLM, build_config
from softmax_rnn.model.configuration import SoftmaxRNNConfig

VOCAB = 48
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.15,
    "mamba_state_size": 8,
    "bos_token_id": None,
    "eos_token_id": None,
}


def tiny_config(variant: str = "softmax", **overrides: Any) -> SoftmaxRNNConfig:
    return build_config("nano", variant, **{**SMALL, **overrides})


def tiny_model(variant: str = "softmax", seed: int = 0, **overrides: Any) -> SoftmaxRNNForCausalLM:
    torch.manual_seed(seed)
    model = SoftmaxRNNForCausalLM(tiny_config(variant, **overrides)).eval()
    with torch.no_grad():  # parameters that start at a constant would hide mistakes
        for name, parameter in model.named_parameters():
            if ".parts." in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def tokens(batch: int = 2, time: int = 9, seed: int = 1) -> Tensor:
    return torch.randint(0, VOCAB, (batch, time), generator=torch.Generator().manual_seed(seed))


def same_model(loaded: PreTrainedModel, model: PreTrainedModel, ids: Tensor) -> bool:
    """Weights equal bit for bit, logits up to rounding: the place of weights in memory can change a last bit."""
    one, other = loaded.state_dict(), model.state_dict()
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    with torch.no_grad():
        logits, expected = loaded(input_ids=ids).logits, model(input_ids=ids).logits
    tolerance = 1e-12 if expected.dtype == torch.float64 else 1e-5
    return bool((logits - expected).abs().max() <= tolerance * expected.abs().max())


def left_padded(ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first row without its first ``count`` tokens, as a batch with a mask."""
    mask = torch.ones_like(ids)
    mask[0, :count] = 0
    return ids, mask
