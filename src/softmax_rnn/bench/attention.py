"""The speed and memory of the forms as claims that can fail, each a ratio to a peer in the same run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from softmax_rnn.attention.plan import FORMS, Situation, choose
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench.field import field_tasks
from softmax_rnn.bench.inputs import random_inputs
from softmax_rnn.bench.memory import in_subprocess
from softmax_rnn.bench.peers import forward_backward, materialised, ours, sdpa, timed_pass
from softmax_rnn.bench.races import per_token_task, ratio_task
from softmax_rnn.bench.results import Choice, Claim, Results, Task
from softmax_rnn.bench.timing import Work, race

MODEL_DIM = 1024
NORM = "gated_softmax_no_gate_L2norm_nodivS_noclamp"
CLAMPED = ("softmax_clamp_denom", "softmax_divS_gate", "gated_softmax", "gated_softmax_decay", "gated_softmax_cumgate")
LINEAR = ("linear_elu", "linear_relu", "linear_cosine")
GIGABYTE = 1e9


def measure(
    results: Results, variants: tuple[str, ...], time: int, key_dim: int, backward: bool, rounds: int
) -> dict[str, dict[str, Any]]:
    """Race variants and the platform's softmax at one length; a row per variant."""
    heads = MODEL_DIM // key_dim
    functions = {"sdpa": sdpa} | {name: ours(VARIANTS[name]) for name in variants}
    contestants = {}
    for name, function in functions.items():
        tensors = random_inputs(
            VARIANTS["softmax" if name == "sdpa" else name], time=time, key_dim=key_dim, heads=heads
        )
        contestants[name] = timed_pass(function, tensors, backward)
    times = race(contestants, rounds)
    rows = {
        name: {
            "variant": name,
            "time": time,
            "key_dim": key_dim,
            "backward": backward,
            "seconds": times.of(name),
            "sdpa_seconds": times.of("sdpa"),
            "ratio": times.ratio(name, "sdpa"),
            "form": choose(VARIANTS[name], _situation(time, key_dim, backward)).form,
        }
        for name in variants
    }
    results.rows.extend(rows.values())
    return rows


def _situation(time: int, key_dim: int, backward: bool) -> Situation:
    heads = MODEL_DIM // key_dim
    return Situation(1, heads, heads, time, time, key_dim, key_dim, needs_grad=backward)


def _against_sdpa(variants: tuple[str, ...], time: int, limit: float, rounds: int) -> Task:
    def work(results: Results) -> None:
        for name, row in measure(results, variants, time, 64, True, rounds).items():
            text = f"{VARIANTS.short(name)}: training step at T={time}, D=64, in units of SDPA"
            results.claims.append(Claim(text, row["ratio"], limit))

    return Task(f"training step at T={time}: {', '.join(variants)}", work)


def _against_materialised(name: str, time: int, limit: float | None, rounds: int) -> Task:
    def contestants() -> dict[str, Work]:
        spec = VARIANTS[name]
        tensors = random_inputs(spec, time=time, heads=16)
        return {
            "materialised": forward_backward(lambda leaves: materialised(spec, leaves), tensors),
            "ours": forward_backward(ours(spec), tensors),
        }

    text = f"{VARIANTS.short(name)}: training step at T={time}, D=64, times faster than the materialised formula"
    title = f"the materialised formula at T={time}: {name}"
    return ratio_task(title, text, contestants, limit, rounds, at_most=False)


def _faster_forward(variants: tuple[str, ...], time: int, key_dim: int, limit: float | None, rounds: int) -> Task:
    def work(results: Results) -> None:
        for name, row in measure(results, variants, time, key_dim, False, rounds).items():
            text = f"{VARIANTS.short(name)}: forward at T={time}, D={key_dim}, times faster than SDPA"
            results.claims.append(Claim(text, 1 / row["ratio"], limit, at_most=False))

    return Task(f"forward at T={time}, D={key_dim}: {', '.join(variants)}", work)


def _memory(name: str, time: int, limit: float | None) -> Task:
    def work(results: Results) -> None:
        peak = in_subprocess(variant=name, time=time, key_dim=64, heads=16)
        results.memory.append({"variant": name, "time": time, "bytes": peak})
        text = f"{VARIANTS.short(name)}: extra gigabytes of a training step at T={time}, D=64, 16 heads"
        results.claims.append(Claim(text, peak / GIGABYTE, limit))

    return Task(f"memory at T={time}: {name}", work)


def _plan(name: str, time: int, key_dim: int, rounds: int) -> Task:
    def work(results: Results) -> None:
        spec, situation = VARIANTS[name], _situation(time, key_dim, True)
        # A step at a time, and all weights in memory, are out of the question for long inputs.
        slow = {"recurrent"} | ({"parallel"} if time > 1024 else set())
        forms = [form for form, row in FORMS.items() if form not in slow and row.refuse(spec, situation) is None]
        tensors = random_inputs(spec, time=time, key_dim=key_dim, heads=MODEL_DIM // key_dim)
        times = race({form: forward_backward(ours(spec, form), tensors) for form in forms}, rounds)
        planned = choose(spec, situation).form
        fastest = min(forms, key=times.of)
        loss = times.ratio(planned, fastest)
        results.choices.append(Choice(name, time, key_dim, planned, fastest, loss))

    return Task(f"plan against measured best: {name} at T={time}, D={key_dim}", work)


def quick_tasks() -> Iterator[Task]:
    """The one-minute version: what is fast and what is not; nothing is claimed about long inputs."""
    yield _against_sdpa(("softmax", NORM), 1024, 1.15, 3)
    yield _against_sdpa(CLAMPED[1:4], 1024, 1.5, 3)
    yield _against_materialised("gated_softmax", 1024, None, 2)
    yield _faster_forward((*LINEAR, "taylor_2"), 2048, 32, None, 2)
    yield _memory("gated_softmax", 2048, None)
    yield _plan("gated_softmax", 512, 64, 2)
    yield _plan("taylor_2", 1024, 32, 2)


def full_tasks() -> Iterator[Task]:
    """All claims."""
    for time, rounds, clamped in ((1024, 9, 1.5), (4096, 3, 1.25)):
        yield _against_sdpa(("softmax", NORM), time, 1.15, rounds)
        yield _against_sdpa(CLAMPED, time, clamped, rounds)
    yield _against_materialised("gated_softmax", 4096, 5.0, 1)
    yield from field_tasks()
    yield _faster_forward(LINEAR, 16384, 64, 18.0, 3)
    for name in LINEAR:
        yield per_token_task(name, (4096, 8192, 16384, 32768, 65536), 1.25, 3, heads=16, backward=False)
    for time in (1024, 2048, 4096, 8192):
        yield _faster_forward(("taylor_2",), time, 32, 1.0 if time >= 4096 else None, 3)
    for time in (4096, 8192, 12288, 16384):
        yield _faster_forward(("taylor_2",), time, 64, {12288: 1.0, 16384: 2.0}.get(time), 3)
    for time in (4096, 16384):
        yield _faster_forward(("taylor_4",), time, 16, None, 3)
    for name in ("softmax", "gated_softmax", "gated_softmax_decay", "linear_elu", "taylor_2", "softmax_taylor_80terms"):
        yield _memory(name, 16384, 1.5)
    for name, time, key_dim in PLAN_POINTS:
        yield _plan(name, time, key_dim, 3)


PLAN_POINTS = (
    ("softmax", 64, 64),
    ("softmax", 1024, 64),
    ("gated_softmax", 64, 64),
    ("gated_softmax", 1024, 64),
    ("linear_elu", 256, 64),
    ("linear_elu", 2048, 64),
    ("taylor_2", 1024, 32),
    ("taylor_2", 4096, 32),
    ("taylor_2", 2048, 64),
    ("taylor_4", 2048, 16),
)


def memory_tasks() -> Iterator[Task]:
    """The memory claim for every variant of the table: about a quarter of an hour."""
    for name in VARIANTS:
        yield _memory(name, 16384, 1.5)
