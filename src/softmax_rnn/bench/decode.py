"""Time of a new token and bytes of the state against the length of the context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM

from softmax_rnn.attention.attend import attend, extend, step
from softmax_rnn.attention.levels import blocks
from softmax_rnn.attention.parts import Levels
from softmax_rnn.attention.start import init_state
from softmax_rnn.attention.state import FixedState, GrowingState, State
from softmax_rnn.attention.structures import past_of
from softmax_rnn.attention.structures.levels import LevelState
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench.attention import NORM
from softmax_rnn.bench.model_step import llama, ours
from softmax_rnn.bench.races import ratio_task
from softmax_rnn.bench.results import Claim, Results, Task
from softmax_rnn.bench.timing import Work, race
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM

TOKENS = 8
"""New tokens per round."""
FIXED = ("taylor_2", "linear_elu")
LLAMA = "llama"


def random_state(state: State, context: int) -> State:
    """A state as after ``context`` tokens, filled with random numbers: the time of a token does not depend on them."""
    lengths = torch.full_like(state.lengths, context)
    if isinstance(state, FixedState):
        norm = None if state.key_norm is None else state.key_norm + 8
        matrix = torch.rand_like(state.matrix)
        matrix[..., 0, -1] = context  # how many keys there were: row sums are positive, as those of a state are
        return replace(state, lengths=lengths, matrix=matrix, key_norm=norm)
    if isinstance(state, LevelState):
        used = {1} | {block.level for block in blocks(context, Levels().count - 1)}
        return replace(state, lengths=lengths, level={level: torch.rand_like(state.level[1]) for level in used})
    assert isinstance(state, GrowingState)
    batch, heads, _, key_dim = state.keys.shape
    keys = torch.randn(batch, heads, context, key_dim)
    return replace(state, lengths=lengths, keys=keys, values=torch.randn(batch, heads, context, state.values.shape[-1]))


def our_cache(model: SoftmaxRNNForCausalLM, context: int) -> SpecCache:
    """A cache as after a long prompt."""
    config = model.config
    cache = SpecCache(config.specs)
    for index, spec in enumerate(config.specs):
        assert spec is not None
        layer = cache.attention_layer(index)
        heads, key_dim, value_dim = config.num_attention_heads, config.key_dim, config.value_dim
        first = init_state(spec, batch=1, heads=heads, key_dim=key_dim, value_dim=value_dim)
        state = random_state(first, context)
        layer.state = state if state.listed is None else past_of(spec.over_time).trimmed(state.listed)
        layer.length = context
        layer.is_initialized = True
    return cache


def llama_cache(model: LlamaForCausalLM, context: int) -> DynamicCache:
    """The same for transformers' Llama."""
    config = model.config
    cache = DynamicCache(config=config)
    shape = (1, config.num_attention_heads, context, config.hidden_size // config.num_attention_heads)
    for layer in range(config.num_hidden_layers):
        cache.update(torch.randn(shape), torch.randn(shape), layer)
    return cache


def decode(model: torch.nn.Module, make_cache: Callable[[], object]) -> Work:
    """A few new tokens after a context."""
    token = torch.zeros(1, 1, dtype=torch.long)

    def work() -> object:
        with torch.no_grad():
            cache = make_cache()
            output: Tensor | None = None
            for _ in range(TOKENS):
                output = model(input_ids=token, past_key_values=cache, use_cache=True).logits
            return output

    return work


def _context(variants: tuple[str, ...], context: int, rounds: int) -> Task:
    def work(results: Results) -> None:
        base = llama(ours("softmax"))
        reference = llama_cache(base, context)
        contestants = {LLAMA: decode(base, lambda: _copy(reference))}
        sizes = {}
        for name in variants:
            model = ours(name)
            # The same memory: where a copy of the weights lies makes a token up to a tenth slower or faster.
            model.load_state_dict(base.state_dict(), strict=False, assign=True)
            cache = our_cache(model, context)
            sizes[name] = cache.state_bytes()
            states = [cache.attention_layer(index).state for index in range(model.config.num_hidden_layers)]
            contestants[name] = decode(model, lambda m=model, s=states: _filled(m, s, context))
        times = race(contestants, rounds)
        for name in variants:
            ratio = times.ratio(name, LLAMA)
            per_token = {"seconds": times.of(name) / TOKENS, "llama_seconds": times.of(LLAMA) / TOKENS}
            row = {"variant": name, "context": context, **per_token, "state_bytes": sizes[name], "ratio": ratio}
            results.rows.append(row)
            _claim(results, name, context, ratio)

    return Task(f"a new token after {context}: {', '.join(variants)}", work)


def _copy(reference: DynamicCache) -> DynamicCache:
    """A cache that shares the tensors of another; appending makes new ones."""
    cache = DynamicCache()
    for index, layer in enumerate(reference.layers):
        filled: Any = layer
        cache.update(filled.keys, filled.values, index)
    return cache


def _filled(model: SoftmaxRNNForCausalLM, states: list[State | None], context: int) -> SpecCache:
    cache = SpecCache(model.config.specs)
    for index, state in enumerate(states):
        layer = cache.attention_layer(index)
        layer.state, layer.length, layer.is_initialized = state, context, True
    return cache


def _claim(results: Results, name: str, context: int, ratio: float) -> None:
    if context == 512:
        limit = 1.0 if name in ("softmax", NORM) else None
        text = f"{VARIANTS.short(name)}: a new token after 512, in units of transformers' Llama"
        results.claims.append(Claim(text, ratio, limit))
    elif context == 16384 and name in FIXED:
        text = f"{VARIANTS.short(name)}: a new token after 16384, times faster than Llama's cache of keys and values"
        results.claims.append(Claim(text, 1 / ratio, 3.0, at_most=False))


def _constant_state(name: str) -> Task:
    def work(results: Results) -> None:
        sizes = [row["state_bytes"] for row in results.rows if row["variant"] == name]
        text = f"{VARIANTS.short(name)}: bytes of the state at the longest context over the shortest"
        results.claims.append(Claim(text, max(sizes) / min(sizes), 1.0))

    return Task(f"size of the state: {name}", work)


def _against_products(name: str, heads: int, key_dim: int, limit: float | None, rounds: int) -> Task:
    """One step of a fixed state beside the two products that it cannot do without: a read and a write of the state."""

    def contestants() -> dict[str, Work]:
        spec = VARIANTS[name]
        state = random_state(init_state(spec, batch=1, heads=heads, key_dim=key_dim), 512)
        assert isinstance(state, FixedState)
        q, k, v = torch.randn(3, 1, heads, key_dim)
        matrix = state.matrix[0]
        features, width = matrix.shape[1:]
        query, key, value = (torch.randn(heads, *size) for size in ((1, features), (features, 1), (1, width)))

        def steps() -> object:
            with torch.no_grad():
                return [step(spec, q, k, v, state) for _ in range(TOKENS)]

        def products() -> object:
            return [(torch.bmm(query, matrix), torch.baddbmm(matrix, key, value)) for _ in range(TOKENS)]

        return {"step": steps, "products": products}

    text = f"{VARIANTS.short(name)}: a step with {heads} heads, D={key_dim}, in units of its two bare products"
    return ratio_task(f"a step beside its two products: {name}, D={key_dim}", text, contestants, limit, rounds)


def _prefill(name: str, time: int, key_dim: int, limit: float | None, rounds: int) -> Task:
    """A prompt that leaves a state, beside the same prompt without one."""

    def contestants() -> dict[str, Work]:
        spec, heads = VARIANTS[name], 4
        q, k, v = torch.randn(3, 1, heads, time, key_dim)
        empty = init_state(spec, batch=1, heads=heads, key_dim=key_dim)

        def with_state() -> object:
            with torch.no_grad():
                return extend(spec, q, k, v, empty)

        def without() -> object:
            with torch.no_grad():
                return attend(spec, q, k, v)

        return {"with": with_state, "without": without}

    text = f"{VARIANTS.short(name)}: {time} tokens that leave a state, D={key_dim}, in units of the same without"
    return ratio_task(f"a prompt that leaves a state: {name} at T={time}", text, contestants, limit, rounds)


def decode_tasks(quick: bool = False) -> Iterator[Task]:
    """All claims about decoding; quick: two contexts."""
    contexts = (512, 4096) if quick else (512, 1024, 2048, 4096, 8192, 16384)
    for context in contexts:
        yield _context(("softmax", NORM, *FIXED), context, 3 if quick else 9)
    for name in FIXED:
        yield _constant_state(name)
    rounds = 5 if quick else 25
    yield _against_products("taylor_2", 16, 64, 3.0, rounds)
    yield _against_products("taylor_2", 4, 32, 3.0, rounds)
    yield _prefill("taylor_2", 128, 32, 2.2, rounds)
    yield _prefill("taylor_2", 512, 32, 2.2, rounds)
