"""Text as it is made: a token at a time, with the speed and the memory of the state behind it.

>>> from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM
>>> from softmax_rnn.model.sizes import build_config
>>> model = SoftmaxRNNForCausalLM(build_config("nano", "linear_elu", vocab_size=64, eos_token_id=None)).eval()
>>> steps = list(stream(model, [1, 2, 3], max_new_tokens=4))
>>> len(steps), len({step.state_bytes for step in steps})        # the state does not grow
(4, 1)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from softmax_rnn.errors import InputError
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.configuration import SoftmaxRNNConfig, as_spec
from softmax_rnn.model.sampling import Chooser, Sampling
from softmax_rnn.validation import check_output


@dataclass(frozen=True)
class StreamStep:
    """One new token, and how the stream stands after it."""

    token: int
    text: str
    """The text that is certain since the step before; empty inside a character of several tokens."""
    count: int
    prompt_tokens: int
    prefill_seconds: float
    decode_seconds: float
    state_bytes: int
    context: int
    """Positions in the state."""

    @property
    def tokens_per_second(self) -> float:
        """New tokens per second after the first, which belongs to the prefill; 0 for the first."""
        return (self.count - 1) / self.decode_seconds if self.count > 1 and self.decode_seconds else 0.0


class _Text:
    """Tokens → the text that later tokens cannot change any more."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self.shown = 0

    def push(self, token: int, last: bool) -> str:
        self.tokens.append(token)
        if self.tokenizer is None:
            return ""
        text = str(self.tokenizer.decode(self.tokens, skip_special_tokens=True))
        if text.endswith("\N{REPLACEMENT CHARACTER}") and not last:
            return ""  # the bytes of a character that is not complete
        fresh, self.shown = text[self.shown :], len(text)
        return fresh


def stream(
    model: PreTrainedModel,
    prompt: str | Sequence[int] | Int[Tensor, " T"],
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    max_new_tokens: int = 64,
    sampling: Sampling | None = None,
    cache: Cache | None = None,
    stop_ids: Sequence[int] | None = None,
) -> Iterator[StreamStep]:
    """New tokens after a prompt, one step each, until ``stop_ids`` (the model's end tokens) or ``max_new_tokens``.

    ``cache`` continues a context that was read before: the prompt is then only what is new. After the stream it has
    read everything but the last token.
    """
    if max_new_tokens < 1:
        raise InputError(f"max_new_tokens: expected 1 or more, got {max_new_tokens}")
    ids = _prompt_ids(prompt, tokenizer, cache is None or cache.get_seq_length() == 0)
    _check_room(model, cache, len(ids), max_new_tokens)
    if cache is None and isinstance(model.config, SoftmaxRNNConfig):
        cache = SpecCache(model.config.specs)
    stops = set(_end_tokens(model) if stop_ids is None else stop_ids)
    return _steps(model, ids, _Text(tokenizer), sampling or Sampling(), cache, stops, max_new_tokens)


def _steps(
    model: PreTrainedModel,
    ids: list[int],
    text: _Text,
    sampling: Sampling,
    cache: Cache | None,
    stops: set[int],
    max_new_tokens: int,
) -> Iterator[StreamStep]:
    device = model.device
    choose = Chooser(sampling, device)
    seen = torch.tensor([ids], device=device)
    fresh, started, prefill = seen, time.perf_counter(), 0.0
    for count in range(1, max_new_tokens + 1):
        with torch.no_grad():
            outputs = model(input_ids=fresh, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = outputs.past_key_values
            token = choose(seen, outputs.logits[:, -1])
        now = time.perf_counter()
        if count == 1:
            prefill = now - started
        assert cache is not None
        last = token in stops or count == max_new_tokens
        yield StreamStep(
            token=token,
            text=text.push(token, last),
            count=count,
            prompt_tokens=len(ids),
            prefill_seconds=prefill,
            decode_seconds=now - started - prefill,
            state_bytes=cache_bytes(cache),
            context=cache.get_seq_length(),
        )
        if last:
            return
        # The time that the reader of the stream takes is not the model's.
        started += time.perf_counter() - now
        fresh = torch.tensor([[token]], device=device)
        seen = torch.cat([seen, fresh], 1)


def cache_bytes(cache: Cache) -> int:
    """The memory of a decoding state, ours or one of transformers' lists of keys and values."""
    if isinstance(cache, SpecCache):
        return cache.state_bytes()
    found = [x for layer in cache.layers for x in vars(layer).values() if isinstance(x, Tensor)]
    return sum(x.numel() * x.element_size() for x in found)


def _prompt_ids(prompt: Any, tokenizer: PreTrainedTokenizerBase | None, at_start: bool) -> list[int]:
    if isinstance(prompt, str):
        if tokenizer is None:
            raise InputError("prompt: text needs a tokenizer; pass one, or pass token ids")
        ids = list(tokenizer(prompt, add_special_tokens=at_start)["input_ids"])  # pyright: ignore[reportArgumentType]
    else:
        ids = [int(one) for one in (prompt.tolist() if isinstance(prompt, Tensor) else prompt)]
    if not ids:
        raise InputError("prompt: expected at least one token, got none")
    return ids


def _check_room(model: PreTrainedModel, cache: Cache | None, prompt: int, new: int) -> None:
    """Say before the first token that the last will not fit, not in the middle of the text."""
    config = model.config
    limit = config.position_limit if isinstance(config, SoftmaxRNNConfig) else None
    past = 0 if cache is None else cache.get_seq_length()
    needed = past + prompt + new - 1
    if limit is not None and needed > limit:
        before = f"{past} read before, " if past else ""
        raise InputError(
            f"context: {before}{prompt} of the prompt and {new} new tokens need {needed} positions, but the model"
            f" knows {limit} (max_position_embeddings)"
        )


def _end_tokens(model: PreTrainedModel) -> list[int]:
    generation = getattr(model, "generation_config", None)
    end = getattr(generation, "eos_token_id", None)
    return [] if end is None else [end] if isinstance(end, int) else list(end)


def generate_command(
    model_name: str | Path,
    prompt: str,
    *,
    variant: str | None = None,
    max_new_tokens: int = 64,
    sampling: Sampling | None = None,
    state_in: str | Path | None = None,
    state_out: str | Path | None = None,
    device: torch.device | str | None = None,
) -> Iterator[StreamStep]:
    """What ``softmax-rnn generate MODEL "prompt"`` does: load, convert, read a saved state, stream, save the state."""
    from softmax_rnn.model.convert import convert, specs_of
    from softmax_rnn.model.foreign import ForeignModel
    from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer

    # What is misspelt or cannot be written is told before a model is loaded.
    if variant is not None:
        as_spec(variant)
    if state_in is not None and not Path(state_in).is_file():
        raise InputError(f"state_in: there is no file {state_in}")
    if state_out is not None:
        check_output(Path(state_out), folder=False, what="state_out")
    model = load_pretrained(model_name)
    if variant is not None:
        model = convert(model, variant)
    if device is not None:
        model.to(torch.device(device))  # pyright: ignore[reportArgumentType]
    tokenizer = load_tokenizer(model_name)
    cache = None
    if isinstance(model, ForeignModel) or isinstance(model.config, SoftmaxRNNConfig):
        specs = specs_of(model)
        cache = SpecCache(specs) if state_in is None else SpecCache.load(state_in, specs, device=model.device)
    elif state_in is not None or state_out is not None:
        raise InputError("state: only models with a spec have a state that can be saved; convert the model first")
    yield from stream(model, prompt, tokenizer=tokenizer, max_new_tokens=max_new_tokens, sampling=sampling, cache=cache)
    if state_out is not None and cache is not None:
        cache.save(state_out)
