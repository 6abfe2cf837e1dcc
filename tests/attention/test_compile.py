"""`torch.compile(fullgraph=True)` of attention: one graph for all lengths, with the results of the calls themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from re import sub
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from attention.cases import AXES, MASKS, NAMES, between, fresh_state, inputs
from attention.compare import Result, assert_same, run
from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.attend import attend, extend, step
from softmax_rnn.attention.parts import KeptKeys, Levels
from softmax_rnn.attention.plan import FORMS, Situation
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import State
from softmax_rnn.attention.structures.levels import LevelState
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inductor's own
QUICK = [("taylor_2", "both"), pytest.param("forgetting_transformer", "plain", marks=pytest.mark.slow)]
KINDS = ["gated_softmax", "taylor_2", "linear_elu", "deltanet", "rwkv6", "retnet", "alibi", "performer_64"]
"""One row of each kind of contraction."""
SHORT, LONG = (20, 33, 47), (150, 77)
"""The planner looks at the first length of a graph: it takes all weights at once for few positions, blocks or chunks
for more, where these serve.
"""
GRAPHED = [name for name in NAMES if not isinstance(VARIANTS[name].structure, KeptKeys)]


@pytest.fixture(autouse=True)
def forgotten_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], backend: str) -> tuple[Callable[..., Any], CompileCounterWithBackend]:
    counter = CompileCounterWithBackend(backend)
    return torch.compile(function, backend=counter, fullgraph=True), counter


def of_any_length(spec: AttentionSpec, graph: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The compiled function, told that its axes of time are of any length."""

    def function(key_mask: Tensor | None = None, segment_ids: Tensor | None = None, **tensors: Tensor) -> Tensor:
        masks = {"key_mask": key_mask, "segment_ids": segment_ids}
        given = {name: x for name, x in masks.items() if x is not None}
        for name, x in tensors.items():
            if name in AXES:
                torch._dynamo.mark_dynamic(x, AXES[name])
        for x in given.values():
            torch._dynamo.mark_dynamic(x, 1)
        return graph(tensors, given)

    return function


def check(name: str, mask: str, backend: str, lengths: tuple[int, ...] = LONG, told: bool = True) -> None:
    """Outputs and gradients at all lengths. A graph that is told of them serves them all; otherwise there is one for
    the first length, and at the second length one for all others.
    """
    spec = VARIANTS[name]
    graph, counter = compiled(lambda tensors, masks: attend(spec, **tensors, **masks), backend)
    function = of_any_length(spec, graph) if told else lambda **tensors: graph(tensors, {})
    assert told or mask == "plain"
    with nonpositive.counted():
        for time in lengths:
            given, masks = inputs(spec, time=time), MASKS[mask](time)
            got: Result = run(function, given, **masks)
            assert_same(got, run(lambda **tensors: attend(spec, **tensors), given, **masks), torch.float64)
    assert counter.frame_count == (1 if told else 2)


@pytest.mark.parametrize(("name", "mask"), QUICK)
def test_one_graph_for_all_lengths(name: str, mask: str) -> None:
    check(name, mask, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", GRAPHED)
def test_every_row(name: str, backend: str) -> None:
    check(name, "plain", backend, SHORT, told=False)
    torch._dynamo.reset()
    check(name, "both", backend, LONG)


@pytest.fixture
def one_compiler() -> Iterator[None]:
    """No processes that compile: they start slowly."""
    import torch._inductor.config

    with torch._inductor.config.patch(compile_threads=1):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("one_compiler")
@pytest.mark.parametrize("name", GRAPHED)
def test_every_row_with_inductor(name: str) -> None:
    check(name, "plain", "inductor", SHORT[:2])


@pytest.mark.slow
@pytest.mark.usefixtures("one_compiler")
@pytest.mark.parametrize("name", KINDS)
def test_masks_with_inductor(name: str) -> None:
    check(name, "both", "inductor", LONG)


STEPS = [("taylor_2", "aot_eager")]
MORE_STEPS = [
    ("retnet", "aot_eager"),
    ("taylor_2", "inductor"),
    ("log_linear_mamba2", "aot_eager"),
    ("log_linear_taylor_2", "aot_eager"),
    ("kept_keys_64", "aot_eager"),
]
STEPS += [pytest.param(*one, marks=pytest.mark.slow) for one in MORE_STEPS]


def places(state: State) -> dict[str, int]:
    return {name: x.data_ptr() for name, x in state.tensors.items()}


def tokens(given: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The arguments of `step`, one position after another."""
    for t in range(given["q"].shape[2]):
        now = {n: x.select(AXES[n], t) if n in AXES else x for n, x in given.items()}
        yield {f"{n}_t" if n in "qkv" else n: x for n, x in now.items()}


@pytest.mark.parametrize("name", ["taylor_2", "log_linear_mamba2", "kept_keys_64"])
def test_a_step_in_place_writes_where_the_state_stands(name: str) -> None:
    spec = VARIANTS[name]
    given = inputs(spec, time=7)
    whole, state, seen = attend(spec, **given), fresh_state(spec, given), []
    with torch.no_grad(), nonpositive.counted():
        for t, now in enumerate(tokens(given)):
            output, state = step(spec, state=state, in_place=True, **now)
            torch.testing.assert_close(output, whole[:, :, t], rtol=1e-10, atol=1e-10)
            seen.append(places(state))  # the states of levels get their places with the first token
    assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize(("name", "backend"), STEPS)
def test_a_step_is_one_graph_that_writes_where_the_state_stands(name: str, backend: str) -> None:
    spec = VARIANTS[name]
    given = inputs(spec, time=5)
    rest, state = tokens(given), fresh_state(spec, given)
    expected = state
    if isinstance(state, LevelState):  # the first token gives every level its place
        with torch.no_grad():
            _, state = step(spec, state=state, in_place=True, **next(rest))
        expected = State.from_tensors({name: x.clone() for name, x in state.tensors.items()})
    before = places(state)
    graph, counter = compiled(lambda tensors, state: step(spec, state=state, in_place=True, **tensors)[0], backend)
    with torch.no_grad(), nonpositive.counted():
        for tensors in rest:
            output, expected = step(spec, state=expected, **tensors)
            torch.testing.assert_close(graph(tensors, state), output, rtol=1e-10, atol=1e-10)
    assert places(state) == before
    assert not state.fresh and counter.frame_count <= 2  # an empty state, and a filled one


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["taylor_2", "softmax", "log_linear_taylor_2", "rat_16", "near_far_64"])
def test_pieces_of_any_length_continue_a_state(name: str, backend: str) -> None:
    spec = VARIANTS[name]
    given = inputs(spec, time=40)
    graph, _ = compiled(lambda tensors, state: extend(spec, **tensors, state=state), backend)
    state, outputs = fresh_state(spec, given), []
    with torch.no_grad(), nonpositive.counted():
        for start, stop in ((0, 17), (17, 30), (30, 40)):
            piece = between(given, start, stop)
            for tensor in piece.keys() & AXES.keys():
                torch._dynamo.mark_dynamic(piece[tensor], AXES[tensor])
            output, state = graph(piece, state)
            outputs.append(output)
        whole = attend(spec, **given)
    torch.testing.assert_close(torch.cat(outputs, 2), whole, rtol=1e-10, atol=1e-10)


def test_a_growing_state_has_no_place_of_its_own() -> None:
    spec = VARIANTS["softmax"]
    given = inputs(spec, time=1)
    with pytest.raises(InputError, match="in_place: expected a state of fixed size"):
        step(spec, *(given[x][:, :, 0] for x in "qkv"), fresh_state(spec, given), in_place=True)


def test_rows_of_a_compiled_graph_are_counted_when_it_runs() -> None:
    spec = VARIANTS["power_2"]
    given = inputs(spec, time=6)
    given["q"].zero_()
    graph, _ = compiled(lambda tensors: attend(spec, **tensors), "eager")
    with nonpositive.counted() as count:
        graph(given)
    assert count.row_sums == 2 * 4 * 6


LITERAL = [name for name in NAMES if VARIANTS[name].write_rule or isinstance(VARIANTS[name].structure, Levels)]


@pytest.mark.parametrize("name", LITERAL)
def test_write_rules_and_levels_are_literal_in_a_graph(name: str) -> None:
    """The table of the page about compiled graphs: these rows are traced in the parallel form, with T × T weights."""
    situation = Situation(traced=True)
    forms = [form for form, one in FORMS.items() if one.refuse(VARIANTS[name], situation) is None]
    assert forms == ["parallel"]


def test_the_page_names_every_row_that_is_different_in_a_graph() -> None:
    page = (Path(__file__).parents[2] / "docs" / "compile.md").read_text(encoding="utf-8")
    different = [*LITERAL, *(name for name in NAMES if name not in GRAPHED)]
    missing = [
        name for name in different if f"`{name}`" not in page and f"`{sub(r'[0-9]+$', '{n}', name)}`" not in page
    ]
    assert different and not missing
