import copy
import pickle

import pytest
import torch
import torch.nn.functional as F

from softmax_rnn.attention.parts import Decay, ForgetGate
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.model.spec_tensors import SpecTensors


def parts_of(spec):
    torch.manual_seed(0)
    return SpecTensors(spec, hidden_size=8, heads=4, head_dim=6)


@pytest.mark.parametrize("name", VARIANTS)
def test_tensors_are_those_of_the_spec(name):
    result = parts_of(VARIANTS[name])(torch.randn(2, 3, 8))
    assert tuple(result) == VARIANTS[name].tensors
    sizes = {"B": 2, "H": 4, "K": 4, "T": 3, "D": 6, "E": 6, "F": VARIANTS[name].width(6)}
    for key, declared in VARIANTS[name].declared.items():
        assert result[key].shape == declared.shape(sizes)


@pytest.mark.parametrize(
    ("decay", "log_decay"),
    [
        (Decay.LOG_SIGMOID, F.logsigmoid),
        (Decay.NEGATIVE_SOFTPLUS, lambda r: -F.softplus(r)),
        (Decay.SCALED, lambda r: r / 1024),
    ],
)
def test_forget_gates_give_the_log_decay_of_the_spec(decay, log_decay):
    parts = parts_of(AttentionSpec(forget_gate=ForgetGate(decay)))
    hidden = torch.randn(2, 3, 8)
    raw = parts.forget_gate(hidden).transpose(1, 2)
    torch.testing.assert_close(parts(hidden)["forget_gate"], log_decay(raw))


def test_gates_are_sigmoids_but_a_cumulative_gate_is_raw():
    hidden = torch.randn(2, 3, 8)
    gated = parts_of(VARIANTS["gated_softmax"])
    for name in ("input_gate", "output_gate"):
        raw = getattr(gated, name)(hidden).transpose(1, 2)
        torch.testing.assert_close(gated(hidden)[name], torch.sigmoid(raw))
    cumulative = parts_of(VARIANTS["gated_softmax_cumgate"])
    torch.testing.assert_close(cumulative(hidden)["output_gate"], cumulative.output_gate(hidden).transpose(1, 2))


def test_first_values():
    norm = parts_of(VARIANTS["gated_softmax"])
    assert bool((norm.norm_weight == 1).all()) and bool((norm.norm_bias == 0).all())
    assert bool((parts_of(VARIANTS["linear_cosine"]).length_exponent == 0.5).all())


@pytest.mark.parametrize(
    "name", ["gated_softmax_decay", "two_mamba", "forgetting_transformer", "gated_softmax_cumgate"]
)
def test_parts_can_be_copied_and_sent_to_other_processes(name):
    parts, hidden = parts_of(VARIANTS[name]), torch.randn(1, 3, 8)
    for again in (copy.deepcopy(parts), pickle.loads(pickle.dumps(parts))):
        assert all(torch.equal(x, again(hidden)[key]) for key, x in parts(hidden).items())
