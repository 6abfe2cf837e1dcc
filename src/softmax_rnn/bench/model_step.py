"""A training step of a whole model against transformers' own Llama with SDPA: same sizes, same weights, same run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench.attention import NORM
from softmax_rnn.bench.peers import materialised
from softmax_rnn.bench.races import ratio_task
from softmax_rnn.bench.results import Claim, Results, Task
from softmax_rnn.bench.timing import Work, race
from softmax_rnn.model import spec_attention
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM
from softmax_rnn.model.sizes import build_config

VOCAB = 4096
LAYERS = 2
POSITIONS = 2**15
OTHERS = (
    "softmax_clamp_denom",
    "gated_softmax",
    "gated_softmax_decay",
    "gated_softmax_cumgate",
    "forgetting_transformer",
    "linear_elu",
    "linear_cosine",
    "taylor_2",
    "power_2",
)


def ours(variant: str, size: str = "small") -> SoftmaxRNNForCausalLM:
    """A model of the paper's width with few layers: what is measured is a ratio, and layers are alike."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"vocab_size": VOCAB, "num_hidden_layers": LAYERS, "max_position_embeddings": POSITIONS}
    return SoftmaxRNNForCausalLM(build_config(size, variant, **options))


def llama(like: SoftmaxRNNForCausalLM) -> LlamaForCausalLM:
    """transformers' Llama of the same size, with the same weights where both have them."""
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings")
    names += ("rms_norm_eps", "rope_parameters")
    options: dict[str, Any] = {name: getattr(like.config, name) for name in names}
    options |= {"vocab_size": VOCAB, "attn_implementation": "sdpa", "tie_word_embeddings": False}
    model = LlamaForCausalLM(LlamaConfig(**options))
    model.load_state_dict(like.state_dict(), strict=False)
    return model


def _ids(tokens: int) -> Tensor:
    """The same tokens on every device."""
    drawn = torch.randint(0, VOCAB, (1, tokens), generator=torch.Generator("cpu").manual_seed(0), device="cpu")
    return drawn.to(torch.get_default_device())


def training_step(model: torch.nn.Module, ids: Tensor) -> Work:
    """Forward and backward of the language-model loss."""

    def work() -> object:
        model.zero_grad(set_to_none=True)
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        return loss

    return work


@contextmanager
def materialised_formula() -> Iterator[None]:
    """Inside, the models compute attention with all weights in memory."""
    before = spec_attention.attend

    def attend(spec: Any, q: Tensor, k: Tensor, v: Tensor, **tensors: Any) -> Tensor:
        extras = {name: x for name, x in tensors.items() if name in spec.tensors}
        return materialised(spec, {"q": q, "k": k, "v": v, **extras})

    spec_attention.attend = attend  # type: ignore[assignment]
    try:
        yield
    finally:
        spec_attention.attend = before


def _step(variants: tuple[str, ...], tokens: int, limit: float, rounds: int) -> Task:
    def work(results: Results) -> None:
        ids = _ids(tokens)
        contestants = {name: training_step(ours(name), ids) for name in variants}
        contestants["llama"] = training_step(llama(ours("softmax")), ids)
        times = race(contestants, rounds)
        for name in variants:
            ratio = times.ratio(name, "llama")
            seconds = {"seconds": times.of(name), "llama_seconds": times.of("llama"), "ratio": ratio}
            results.rows.append({"variant": name, "tokens": tokens, **seconds})
            text = f"{VARIANTS.short(name)}: training step of {tokens} tokens, in units of transformers' Llama"
            results.claims.append(Claim(text, ratio, limit))

    return Task(f"training step, {tokens} tokens: {', '.join(variants)}", work)


def _against_materialised(variant: str, size: str, tokens: int, limit: float | None, rounds: int) -> Task:
    def contestants() -> dict[str, Work]:
        step = training_step(ours(variant, size), _ids(tokens))

        def slow() -> object:
            with materialised_formula():
                return step()

        return {"materialised": slow, "ours": step}

    text = f"{variant}, {size}: training step of {tokens} tokens, times faster than with the materialised formula"
    title = f"the materialised formula, {size}, {tokens} tokens: {variant}"
    return ratio_task(title, text, contestants, limit, rounds, at_most=False)


def model_tasks(quick: bool = False) -> Iterator[Task]:
    """All claims about training steps; quick: the first of them, with few rounds."""
    rounds = 2 if quick else 5
    yield _step(("softmax", NORM), 1024, 1.1, rounds)
    others = OTHERS[1:3] if quick else OTHERS
    for name in others:
        yield _step((name,), 1024, 1.5, rounds)
    for size in ("nano", "small"):
        for name in ("gated_softmax",) if quick else ("gated_softmax", "gated_softmax_decay", "linear_elu", "taylor_2"):
            yield _against_materialised(name, size, 1024, 2.0, 2 if quick else 3)
