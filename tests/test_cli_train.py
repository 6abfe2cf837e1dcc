"""`softmax-rnn train` as a user meets it. Wrong uses: `test_wrong_uses`."""

import json

import pytest
from tests.experiment.processes import start
from tests.experiment.small import SETTINGS, final_bytes, same_metrics, write_config

from attention.cases import some
from softmax_rnn.__main__ import main
from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.training import run_training


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path / "run.yaml")


def test_dry_run_prints_the_plan_and_makes_nothing(config, tmp_path, capsys):
    words = ["train", "--config", str(config), "--output", str(tmp_path / "run"), "--dry-run"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    for text in ("variant: gated_softmax", "parameters", "10 × 8 × 16", "1,280", "96 rows", "GB per process", "bytes"):
        assert text in shown
    assert not (tmp_path / "run").exists()


def test_dry_run_of_the_papers_recipe_has_the_papers_hours_beside_the_computed_ones(capsys):
    assert main(["train", "--recipe", "paper", "--processes", "2", "--set", "fsdp=true", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    for text in ("computed for 2 × A100 80 GB", "card hours at half of the peak", "at most 96 card hours"):
        assert text in shown


def test_dry_run_as_json_holds_the_settings_and_the_plan(config, capsys):
    assert main(["train", "--config", str(config), "--dry-run", "--json", "--steps", "3"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["config"] == resolve({**SETTINGS, "steps": 3}).values()
    assert printed["plan"]["tokens"] == 3 * 8 * 16
    assert {"parameters", "memory_bytes", "state_bytes"} <= set(printed["plan"])


def test_options_come_before_the_file_and_set_before_both(config, capsys):
    words = ["train", "--config", str(config), "--dry-run", "--json", "--variant", "linear_elu", "--seed", "4"]
    words += ["--batch-size", "4", "--learning-rate", "0.5", "--set", "seed=5", "--set", "data.pairs=3"]
    assert main(words) == 0
    actual = json.loads(capsys.readouterr().out)["config"]
    names = ("variant", "seed", "batch_size", "learning_rate", "steps")
    assert [actual[name] for name in names] == ["linear_elu", 5, 4, 0.5, 10]
    assert (actual["data"]["pairs"], actual["data"]["vocab_size"]) == (3, 32)


def test_a_source_in_one_word_and_settings_inside(capsys):
    words = [
        "train",
        "--data",
        "mqar",
        "--set",
        "data.length=32",
        "--set",
        "data.train_examples=50",
        "--dry-run",
        "--json",
    ]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["context"] == 32


def test_the_command_and_the_call_are_the_same_run(config, tmp_path, capsys):
    assert main(["train", "--config", str(config), "--output", str(tmp_path / "command"), "--json"]) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    assert captured.err == ""
    assert printed["result"]["step"] == 10
    run_training(resolve(SETTINGS), tmp_path / "call", quiet=True)
    assert final_bytes(tmp_path / "command") == final_bytes(tmp_path / "call")
    assert same_metrics(tmp_path / "command") == same_metrics(tmp_path / "call")


def test_a_run_in_words(config, tmp_path, capsys):
    words = ["train", "--config", str(config), "--output", str(tmp_path / "run"), "--steps", "3"]
    assert main(words) == 0
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert lines[0].startswith("gated_softmax nano 0/3 test loss ")
    assert "tokens/s" in captured.err
    assert "test perplexity" in captured.out
    assert main(words) == 0
    assert "test perplexity" in capsys.readouterr().out


def test_nonfinite_numbers_are_one_line_and_exit_code_1(config, tmp_path, capsys):
    words = ["train", "--config", str(config), "--output", str(tmp_path / "run"), "--json", "--learning-rate", "1e20"]
    assert main([*words, "--set", "clip=null", "--set", "warmup_steps=0", "--set", "variant=softmax_gate"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("softmax-rnn: step ")
    assert "on batch" in said
    assert "likely causes: the sum of the weights" in said


PLACES = {
    "tensorboard": ("run/tensorboard", "events.out.tfevents.*"),
    "wandb": ("run/wandb", "offline-run-*"),
    "trackio": ("trackio", "softmax-rnn.db"),
}


@pytest.mark.parametrize("tracker", some(["tensorboard"], PLACES))
def test_trackers_write_without_a_network(config, tracker, tmp_path):
    place, name = PLACES[tracker]
    environment = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    words = ["train", "--config", str(config), "--output", str(tmp_path / "run"), "--set", f"trackers=[{tracker}]"]
    child = start(words, tmp_path / "log", environment)
    assert child.code() == 0, child.said()
    assert list((tmp_path / place).glob(name))
    if tracker == "tensorboard":
        assert tensorboard_losses(tmp_path / place) == losses(tmp_path / "run")


def losses(folder):
    return {line["step"]: pytest.approx(line["loss"], rel=1e-6) for line in same_metrics(folder) if "loss" in line}


def tensorboard_losses(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {event.step: event.value for event in events.Scalars("train/loss")}
