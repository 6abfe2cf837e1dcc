"""The speed and memory of decays and write rules as claims: what a part costs beside the row without it, and growth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench.inputs import random_inputs
from softmax_rnn.bench.memory import in_subprocess
from softmax_rnn.bench.peers import forward_backward, ours
from softmax_rnn.bench.results import Claim, Results, Task
from softmax_rnn.bench.timing import race

HEADS = 16
DECAYS = ("retnet", "lightning", "simple_gla", "mamba2_ssd")
CHANNELS = ("gla", "hgrn2", "rwkv6")
WRITES = ("deltanet", "gated_deltanet")


def _ratio(spec: AttentionSpec, peer: AttentionSpec, time: int, rounds: int) -> float:
    contestants = {
        name: forward_backward(ours(one), random_inputs(one, time=time, heads=HEADS))
        for name, one in (("row", spec), ("peer", peer))
    }
    return race(contestants, rounds).ratio("row", "peer")


def cost_of_decay(name: str, time: int, limit: float | None, rounds: int) -> Task:
    """A row beside itself without its forget gate."""

    def work(results: Results) -> None:
        spec = VARIANTS[name]
        ratio = _ratio(spec, replace(spec, forget_gate=None), time, rounds)
        text = f"{name}: training step at T={time}, D=64, in units of the same row without its decay"
        results.claims.append(Claim(text, ratio, limit))

    return Task(f"{name} beside itself without decay at T={time}", work)


def against_row(name: str, other: str, time: int, limit: float | None, rounds: int) -> Task:
    """A row beside another."""

    def work(results: Results) -> None:
        ratio = _ratio(VARIANTS[name], VARIANTS[other], time, rounds)
        text = f"{name}: training step at T={time}, D=64, in units of {other}"
        results.claims.append(Claim(text, ratio, limit))

    return Task(f"{name} beside {other} at T={time}", work)


def growing_time(name: str, times: tuple[int, ...], limit: float | None, rounds: int) -> Task:
    """The time per token of a training step, over lengths; with fewer heads, so that the longest fits."""

    def work(results: Results) -> None:
        spec = VARIANTS[name]
        contestants = {
            str(time): forward_backward(ours(spec), random_inputs(spec, time=time, heads=4)) for time in times
        }
        timed = race(contestants, rounds)
        per_token = [timed.of(str(time)) / time for time in times]
        text = f"{name}: training time per token from T={times[0]} to {times[-1]}, largest over smallest"
        results.claims.append(Claim(text, max(per_token) / min(per_token), limit))

    return Task(f"training time per token: {name}", work)


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
        yield growing_time(name, (4096, 16384, 65536), 1.3, 2)
        yield growing_memory(name, (16384, 65536), 1.1)
