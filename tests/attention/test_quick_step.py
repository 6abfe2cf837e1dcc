"""Steps in few calls: the results of the general way, and the general way wherever something differs."""

from __future__ import annotations

from copy import deepcopy
from threading import Thread

import pytest
import torch

from attention.cases import fresh_state, inputs
from softmax_rnn.attention.arguments import Shape
from softmax_rnn.attention.attend import attend, extend, step
from softmax_rnn.attention.nonpositive import NonPositiveWarning, counted
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.quick_step import OfFeatures, OfKeys, _quick
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import FixedState
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

SPECS = {
    "taylor_2": VARIANTS["taylor_2"],
    "without order 1": AttentionSpec(score=Polynomial(coefficients=(1.0, 0.0, 0.5))),
    "without order 0": AttentionSpec(score=Polynomial(coefficients=(0.0, 1.0, 2.0), scale=0.1)),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each attempt at a quick step was one."""
    taken: list[bool] = []

    def noting(run):
        def noted(*args):
            found = run(*args)
            taken.append(found is not None)
            return found

        return noted

    for kind in (OfFeatures, OfKeys):
        monkeypatch.setattr(kind, "run", noting(kind.run))
    return taken


def walk(spec, given, start=5, **options):
    """The outputs from ``start`` on, one step at a time after a prompt."""
    state, outputs = fresh_state(spec, given), []
    with torch.no_grad():
        _, state = extend(spec, *(given[name][:, :, :start] for name in "qkv"), state)
        for t in range(start, given["q"].shape[2]):
            output, state = step(spec, *(given[name][:, :, t] for name in "qkv"), state, **options)
            outputs.append(output)
    return torch.stack(outputs, 2), state


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", SPECS)
def test_quick_steps_equal_the_whole(name, in_place, quick):
    spec = SPECS[name]
    given = inputs(spec, torch.float32, time=20)
    if name == "without order 0":
        given |= {side: given[side].abs() for side in "qk"}  # positive row sums
    got, state = walk(spec, given, in_place=in_place)
    truth = attend(spec, **{side: x.double() for side, x in given.items()})[:, :, 5:]
    assert float((got - truth).abs().max() / truth.abs().max()) < 2e-6
    assert quick == [True] * 14  # all but the first
    expected, general = fresh_state(spec, given), None
    _, general = extend(spec, **given, state=expected, form="chunked")
    assert isinstance(state, FixedState) and isinstance(general, FixedState)
    torch.testing.assert_close(state.matrix, general.matrix, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state.key_norm, general.key_norm)
    assert state.lengths.tolist() == general.lengths.tolist() == [20, 20]


@pytest.mark.parametrize("name", ["softmax", "softmax_l2"])
def test_quick_steps_over_kept_keys(name, quick):
    spec = VARIANTS[name]
    given = inputs(spec, torch.float32, time=20, heads=2, value_dim=8)
    got, state = walk(spec, given)
    truth = attend(spec, **{side: x.double() for side, x in given.items()})[:, :, 5:]
    assert float((got - truth).abs().max() / truth.abs().max()) < 2e-6
    assert quick == [True] * 14 and state.lengths.tolist() == [20, 20]
    older, _ = walk(spec, {side: x[:, :, :12] for side, x in given.items()})
    torch.testing.assert_close(older, got[:, :, :7])


def test_an_older_state_is_not_overwritten(quick):
    spec = VARIANTS["softmax"]
    given = inputs(spec, torch.float32, time=9, heads=2, value_dim=8)
    _, state = walk(spec, given)
    now = [given[side][:, :, 8] for side in "qkv"]
    with torch.no_grad():
        first, after = step(spec, *now, state)
        again, _ = step(spec, *now, state)
        _, later = step(spec, *now, after)
    assert quick[-3:] == [True] * 3 and torch.equal(first, again)
    with pytest.raises(InputError, match="in_place"):
        step(spec, *now, state, in_place=True)
    torch.testing.assert_close(later.tensors["keys"][:, :, :9], state.tensors["keys"])


def test_a_piece_of_one_position_is_a_quick_step(quick):
    spec = VARIANTS["taylor_2"]
    given = inputs(spec, torch.float32, time=9)
    _, state = walk(spec, {side: x[:, :, :8] for side, x in given.items()})
    with torch.no_grad():
        output, _ = extend(
            spec, *(given[side][:, :, 8:].transpose(1, 2).contiguous().transpose(1, 2) for side in "qkv"), state
        )
    assert quick[-1] and output.shape == (2, 4, 1, 5)
    torch.testing.assert_close(output, attend(spec, **given)[:, :, 8:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["taylor_2", "softmax"])
def test_the_axis_of_time_is_not_guessed(name, quick):
    spec = VARIANTS[name]
    given = inputs(spec, torch.float32, time=9, heads=2, value_dim=8)
    _, state = walk(spec, given)
    now = [given[side][:, :, 8:] for side in "qkv"]
    quick.clear()
    with torch.no_grad(), pytest.raises(InputError, match="3 axes"):
        step(spec, *now, state)
    with torch.no_grad(), pytest.raises(InputError, match="4 axes"):
        extend(spec, *(x[:, :, 0] for x in now), state)
    assert not quick


def test_threads_do_not_disturb_each_other(quick):
    spec = VARIANTS["taylor_2"]
    given = [inputs(spec, torch.float32, time=60, seed=seed) for seed in range(4)]
    alone = [walk(spec, one)[0] for one in given]
    together: dict[int, torch.Tensor] = {}

    def work(number: int) -> None:
        together[number] = walk(spec, given[number])[0]

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(quick) and all(torch.equal(together[number], alone[number]) for number in range(4))


def test_quick_steps_after_inference_mode_and_from_a_copy(quick):
    """What was made for the first step can be written to later, and a copied state goes on."""
    spec = AttentionSpec(score=Polynomial(coefficients=(1.0, 0.5, 0.25)))  # of no other test
    given = inputs(spec, torch.float32, time=9)
    now = [given[side][:, :, 8] for side in "qkv"]
    with torch.inference_mode():
        walk(spec, given)
    _, state = walk(spec, given)
    copy = deepcopy(state)
    assert copy.quick is state.quick and copy.tensors["matrix"] is not state.tensors["matrix"]
    with torch.no_grad():
        first, _ = step(spec, *now, state)
        again, _ = step(spec, *now, copy)
    assert all(quick) and torch.equal(first, again)


def test_very_many_features_are_none_for_quick_steps():
    shape = Shape(batch=64, heads=16, kv_heads=16, time=1, key_dim=64, value_dim=64)
    assert _quick(VARIANTS["taylor_2"], shape) is None


def test_what_differs_takes_the_general_way(quick):
    spec = VARIANTS["taylor_2"]
    given = inputs(spec, torch.float32, time=9)
    _, state = walk(spec, given)
    now = [given[side][:, :, 8] for side in "qkv"]
    with torch.no_grad():
        known, _ = step(spec, *now, state)
        quick.clear()
        with counted():
            torch.testing.assert_close(step(spec, *now, state)[0], known, rtol=1e-5, atol=1e-5)
        with torch.autocast("cpu"):
            torch.testing.assert_close(step(spec, *now, state)[0], known, rtol=1e-5, atol=1e-5)
        assert step(spec, *(x.half() for x in now), state)[0].dtype == torch.half
    q = now[0].clone().requires_grad_()
    step(spec, q, *now[1:], state)[0].sum().backward()
    assert q.grad is not None and not quick


@pytest.mark.parametrize("size", [1e3, 1e12, torch.nan])
def test_numbers_beyond_the_range_take_the_general_way(size, quick):
    spec = VARIANTS["taylor_2"]
    given = inputs(spec, torch.float32, time=9)
    _, state = walk(spec, given)
    q, k, v = (given[side][:, :, 8] for side in "qkv")
    with torch.no_grad():
        quick.clear()
        output, after = step(spec, q * size, k, v, state)
        assert bool(output.isfinite().all()) == (size == size)
        assert quick == [size == 1e3]
        if size == 1e12:
            step(spec, q, k, v, after)
            assert quick == [False, True]  # keys stay as they are


def test_row_sums_that_are_not_positive_are_told(quick):
    spec = SPECS["without order 0"]
    given = inputs(spec, torch.float32, time=9)
    given |= {side: given[side].abs() for side in "qk"}
    _, state = walk(spec, given)
    q, k, v = (given[side][:, :, 8] for side in "qkv")
    with torch.no_grad(), pytest.warns(NonPositiveWarning):
        step(spec, -q, k, v, state)
    assert quick[-1] is False


@pytest.mark.parametrize("name", VARIANTS)
def test_every_row_says_whether_its_steps_are_quick(name):
    """Without an error, whatever parts a row has."""
    shape = Shape(batch=1, heads=2, kv_heads=2, time=1, key_dim=4, value_dim=4)
    kind = type(_quick(VARIANTS[name], shape))
    assert kind in (OfKeys, OfFeatures, type(None))
    assert (kind is OfKeys) == (VARIANTS.short(name) in ("softmax", "softmax_l2"))
