"""Any spec, any shape, any padding, any form: padded = unpadded = packed = step by step = the literal form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention.cases import (
    HERE,
    NAMES,
    TIMED,
    allowed_forms,
    attention,
    in_pieces,
    inputs,
    literal_form,
    step_by_step,
)
from attention.compare import assert_same, run
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.forms import blockwise, chunked
from softmax_rnn.attention.parts import (
    Averaged,
    ChunkEnds,
    Cosine,
    CumulativeGate,
    EluPlusOne,
    Exp,
    ForgetGate,
    Gated,
    InputGate,
    KeptKeys,
    L2Norm,
    LayerNorm,
    LearnedLength,
    Length,
    Levels,
    Lolcats,
    NearFar,
    OutputGate,
    Polynomial,
    Relu,
    RMSNorm,
    RowSum,
    Window,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")


def for_all(*strategies: st.SearchStrategy) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """A test of examples that are drawn: a few in the quick set, many in the slow one."""

    def decorate(check: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [30, pytest.param(300, marks=pytest.mark.slow)])
        def test(examples: int) -> None:
            chosen = settings(max_examples=examples, deadline=None, derandomize=True, database=None)
            chosen(given(*strategies)(check))()

        return test

    return decorate


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 5 and chunks of 3, so that short sequences cross borders."""
    monkeypatch.setattr(blockwise, "BLOCK", {"cpu": 5})
    monkeypatch.setattr(blockwise, "GROUP_NUMBERS", {"cpu": 300})
    monkeypatch.setattr(chunked, "chunk_length", lambda features: 3)


SCORES = [
    Exp(),
    Exp(clamp=0.7),
    Exp(scale=0.4),
    taylor_score(2),
    taylor_score(4, scale=0.3),
    power_score(2),
    Polynomial(coefficients=(1.0, 0.0, 0.5)),
    Polynomial(coefficients=(0.5, 1.0), clamp=1.0),
]
NORMALISERS = [
    None,
    RowSum(minimum=0.5),
    RowSum(eps=0.1),
    RowSum(minimum=2.0, detach=True),
    Length(),
    LearnedLength(),
    LearnedLength(by_key=True),
    CumulativeGate(minimum=1.5),
    CumulativeGate(times_length=True),
]


@st.composite
def composed_specs(draw) -> AttentionSpec:
    norm = draw(st.sampled_from([None, L2Norm(), L2Norm(times_dim=True), RMSNorm(), LayerNorm(affine=False)]))
    normaliser = draw(st.sampled_from(NORMALISERS))
    gates = [None] if isinstance(normaliser, CumulativeGate) else [None, OutputGate()]
    if norm is not None and len(gates) == 2:
        gates.append(OutputGate(after_norm=True))
    score = draw(st.sampled_from(SCORES))
    structures = [None, Window(2), Window(3, 1), Levels(), Levels(3), ChunkEnds(1), ChunkEnds(2), ChunkEnds(4)]
    if score.finite_features is not None:
        structures += [
            NearFar(2),
            NearFar(3, 1),
            NearFar(2, 1, centred=True),
            NearFar(3, centred=True, gaussian=True),
            Lolcats(3),
            Averaged(2, 1),
            Gated(3),
        ]
    structures += [KeptKeys(2, 1, kept=2)]
    spec = AttentionSpec(
        feature_map=draw(st.sampled_from([None, EluPlusOne(), Relu(), Cosine()])),
        score=score,
        forget_gate=draw(st.sampled_from([None, ForgetGate()])),
        input_gate=draw(st.sampled_from([None, InputGate()])),
        normaliser=normaliser,
        output_gate=draw(st.sampled_from(gates)),
        output_norm=norm,
    )
    try:
        return replace(spec, structure=draw(st.sampled_from(structures)))
    except InputError:  # not every structure takes every part
        return spec


# Odd orders can bring a row sum near 0, where no form keeps its digits.
TABLE = [VARIANTS[name] for name in NAMES if name != "taylor_1"]
specs = st.one_of(st.sampled_from(TABLE), composed_specs())


@st.composite
def calls(draw, min_time: int = 1) -> tuple[AttentionSpec, dict[str, Tensor]]:
    """A spec and tensors of some shape for it, one sequence."""
    spec = draw(specs)
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    time = draw(st.integers(min_time, 14))
    # A LayerNorm of two numbers is ±1 whatever they are: its gradient would be rounding alone.
    smallest = 3 if isinstance(spec.output_norm, LayerNorm) else 2
    key_dim, value_dim = draw(st.integers(3, 5)), draw(st.integers(smallest, 6))
    sizes = {"heads": kv_heads * group, "kv_heads": kv_heads, "key_dim": key_dim, "value_dim": value_dim}
    return spec, inputs(spec, time=time, batch=1, seed=10 * draw(st.integers(0, 9)), **sizes)


def forms_for(spec: AttentionSpec, tensors: dict[str, Tensor], holes: bool = False) -> list[str]:
    return allowed_forms(spec, "padded" if holes else "plain", tensors["q"].shape[-1])


def spread(tensors: dict[str, Tensor], places: list[int], time: int, poison: float) -> dict[str, Tensor]:
    """The positions at these places of a longer sequence; the rest is filled with a number."""

    def place(x: Tensor) -> Tensor:
        longer = torch.full((*x.shape[:2], time, *x.shape[3:]), poison, dtype=x.dtype)
        return longer.index_copy(2, torch.tensor(places), x)

    return {name: place(x) if name in TIMED else x for name, x in tensors.items()}


@for_all(calls(), st.data())
def test_every_form_equals_the_literal_one(call, data):
    spec, tensors = call
    form = data.draw(st.sampled_from(forms_for(spec, tensors)))
    truth = run(attention(spec, form=literal_form(spec)), tensors)
    assert_same(run(attention(spec, form=form), tensors), truth, torch.float64)


@for_all(calls(), st.data())
def test_padding_anywhere_changes_nothing(call, data):
    """Padding on the left, on the right and in between; gradients flow to the real positions only."""
    spec, tensors = call
    time = tensors["q"].shape[2]
    real = data.draw(st.permutations([True] * time + [False] * data.draw(st.integers(1, 5))))
    places = [t for t, here in enumerate(real) if here]
    mask = torch.tensor([real])
    holes = places != list(range(places[0], places[0] + time))
    form = data.draw(st.sampled_from([None, *forms_for(spec, tensors, holes)]))

    def padded(**given: Tensor) -> Tensor:
        longer = spread(given, places, len(real), poison=0.7)
        return attend(spec, **longer, key_mask=mask, form=form)[:, :, places]

    assert_same(run(padded, tensors), run(attention(spec, form=literal_form(spec)), tensors), torch.float64)


def joined(pieces: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    first = pieces[0]
    return {n: torch.cat([p[n] for p in pieces], 2) if n in TIMED else first[n] for n in first}


@for_all(calls(min_time=2), st.data())
def test_packed_documents_equal_documents_alone(call, data):
    spec, tensors = call
    time = tensors["q"].shape[2]
    cuts = sorted(data.draw(st.sets(st.integers(1, time - 1), min_size=1, max_size=3)))
    form = data.draw(st.sampled_from([None, *forms_for(spec, tensors)]))
    borders = list(zip([0, *cuts], [*cuts, time], strict=True))
    ids = torch.cat([torch.full((1, stop - start), 5 - n) for n, (start, stop) in enumerate(borders)], dim=1)

    def alone(**given: Tensor) -> Tensor:
        documents = [{n: x[:, :, a:b] if n in TIMED else x for n, x in given.items()} for a, b in borders]
        return torch.cat([attend(spec, **document, form=literal_form(spec)) for document in documents], dim=2)

    packed = run(attention(spec, form=form, segment_ids=ids), tensors)
    assert_same(packed, run(alone, tensors), torch.float64)


@for_all(calls(), st.data())
def test_padded_and_packed_documents_equal_documents_alone(call, data):
    """A batch of two rows: the sequence with padding, and the sequence twice as two documents."""
    spec, tensors = call
    time = tensors["q"].shape[2]
    left, form = data.draw(st.integers(0, time)), data.draw(st.sampled_from([None, *forms_for(spec, tensors)]))
    padded = spread(tensors, list(range(left, left + time)), 2 * time, poison=-0.3)
    twice = joined([tensors, tensors])
    both = {n: torch.cat([padded[n], twice[n]]) if n in TIMED else x for n, x in tensors.items()}
    mask = torch.ones(2, 2 * time, dtype=torch.bool)
    mask[0, :left] = mask[0, left + time :] = False
    ids = torch.zeros(2, 2 * time, dtype=torch.long)
    ids[1, time:] = 1
    got = attend(spec, **both, key_mask=mask, segment_ids=ids, form=form)
    truth = run(attention(spec, form=literal_form(spec)), tensors).output
    parts = torch.stack([got[0, :, left : left + time], got[1, :, :time], got[1, :, time:]])
    scale = truth.abs().max()
    assert bool(((parts - truth).abs() <= 1e-10 * scale).all())
    assert bool((got[0, :, :left] == 0).all())


@for_all(calls(), st.data())
def test_step_by_step_equals_the_whole(call, data):
    spec, tensors = call
    prefill = data.draw(st.integers(0, tensors["q"].shape[2]))
    form = data.draw(st.sampled_from([None, *forms_for(spec, tensors)]))
    truth = run(attention(spec, form=literal_form(spec)), tensors)
    # One position goes through the state, even where that is empty.
    assert_same(run(step_by_step(spec, prefill, form if prefill > 1 else None), tensors), truth, torch.float64)


@for_all(calls(min_time=2), st.data())
def test_pieces_with_padding_equal_the_whole(call, data):
    spec, tensors = call
    time = tensors["q"].shape[2]
    cuts = sorted(data.draw(st.sets(st.integers(1, time - 1), min_size=1, max_size=3)))
    mask = torch.tensor([data.draw(st.lists(st.booleans(), min_size=time, max_size=time))])
    truth = run(attention(spec, form=literal_form(spec)), tensors, key_mask=mask)
    assert_same(run(in_pieces(spec, cuts), tensors, key_mask=mask), truth, torch.float64)


@for_all(calls(min_time=2), st.data())
def test_the_future_is_never_seen(call, data):
    spec, tensors = call
    time = tensors["q"].shape[2]
    now = data.draw(st.integers(1, time - 1))
    form = data.draw(st.sampled_from(forms_for(spec, tensors)))
    changed = {n: torch.cat([x[:, :, :now], 1 - x[:, :, now:]], 2) if n in TIMED else x for n, x in tensors.items()}
    before, after = (attend(spec, **given, form=form)[:, :, :now] for given in (tensors, changed))
    assert bool(((before - after).abs() <= 1e-10 * before.abs().max()).all())


@for_all(specs)
def test_every_spec_survives_json(spec):
    assert AttentionSpec.from_json(spec.to_json()) == spec


def test_the_forms_under_test_are_all_forms():
    served = {form for spec in TABLE for form in allowed_forms(spec)}
    assert served == set(HERE)
