import json

import pytest
from transformers import AutoConfig

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, UnknownNameError
from softmax_rnn.model.configuration import SoftmaxRNNConfig

from .tiny import tiny_config


@pytest.mark.parametrize("given", [VARIANTS["gated_softmax"], VARIANTS["gated_softmax"].to_dict(), "gated_softmax"])
def test_a_spec_its_values_and_its_name_are_the_same(given):
    assert SoftmaxRNNConfig(attention_spec=given).spec == VARIANTS["gated_softmax"]


def test_the_default_is_softmax():
    assert SoftmaxRNNConfig().spec == AttentionSpec()


def test_config_json_holds_the_spec_and_comes_back(tmp_path):
    config = tiny_config("two_mamba")
    config.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["attention_spec"]["score"]["kind"] == "polynomial"
    assert values["conv_width"] == 2 and values["use_rope"] is False
    again = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(again, SoftmaxRNNConfig)
    assert again.spec == VARIANTS["two_mamba"]
    assert {**again.to_dict(), "_name_or_path": ""} == config.to_dict()


def test_one_spec_a_layer(tmp_path):
    config = tiny_config(attention_spec=["softmax", VARIANTS["taylor_2"]])
    assert config.specs == (VARIANTS["softmax"], VARIANTS["taylor_2"])
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).specs == config.specs
    with pytest.raises(InputError, match=r"different specs; read \.specs"):
        _ = config.spec


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention_spec": "sofmax"}, "did you mean 'softmax'"),
        ({"attention_spec": ["softmax"]}, "expected 2 specs, one per layer, got 1"),
        ({"attention_spec": 3}, "attention_spec: expected a spec"),
        ({"mixer": "mamba"}, "unknown mixer 'mamba'; did you mean 'mamba2'"),
        ({"conv_width": 0}, "conv_width: expected 1 or more"),
        ({"conv_width": 2, "conv_activation": "sillu"}, "did you mean 'silu'"),
        ({"attention_dropout": 0.1}, "attention_dropout"),
        ({"num_key_value_heads": 3}, "divisor of the 4 query heads, got 3"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(InputError, match=message):
        tiny_config(**options)


def test_unknown_names_are_key_errors_too():
    with pytest.raises(UnknownNameError):
        tiny_config(attention_spec="linear_el")


def test_only_models_that_count_positions_have_a_limit():
    assert tiny_config().position_limit == 64
    assert tiny_config("two_mamba").position_limit is None
    assert tiny_config("linear_mamba").position_limit is None
    assert tiny_config(use_rope=False, learned_positions=True).position_limit == 64
    scaled = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    assert tiny_config(rope_parameters=scaled).position_limit is None


def test_mamba_heads_must_fit():
    with pytest.raises(InputError, match="heads of 12"):
        tiny_config("linear_mamba", head_dim=12).mamba2()
