"""Windows and sinks on any score, in every form that serves, against the literal loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import oracle
from attention.cases import MASKS, T, attention, end_mask, fresh_state, inputs
from attention.compare import assert_close, assert_same, run
from oracle import decay, exp, exp5, f, l2, ln, normalised, sum_gv, sum_v, sum_w, taylor_weight, window
from softmax_rnn.attention.attend import attend, extend
from softmax_rnn.attention.parts import CappedExp, ForgetGate, Window, taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

WIDTH, SINKS = 5, 2
W = window(WIDTH, SINKS)


cosformer = oracle.alike(oracle.cosformer)


def windowed(name: str, width: int = WIDTH, sinks: int = SINKS) -> AttentionSpec:
    return replace(VARIANTS[name], structure=Window(width, sinks))


def gated(r: oracle.Row):
    return ln(r, r.out_gate * sum_gv(r, lambda r, j: exp5(r, j) * decay(r, j)) / r.n)


def capped(r: oracle.Row, j: int):
    return torch.exp(0.6 * torch.tanh(oracle.scaled()(r, j) / 0.6))


SPECS = {
    "capped": (
        AttentionSpec(score=CappedExp(cap=0.6), forget_gate=ForgetGate(), structure=Window(WIDTH, SINKS)),
        normalised(capped, W),
    ),
    "softmax": (windowed("softmax"), normalised(exp, W)),
    "no_sinks": (windowed("softmax", 3, 0), normalised(exp, window(3))),
    "itself": (windowed("softmax", 1, 0), normalised(exp, window(1))),
    "l2": (windowed("softmax_l2"), f(lambda r: l2(sum_v(r, exp)), W)),
    "gates": (windowed("gated_softmax_decay"), f(gated, W)),
    "cumulative": (
        windowed("gated_softmax_cumgate"),
        f(lambda r: sum_v(r, exp5) / oracle.exp_gates(r).clamp(min=1), W),
    ),
    "decay": (AttentionSpec(forget_gate=ForgetGate(), structure=Window(WIDTH, SINKS)), normalised(exp, W)),
    "taylor": (windowed("taylor_2"), normalised(taylor_weight(2, oracle.identity), W)),
    "positions": (
        windowed("cosformer"),
        f(lambda r: sum_v(r, cosformer) / (sum_w(r, cosformer) + 1e-6), W),
    ),
    "by_key": (
        windowed("linear_cosine_by_key"),
        f(lambda r: sum_v(r, lambda r, j: oracle.cosine(r, j) / oracle.Row(r.x, j).n ** r.exponent), W),
    ),
}


def test_padding_at_the_ends_in_the_platforms_kernel():
    spec, literal = SPECS["softmax"]
    masks = {"key_mask": end_mask()}
    got = run(attention(spec, form="fused"), inputs(spec), **masks)
    assert_same(got, run(literal, inputs(spec), **masks), torch.float64)


@pytest.mark.parametrize("form", ["parallel", "fused", "blockwise", "recurrent"])
def test_a_window_that_hides_nothing_changes_no_bit(form):
    plain = VARIANTS["softmax"]
    tensors = inputs(plain, torch.float32)
    for structure in (Window(T), Window(1000, 4), Window(15, 4)):
        wide = attend(replace(plain, structure=structure), **tensors, form=form)
        assert torch.equal(wide, attend(plain, **tensors, form=form))


@pytest.mark.parametrize("width", [3, 40])
def test_blocks_of_their_real_size(width):
    spec = windowed("softmax", width, 3)
    tensors = inputs(spec, time=700)
    truth = run(attention(spec, form="parallel"), tensors)
    for form in ("fused", "blockwise"):
        assert_same(run(attention(spec, form=form), tensors), truth, torch.float64)


@pytest.mark.parametrize("mask", ["plain", "padded"])
def test_the_state_stays_small_and_decoding_exact(mask):
    spec = AttentionSpec(forget_gate=ForgetGate(), structure=Window(6, 2))
    tensors = inputs(spec, time=60)
    masks = MASKS[mask](60)
    whole = attend(spec, **tensors, **masks)
    sizes = []

    def watched(state):
        sizes.append(state.time)

    state, outputs = fresh_state(spec, tensors), []
    for t in range(60):
        here = {name: x[:, :, t : t + 1] for name, x in tensors.items()}
        padding = masks["key_mask"][:, t : t + 1] if masks else None
        output, state = extend(spec, **here, state=state, key_mask=padding)
        watched(state)
        outputs.append(output)
    assert_close(torch.cat(outputs, 2), whole)
    assert max(sizes[20:]) <= 6 + 2 + 2 * spec.structure.spare + 1


def test_a_polynomial_in_a_window_keeps_keys_and_says_so():
    spec = AttentionSpec(score=taylor_score(2), structure=Window(4))
    with pytest.raises(InputError, match="a window drops old keys"):
        attend(spec, **inputs(spec), form="chunked")


def test_wrong_windows_are_refused():
    with pytest.raises(InputError, match="width: expected 1 or more, got 0"):
        Window(0)
    with pytest.raises(InputError, match="sinks: expected 0 or more, got -1"):
        Window(4, -1)
    with pytest.raises(InputError, match="structure kind"):
        AttentionSpec.from_dict({"structure": {"kind": "windw", "width": 4}})


def test_parts_that_need_all_keys_are_refused():
    for name, message in {"roformer_linear": "feature_sum", "deltanet": "all keys", "gla": "per channel"}.items():
        with pytest.raises(InputError, match=message):
            windowed(name)


def test_json_there_and_back_and_from_before_there_were_structures():
    old = AttentionSpec().to_dict()
    del old["structure"]
    assert AttentionSpec.from_dict(old) == AttentionSpec()
    spec = windowed("softmax")
    assert AttentionSpec.from_json(spec.to_json()) == spec
