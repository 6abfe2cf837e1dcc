"""Attention as the recurrent network it is, on one head of a text: step by step, with what the state holds.

Every step is `attend.step` on the state before it. Beside the output are softmax's, the norm of each hidden state
H^(n) of a state of fixed size, and what the step added to the whole state.

>>> from softmax_rnn.attention.variants import VARIANTS
>>> head = Head(*torch.ones(3, 4, 2, dtype=torch.float64))
>>> steps = list(play(VARIANTS["taylor_2"], head))
>>> steps[-1].seen, sorted(steps[-1].norms), steps[-1].fixed
(4, [0, 1, 2], True)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.analysis.order_by_order import softmax_weights
from softmax_rnn.analysis.reading import Head
from softmax_rnn.attention.algebra import fixed_state_score
from softmax_rnn.attention.attend import attend, step
from softmax_rnn.attention.parts import Window
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.start import init_state
from softmax_rnn.attention.state import FixedState, State
from softmax_rnn.errors import InputError

MOST_STATE_NUMBERS = 2**20
"""A state beyond this is not copied at every step."""


@dataclass(frozen=True)
class Step:
    """The network after one token."""

    seen: int
    """Tokens so far."""
    fixed: bool
    """Whether the state keeps its size."""
    numbers: int
    """Numbers in the state."""
    held: tuple[int, ...]
    """The positions whose keys the state still has as they are."""
    norms: dict[int, float]
    """|H^(n)| by order; empty for a state that grows."""
    added: float
    """|S_t − S_(t−1)|, or the size of the key and the value that were appended."""
    row_sum: float | None
    """Σ_j w_tj, where the spec divides by it."""
    error: float
    """|o − softmax's o| / max|v|."""
    matrix: Float[Tensor, "F U"] | None
    """The sums of the state: all of one of fixed size, the far part of one with a window."""


def check_playable(spec: AttentionSpec, key_dim: int, value_dim: int) -> None:
    """Refuse what a pretrained head cannot give, and states that are too large to watch."""
    if spec.tensors:
        raise InputError(
            f"attention: expected one that needs only q, k and v; this one also needs {', '.join(spec.tensors)}"
        )
    state = init_state(spec, batch=1, heads=1, key_dim=key_dim, value_dim=value_dim)
    numbers = sum(x.numel() for x in state.tensors.values())
    if numbers > MOST_STATE_NUMBERS:
        most = f"at most {MOST_STATE_NUMBERS:,}"
        raise InputError(f"attention: a state of {numbers:,} numbers is too large to watch, {most}")


def play(spec: AttentionSpec, head: Head) -> Iterator[Step]:
    """The steps of one head. Its queries have softmax's scale 1/√d, which is taken out: the spec brings its own."""
    check_playable(spec, head.k.shape[1], head.v.shape[1])
    truth, most = softmax_weights(head) @ head.v, float(head.v.norm(dim=-1).max().clamp(min=1e-30))
    head = replace(head, q=head.q * head.q.shape[1] ** 0.5)
    row_sums = _row_sums(spec, head)
    key_dim, value_dim = head.k.shape[1], head.v.shape[1]
    state: State = init_state(spec, batch=1, heads=1, key_dim=key_dim, value_dim=value_dim, dtype=torch.float64)
    for t in range(len(head.q)):
        before = state
        q, k, v = (x[None, None, t] for x in (head.q, head.k, head.v))
        with torch.no_grad():
            output, state = step(spec, q, k, v, state, nonpositive="ignore")
        error = float((output[0, 0] - truth[t]).norm()) / most
        row_sum = None if row_sums is None else float(row_sums[t])
        yield _step(spec, head, t + 1, before, state, error, row_sum)


def _row_sums(spec: AttentionSpec, head: Head) -> Tensor | None:
    """Attention of ones, not divided; None where it exists only divided, as with keys that are kept by their weight."""
    if not spec.wants_row_sum or spec.over_time.needs_row_sum:
        return None
    bare = replace(spec, normaliser=None, output_norm=None)
    q, k, ones = (x[None, None] for x in (head.q, head.k, torch.ones_like(head.v[:, :1])))
    return attend(bare, q, k, ones, nonpositive="ignore")[0, 0, :, 0]


def _step(
    spec: AttentionSpec, head: Head, seen: int, before: State, state: State, error: float, row_sum: float | None
) -> Step:
    numbers = sum(x.numel() for x in state.tensors.values())
    if not isinstance(state, FixedState):
        last = [
            x[..., -1, :].flatten() for x in (state.tensors.get("keys"), state.tensors.get("values")) if x is not None
        ]
        added = float(torch.cat(last).norm()) if last else 0.0
        far = state.tensors.get("matrix")
        matrix = None if far is None else far[0, 0]
        return Step(seen, False, numbers, _held(spec, head, seen, state), {}, added, row_sum, error, matrix)
    assert isinstance(before, FixedState)
    key_dim = head.k.shape[1]
    score, width = fixed_state_score(spec, key_dim), spec.width(key_dim)
    assert score is not None
    norms = {n: float(state.order(score, width, n).norm()) for n in score.orders}
    added = float((state.matrix - before.matrix).norm())
    return Step(seen, True, numbers, (), norms, added, row_sum, error, state.matrix[0, 0])


def _held(spec: AttentionSpec, head: Head, seen: int, state: State) -> tuple[int, ...]:
    """Where the rows of the state come from, without those of a window that only wait to be overwritten."""
    rows = _rows(head, seen, state)
    window = spec.structure
    if not isinstance(window, Window):
        return rows
    return tuple(row for row in rows if row < window.sinks or row >= seen - window.width)


def _rows(head: Head, seen: int, state: State) -> tuple[int, ...]:
    """The positions of the state's keys, or of its values where a feature map has changed the keys."""
    for name, rows in (("keys", head.k), ("values", head.v)):
        kept = state.tensors.get(name)
        if kept is not None and kept.shape[-1] == rows.shape[-1]:
            equal = (rows[:seen, None] == kept[0, 0][None]).all(-1).any(-1)
            if equal.any():
                return tuple(equal.nonzero()[:, 0].tolist())
    count = state.tensors["keys"].shape[-2] if "keys" in state.tensors else 0
    return tuple(range(seen - count, seen))
