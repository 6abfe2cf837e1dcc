"""The RNN at work: what the page shows of a head as it is played token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from softmax_rnn.analysis.recurrence import Step, play
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.explore.texts import Text
from softmax_rnn.explore.views import chart_html, note_html, picture_html, words_html
from softmax_rnn.report.chart_data import Axis
from softmax_rnn.report.plots import line_chart, unchecked_charts

MOST_PIXELS = 96
"""Larger states are shown as means of their neighbours."""


@dataclass(frozen=True)
class Played:
    """All steps of one head, with the state of each as a small picture."""

    spec: AttentionSpec
    tokens: tuple[str, ...]
    steps: tuple[Step, ...]


def played(text: Text, layer: int, head: int, name: str) -> Played:
    """The text, played through a variant on one head."""
    spec, steps = VARIANTS[name], []
    for step in play(spec, text.reading.head(layer, head)):
        small = None if step.matrix is None else _small(step.matrix)
        steps.append(replace(step, matrix=small))
    return Played(spec, text.tokens, tuple(steps))


def _small(matrix: Tensor) -> Tensor:
    rows, columns = (min(side, MOST_PIXELS) for side in matrix.shape)
    return torch.nn.functional.adaptive_avg_pool2d(matrix[None], (rows, columns))[0]


def frame(done: Played, token: int) -> str:
    """One token: the words so far, the numbers of the step, and the state as a picture."""
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
    picture = ""
    if step.matrix is not None:
        most = max(float(one.matrix.abs().max()) for one in done.steps if one.matrix is not None)
        alt = f"The state after {token} tokens, features down, values across; orange is negative, blue positive"
        shades = step.matrix.sign() * step.matrix.abs().sqrt()  # a few features are far larger than the rest
        title = "the state, shaded by the root of each number" if step.fixed else "the sums over the keys that left"
        picture = picture_html(shades.tolist(), title, alt, signed=True, largest=max(most, 1e-12) ** 0.5)
    return words + note_html("; ".join(facts) + ".") + f'<div class="maps">{picture}</div>'


def curves(done: Played) -> str:
    """The norms of the hidden states, and the error, against the token."""
    norms = [
        {"token": step.seen, "norm": norm, "order": f"|H({n})|"}
        for step in done.steps
        for n, norm in step.norms.items()
    ]
    norms += [{"token": step.seen, "norm": step.added, "order": "added by the step"} for step in done.steps]
    norms += [
        {"token": step.seen, "norm": step.row_sum, "order": "row sum"}
        for step in done.steps
        if step.row_sum is not None
    ]
    with unchecked_charts():
        first = _chart(norms, Axis("norm", "size", log=True), "order")
        errors = [{"token": step.seen, "error": max(step.error, 1e-16), "of": "output"} for step in done.steps]
        second = _chart(errors, Axis("error", "distance of the output to softmax's", log=True), "of")
    return chart_html(first, "Norm of each hidden state against the token", height=340) + chart_html(
        second, "Distance of the output to softmax's against the token", height=300
    )


def _chart(rows: Sequence[dict[str, object]], y: Axis, series: str) -> object:
    return line_chart(rows, x=Axis("token", "token"), y=y, series=series, height=240)
