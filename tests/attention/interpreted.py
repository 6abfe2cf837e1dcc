"""Errors of the Triton kernels in Triton's interpreter, which is chosen when a kernel is decorated: run by
test_triton.py in a process of its own, a line of JSON in for each case and a line of errors out.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from triton.language import bfloat16, float32
from triton.runtime import interpreter

from attention.cases import MASKS, attention, in_pieces, inputs, literal_form, step_by_step
from attention.compare import WEIGHT_SEED, Result, errors, run, seeded
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.fitting import KeySummary
from softmax_rnn.attention.forms import triton as form
from softmax_rnn.attention.kernels.parallel import parallel
from softmax_rnn.attention.kernels.triton.dispatch import run as run_kernels
from softmax_rnn.attention.parts import Exp, Levels, Polynomial, Score, taylor_score
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.attention.visibility import Visibility

SCORES: dict[str, Score] = {
    "exp": Exp(),
    "clamped exp": Exp(clamp=1.0),
    "linear": Polynomial(coefficients=(0.0, 1.0)),
    "order 2": taylor_score(2),
}
CHUNK = 16
TIME = 37
"""Three tiles of 16, the last one not full."""


def errors_of(case: dict[str, Any]) -> dict[str, float]:
    """The errors of the output and of each gradient, against the literal form in float64 on the same rounded inputs."""
    if "score" in case:
        return half_found(case)
    spec = VARIANTS[case["name"]]
    if "levels" in case:
        spec = replace(spec, structure=Levels(case["levels"]))
    time = case.get("time", TIME)
    dims = {"key_dim": case.get("key_dim", 8), "value_dim": case.get("value_dim", 5)}
    # Through the state everywhere, or nowhere.
    form.STATE_PAYS, form.CHUNK = (0.0, CHUNK) if case.get("state") else (1e9, 512)
    form.WALKS = case.get("walks", 10**9)
    dtype = getattr(torch, case.get("dtype", "float32"))
    tensors = {key: x.to(dtype) for key, x in inputs(spec, time=time, heads=2, kv_heads=1, **dims).items()}
    masks = MASKS[case.get("mask", "plain")](time)
    # The gradient from above has the dtype of the output, so it is rounded on both sides.
    weight = seeded(*tensors["q"].shape[:3], dims["value_dim"], seed=WEIGHT_SEED, dtype=dtype)
    doubles = {key: x.double() for key, x in tensors.items()}
    truth = run(attention(spec, form=literal_form(spec)), doubles, weight, **masks)
    how = case.get("how", "whole")
    if how == "pieces":
        function = in_pieces(spec, [5, 6, 22], first_form="triton")
    elif how == "steps":
        function = step_by_step(spec, prefill=20, form="triton")
    else:
        function = attention(spec, form="triton")
    with as_on_a_card(how != "whole"), torch.set_grad_enabled(how != "steps"):
        if how == "steps":
            output = function(**tensors, **masks)
            return {"output": output_error(output, truth.output)}
        got = run(function, tensors, weight, **masks)
        return errors(got if dtype == torch.float32 else unrounded(got, truth), truth)


def half_found(case: dict[str, Any]) -> dict[str, float]:
    """Errors of the sums themselves: inputs and the gradient from above are half-precision numbers in both."""
    dtype, time, dim = getattr(torch, case["dtype"]), 48, 16
    score = SCORES[case["score"]]
    form.STATE_PAYS, form.CHUNK, form.WALKS = (0.0, CHUNK, case.get("walks", 10**9)) if case["state"] else (1e9, 512, 1)
    drawn = [seeded(1, 2, *shape, seed=n) for n, shape in enumerate([(2, time, dim), (time, dim), (time, dim)])]
    tensors = dict(zip("qkv", (x.to(dtype) for x in drawn), strict=True))
    tensors["q"] = (tensors["q"].float() * 0.25).to(dtype)
    tensors["gate"] = torch.nn.functional.logsigmoid(seeded(1, 2, time, seed=7) + 2)
    wanted = seeded(1, 2, 2, time, dim, seed=8).to(dtype).double()

    def sums(run_form: Callable[[Contraction], Sums], wide: torch.dtype) -> tuple[Sums, dict[str, Tensor]]:
        leaves = {name: x.to(torch.float64 if name == "gate" else wide).requires_grad_() for name, x in tensors.items()}
        decay = RunningDecay(leaves["gate"].cumsum(-1)) if case["decay"] else None
        job = Contraction(score, leaves["q"], leaves["k"], leaves["v"], decay, Visibility(), True, half=dtype)
        return run_form(job), leaves

    def kernels(job: Contraction) -> Sums:
        return run_kernels(score.fit(job, KeySummary(), True), None, keep_state=False)[0]

    truth, true_leaves = sums(parallel, torch.float64)
    got, leaves = sums(kernels, torch.float32)
    # In the units of the kernels, so that the same gradient enters both.
    zero = torch.zeros_like(wanted[..., 0])
    scale = torch.exp(
        (zero if truth.log_scale is None else truth.log_scale) - (zero if got.log_scale is None else got.log_scale)
    )
    values = (truth.numerator * scale.detach()[..., None], got.numerator)
    errors = {"output": output_error(values[1].detach(), values[0].detach())}
    grads = [
        torch.autograd.grad((value * wanted.to(value)).sum(), list(some.values()), allow_unused=True)
        for value, some in zip(values, (true_leaves, leaves), strict=True)
    ]
    for name, right, mine in zip(tensors, *grads, strict=True):
        if right is not None:
            errors[name] = output_error(mine, right)
    return errors


def unrounded(got: Result, truth: Result) -> Result:
    """The numbers nearest to the truth that round to what came: a result in half precision stands for all of them."""

    def nearest(x: Tensor, known: Tensor) -> Tensor:
        half_a_digit = torch.finfo(x.dtype).eps / 2 * torch.exp2(torch.floor(torch.log2(x.double().abs() + 1e-300)))
        return x.double() + (known.double() - x.double()).clamp(-half_a_digit, half_a_digit)

    grads = {name: nearest(x, truth.grads[name]) for name, x in got.grads.items()}
    return Result(nearest(got.output, truth.output), grads)


def output_error(got: torch.Tensor, truth: torch.Tensor) -> float:
    return float((got.double() - truth).abs().max() / truth.abs().max())


@contextmanager
def as_on_a_card(on: bool) -> Iterator[None]:
    """The planner takes the Triton form wherever it serves."""
    before = form.INTERPRETED
    form.INTERPRETED = 1e-9 if on else before
    yield
    form.INTERPRETED = before


def round_to_nearest() -> None:
    """float32 becomes bfloat16 as on a card. The interpreter cuts the lower digits off: twice the error, and biased."""
    convert = interpreter._convert_float

    def rounded(x: np.ndarray, before: Any, after: Any, mode: Any) -> np.ndarray:
        if (before, after) != (float32, bfloat16):
            return convert(x, before, after, mode)
        nearest = torch.from_numpy(np.ascontiguousarray(x)).to(torch.bfloat16)
        return nearest.view(torch.int16).numpy().view(np.uint16)

    interpreter._convert_float = rounded


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    round_to_nearest()
    for line in sys.stdin:
        print(json.dumps(errors_of(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
