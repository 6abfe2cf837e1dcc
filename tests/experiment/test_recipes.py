"""The recipes to the letter."""

import pytest

from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.network import model_config
from softmax_rnn.model import SoftmaxRNNForCausalLM
from softmax_rnn.train.optimizer import adamw, factor

# Section 3 and the appendix of arXiv 2507.23632, as its code has them.
PAPER = {
    "learning_rate": 1e-4,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-7,
    "weight_decay": 0.01,
    "decay_all": True,
    "schedule": "linear",
    "warmup_steps": 10_000,
    "decay_steps": 1_000_000,
    "steps": 100_000,
    "precision": "bf16",
    "batch_size": 36,
    "context": 1024,
    "size": "small",
    "eval_every": 10_000,
}
PAPER_DATA = {
    "source": "HuggingFaceFW/fineweb",
    "config": "CC-MAIN-2024-51",
    "tokenizer": "meta-llama/Llama-2-7b-hf",
    "layout": "padded",
    "test_fraction": 0.001,
}


def test_the_paper_to_the_letter():
    values = resolve({"recipe": "paper"}).values()
    assert {name: values[name] for name in PAPER} == PAPER
    assert {name: values["data"][name] for name in PAPER_DATA} == PAPER_DATA


@pytest.mark.parametrize(
    ("variant", "clip"),
    [
        ("softmax", None),
        ("gated_softmax_no_gate_L2norm_nodivS_noclamp", None),
        ("linear_elu", None),
        ("taylor_4", None),
        ("softmax_gate", 1.0),
        ("gated_softmax", 1.0),
        ("gated_softmax_decay", 1.0),
    ],
)
def test_only_gated_variants_are_clipped(variant, clip):
    assert resolve({"recipe": "paper", "variant": variant}).clip == clip


def test_gates_count_wherever_they_are_written():
    gated = {"recipe": "paper", "variant": "gated_softmax"}
    assert resolve(gated).clip == 1.0
    assert resolve({**gated, "clip": None}).clip is None


def test_the_papers_model():
    shape = model_config(resolve({"recipe": "paper"}), vocab_size=32_000)
    numbers = (shape.hidden_size, shape.intermediate_size, shape.num_attention_heads, shape.num_hidden_layers)
    assert numbers == (1024, 2048, 16, 20)
    assert (shape.rms_norm_eps, shape.tie_word_embeddings, shape.initializer_range) == (1e-5, False, 0.02)


def test_the_papers_learning_rate():
    config = resolve({"recipe": "paper"})
    rates = [config.learning_rate * factor(config, step) for step in (0, 5_000, 10_000, 100_000, 1_000_000)]
    assert rates == pytest.approx([0.0, 5e-5, 1e-4, 1e-4 * 90 / 99, 0.0], rel=1e-12, abs=1e-18)


def test_the_papers_optimiser_decays_every_weight():
    config = resolve({"recipe": "paper", "size": "nano", "context": 16})
    network = SoftmaxRNNForCausalLM(model_config(config, vocab_size=16))
    (group,) = adamw(network, config).param_groups
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (1e-4, (0.9, 0.999), 1e-7, 0.01)
    assert len(group["params"]) == len(list(network.parameters()))


def test_another_source_keeps_the_papers_tokens_and_layout():
    data = resolve({"recipe": "paper", "data": "kjv"}).values()["data"]
    assert (data["source"], data["config"], data["streaming"]) == ("kjv", None, False)
    assert (data["tokenizer"], data["layout"]) == (PAPER_DATA["tokenizer"], "padded")


def test_what_is_given_comes_before_the_recipe():
    config = resolve({"recipe": "paper", "steps": 5, "batch_size": 2, "context": 8, "learning_rate": 1.0})
    assert (config.steps, config.batch_size, config.context, config.learning_rate) == (5, 2, 8, 1.0)


def test_cpu_is_the_default_and_trains_small_models_in_float32():
    config = resolve({})
    assert (config.recipe, config.size, config.precision, config.context) == ("cpu", "nano", "fp32", 256)
    assert config.values()["data"]["source"] == "shakespeare"
    assert config.values()["data"]["tokenizer"] == "bytes"
