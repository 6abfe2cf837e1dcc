"""Options that are certainly valid are recognised without transformers, and all others are left to it."""

import subprocess
import sys

import pytest

from softmax_rnn.attention.table.model_table import MODEL_VARIANTS, SIZES
from softmax_rnn.experiment.config import RunConfig, has_gates, resolve, usual_model
from softmax_rnn.experiment.network import model_config


def config(**settings) -> RunConfig:
    return RunConfig(**settings)


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"num_hidden_layers": 2},
        {"hidden_size": 64, "head_dim": 64, "num_attention_heads": 1, "num_key_value_heads": 1, "use_mlp": False},
        {"use_rope": False, "learned_positions": True, "use_mlp": True},
        {"num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 100},
    ],
)
def test_what_usual_model_is_a_model(model):
    assert usual_model(config(model=model))
    model_config(config(model=model))


@pytest.mark.parametrize(
    "model",
    [
        {"num_hidden_layers": True},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 2.0},
        {"use_mlp": 1},
        {"num_attention_heads": 3},
        {"num_key_value_heads": 3},
        {"head_dim": 7},
        {"rms_norm_eps": "1e-6"},
        {"hidden_act": "relu"},
        {"mixer": "attention"},
        {"no_such": 1},
    ],
)
def test_anything_else_is_left_to_transformers(model):
    assert not usual_model(config(model=model))


def test_an_option_that_contradicts_the_variant_is_not_usual():
    assert not usual_model(config(variant="gated_softmax_decay", model={"use_rope": True}))


def test_every_size_and_variant_resolves_as_before():
    for size in SIZES:
        model_config(resolve({"size": size}))
    for variant in MODEL_VARIANTS:
        specs = [spec for spec in model_config(config(variant=variant)).specs if spec is not None]
        gates = [(spec.input_gate, spec.output_gate, spec.forget_gate) for spec in specs]
        assert has_gates(MODEL_VARIANTS[variant].spec) == any(gate is not None for some in gates for gate in some)


def test_names_need_neither_torch_nor_transformers():
    code = (
        "import sys; from softmax_rnn.experiment.config import resolve; resolve({'model': {'num_hidden_layers': 2}});"
        " print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
