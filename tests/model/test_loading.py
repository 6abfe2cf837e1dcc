import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.model.loading import load_model

from .tiny import same_model, tiny_model, tokens


@pytest.fixture
def saved(tmp_path):
    tiny_model("softmax_gate").save_pretrained(tmp_path)
    return tmp_path


def change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def message(folder):
    with pytest.raises(InputError) as caught:
        load_model(folder)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_whole_checkpoint(saved):
    model, ids = load_model(saved), tokens()
    assert not model.training
    assert same_model(model, tiny_model("softmax_gate"), ids)
    assert load_model(str(saved), dtype=torch.bfloat16).dtype == torch.bfloat16


def test_paths_that_are_not(tmp_path):
    assert message(tmp_path / "none") == f"model: there is no folder {tmp_path / 'none'}"
    assert message("none") == "model: there is no folder none"
    assert message(tmp_path) == f"model: the folder {tmp_path} has no config.json"


def test_missing_and_extra_tensors_are_named(saved):
    def change(tensors):
        tensors.pop("model.norm.weight")
        tensors["model.layers.0.surplus"] = torch.ones(2)

    change_tensors(saved, change)
    text = message(saved)
    assert "missing tensors: model.norm.weight" in text and "extra tensors: model.layers.0.surplus" in text


def test_many_missing_tensors_are_counted(saved):
    change_tensors(saved, lambda tensors: [tensors.pop(k) for k in list(tensors) if "mlp" in k])
    assert " and 2 more" in message(saved)


def test_a_spec_that_needs_what_the_checkpoint_lacks(saved):
    change_config(saved, attention_spec=VARIANTS["gated_softmax"].to_dict())
    text = message(saved)
    assert "the spec needs input_gate, norm_bias, norm_weight, which it lacks" in text
    assert "model.layers.0.self_attn.parts.input_gate.bias" in text


def test_a_spec_that_has_no_use_for_what_is_there(saved):
    change_config(saved, attention_spec=VARIANTS["softmax"].to_dict())
    assert "extra tensors: model.layers.0.self_attn.parts.output_gate.bias" in message(saved)


def test_tensors_of_another_shape(saved):
    change_config(saved, vocab_size=50)
    assert "lm_head.weight is (48, 32), not (50, 32)" in message(saved)


def test_a_spec_that_is_none(saved):
    change_config(saved, attention_spec={"score": {"kind": "expp"}})
    assert "unknown score kind 'expp'; did you mean 'exp'" in message(saved)


def test_broken_files(saved):
    (saved / "model.safetensors").write_bytes(b"broken")
    assert message(saved).startswith(f"model: {saved} cannot be loaded: ")
    (saved / "model.safetensors").unlink()
    assert message(saved).startswith(f"model: {saved} cannot be loaded: ")
