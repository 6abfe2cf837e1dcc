"""Tasks that several benches have: the ratio of two contestants, and the time per token at several lengths."""

from __future__ import annotations

from collections.abc import Callable

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench.inputs import random_inputs
from softmax_rnn.bench.peers import ours, timed_pass
from softmax_rnn.bench.results import Claim, Results, Task
from softmax_rnn.bench.timing import Work, race


def ratio_task(
    title: str,
    text: str,
    contestants: Callable[[], dict[str, Work]],
    limit: float | None,
    rounds: int,
    *,
    at_most: bool = True,
) -> Task:
    """One claim: the time of the first of two contestants in units of the second's."""

    def work(results: Results) -> None:
        pair = contestants()
        first, second = pair
        results.claims.append(Claim(text, race(pair, rounds).ratio(first, second), limit, at_most))

    return Task(title, work)


def per_token_task(
    name: str, times: tuple[int, ...], limit: float | None, rounds: int, *, heads: int, backward: bool
) -> Task:
    """One claim: how much the time per token of a forward pass, or of a training step, changes over lengths."""
    what = "training time per token" if backward else "time per token"

    def work(results: Results) -> None:
        spec = VARIANTS[name]
        tensors = {time: random_inputs(spec, time=time, heads=heads) for time in times}
        timed = race({str(time): timed_pass(ours(spec), tensors[time], backward) for time in times}, rounds)
        per_token = [timed.of(str(time)) / time for time in times]
        text = f"{VARIANTS.short(name)}: {what} from T={times[0]} to {times[-1]}, largest over smallest"
        results.claims.append(Claim(text, max(per_token) / min(per_token), limit))

    return Task(f"{what}: {name}", work)
