"""A different attention in each layer, from ranges to a saved model."""

import pytest
import torch

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.model import SpecCache
from softmax_rnn.model.convert import convert
from softmax_rnn.model.layer_specs import layer_specs
from softmax_rnn.model.loading import load_model

from .tiny import same_model, tiny_config, tiny_model, tokens

SOFTMAX, TAYLOR, GATED = (VARIANTS[name] for name in ("softmax", "taylor_2", "softmax_gate"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("softmax", [SOFTMAX] * 3),
        (TAYLOR.to_dict(), [TAYLOR] * 3),
        (["softmax", TAYLOR, GATED.to_dict()], [SOFTMAX, TAYLOR, GATED]),
        ({"0-1": "softmax", "2-": "taylor_2"}, [SOFTMAX, SOFTMAX, TAYLOR]),
        ({"1": TAYLOR, "2": GATED, "0": "softmax"}, [SOFTMAX, TAYLOR, GATED]),
        ({0: "taylor_2", "1-2": "softmax"}, [TAYLOR, SOFTMAX, SOFTMAX]),
        ({"0-": "taylor_2"}, [TAYLOR] * 3),
    ],
)
def test_what_users_write(value, expected):
    assert list(layer_specs(value, 3)) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"0-1": "softmax"}, "layers: layer 2 has no attention; 1 of 3 are in no range"),
        ({"0-1": "softmax", "1-": "taylor_2"}, "layers: layer 1 is in both 0-1 and 1-"),
        ({"0-5": "softmax"}, "layers: 0-5 is not within the layers 0 to 2"),
        ({"2-1": "softmax"}, "layers: 2-1 is not within the layers"),
        ({"0-x": "softmax"}, "layers: expected ranges such as 0-3, 4- or 5, got '0-x'"),
        ({"0-": "sofmax"}, "did you mean 'softmax'"),
        (["softmax"], "layers: expected 3 specs, one per layer, got 1"),
        ({"0-": 3}, "expected a spec, its JSON values or a variant's name, got 3"),
    ],
)
def test_what_cannot_be(value, message):
    with pytest.raises(InputError, match=message):
        layer_specs(value, 3)


def test_a_hybrid_is_built_decoded_saved_and_converted(tmp_path):
    layers = {"0": "softmax", "1-": "softmax_gate"}
    model, ids = tiny_model(layers=layers), tokens()
    assert model.config.specs == (SOFTMAX, GATED)
    cache = SpecCache(model.config.specs)
    with torch.no_grad():
        first = model(ids[:, :5], past_key_values=cache).logits
        rest = model(ids[:, 5:], past_key_values=cache).logits
        whole = model(ids, use_cache=False).logits
    torch.testing.assert_close(torch.cat([first, rest], 1), whole, atol=2e-5, rtol=2e-5)
    model.save_pretrained(tmp_path)
    assert same_model(load_model(tmp_path), model, ids)
    other = convert(load_model(tmp_path), layers={"0-": "taylor_2"})
    assert other.config.spec == TAYLOR
    with pytest.raises(InputError, match="expected layers or attention_spec, got both"):
        tiny_config(layers=layers, attention_spec="softmax")
    with pytest.raises(InputError, match="either an attention for all layers or layers"):
        convert(model, "softmax", layers=layers)
