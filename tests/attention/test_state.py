"""States: a sequence may be cut anywhere, into any pieces, and goes on as if it were whole."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from attention.cases import (
    HKV,
    KINDS,
    NAMES,
    B,
    D,
    E,
    H,
    allowed_forms,
    attention,
    between,
    fresh_state,
    in_pieces,
    inputs,
    literal_form,
    some,
    step_by_step,
)
from attention.compare import DTYPES, Result, assert_close, assert_same, run
from attention.numbers import cases
from softmax_rnn.attention.algebra import n_features
from softmax_rnn.attention.attend import extend, step
from softmax_rnn.attention.forms import chunked
from softmax_rnn.attention.parts import ChunkEnds, KeptKeys, Levels, NearKeys, Polynomial
from softmax_rnn.attention.start import init_state
from softmax_rnn.attention.state import FixedState, GrowingState, State
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

TIME = 7
WITH_FEATURES = [name for name in NAMES if "chunked" in allowed_forms(VARIANTS[name])]
EVERY_KIND = ["softmax", "gated_softmax_decay", "cumulative_gated_softmax", "linear_cosine_by_key", "power_attention_2"]


def left_padding() -> torch.Tensor:
    mask = torch.ones(B, TIME, dtype=torch.bool)
    mask[0, :3] = False
    return mask


@cache
def whole(name: str, padded: bool) -> Result:
    masks = {"key_mask": left_padding()} if padded else {}
    return run(attention(VARIANTS[name], form=literal_form(VARIANTS[name])), inputs(VARIANTS[name], time=TIME), **masks)


def masks(padded: bool) -> dict[str, torch.Tensor]:
    return {"key_mask": left_padding()} if padded else {}


# float32 and plain, float64 and padded: the other two pairs are slow.
PAIRS = [(False, torch.float32), (True, torch.float64), (False, torch.float64), (True, torch.float32)]
WAYS = [pytest.param(*pair, marks=[pytest.mark.slow] if n > 1 else []) for n, pair in enumerate(PAIRS)]


@pytest.mark.parametrize(("padded", "dtype"), WAYS)
@pytest.mark.parametrize("name", some())
def test_cut_in_two(name, padded, dtype):
    spec = VARIANTS[name]
    for cut in (1, 4):
        got = run(in_pieces(spec, [cut]), inputs(spec, dtype, time=TIME), **masks(padded))
        assert_same(got, whole(name, padded), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("padded", [False, True], ids=["plain", "left padding"])
@pytest.mark.parametrize("name", NAMES)
def test_cut_anywhere_in_two(name, padded, dtype):
    spec = VARIANTS[name]
    for cut in range(1, TIME):
        got = run(in_pieces(spec, [cut]), inputs(spec, dtype, time=TIME), **masks(padded))
        assert_same(got, whole(name, padded), dtype)


@pytest.mark.parametrize(("padded", "dtype"), WAYS)
@pytest.mark.parametrize("name", some())
def test_step_by_step(name, padded, dtype):
    spec = VARIANTS[name]
    got = run(step_by_step(spec), inputs(spec, dtype, time=TIME), **masks(padded))
    assert_same(got, whole(name, padded), dtype)


@pytest.mark.parametrize("cuts", [[2, 3], [1, 2, 6]], ids=str)
@pytest.mark.parametrize("name", EVERY_KIND)
def test_many_pieces(name, cuts):
    spec = VARIANTS[name]
    assert_same(run(in_pieces(spec, cuts), inputs(spec, time=TIME), **masks(True)), whole(name, True), torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize(("name", "form"), cases())
def test_steps_after_a_prefill_in_any_form(name, form, dtype):
    spec = VARIANTS[name]
    got = run(step_by_step(spec, prefill=5, form=form), inputs(spec, dtype, time=TIME))
    assert_same(got, whole(name, False), dtype)


@pytest.mark.parametrize("padded", [pytest.param(False, marks=pytest.mark.slow), True], ids=["plain", "left padding"])
@pytest.mark.parametrize("name", some(KINDS, WITH_FEATURES))
def test_chunked_pieces_of_many_chunks(monkeypatch, name, padded):
    monkeypatch.setattr(chunked, "chunk_length", lambda features: 2)
    spec = VARIANTS[name]
    for cut in (1, 2, 5):
        got = run(in_pieces(spec, [cut], "chunked"), inputs(spec, time=TIME), **masks(padded))
        assert_same(got, whole(name, padded), torch.float64)


@pytest.mark.parametrize("name", EVERY_KIND)
def test_a_first_piece_of_padding_only(name):
    spec = VARIANTS[name]
    mask = torch.ones(B, TIME, dtype=torch.bool)
    mask[:, :3] = False
    expected = run(attention(spec, form="parallel"), inputs(spec, time=TIME), key_mask=mask)
    for cut in (1, 2, 3):
        assert_same(run(in_pieces(spec, [cut]), inputs(spec, time=TIME), key_mask=mask), expected, torch.float64)


@pytest.mark.parametrize("name", some())
def test_select_reorders_and_repeats_the_rows_of_the_batch(name):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    per_batch = {n for n in tensors if n in "qkv" or spec.declared[n].axes.startswith("B")}
    order = torch.tensor([1, 0, 1])
    first = between(tensors, 0, 4)
    _, state = extend(spec, **first, state=fresh_state(spec, tensors), key_mask=left_padding()[:, :4])
    picked = {n: x[order] if n in per_batch else x for n, x in between(tensors, 4, TIME).items()}
    got, after = extend(spec, **picked, state=state.select(order))
    expected = whole(name, True).output[order][:, :, 4:]
    assert_close(got, expected)
    assert after.lengths.tolist() == [7, 4, 7]


@pytest.mark.parametrize("name", NAMES)
def test_state_counts_the_real_keys(name):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    _, state = extend(spec, **tensors, state=fresh_state(spec, tensors), key_mask=left_padding())
    assert state.lengths.tolist() == [4, 7]
    assert state.lengths.dtype == torch.int64


@pytest.mark.parametrize("name", NAMES)
def test_fixed_states_do_not_grow_and_growing_ones_do(name):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    start = fresh_state(spec, tensors)
    _, early = extend(spec, **between(tensors, 0, 2), state=start)
    _, late = extend(spec, **between(tensors, 2, TIME), state=early)
    assert type(start) is type(early) is type(late)
    keeps = name not in WITH_FEATURES or isinstance(spec.structure, NearKeys)
    assert start.grows == (keeps and not isinstance(spec.structure, KeptKeys))
    if isinstance(spec.structure, ChunkEnds):
        assert (early.time, late.time) == (2 // spec.structure.length, TIME // spec.structure.length)
    elif start.grows:
        assert (early.time, late.time) == (2, TIME)
        assert start.bytes < early.bytes < late.bytes
    elif isinstance(spec.structure, Levels):  # 7 has three digits that are 1
        assert start.bytes < early.bytes < late.bytes < 4 * start.bytes
    else:
        assert start.bytes == early.bytes == late.bytes


def test_state_goes_in_and_comes_out_unchanged():
    spec = VARIANTS["taylor_2"]
    tensors = inputs(spec, time=TIME)
    _, state = extend(spec, **between(tensors, 0, 3), state=fresh_state(spec, tensors))
    copy = {name: x.clone() for name, x in state.tensors.items()}
    first, _ = extend(spec, **between(tensors, 3, TIME), state=state)
    again, _ = extend(spec, **between(tensors, 3, TIME), state=state)
    assert torch.equal(first, again)
    assert all(torch.equal(x, copy[name]) for name, x in state.tensors.items())


@pytest.mark.parametrize("name", ["softmax", "taylor_2"])
def test_two_continuations_of_one_state_do_not_disturb_each_other(name):
    spec = VARIANTS[name]
    tensors, others = inputs(spec, time=TIME), inputs(spec, time=TIME, seed=7)
    # The first steps make the memory with places to spare that the later ones write into.
    _, state = extend(spec, **between(tensors, 0, 3), state=fresh_state(spec, tensors))
    _, state = extend(spec, **between(tensors, 3, 4), state=state)
    _, first = extend(spec, **between(tensors, 4, 6), state=state)
    extend(spec, **between(others, 4, 6), state=state)
    got, _ = extend(spec, **between(tensors, 6, TIME), state=first)
    assert_close(got, whole(name, False).output[:, :, 6:])


def test_query_heads_that_share_keys_share_a_state():
    shared = init_state(VARIANTS["taylor_2"], batch=B, heads=H, kv_heads=HKV, key_dim=D, value_dim=E)
    own = init_state(VARIANTS["power_attention_2"], batch=B, heads=H, kv_heads=HKV, key_dim=D, value_dim=E)
    assert shared.matrix.shape == (B, HKV, 45, E + 1)
    assert own.matrix.shape == (B, H, 36, E + 1)
    assert own.matrix.dtype == torch.float64


def test_orders_of_the_matrix_are_the_hidden_states():
    spec = VARIANTS["taylor_4"]
    score = spec.score
    assert isinstance(score, Polynomial)
    tensors = inputs(spec, time=TIME)
    _, state = extend(spec, **tensors, state=fresh_state(spec, tensors))
    assert isinstance(state, FixedState)
    # H⁽⁰⁾ = Σ [v, 1], H⁽¹⁾ = Σ k [v, 1]ᵀ
    u = torch.cat([tensors["v"], torch.ones(B, HKV, TIME, 1, dtype=torch.float64)], -1)
    assert_close(state.order(score, D, 0), u.sum(2, keepdim=True), 1e-12)
    assert_close(state.order(score, D, 1), tensors["k"].mT @ u, 1e-12)
    sizes = [state.order(score, D, n).shape[2] for n in score.orders]
    assert sum(sizes) == n_features(score, D) == state.matrix.shape[2]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["taylor_2", "power_2"])
def test_sums_of_half_precision_calls_are_kept_in_float32_at_least(name, dtype):
    spec = VARIANTS[name]
    tensors = inputs(spec, dtype, time=TIME)
    out, state = extend(spec, **tensors, state=fresh_state(spec, tensors))
    assert out.dtype == dtype
    kinds = {x.dtype for x in state.tensors.values() if x.is_floating_point()}
    assert kinds <= {torch.float32, torch.float64}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "window_64", "heavy_hitters_64", "gated_softmax"])
def test_keys_and_values_are_kept_in_the_half_precision_that_they_came_in(name, dtype):
    """What came is kept without loss; what a gate has changed is rounded in bfloat16, and stays wide beside float16."""
    spec = VARIANTS[name]
    tensors = inputs(spec, dtype, time=TIME)
    decode = step_by_step(spec, prefill=TIME // 2)
    exact = decode(**{key: x.float() for key, x in tensors.items()}).to(dtype)
    rounded = spec.input_gate is not None and dtype == torch.bfloat16
    assert_close(decode(**tensors), exact, 5e-3 if rounded else 0.0)
    _, state = extend(spec, **tensors, state=fresh_state(spec, tensors))
    wide = spec.input_gate is not None and dtype == torch.float16
    assert {state.tensors[x].dtype for x in ("keys", "values")} == {torch.float32 if wide else dtype}


# ---- what is refused


def test_a_state_of_another_kind_is_refused():
    tensors = inputs(VARIANTS["softmax"], time=2)
    fixed = fresh_state(VARIANTS["taylor_2"], tensors)
    with pytest.raises(InputError, match="this spec has a GrowingState, got a FixedState"):
        extend(VARIANTS["softmax"], **tensors, state=fixed)
    with pytest.raises(InputError, match="init_state"):
        extend(VARIANTS["softmax"], **tensors, state=None)


@pytest.mark.parametrize("change", [{"batch": 3}, {"key_dim": D + 1}, {"value_dim": E + 1}, {"kv_heads": H}], ids=str)
@pytest.mark.parametrize("name", ["softmax", "taylor_2", "cumulative_gated_softmax", "forgetting_transformer"])
def test_a_state_of_another_size_is_refused(name, change):
    spec = VARIANTS[name]
    size = {"batch": B, "heads": H, "kv_heads": HKV, "key_dim": D, "value_dim": E} | change
    if name == "forgetting_transformer" and "kv_heads" in change:
        size["heads"] = size["kv_heads"] = 2 * H  # a forget gate gives each head a state of its own anyway
    with pytest.raises(InputError, match=r"state: its .* has shape"):
        extend(spec, **inputs(spec, time=2), state=init_state(spec, **size))


def test_a_state_of_another_polynomial_is_refused():
    tensors = inputs(VARIANTS["taylor_2"], time=2)
    with pytest.raises(InputError, match="state: its matrix has shape"):
        extend(VARIANTS["taylor_2"], **tensors, state=fresh_state(VARIANTS["taylor_4"], tensors))


def test_unknown_and_missing_tensors_of_extend_and_step():
    spec = VARIANTS["softmax_gate"]
    tensors = inputs(spec, time=2)
    gate = tensors.pop("output_gate")
    state = fresh_state(spec, tensors)
    with pytest.raises(InputError, match="output_gate: this spec needs it"):
        extend(spec, **tensors, state=state)
    with pytest.raises(InputError, match="unknown argument 'output_gat'; did you mean 'output_gate'"):
        extend(spec, **tensors, state=state, output_gate=gate, output_gat=gate)
    q, k, v = (tensors[n] for n in "qkv")
    with pytest.raises(InputError, match="q_t: expected 3 axes"):
        step(spec, q, k[:, :, 0], v[:, :, 0], state, output_gate=gate[:, :, 0])
    with pytest.raises(InputError, match="v_t: expected 3 axes"):
        step(spec, q[:, :, 0], k[:, :, 0], None, state, output_gate=gate[:, :, 0])


def test_growing_states_keep_what_was_seen():
    spec = VARIANTS["forgetting_transformer"]
    tensors = inputs(spec, time=TIME)
    _, state = extend(spec, **tensors, state=fresh_state(spec, tensors), key_mask=left_padding())
    assert isinstance(state, GrowingState)
    assert state.keys.shape == (B, H, TIME, D)
    assert torch.equal(state.key_mask, left_padding())
    assert set(state.tensors) == {"lengths", "keys", "values", "decay", "key_mask"}


@pytest.mark.parametrize("name", NAMES)
def test_a_state_is_found_again_by_the_names_of_its_tensors(name):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    first = fresh_state(spec, tensors)
    for state in (first, extend(spec, **tensors, state=first, key_mask=left_padding())[1]):
        again = State.from_tensors(state.tensors)
        assert type(again) is type(state)
        assert again.tensors.keys() == state.tensors.keys()
        assert all(x is state.tensors[at] for at, x in again.tensors.items())


def test_tensors_of_no_state_are_refused():
    with pytest.raises(InputError, match="no kind of state has the tensors lengths, weights"):
        State.from_tensors({"lengths": torch.zeros(1), "weights": torch.zeros(1)})
