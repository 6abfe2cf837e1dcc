"""Settings from files, arguments and dictionaries: what they mean, and what is wrong with them."""

import pytest
import yaml
from tests.experiment.small import SETTINGS

from softmax_rnn.attention.custom import spec_of
from softmax_rnn.attention.parts import RMSNorm
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.data.tasks.table import TASKS
from softmax_rnn.errors import InputError, UnknownNameError
from softmax_rnn.experiment.config import differences, resolve
from softmax_rnn.experiment.network import build_network, model_config
from softmax_rnn.validation import read_settings


@pytest.mark.parametrize(
    "given",
    [
        {},
        SETTINGS,
        {"recipe": "paper", "variant": "gated_softmax"},
        {"data": "kjv", "trackers": ["wandb"], "clip": None, "variant": "gated_softmax"},
        {"variant": "taylor_2", "layers": {0: "softmax", "2-": "log_linear_linear"}},
        *({"data": name} for name in TASKS),
    ],
    ids=str,
)
def test_settings_survive_their_own_file(given, tmp_path):
    config = resolve(given)
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    again = resolve(read_settings(path, "config"))
    assert again == config
    assert again.content_hash() == config.content_hash()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"varient": "softmax"}, "unknown setting 'varient'; did you mean 'variant'?"),
        ({"data": {"sorce": "kjv"}}, "unknown setting of data 'sorce'; did you mean 'source'?"),
        ({"data": {"source": "mqar", "pears": 2}}, "unknown setting of mqar 'pears'; did you mean 'pairs'?"),
        ({"model": {"hiden_size": 2}}, "unknown option 'hiden_size'; did you mean 'hidden_size'?"),
        ({"variant": "sofmax"}, "unknown variant 'sofmax'; did you mean 'softmax'?"),
        ({"layers": {"0-": "sofmax"}}, "unknown variant 'sofmax'; did you mean 'softmax'?"),
        ({"size": "nanno"}, "unknown size 'nanno'; did you mean 'nano'?"),
        ({"recipe": "papers"}, "unknown recipe 'papers'; did you mean 'paper'?"),
        ({"model": {"hidden_act": "sill"}}, "unknown model.hidden_act 'sill'; did you mean 'silu'?"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(given, said):
    with pytest.raises(UnknownNameError) as caught:
        resolve(given)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layers": {"0-1": "softmax", "1-": "taylor_2"}}, "layers: layer 1 is in both 0-1 and 1-"),
        ({"layers": {"0-4": "softmax"}}, "layers: 0-4 is not within the layers 0 to 3"),
        ({"layers": {"first": "softmax"}}, "layers: expected ranges such as 0-3, 4- or 5, got 'first'"),
        ({"layers": {"0": 3}}, "layers.0: expected a valid string, got 3"),
        ({"layers": "softmax"}, "layers: expected"),
        (
            {"variant": "linear_mamba", "layers": {"0": "softmax"}},
            "layers: the blocks of linear_mamba have no attention",
        ),
        ({"layers": {"0": "linear_mamba"}}, "layers: linear_mamba comes with a block of its own; layers share"),
        ({"model": {"layers": {"0": "softmax"}}}, "model.layers: not an option of a run: `layers` belongs"),
        ({"data": 5}, "data: expected a source, or settings by name, got 5"),
        ({"data": {"source": "mqar", "length": 64}, "context": 32}, "context: a task's rows have its own length, 64"),
        ({"data": {"test_fraction": 2}}, "test_fraction: expected a number less than 1, got 2"),
        ({"model": 5}, "model: expected a valid dictionary, got 5"),
        ({"model": {"num_hidden_layers": 0}}, "model.num_hidden_layers: expected 1 or more, got 0"),
        ({"model": {"hidden_size": "wide"}}, "model.hidden_size: expected a whole number, got 'wide'"),
        ({"model": {"num_attention_heads": 3}}, "not a multiple"),
        ({"model": {"max_position_embeddings": 8}}, "model.max_position_embeddings: expected 256 or more, got 8"),
        ({"context": 0}, "context: expected a number greater than 0, got 0"),
        ({"seed": 2**32}, "seed: expected a number less than 4294967296, got 4294967296"),
        ({"learning_rate": 1e300}, "learning_rate: expected a number less than or equal to 1"),
        ({"model": {"dtype": "banana"}}, "model.dtype: not an option of a run: weights are float32"),
        ({"model": {"size": "small"}}, "model.size: not an option of a run: `size` belongs beside"),
        ({"model": {"rms_norm_eps": "tiny"}}, "model.rms_norm_eps: expected a number, got 'tiny'"),
        (None, "settings: expected a dictionary of settings by name, got None"),
    ],
)
def test_values_that_cannot_be_are_one_line(given, said):
    with pytest.raises(InputError) as caught:
        resolve(given)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("variant", "model"),
    [
        ("softmax", {"attention_spec": "taylor_2"}),
        ("softmax", {"mixer": "mamba2"}),
        ("linear_mamba", {"mixer": "attention"}),
        ("two_mamba", {"conv_width": 4}),
        ("gated_softmax_decay", {"use_rope": True}),
    ],
)
def test_no_option_contradicts_the_name_of_the_variant(variant, model):
    (name,) = model
    with pytest.raises(InputError, match=rf"^model\.{name}: "):
        resolve({"variant": variant, "model": model})


@pytest.mark.parametrize("given", ["1e-6", 1e-6])
def test_numbers_that_yaml_reads_as_text_are_numbers(given):
    config = resolve({"model": {"rms_norm_eps": given}})
    assert model_config(config).rms_norm_eps == 1e-6
    assert config.content_hash() == resolve({"model": {"rms_norm_eps": 1e-6}}).content_hash()


@pytest.mark.parametrize(("text", "said"), [("steps: [1", "is not valid YAML"), ("- 1", "expected settings by name")])
def test_files_that_are_no_settings(text, said, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_settings(path, "config")


def test_no_code_is_run_from_a_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("steps: !!python/object/apply:os.getpid []")
    with pytest.raises(InputError, match="is not valid YAML"):
        read_settings(path, "config")


def test_how_a_run_is_computed_may_change_and_what_it_is_may_not():
    config = resolve(SETTINGS)
    how = {"device": "cpu", "fsdp": True, "accumulate": 2, "recompute": True, "compile": "eager"}
    how |= {"trackers": ["wandb"], "keep_checkpoints": 5, "checkpoint_every": 7, "eval_batch_size": 2}
    assert resolve({**SETTINGS, **how}).content() == config.content()
    for name, value in {"seed": 1, "steps": 11, "batch_size": 4, "variant": "softmax", "precision": "bf16"}.items():
        other = resolve({**SETTINGS, "clip": 1.0, name: value})
        before = SETTINGS.get(name, config.values()[name])
        assert differences(config.content(), other.content()) == {name: [before, value]}
        assert other.content_hash() != config.content_hash()
    inside = {**SETTINGS, "data": {**SETTINGS["data"], "pairs": 3}}
    assert differences(config.content(), resolve(inside).content()) == {"data.pairs": [2, 3]}


def test_a_task_brings_its_own_context():
    assert resolve({"data": {"source": "mqar", "length": 128}}).context == 128


def test_the_anchor_settings_of_recall_can_be_said():
    model = {"num_hidden_layers": 2, "num_attention_heads": 1, "use_mlp": False, "use_rope": False}
    config = resolve(
        {"data": {"source": "mqar", "length": 64, "pairs": 4}, "model": model | {"learned_positions": True}}
    )

    network = build_network(config, config.data.vocab_size)
    assert network.config.num_attention_heads == 1
    assert not any("mlp" in name for name, _ in network.named_parameters())


def test_the_file_is_plain_yaml():
    values = yaml.safe_load(resolve(SETTINGS).to_yaml())
    assert values["data"]["source"] == "mqar"
    assert values["model"] == SETTINGS["model"]


def test_an_attention_of_ones_own_is_held_by_the_settings_that_use_it():
    parts = {"like": "taylor_2", "output_norm": {"kind": "l2"}}
    others = {"my_other": {"normaliser": None}}
    config = resolve({"variant": "my_own", "variants": {"my_own": parts, **others}})
    assert list(config.variants) == ["my_own"]
    assert resolve(config.values()) == config
    assert config.content_hash() == resolve(config.values()).content_hash()
    assert model_config(config).spec == spec_of(parts)


def test_an_attention_that_a_script_added_travels_with_the_settings():
    VARIANTS.add("my_added", AttentionSpec(normaliser=None, output_norm=RMSNorm()))
    config = resolve({"variant": "my_added"})
    assert config.values()["variants"] == {"my_added": VARIANTS["my_added"].to_dict()}


def test_settings_without_one_are_as_they_were():
    plain, unused = resolve({}), resolve({"variants": {"my_unused": {"normaliser": None}}})
    assert "variants" not in plain.values()
    assert plain.content_hash() == unused.content_hash()


def test_a_hybrid_is_one_line():
    config = resolve({"layers": {"0-1": "softmax", "2-": "taylor_2"}})
    assert config.variant == "taylor_2" and config.label == "taylor_2 (0-1: softmax, 2-: taylor_2)"
    assert model_config(config).specs == (VARIANTS["softmax"],) * 2 + (VARIANTS["taylor_2"],) * 2


def test_layers_in_no_range_have_the_variant_and_its_block():
    config = resolve({"variant": "two_mamba", "layers": {1: "softmax"}})
    shape = model_config(config)
    assert [spec == VARIANTS["softmax"] for spec in shape.specs] == [False, True, False, False]
    assert shape.conv_width == 2
    assert config.content_hash() != resolve({"variant": "two_mamba"}).content_hash()


def test_an_attention_of_ones_own_in_some_layers_travels_with_the_settings():
    own = {"taylor_2_l2": {"like": "taylor_2", "normaliser": None, "output_norm": {"kind": "l2"}}}
    config = resolve({"variants": own, "layers": {"0": "taylor_2_l2", "1-": "softmax"}})
    assert list(config.variants) == ["taylor_2_l2"] and resolve(config.values()) == config
