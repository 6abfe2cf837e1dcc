"""What a run will be, before it starts."""

import pytest
from tests.experiment.processes import start
from tests.experiment.small import SETTINGS, TASK, write_config

from softmax_rnn.errors import InputError
from softmax_rnn.experiment import run_plan
from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.network import build_network, state_bytes
from softmax_rnn.experiment.run_plan import plan_run
from softmax_rnn.experiment.training import run_training
from softmax_rnn.train.folder import RunFolder


def test_a_plan_counts_what_the_run_will_have():
    config = resolve(SETTINGS)
    plan = plan_run(config)
    network = build_network(config, TASK["vocab_size"])
    assert plan.parameters == sum(weight.numel() for weight in network.parameters())
    assert (plan.steps, plan.batch_size, plan.context, plan.tokens) == (10, 8, 16, 10 * 8 * 16)
    assert (plan.train_rows, plan.passes) == (96, pytest.approx(80 / 96))
    assert plan.state_bytes == state_bytes(network.config, 16)
    assert plan.data["train"]["examples"] == 96


def test_a_stream_has_no_length(references):
    plan = plan_run(resolve(references("stream").settings))
    assert (plan.train_rows, plan.passes) == (None, None)


def test_the_papers_sizes_need_no_memory_to_be_planned():
    config = resolve({"size": "large", "data": {**TASK, "vocab_size": 32_000}, "batch_size": 36})
    plan = plan_run(config)
    assert plan.parameters == 2_084_170_752
    assert plan.memory_bytes > 16 * plan.parameters


def test_memory_falls_with_processes_parts_and_recomputing():
    base = {"size": "micro", "data": {**TASK, "length": 256, "pairs": 4}, "batch_size": 32}
    plain = plan_run(resolve(base)).memory_bytes
    parts = plan_run(resolve({**base, "accumulate": 8})).memory_bytes
    shared = plan_run(resolve(base), processes=8).memory_bytes
    sharded = plan_run(resolve({**base, "fsdp": True}), processes=8).memory_bytes
    recomputed = plan_run(resolve({**base, "recompute": True})).memory_bytes
    assert sharded < shared == parts < plain
    assert recomputed < plain


@pytest.mark.slow
def test_the_estimate_of_memory_is_near_the_truth(tmp_path):
    data = {**TASK, "vocab_size": 256, "length": 256, "pairs": 8, "train_examples": 64}
    settings = {"data": data, "steps": 2, "batch_size": 32, "log_every": 1, "eval_every": None, "model": {}}
    config = write_config(tmp_path / "run.yaml", **settings)
    child = start(["train", "--config", str(config), "--output", str(tmp_path / "run"), "--json"], tmp_path / "log")
    assert child.code() == 0, child.said()
    plan = plan_run(resolve({**SETTINGS, **settings}))
    assert plan.parameters > 900_000
    measured = RunFolder(tmp_path / "run").result()["memory_bytes"]
    assert measured / 1.5 < plan.memory_bytes < measured * 1.5


def test_a_plan_of_the_papers_recipe_needs_no_network(monkeypatch):
    monkeypatch.setattr(run_plan, "load_run_data", None)
    plan = plan_run(resolve({"recipe": "paper", "variant": "gated_softmax"}))
    assert (plan.vocab_size, plan.train_rows, plan.data["loaded"]) == (32_000, None, False)
    assert plan.parameters > 2.7e8


def test_a_batch_that_no_machine_can_hold_is_refused_before_anything_is_made(tmp_path):
    config = resolve({**SETTINGS, "batch_size": 1_000_000_000})
    with pytest.raises(InputError, match=r"^memory: 1,000,000,000 rows of 16 tokens per step need"):
        run_training(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_fits_is_not_refused():
    run_plan.check_memory(resolve({"size": "micro"}))
