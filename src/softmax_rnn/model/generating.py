"""Text from a model as it is made, with the speed of decoding and the memory of the state behind it.

transformers' `generate` makes the tokens and its `TextStreamer` the words.

>>> from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM
>>> from softmax_rnn.model.sizes import build_config
>>> model = SoftmaxRNNForCausalLM(build_config("nano", "linear_elu", vocab_size=64, eos_token_id=None)).eval()
>>> short, long = (generate_text(model, [1, 2, 3], max_new_tokens=count) for count in (4, 30))
>>> len(short.tokens), short.state_bytes == long.state_bytes        # the state does not grow
(4, True)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, TextStreamer
from transformers.cache_utils import Cache
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from softmax_rnn.errors import InputError, RunError
from softmax_rnn.model import cache_file
from softmax_rnn.model.cache import SpecCache, cache_bytes
from softmax_rnn.model.configuration import SoftmaxRNNConfig
from softmax_rnn.model.layer_specs import as_spec
from softmax_rnn.model.loading import quiet

TEMPERATURES = (1e-4, 1e4)
"""Between these, logits divided by the temperature stay numbers."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: the likeliest at temperature 0, otherwise drawn."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        low, high = TEMPERATURES
        if self.temperature and not low <= self.temperature <= high:
            expected = f"expected 0 (the likeliest token), or {low:g} to {high:g}"
            raise InputError(f"temperature: {expected}, got {self.temperature:g}")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k: expected 1 or more, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"top_p: expected a number above 0 and up to 1, got {self.top_p}")
        for name in ("top_k", "top_p"):
            if getattr(self, name) is not None and not self.temperature:
                raise InputError(f"{name}: has no effect at temperature 0, which takes the likeliest token; set both")
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            raise InputError(f"seed: expected a whole number of 64 bits, got {self.seed}")

    def options(self) -> dict[str, Any]:
        """The options of `generate`; those left out there would be the checkpoint's."""
        if not self.temperature:
            return {"do_sample": False, "repetition_penalty": 1.0}
        return {
            "do_sample": True,
            "temperature": float(self.temperature),
            "top_k": self.top_k or 0,
            "top_p": self.top_p or 1.0,
            "repetition_penalty": 1.0,
        }


@dataclass(frozen=True)
class Generated:
    """The new tokens, and the state of the model after the last one."""

    text: str
    """Empty without a tokenizer."""
    tokens: tuple[int, ...]
    prompt_tokens: int
    prefill_seconds: float
    decode_seconds: float
    state_bytes: int
    context: int
    """Positions in the state: everything but the last token."""

    @property
    def tokens_per_second(self) -> float:
        """New tokens per second after the first, which belongs to the prefill; 0 for a single token."""
        return (len(self.tokens) - 1) / self.decode_seconds if len(self.tokens) > 1 else 0.0


class _Streamer(TextStreamer):
    """Words for the reader, and the clock: the time that the reader takes is not the model's."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None, on_text: Callable[[str], object]) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)  # pyright: ignore[reportArgumentType]
        self.on_text = on_text
        self.text, self.tokens = "", list[int]()
        self.seconds, self.prefill, self.began = 0.0, 0.0, 0.0

    def put(self, value: Tensor) -> None:
        if not self.next_tokens_are_prompt:
            self.seconds += time.perf_counter() - self.began
            self.tokens += value.flatten().tolist()
            if len(self.tokens) == 1:
                self.prefill = self.seconds
        if self.tokenizer is None:
            self.next_tokens_are_prompt = False
        else:
            super().put(value)
        self.began = time.perf_counter()

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self.text += text
        if text:
            self.on_text(text)


class _Finite(LogitsProcessor):
    """Weights that are not numbers must not look like text."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        largest = float(scores.max())  # NaN where any score is
        if not math.isfinite(largest):
            raise RunError(f"model: its largest logit is {largest}; the weights or the state are not finite")
        return scores


def generate_text(
    model: PreTrainedModel,
    prompt: str | Sequence[int] | Int[Tensor, " T"],
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    max_new_tokens: int = 64,
    sampling: Sampling | None = None,
    cache: Cache | None = None,
    on_text: Callable[[str], object] = lambda text: None,
) -> Generated:
    """New tokens after a prompt, until an end token of the model or ``max_new_tokens``; words go to ``on_text``.

    ``cache`` continues a context that was read before: the prompt is then only what is new. In the end it has read
    everything but the last token.
    """
    sampling = sampling or Sampling()
    if max_new_tokens < 1:
        raise InputError(f"max_new_tokens: expected 1 or more, got {max_new_tokens}")
    past = 0 if cache is None else cache.get_seq_length()
    ids = _prompt_ids(prompt, tokenizer, at_start=not past)
    _check_positions(model, past, len(ids), max_new_tokens)
    streamer = _Streamer(tokenizer, on_text)
    # generate() wants all positions; it reads those only that the cache has not.
    whole = torch.tensor([[0] * past + ids], device=model.device)
    with quiet(), torch.random.fork_rng([] if model.device.type == "cpu" else [model.device]):
        if sampling.seed is not None:
            torch.manual_seed(sampling.seed)
        elif sampling.temperature:
            torch.seed()
        generate: Any = model.generate
        outputs = generate(
            whole,
            attention_mask=torch.ones_like(whole),
            past_key_values=cache,
            max_new_tokens=max_new_tokens,
            return_dict_in_generate=True,
            streamer=streamer,
            logits_processor=LogitsProcessorList([_Finite()]),
            **sampling.options(),
        )
    state: Cache = outputs.past_key_values
    return Generated(
        text=streamer.text,
        tokens=tuple(streamer.tokens),
        prompt_tokens=len(ids),
        prefill_seconds=streamer.prefill,
        decode_seconds=streamer.seconds - streamer.prefill,
        state_bytes=cache_bytes(state),
        context=state.get_seq_length(),
    )


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


def _check_positions(model: PreTrainedModel, past: int, prompt: int, new: int) -> None:
    """Say before the first token that the last will not fit, not in the middle of the text."""
    config = model.config
    limit = config.position_limit if isinstance(config, SoftmaxRNNConfig) else None
    needed = past + prompt + new - 1
    if limit is not None and needed > limit:
        before = f"{past} read before, " if past else ""
        raise InputError(
            f"context: {before}{prompt} of the prompt and {new} new tokens need {needed} positions, but the model"
            f" has {limit} (max_position_embeddings)"
        )


def generate_command(
    model_name: str | Path,
    prompt: str,
    *,
    variant: str | None = None,
    max_new_tokens: int = 64,
    sampling: Sampling | None = None,
    state_in: str | Path | None = None,
    state_out: str | Path | None = None,
    on_text: Callable[[str], object] = lambda text: None,
) -> Generated:
    """What ``softmax-rnn generate MODEL "prompt"`` does: load, convert, read a state, generate, save the state."""
    from softmax_rnn.model.convert import convert, specs_of
    from softmax_rnn.model.foreign import ForeignModel
    from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer

    # Misspelt names and places that cannot be written are reported before a model is loaded.
    if variant is not None:
        as_spec(variant)
    if state_in is not None and not Path(state_in).is_file():
        raise InputError(f"state_in: there is no file {state_in}")
    if state_out is not None:
        cache_file.check_target(Path(state_out), "state_out")
    model = load_pretrained(model_name)
    tokenizer = load_tokenizer(model_name)
    if variant is not None:
        model = convert(model, variant)
    cache = None
    if isinstance(model, ForeignModel) or isinstance(model.config, SoftmaxRNNConfig):
        specs = specs_of(model)
        cache = SpecCache(specs) if state_in is None else SpecCache.load(state_in, specs, device=model.device)
    elif state_in is not None or state_out is not None:
        raise InputError("state: only models with a spec have a state that can be saved; convert the model first")
    options: dict[str, Any] = {"tokenizer": tokenizer, "max_new_tokens": max_new_tokens, "sampling": sampling}
    result = generate_text(model, prompt, cache=cache, on_text=on_text, **options)
    if state_out is not None and cache is not None:
        cache.save(state_out)
    return result
