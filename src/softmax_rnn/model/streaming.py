"""The likeliest tokens after a prompt, one at a time, with the probability, the time and the state behind each.

>>> from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM
>>> from softmax_rnn.model.sizes import build_config
>>> model = SoftmaxRNNForCausalLM(build_config("nano", "linear_elu", vocab_size=64)).eval()
>>> steps = list(stream(model, [1, 2, 3], 4))
>>> len(steps), steps[0].state_bytes == steps[-1].state_bytes
(4, True)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from softmax_rnn.errors import InputError, RunError
from softmax_rnn.model.cache import SpecCache, cache_bytes
from softmax_rnn.model.configuration import SoftmaxRNNConfig
from softmax_rnn.model.convert import specs_of
from softmax_rnn.model.foreign import ForeignModel


@dataclass(frozen=True)
class NextToken:
    """A token that was chosen."""

    token: int
    probability: float
    seconds: float
    """That the model took for it; the first includes the prompt."""
    state_bytes: int


def stream(model: PreTrainedModel, prompt: Sequence[int], most: int) -> Iterator[NextToken]:
    """Up to ``most`` tokens, or to the model's end token."""
    if not prompt or most < 1:
        raise InputError("prompt: expected at least one token, and one or more new ones")
    cache: Cache | None = None
    if isinstance(model, ForeignModel) or isinstance(model.config, SoftmaxRNNConfig):
        cache = SpecCache(specs_of(model))
    ends = _ends(model)
    ids = torch.tensor([list(prompt)], device=model.device)
    for _ in range(most):
        began = time.perf_counter()
        with torch.no_grad():
            output = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = output.past_key_values
        chances = output.logits[0, -1].double().softmax(-1)
        likeliest = chances.max(-1)
        if not bool(chances.isfinite().all()):
            raise RunError("model: its logits are not finite; this attention cannot continue the text")
        token, seconds = int(likeliest.indices), time.perf_counter() - began
        assert cache is not None
        yield NextToken(token, float(likeliest.values), seconds, cache_bytes(cache))
        if token in ends:
            return
        ids = torch.tensor([[token]], device=model.device)


def _ends(model: PreTrainedModel) -> frozenset[int]:
    end = model.generation_config.eos_token_id if model.generation_config else None
    return frozenset() if end is None else frozenset([end] if isinstance(end, int) else end)
