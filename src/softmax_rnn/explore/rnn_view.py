"""The RNN at work: what the page shows of a head as it is played token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.analysis.recurrence import Step, play
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.explore.readings import Text
from softmax_rnn.explore.views import chart_html, note_html, picture_html, words_html
from softmax_rnn.report.chart_data import Axis
from softmax_rnn.report.plots import line_chart, unchecked_charts

MOST_PIXELS = 96
"""Larger states are shown as means of their neighbours."""
EXACT = 1e-12
"""An output that is closer to softmax's, relative to the largest value, is softmax's."""


@dataclass(frozen=True)
class Played:
    """All steps of one head, with the state of each as a small picture."""

    tokens: tuple[str, ...]
    steps: tuple[Step, ...]


def played(text: Text, layer: int, head: int, name: str) -> Played:
    """The text, played through a variant on one head; the last one is kept with the text."""
    asked = layer, head, name
    if (done := text.played.get(asked)) is not None:
        return done
    steps = []
    for step in play(VARIANTS[name], text.reading.head(layer, head)):
        small = None if step.matrix is None else _small(step.matrix)
        steps.append(replace(step, matrix=small))
    done = Played(text.tokens, tuple(steps))
    text.played.clear()
    text.played[asked] = done
    return done


def _small(matrix: Tensor) -> Tensor:
    rows, columns = (min(side, MOST_PIXELS) for side in matrix.shape)
    return torch.nn.functional.adaptive_avg_pool2d(matrix[None], (rows, columns))[0]


def frame(done: Played, token: int) -> tuple[str, str]:
    """One token, as two pieces of HTML: the words so far with the numbers of the step, and the state as a picture."""
    if not 1 <= token <= len(done.steps):
        raise InputError(f"token: expected 1 to {len(done.steps)}, got {token}")
    step = done.steps[token - 1]
    held = [0.5 if place in step.held else 0.0 for place in range(token)]
    kept = (
        "every key so far is in the state's sums, none is kept by itself"
        if step.fixed
        else f"{len(step.held)} of {token} keys are held exactly (shaded)"
    )
    words = words_html(done.tokens[:token], held, f"Token {token} of {len(done.steps)}: {kept}", chosen=token - 1)
    facts = [f"state: {step.numbers:,} numbers", f"this step adds {step.added:.4g}"]
    facts += [f"|H({n})| = {norm:.4g}" for n, norm in list(step.norms.items())[:6]]
    facts += [] if step.row_sum is None else [f"row sum {step.row_sum:.4g}"]
    facts += [f"the output differs from softmax's by {100 * step.error:.3g} % of the largest value"]
    return f'<div data-now="{token}">{words}{note_html("; ".join(facts) + ".")}</div>', _state(done, step)


def _state(done: Played, step: Step) -> str:
    if step.matrix is None:
        return note_html("The state is the keys and values themselves; there are no sums to show.")
    most = max(float(one.matrix.abs().max()) for one in done.steps if one.matrix is not None)
    alt = f"The state after {step.seen} tokens, features down, values across; orange is negative, blue positive"
    what = "the state" if step.fixed else "the sums over the keys that left"
    return picture_html(step.matrix, f"{what}, shaded by the root of each number", alt, largest=max(most, 1e-12))


def curves(done: Played) -> str:
    """The norms of the hidden states, and the error, against the token; a line marks the token that is shown."""
    sizes = [
        {"token": step.seen, "size": size, "of": name}
        for step in done.steps
        for name, size in (
            *((f"|H({n})|", norm) for n, norm in step.norms.items()),
            ("added by the step", step.added),
            *((("row sum", step.row_sum),) if step.row_sum is not None else ()),
        )
    ]
    # The first output has one key and is exact: 0 leaves a gap, where 1e-17 would leave no room for the others.
    errors = [
        {"token": step.seen, "error": step.error if step.error > EXACT else 0.0, "of": "output"} for step in done.steps
    ]
    first = chart_html(
        _chart(sizes, Axis("size", "size", log=True)), "Norm of each hidden state against the token", height=340
    )
    if not any(row["error"] for row in errors):
        return first + note_html(f"Every output is softmax's, within {EXACT:g} of the largest value.")
    far = Axis("error", "distance of the output to softmax's", log=True)
    return first + chart_html(_chart(errors, far), "Distance of the output to softmax's against the token", height=300)


def _chart(rows: Sequence[dict[str, object]], y: Axis) -> dict[str, Any]:
    """Lines against the token, and a rule at the one that is shown: the page sets the parameter ``now``."""
    with unchecked_charts():
        chart = line_chart(rows, x=Axis("token", "token"), y=y, series="of", height=240).to_dict(validate=False)
    rule = {
        "data": {"values": [{}]},
        "transform": [{"calculate": "now", "as": "x"}],
        "mark": {"type": "rule", "strokeDash": [4, 3], "aria": False},
        "encoding": {"x": {"field": "x", "type": "quantitative"}},
    }
    return chart | {"layer": [*chart["layer"], rule], "params": [*chart["params"], {"name": "now", "value": 1}]}
