"""Structures over time: the speed of windows, far states and levels, and the bytes of decoding states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import process_time

import torch
import torch.nn.functional as F
from torch import Tensor

from softmax_rnn.attention.attend import attend, extend
from softmax_rnn.attention.parts import NearFar, Window, taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.start import init_state
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench.inputs import random_inputs
from softmax_rnn.bench.peers import ours, timed_pass
from softmax_rnn.bench.results import Claim, Results, Task
from softmax_rnn.bench.timing import Work, race

WIDTH, SINKS, HEADS, DIM = 256, 4, 4, 64
STATE_DIM = 16
"""Key and value dimension of the states: kept keys are read token by token."""
FLAT = ("streaming_llm_64", "near_far_64", "kept_keys_64", "heavy_hitters_64")
LOGARITHMIC = ("log_linear_linear", "log_linear_mamba2")
MEMORY = ("softmax", *FLAT, *LOGARITHMIC, "taylor_2")
BLOCK = 128
LEVELS = {
    "log_linear_linear": 16384,
    "log_linear_mamba2": 16384,
    "log_linear_taylor_2": 4096,
    "log_linear_softmax": 4096,
}
"""Rows with levels, and the lengths at which they are measured."""

SPEED = {
    "window": AttentionSpec(structure=Window(WIDTH)),
    "window and sinks": AttentionSpec(structure=Window(WIDTH, SINKS)),
    "near and far": AttentionSpec(score=taylor_score(1), structure=NearFar(WIDTH, SINKS)),
}


def banded_by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A window as one would write it: the platform's kernel on blocks of queries and the keys that they see."""
    count, length = q.shape[2] // BLOCK, BLOCK + WIDTH - 1
    query, key = torch.arange(BLOCK)[:, None], torch.arange(length)
    hidden = torch.zeros(count, 1, BLOCK, length)
    hidden.masked_fill_((key < query) | (key >= query + WIDTH), -torch.inf)
    outside = torch.arange(count)[:, None] * BLOCK + key < WIDTH - 1
    hidden.masked_fill_(outside[:, None, None], -torch.inf)
    blocks = [F.pad(x, (0, 0, WIDTH - 1, 0)).unfold(2, length, BLOCK)[0].permute(1, 0, 3, 2) for x in (k, v)]
    out = F.scaled_dot_product_attention(q[0].unflatten(1, (count, BLOCK)).transpose(0, 1), *blocks, attn_mask=hidden)
    return out.transpose(0, 1).flatten(1, 2)[None]


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _speed(time: int, rounds: int) -> Task:
    def work(results: Results) -> None:
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(1, HEADS, time, DIM, generator=generator) for _ in range(3))

        def attending(spec: AttentionSpec) -> Work:
            return lambda: attend(spec, q, k, v, nonpositive="ignore")

        contestants: dict[str, Work] = {name: attending(spec) for name, spec in SPEED.items()}
        contestants["by hand"] = lambda: banded_by_hand(q, k, v)
        contestants["full"] = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        with _one_thread(), torch.no_grad():
            times = race(contestants, rounds, process_time)
        results.rows += [{"variant": name, "time": time, "seconds": times.of(name)} for name in contestants]
        said = f"at {time:,} positions, a window of {WIDTH}"
        for name in ("window", "window and sinks"):
            faster = times.ratio("full", name)
            results.claims.append(Claim(f"{name}: times faster than full SDPA {said}", faster, 12.0, at_most=False))
        by_hand = times.ratio("window", "by hand")
        results.claims.append(Claim(f"window: in units of a banded SDPA by hand {said}", by_hand, 1.3))
        far = times.ratio("near and far", "window and sinks")
        results.claims.append(Claim(f"near and far of order 1: in units of the window alone {said}", far, 2.0))

    return Task(f"windows of {WIDTH} at {time:,} positions", work)


def _levels(name: str, time: int, rounds: int) -> Task:
    """A row with levels beside itself without."""

    def work(results: Results) -> None:
        spec = VARIANTS[name]
        specs = {"levels": spec, "without": replace(spec, structure=None)}
        tensors = {of: random_inputs(one, time=time, heads=HEADS) for of, one in specs.items()}
        for kind in ("forward", "training step"):
            backward = kind == "training step"
            contestants = {of: timed_pass(ours(one), tensors[of], backward) for of, one in specs.items()}
            with _one_thread():
                ratio = race(contestants, rounds, process_time).ratio("levels", "without")
            text = f"{name}: {kind} at {time:,} positions, in units of the same row without levels"
            results.claims.append(Claim(text, ratio, 3.0))

    return Task(f"{name} beside itself without levels at {time:,} positions", work)


@torch.no_grad()
def state_bytes(name: str, contexts: tuple[int, ...]) -> list[int]:
    """The bytes of a head's decoding state after so many tokens, read piece by piece."""
    spec, generator = VARIANTS[name], torch.Generator().manual_seed(0)
    state = init_state(spec, batch=1, heads=1, key_dim=STATE_DIM)
    sizes_in_bytes, seen = [], 0
    for context in contexts:
        size = (1, 1, context - seen, STATE_DIM)
        q, k, v = (torch.randn(size, generator=generator) for _ in range(3))
        sizes = {"B": 1, "H": 1, "K": 1, "T": context - seen, "D": STATE_DIM, "E": STATE_DIM}
        sizes["F"] = spec.width(STATE_DIM)
        tensors = {one.name: -torch.rand(one.shape(sizes)) for one in spec.declared.values()}
        state = extend(spec, q, k, v, state, **tensors)[1]  # pyright: ignore[reportArgumentType]
        sizes_in_bytes.append(state.bytes)
        seen = context
    return sizes_in_bytes


def _memory(name: str, contexts: tuple[int, ...]) -> Task:
    def work(results: Results) -> None:
        sizes = state_bytes(name, contexts)
        rows = zip(contexts, sizes, strict=True)
        results.memory += [{"variant": name, "context": context, "bytes": size} for context, size in rows]
        text = f"{VARIANTS.short(name)}: bytes of the state after {contexts[-1]:,} tokens over {contexts[0]:,}"
        doublings = len(contexts) - 1
        limit = 1.0 if name in FLAT else 1 + doublings / 10 if name in LOGARITHMIC else None
        results.claims.append(Claim(text, sizes[-1] / sizes[0], limit))

    return Task(f"bytes of the state: {name}", work)


def speed_tasks(quick: bool = False) -> Iterator[Task]:
    """Windows and levels at 16,384 positions, in processor time of one thread; quick: at 4,096."""
    yield _speed(4096 if quick else 16384, 3 if quick else 7)
    for name, time in LEVELS.items():
        yield _levels(name, min(time, 4096) if quick else time, 3 if quick else 5)


def memory_tasks(quick: bool = False) -> Iterator[Task]:
    """States from 1,023 to 65,535 tokens, where levels have most states; quick: up to 4,095."""
    contexts = tuple(1024 * 2**n - 1 for n in range(3 if quick else 7))
    for name in MEMORY:
        yield _memory(name, contexts)
