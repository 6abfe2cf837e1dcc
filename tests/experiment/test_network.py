"""The network of a run: its size, its weights by seed, its file, and why numbers break."""

import pytest
import torch
from tests.experiment.small import MODEL, SETTINGS
from transformers import AutoModelForCausalLM

from softmax_rnn.attention.parts import Exp
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.network import build_network, causes, explanation, model_config, save_network, state_bytes
from softmax_rnn.model import build_config


def test_the_seed_makes_the_weights():
    one, again, other = (build_network(resolve({**SETTINGS, "seed": seed}), 32).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_the_vocabulary_must_hold_the_data():
    config = resolve({"model": {**MODEL, "vocab_size": 100}})
    assert model_config(config, vocab_size=100).vocab_size == 100
    with pytest.raises(InputError, match=r"model\.vocab_size: expected 257 or more, got 100"):
        model_config(config, vocab_size=257)


def test_a_saved_network_is_an_ordinary_model(tmp_path):
    network = build_network(resolve(SETTINGS), 32)
    save_network(network, dict(network.state_dict()), None, tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.arange(12)[None]
    torch.testing.assert_close(loaded(ids).logits, network.eval()(ids).logits, atol=0, rtol=0)


NEGATIVE, NEAR_0 = "the row sum, which can be 0 or negative", "the row sum, which can be near 0"
NORM = "the output norm, which is steep where the sum is near 0"


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("softmax", []),
        ("taylor_2", []),
        ("taylor_3", [NEGATIVE]),
        ("power_2", [NEAR_0]),
        ("linear_relu", [NEAR_0]),
        ("softmax_gate", ["the sum of the weights, which grows with the length"]),
        ("gated_softmax_no_gate_L2norm_nodivS_noclamp", [NORM]),
        ("cumulative_gated_softmax", ["the cumulative gate, which can be near 0"]),
    ],
)
def test_suspicious_parts(variant, said):
    assert causes(build_config("nano", variant).spec) == said


def test_exp_without_anything_to_divide_it_is_suspicious():
    spec = AttentionSpec(score=Exp(), normaliser=None)
    assert causes(spec) == ["exp of the scores, which nothing divides or clamps"]


def test_an_explanation_names_the_module_and_the_part():
    network = build_network(resolve({"variant": "taylor_3", "model": MODEL, "data": SETTINGS["data"]}), 32)
    said = explanation(network, "model.layers.0.self_attn")
    assert "that of model.layers.0.self_attn; likely causes: the row sum, which can be 0 or negative" in said
    assert "all outputs are finite; likely causes: the row sum" in explanation(network, None)
    plain = build_network(resolve({"model": MODEL, "data": SETTINGS["data"]}), 32)
    assert explanation(plain, None).endswith("likely causes: the learning rate")


def test_bytes_of_the_state():
    # Keys and values of 4 layers, 4 heads of 32, 100 tokens; order 2 of 32 has C(34, 2) = 561 features, 33 columns.
    assert state_bytes(build_config("nano", "softmax"), 100) == 4 * 4 * 4 * 2 * 32 * 100
    assert state_bytes(build_config("nano", "taylor_2"), 100) == 4 * 4 * 4 * 561 * 33
    assert state_bytes(build_config("nano", "taylor_2"), 9999) == 4 * 4 * 4 * 561 * 33
