"""Two processes: the same numbers as one up to the rounding of sums, killed and continued, sharded, and told apart.

Sums over a batch are taken in another order, so float32 results differ in the last digits: losses within 2e-6 of each
other, weights within 2e-5 after 16 steps. With the same number of processes everything is equal bit for bit.
"""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file
from tests.experiment.processes import kill_and_restart, start_group, wait_for
from tests.experiment.small import final_bytes, same_metrics

from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.training import run_training
from softmax_rnn.train.launch import launch

LOSS, WEIGHT = 2e-6, 2e-5


def arguments(reference, folder, *more):
    return ["train", "--config", str(reference.config), "--output", str(folder), *more]


def finish(children):
    assert [child.code() for child in children] == [0] * len(children), [child.said() for child in children]


def losses(folder):
    return [line[name] for line in same_metrics(folder) for name in ("loss", "test_loss") if name in line]


def assert_close(folder, other):
    assert losses(folder) == pytest.approx(losses(other), abs=LOSS)
    steps, expected = ([(line["step"], line.get("tokens")) for line in same_metrics(one)] for one in (folder, other))
    assert steps == expected
    weights, wanted = (load_file(one / "final" / "model.safetensors") for one in (folder, other))
    assert weights.keys() == wanted.keys()
    for name, weight in wanted.items():
        torch.testing.assert_close(weights[name], weight, atol=WEIGHT, rtol=0)


@pytest.fixture(scope="module")
def two(references, tmp_path_factory):
    """A run of two processes that nothing disturbed."""
    base = tmp_path_factory.mktemp("two")
    finish(start_group(arguments(references("packed"), base / "run"), base / "log"))
    return base / "run"


def test_two_processes_reach_the_losses_of_one(references, two):
    assert_close(two, references("packed").folder)
    starts = json.loads((two / "environment.json").read_text())["starts"]
    assert [one["processes"] for one in starts] == [2]


def test_two_processes_on_a_stream(references, tmp_path):
    reference = references("stream")
    finish(start_group(arguments(reference, tmp_path / "run"), tmp_path / "log"))
    assert_close(tmp_path / "run", reference.folder)


def test_two_processes_with_parts_of_a_batch(references, tmp_path):
    reference = references("packed")
    finish(start_group(arguments(reference, tmp_path / "run", "--set", "accumulate=2"), tmp_path / "log"))
    assert_close(tmp_path / "run", reference.folder)


def test_two_processes_killed_and_continued_are_bit_for_bit_the_same(references, two, tmp_path):
    folder, words = tmp_path / "run", arguments(references("packed"), tmp_path / "run")
    words += ["--set", "checkpoint_every=2"]
    killed = kill_and_restart(lambda: start_group(words, tmp_path / "log"), folder, times=2, seed=1)
    assert killed >= 1
    assert final_bytes(folder) == final_bytes(two)
    assert same_metrics(folder) == same_metrics(two)


@pytest.fixture(scope="module")
def sharded(references, tmp_path_factory):
    """The same with the weights spread over the processes."""
    base = tmp_path_factory.mktemp("sharded")
    finish(start_group(arguments(references("packed"), base / "run", "--set", "fsdp=true"), base / "log"))
    return base / "run"


@pytest.mark.slow
def test_sharded_weights_give_the_same(two, sharded):
    assert_close(sharded, two)


@pytest.mark.parametrize("source", ["two", pytest.param("sharded", marks=pytest.mark.slow)])
def test_a_checkpoint_of_two_is_continued_by_one(references, source, request, tmp_path):
    reference, folder = references("packed"), tmp_path / "run"
    shutil.copytree(request.getfixturevalue(source), folder)
    shutil.rmtree(folder / "checkpoints" / "step-000000016")
    (folder / "result.json").unlink()
    outcome = run_training(resolve(reference.settings), folder, quiet=True)
    assert outcome.step == 16
    starts = json.loads((folder / "environment.json").read_text())["starts"]
    assert [(one["processes"], one["step"]) for one in starts] == [(2, 0), (1, 12)]
    assert_close(folder, reference.folder)


@pytest.mark.slow
def test_a_checkpoint_of_one_is_continued_by_two_with_sharded_weights(references, tmp_path):
    reference, folder = references("packed"), tmp_path / "run"
    shutil.copytree(reference.folder, folder)
    shutil.rmtree(folder / "checkpoints" / "step-000000016")
    (folder / "result.json").unlink()
    finish(start_group(arguments(reference, folder, "--set", "fsdp=true"), tmp_path / "log"))
    assert_close(folder, reference.folder)


def test_a_signal_to_one_of_two_stops_both_with_a_checkpoint(references, two, tmp_path):
    folder, words = tmp_path / "run", arguments(references("packed"), tmp_path / "run", "--json")
    children = start_group([*words, "--set", "checkpoint_every=1000"], tmp_path / "log")
    wait_for(lambda: bool(same_metrics(folder)), children[1])
    children[1].send(signal.SIGTERM)
    assert [child.code() for child in children] == [130, 130]
    assert children[0].said().startswith("stopped by ")
    assert children[1].said() == ""
    finish(start_group(words, tmp_path / "log"))
    assert final_bytes(folder) == final_bytes(two)


def test_a_batch_that_two_cannot_share_is_one_line(references, tmp_path):
    words = arguments(references("task"), tmp_path / "run", "--batch-size", "7")
    children = start_group(words, tmp_path / "log")
    assert [child.code() for child in children] == [2, 2]
    expected = "softmax-rnn: batch_size: expected a multiple of processes × accumulate = 2 × 1, got 7\n"
    assert children[0].said() == expected


@pytest.mark.slow
def test_the_command_starts_its_own_processes(references, two, tmp_path):
    command = [sys.executable, "-m", "softmax_rnn", *arguments(references("packed"), tmp_path / "run")]
    done = subprocess.run([*command, "--processes", "2"], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert final_bytes(tmp_path / "run") == final_bytes(two)
    assert same_metrics(tmp_path / "run") == same_metrics(two)
    assert done.stdout.count("test perplexity") == 1


FAILS = """
import os, sys, time
print("one line", file=sys.stderr, flush=True)
sys.exit(3) if os.environ["RANK"] == "1" else time.sleep(60)
"""


def test_a_process_that_fails_ends_the_others_with_its_code_and_no_traceback(capfd):
    began = time.monotonic()
    assert launch([sys.executable, "-c", FAILS], 2) == 3
    assert time.monotonic() - began < 50  # the other one would sleep for a minute
    assert capfd.readouterr().err == "one line\n" * 2


@pytest.mark.slow
def test_torchrun_itself(references, two, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command += ["-m", "softmax_rnn", *arguments(references("packed"), tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert final_bytes(tmp_path / "run") == final_bytes(two)
    assert same_metrics(tmp_path / "run") == same_metrics(two)
    assert done.stdout.count("test perplexity") == 1
