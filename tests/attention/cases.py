"""What the tests of the forms share: inputs, masks, the literal truth of every name, pieces of a sequence.

Every test of the table is parametrised by all names. Those that run the same code as another name are marked slow:
`make test` takes one name per contraction (with every form) and one per part of the epilogue (with one form), and
`make test-all` takes them all. A row that is added to the table finds its place by itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import oracle
from attention.compare import Result, run, seeded
from oracle import ORACLE, dot, f, l2, relu, sum_v, sum_w, taylor_weight
from softmax_rnn.attention.attend import attend, extend, step
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.parts.random_features import directions
from softmax_rnn.attention.plan import FORMS, Situation
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.start import init_state
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench.inputs import random_tensor

B, H, HKV, T, D, E = 2, 4, 2, 13, 8, 5
NAMES = list(VARIANTS)
HERE = [form for form in FORMS if form != "triton"]
"""The forms that run on any machine; test_triton.py has the other one."""


def with_eps(weight: oracle.Weight) -> Callable[..., Tensor]:
    """Σ w v / (Σ w + 1e-8): how relu features are normalised."""
    return f(lambda r: sum_v(r, weight) / (sum_w(r, weight) + 1e-8))


def by_length(weight: oracle.Weight) -> Callable[..., Tensor]:
    """Σ w v / n^σ(c): how cosines are normalised."""
    return f(lambda r: sum_v(r, weight) / r.n**r.exponent)


def squared(phi: oracle.Map) -> oracle.Weight:
    return lambda r, j: dot(phi)(r, j) ** 2


# The presets; every other name stands in ORACLE itself.
PRESETS: dict[str, Callable[..., Tensor]] = {
    "based": oracle.taylor(2),
    "cottention": ORACLE["linear_cosine"],
    "two_mamba": oracle.power(2),
    "taylor_1": oracle.taylor(1),
    "taylor_2": oracle.taylor(2),
    "taylor_4": oracle.taylor(4),
    "sata_4": oracle.taylor(4),
    "power_2": oracle.power(2),
    "power_attention_2": oracle.power(2),
    "power_attention_4": oracle.power(4),
    "elu_taylor_2": oracle.taylor(2, oracle.elu1),
    "elu_power_2": oracle.power(2, oracle.elu1),
    "relu_taylor_2": with_eps(taylor_weight(2, relu)),
    "relu_power_2": with_eps(squared(relu)),
    "cosine_taylor_2": by_length(taylor_weight(2, l2)),
    "cosine_power_2": by_length(squared(l2)),
    # The ω are drawn, not derived: the package's are taken.
    "performer_64": oracle.over_sum(oracle.alike(oracle.random_features(directions(D, 64, 0, True)))),
}
LITERAL = ORACLE | PRESETS


def inputs(
    spec: AttentionSpec,
    dtype: torch.dtype = torch.float64,
    *,
    time: int = T,
    batch: int = B,
    heads: int = H,
    kv_heads: int = HKV,
    key_dim: int = D,
    value_dim: int = E,
    seed: int = 100,
) -> dict[str, Tensor]:
    """q, k, v and what the spec needs beside them; the same numbers for every spec."""
    sizes = {"B": batch, "H": heads, "K": kv_heads, "T": time, "D": key_dim, "E": value_dim}
    sizes["F"] = spec.width(key_dim)
    axes = {"q": "BHTD", "k": "BKTD", "v": "BKTE"}
    drawn = {
        name: seeded(*(sizes[axis] for axis in letters), seed=seed + n)
        for n, (name, letters) in enumerate(axes.items())
    }
    for name, declared in spec.declared.items():
        drawn[name] = random_tensor(declared, seeded(*declared.shape(sizes), seed=seed + zlib.crc32(name.encode())))
    return {name: x.to(dtype) for name, x in drawn.items()}


def key_mask(time: int = T) -> Tensor:
    """Left padding in row 0; right padding and a hole in row 1."""
    mask = torch.ones(B, time, dtype=torch.bool)
    mask[0, : time // 4] = False
    mask[1, -max(time // 6, 1) :] = False
    mask[1, 2] = False
    return mask


def segment_ids(time: int = T) -> Tensor:
    """Two documents in row 0, three in row 1; ids that are not in order."""
    ids = torch.zeros(B, time, dtype=torch.long)
    ids[0, 2 * time // 5 :] = 1
    ids[1, time // 3 :] = 7
    ids[1, 2 * time // 3 :] = 3
    return ids


def end_mask(time: int = T) -> Tensor:
    """Row 0 is all padding; row 1 has padding on the left and on the right, without a hole."""
    mask = torch.zeros(B, time, dtype=torch.bool)
    mask[1, time // 5 : -2] = True
    return mask


MASKS: dict[str, Callable[[int], dict[str, Tensor]]] = {
    "plain": lambda time: {},
    "padded": lambda time: {"key_mask": key_mask(time)},
    "packed": lambda time: {"segment_ids": segment_ids(time)},
    "both": lambda time: {"key_mask": key_mask(time), "segment_ids": segment_ids(time)},
}
HOLES = {"padded", "both"}


def length_of(name: str) -> int:
    """How many positions the literal loop can afford: 80 terms for each pair take their time."""
    score = VARIANTS[name].score
    return 9 if isinstance(score, Polynomial) and score.degree > 10 else T


@cache
def truth(name: str, mask: str) -> Result:
    """The literal double loop, in float64."""
    time = length_of(name)
    return run(LITERAL[name], inputs(VARIANTS[name], time=time), **MASKS[mask](time))


def refusal(spec: AttentionSpec, form: str, mask: str = "plain", key_dim: int = D, unread: bool = False) -> str | None:
    return FORMS[form].refuse(spec, Situation(key_dim=key_dim, holes=mask in HOLES, unread=unread))


def allowed_forms(spec: AttentionSpec, mask: str = "plain", key_dim: int = D, unread: bool = False) -> list[str]:
    return [form for form in FORMS if refusal(spec, form, mask, key_dim, unread) is None]


# ---- which names stand for the others


EPILOGUE = ("normaliser", "output_gate", "output_norm")
"""The slots behind the sum over keys; all others stand before it or in it."""


def contraction_class(name: str) -> Hashable:
    """Everything that happens up to the sums, and the forms that serve it."""
    spec = VARIANTS[name]
    parts = tuple(getattr(spec, field.name) for field in fields(spec) if field.name not in EPILOGUE)
    return parts, spec.wants_row_sum, spec.differs_by_head, tuple(allowed_forms(spec))


def contraction_features(name: str) -> set[Hashable]:
    """Each part up to the sums, and which kinds of them meet."""
    spec = VARIANTS[name]
    parts = {(field.name, getattr(spec, field.name)) for field in fields(spec) if field.name not in EPILOGUE}
    kinds = (type(spec.score), spec.polynomial is not None, spec.forget_gate is not None)
    return parts | {(kinds, spec.wants_row_sum, spec.differs_by_head), tuple(allowed_forms(spec))}


def contraction_kinds(name: str) -> set[Hashable]:
    """The kind of each part up to the sums, whatever its options, and the degree of a polynomial: 1, 2 or more."""
    spec = VARIANTS[name]
    kinds = {(field.name, type(getattr(spec, field.name))) for field in fields(spec) if field.name not in EPILOGUE}
    degree = min(spec.polynomial.degree, 3) if spec.polynomial else None
    return kinds | {(degree, spec.structure is None), tuple(allowed_forms(spec))} if name in CONTRACTIONS else set()


def epilogue_features(name: str) -> set[Hashable]:
    """Each part behind the sums, and whether gate and norm meet."""
    spec = VARIANTS[name]
    parts = {(slot, getattr(spec, slot)) for slot in EPILOGUE}
    return parts | {(spec.output_gate, type(spec.output_norm))}


def cover(names: Iterable[str], features: Callable[[str], set[Hashable]]) -> list[str]:
    """A few of the names that have every feature of all of them: again and again the one with most that is new."""
    left = {name: features(name) for name in names}
    missing, taken = set().union(*left.values()), []
    while missing:
        best = max(left, key=lambda name: len(left[name] & missing))
        taken.append(best)
        missing -= left.pop(best)
    return taken


CLASSES = list({contraction_class(name): name for name in reversed(NAMES)}.values())[::-1]
"""The first name of each contraction."""
CONTRACTIONS = cover(NAMES, contraction_features)
EPILOGUES = cover(NAMES, epilogue_features)
KINDS = ["taylor_2", *cover(NAMES, contraction_kinds)]
"""What is tested against the oracle in every form is tested otherwise for one of each kind."""
FEW = [name for name in NAMES if name in KINDS or name in EPILOGUES]


def some(quick: Iterable[str] = FEW, names: Iterable[str] = NAMES) -> list[Any]:
    """All names, as parameters; those that are not quick are slow."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def is_quick(name: str, form: str) -> bool:
    """Every form for one name per kind of contraction; one form for one name per part of the epilogue."""
    return name in KINDS or (name in EPILOGUES and form == some_form(VARIANTS[name]))


def some_form(spec: AttentionSpec) -> str:
    """One that keeps its sums in parts, so that the epilogue has something to put together."""
    forms = allowed_forms(spec)
    return "blockwise" if "blockwise" in forms else forms[0]


def literal_form(spec: AttentionSpec) -> str:
    """The form that the others are compared with."""
    return allowed_forms(spec)[0]


def attention(spec: AttentionSpec, **fixed) -> Callable[..., Tensor]:
    return lambda **tensors: attend(spec, **tensors, **fixed)


# ---- a sequence in pieces


AXES = dict.fromkeys("qkv", 2) | {
    name: declared.time_axis
    for spec in VARIANTS.values()
    for name, declared in spec.declared.items()
    if declared.time_axis is not None
}
"""Tensors that run along time, with their axis."""
TIMED = tuple(AXES)


def between(tensors: dict[str, Tensor], start: int, stop: int) -> dict[str, Tensor]:
    """The tensors of the positions start … stop − 1."""
    return {n: x.narrow(AXES[n], start, stop - start) if n in AXES else x for n, x in tensors.items()}


def fresh_state(spec: AttentionSpec, tensors: dict[str, Tensor]):
    q, k, v = (tensors[name] for name in "qkv")
    return init_state(
        spec,
        batch=q.shape[0],
        heads=q.shape[1],
        kv_heads=k.shape[1],
        key_dim=q.shape[-1],
        value_dim=v.shape[-1],
        dtype=q.dtype,
    )


def in_pieces(spec: AttentionSpec, cuts: list[int], first_form: str | None = None, **fixed) -> Callable[..., Tensor]:
    """`attend` as calls of `extend`, one for each stretch between the cuts; the first may have a form of its own."""

    def function(key_mask: Tensor | None = None, **tensors: Tensor) -> Tensor:
        time, state, outputs = tensors["q"].shape[2], fresh_state(spec, tensors), []
        for start, stop in zip([0, *cuts], [*cuts, time], strict=True):
            mask = None if key_mask is None else key_mask[:, start:stop]
            form = first_form if start == 0 else None
            out, state = extend(spec, **between(tensors, start, stop), state=state, key_mask=mask, form=form, **fixed)
            outputs.append(out)
        return torch.cat(outputs, dim=2)

    return function


def step_by_step(spec: AttentionSpec, prefill: int = 0, form: str | None = None) -> Callable[..., Tensor]:
    """`attend` as calls of `step`, after a prefill of some positions in one call."""

    def function(key_mask: Tensor | None = None, **tensors: Tensor) -> Tensor:
        time, state, outputs = tensors["q"].shape[2], fresh_state(spec, tensors), []
        if prefill:
            mask = None if key_mask is None else key_mask[:, :prefill]
            out, state = extend(spec, **between(tensors, 0, prefill), state=state, key_mask=mask, form=form)
            outputs.append(out)
        for t in range(prefill, time):
            here = {n: x.select(AXES[n], t) if n in AXES else x for n, x in tensors.items()}
            q_t, k_t, v_t = (here.pop(name) for name in "qkv")
            mask = None if key_mask is None else key_mask[:, t]
            out, state = step(spec, q_t, k_t, v_t, state, key_mask=mask, **here)
            outputs.append(out.unsqueeze(2))
        return torch.cat(outputs, dim=2)

    return function
