"""jaxtyping's shapes at run time: what a signature says of a tensor is checked in every call.

Run as a script, it calls attentions with the checks on: ``python tests/shapes.py MASKS NAME …``. The checks
are not on in all tests because compiled graphs cannot hold them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from beartype import beartype
from jaxtyping import install_import_hook

CHECKED = ["softmax_rnn.attention", "softmax_rnn.model", "softmax_rnn.analysis", "softmax_rnn.train"]
KINDS = ("Float[", "Int[", "Bool[", "Shaped[")


def tensors_checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the annotations that state a shape; what else callers pass is answered by the package in its words."""
    said = getattr(function, "__annotations__", {})
    shapes = {name: text for name, text in said.items() if any(kind in str(text) for kind in KINDS)}
    if isinstance(function, type) or not shapes:
        return function
    function.__annotations__ = shapes
    return beartype(function)


install_import_hook(CHECKED, "shapes.tensors_checked")


def main(masks: str, *names: str) -> None:
    """Each row in all forms, forward and backward, with these masks, split, in steps; prints the number of calls."""
    from attention.cases import HERE, MASKS, allowed_forms, attention, in_pieces, inputs, length_of, step_by_step
    from attention.compare import run
    from softmax_rnn.attention.variants import VARIANTS

    calls = 0
    for name in names:
        spec, time = VARIANTS[name], length_of(name)
        tensors = inputs(spec, time=time)
        for mask in masks.split(","):
            for form in set(allowed_forms(spec, mask)) & set(HERE):
                run(attention(spec, form=form, **MASKS[mask](time)), tensors)
                calls += 1
        for way in (in_pieces(spec, [time // 2]), step_by_step(spec, time - 2)):
            run(way, tensors)
            calls += 1
    print(f"{calls} calls")


if __name__ == "__main__":
    main(*sys.argv[1:])
