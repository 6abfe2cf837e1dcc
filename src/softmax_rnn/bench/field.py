"""The speed and memory of decays and write rules as claims: what a part costs beside the row without it, and growth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench.inputs import random_inputs
from softmax_rnn.bench.memory import in_subprocess
from softmax_rnn.bench.peers import forward_backward, ours
from softmax_rnn.bench.races import per_token_task, ratio_task
from softmax_rnn.bench.results import Claim, Results, Task
from softmax_rnn.bench.timing import Work

HEADS = 16
DECAYS = ("retnet", "lightning", "simple_gla", "mamba2_ssd")
CHANNELS = ("gla", "hgrn2", "rwkv6")
WRITES = ("deltanet", "gated_deltanet")


def _beside(
    title: str, text: str, specs: tuple[AttentionSpec, AttentionSpec], time: int, limit: float | None, rounds: int
) -> Task:
    def contestants() -> dict[str, Work]:
        inputs = [random_inputs(spec, time=time, heads=HEADS) for spec in specs]
        row, peer = (forward_backward(ours(spec), one) for spec, one in zip(specs, inputs, strict=True))
        return {"row": row, "peer": peer}

    return ratio_task(title, text, contestants, limit, rounds)


def cost_of_decay(name: str, time: int, limit: float | None, rounds: int) -> Task:
    """A row beside itself without its forget gate."""
    specs = (VARIANTS[name], replace(VARIANTS[name], forget_gate=None))
    text = f"{name}: training step at T={time}, D=64, in units of the same row without its decay"
    return _beside(f"{name} beside itself without decay at T={time}", text, specs, time, limit, rounds)


def against_row(name: str, other: str, time: int, limit: float | None, rounds: int) -> Task:
    """A row beside another."""
    text = f"{name}: training step at T={time}, D=64, in units of {other}"
    return _beside(f"{name} beside {other} at T={time}", text, (VARIANTS[name], VARIANTS[other]), time, limit, rounds)


def growing_memory(name: str, times: tuple[int, int], limit: float | None) -> Task:
    """The memory per token of a training step at two lengths."""

    def work(results: Results) -> None:
        sizes = [in_subprocess(variant=name, time=time, key_dim=64, heads=4) for time in times]
        results.memory.extend(
            {"variant": name, "time": time, "bytes": size} for time, size in zip(times, sizes, strict=True)
        )
        text = f"{name}: extra memory per token of a training step, T={times[1]} in units of T={times[0]}"
        results.claims.append(Claim(text, sizes[1] / sizes[0] * times[0] / times[1], limit))

    return Task(f"memory per token: {name}", work)


def field_tasks() -> Iterator[Task]:
    """All of these claims."""
    for name in DECAYS:
        yield cost_of_decay(name, 4096, 1.3, 5)
    for name in (*CHANNELS, *WRITES):
        yield against_row(name, "linear_elu", 4096, 4.0, 5)
    for name in ("retnet", "gla", "gated_deltanet"):
        # With few heads, so that the longest fits.
        yield per_token_task(name, (4096, 16384, 65536), 1.3, 2, heads=4, backward=True)
        yield growing_memory(name, (16384, 65536), 1.1)
