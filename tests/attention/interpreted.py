"""Errors of the Triton kernels in Triton's interpreter, which is chosen when a kernel is decorated: run by
test_triton.py in a process of its own, cases in and errors out as JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from attention.cases import LITERAL, MASKS, attention, in_pieces, inputs, step_by_step
from attention.compare import errors, run
from softmax_rnn.attention.forms import triton as form
from softmax_rnn.attention.variants import VARIANTS

CHUNK = 16
TIME = 37
"""Three tiles of 16, the last one not full."""


def found(case: dict[str, Any]) -> dict[str, float]:
    """The errors of the output and of each gradient, against the literal loop in float64 on the same rounded inputs."""
    name, spec = case["name"], VARIANTS[case["name"]]
    time = case.get("time", TIME)
    dims = {"key_dim": case.get("key_dim", 8), "value_dim": case.get("value_dim", 5)}
    # Through the state everywhere, or nowhere.
    form.STATE_PAYS, form.CHUNK = (0.0, CHUNK) if case.get("state") else (1e9, 512)
    dtype = getattr(torch, case.get("dtype", "float32"))
    tensors = {key: x.to(dtype) for key, x in inputs(spec, time=time, **dims).items()}
    masks = MASKS[case.get("mask", "plain")](time)
    truth = run(LITERAL[name], {key: x.double() for key, x in tensors.items()}, **masks)
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
            return {"output": errors_of_output(output, truth.output)}
        return errors(run(function, tensors, **masks), truth)


def errors_of_output(got: torch.Tensor, truth: torch.Tensor) -> float:
    return float((got.double() - truth).abs().max() / truth.abs().max())


@contextmanager
def as_on_a_card(on: bool) -> Iterator[None]:
    """The planner takes the Triton form wherever it serves."""
    before = form.INTERPRETED
    form.INTERPRETED = 1e-9 if on else before
    yield
    form.INTERPRETED = before


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    answers = {key: found(case) for key, case in json.loads(sys.stdin.read()).items()}
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
