"""Killed at random moments, stopped, with damaged files, on a full disk: it continues and ends as if nothing was."""

import json
import os
import resource
import shutil
import signal
import time

import pytest
from tests.experiment.processes import kill_and_restart, start, wait_for
from tests.experiment.small import final_bytes, same_metrics

from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.training import run_training


def arguments(reference, folder, *more):
    return ["train", "--config", str(reference.config), "--output", str(folder), *more]


def assert_same_run(folder, reference):
    assert final_bytes(folder) == final_bytes(reference.folder)
    assert same_metrics(folder) == same_metrics(reference.folder)


def hidden(folder):
    return sorted(path.name for path in folder.rglob(".*") if path.name != ".lock")


KINDS = ["packed", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("task", "stream"))]


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_moments_it_ends_bit_for_bit_the_same(references, kind, tmp_path):
    reference, folder = references(kind), tmp_path / "run"
    # Every step saved: kills hit the middle of writing.
    begin = lambda: [start(arguments(reference, folder, "--set", "checkpoint_every=1"), tmp_path / "log")]  # noqa: E731
    killed = kill_and_restart(begin, folder, times=4, seed=len(kind))
    assert killed >= 2
    assert_same_run(folder, reference)
    assert hidden(folder) == []


class KillWhileSaving:
    """In the process: SIGKILL when half the files of the checkpoint of a step are written."""

    def __init__(self, step):
        self.step = step

    def __call__(self):
        from softmax_rnn.train import training_state

        write = training_state.write_values

        def write_or_die(values, path):
            if f"step-{self.step:09d}" in str(path):
                os.kill(os.getpid(), signal.SIGKILL)
            write(values, path)

        training_state.write_values = write_or_die


def test_killed_while_it_writes_a_checkpoint_it_takes_the_one_before(references, tmp_path):
    reference, folder = references("task"), tmp_path / "run"
    dead = start(arguments(reference, folder), tmp_path / "log", before=KillWhileSaving(8))
    assert dead.code() == -signal.SIGKILL
    assert [path.name for path in (folder / "checkpoints").iterdir() if path.name[0] != "."] == ["step-000000004"]
    assert len(hidden(folder)) == 1
    again = start(arguments(reference, folder), tmp_path / "log")
    assert again.code() == 0
    assert "continuing from step 4 of 10" in again.said()
    assert_same_run(folder, reference)
    assert hidden(folder) == []


class SlowSteps:
    """In the process: every step takes a while, so that a signal finds it in the middle."""

    def __call__(self):
        from softmax_rnn.train.objective import Objective

        loss_sum = Objective.loss_sum

        def slow(*given):
            time.sleep(0.15)
            return loss_sum(*given)

        Objective.loss_sum = slow


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_ends_with_130_and_one_line(references, number, tmp_path):
    reference, folder = references("task"), tmp_path / "run"
    child = start(arguments(reference, folder, "--json"), tmp_path / "log", before=SlowSteps())
    wait_for(lambda: len(same_metrics(folder)) > 1, child)
    child.send(number)
    assert child.code() == 130
    (said,) = child.said().splitlines()
    step = json.loads((max((folder / "checkpoints").iterdir()) / "state.json").read_text())["counters"]["step"]
    assert said == f"stopped by {number.name} at step {step}; the same command continues"
    assert not (folder / "result.json").exists()
    outcome = run_training(resolve(reference.settings), folder, quiet=True)
    assert outcome.step == 10
    assert_same_run(folder, reference)


def test_a_second_process_in_the_same_folder_is_refused(references, tmp_path):
    reference, folder = references("task"), tmp_path / "run"
    first = start(arguments(reference, folder), tmp_path / "first", before=SlowSteps())
    wait_for(lambda: bool(same_metrics(folder)), first)
    second = start(arguments(reference, folder), tmp_path / "second")
    assert second.code() == 2
    assert second.said() == f"softmax-rnn: output: another process is training in {folder}\n"
    assert first.code() == 0
    assert_same_run(folder, reference)


class SmallFiles:
    """In the process: the system refuses files above a size, as a full disk would."""

    def __init__(self, size):
        self.size = size

    def __call__(self):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))


def partial_run(reference, folder):
    """A run that was stopped after its checkpoint of step 8."""
    shutil.copytree(reference.folder, folder)
    shutil.rmtree(folder / "checkpoints" / "step-000000010")
    shutil.rmtree(folder / "final")
    (folder / "result.json").unlink()


def test_a_full_disk_is_one_line_and_the_last_checkpoint_is_intact(references, tmp_path):
    reference, folder = references("task"), tmp_path / "run"
    partial_run(reference, folder)
    before = {path.name: path.read_bytes() for path in (folder / "checkpoints" / "step-000000008").iterdir()}
    child = start(arguments(reference, folder, "--json"), tmp_path / "log", before=SmallFiles(6000))
    assert child.code() == 1
    (said,) = child.said().splitlines()
    assert said.startswith("softmax-rnn: the checkpoint of step 10 in ")
    assert "could not be written" in said
    assert "File too large" in said
    assert said.endswith("; the checkpoint of step 8 is intact")
    assert before == {path.name: path.read_bytes() for path in (folder / "checkpoints" / "step-000000008").iterdir()}
    assert hidden(folder) == []
    assert start(arguments(reference, folder), tmp_path / "log").code() == 0
    assert_same_run(folder, reference)


def test_a_disk_that_is_full_from_the_start_is_one_line(references, tmp_path):
    child = start(arguments(references("task"), tmp_path / "run", "--json"), tmp_path / "log", before=SmallFiles(500))
    assert child.code() == 1
    (said,) = child.said().splitlines()
    assert "could not be written: File too large; there is no checkpoint yet" in said


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def change(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("harm", [cut, change])
def test_damaged_checkpoints_are_skipped_and_the_end_is_the_same(references, harm, name, tmp_path, capsys):
    reference, folder = references("task"), tmp_path / "run"
    partial_run(reference, folder)
    source = reference.folder / "checkpoints" / "step-000000010"
    shutil.copytree(source, folder / "checkpoints" / "step-000000010")
    harm(folder / "checkpoints" / "step-000000010" / name)
    run_training(resolve(reference.settings), folder, quiet=True)
    said = capsys.readouterr().err
    assert "step-000000010 is damaged" in said
    assert "is skipped" in said
    assert_same_run(folder, reference)


def test_when_all_are_damaged_it_begins_again(references, tmp_path):
    reference, folder = references("packed"), tmp_path / "run"
    partial = shutil.copytree(reference.folder, folder)
    (partial / "result.json").unlink()
    for path in (folder / "checkpoints").iterdir():
        cut(path / "model.safetensors")
    run_training(resolve(reference.settings), folder, quiet=True)
    assert_same_run(folder, reference)


def test_a_finished_run_is_left_as_it_is(references):
    reference = references("task")
    times = {path: path.stat().st_mtime_ns for path in reference.folder.rglob("*")}
    outcome = run_training(resolve(reference.settings), reference.folder, quiet=True)
    assert outcome.result == reference.outcome.result
    assert times == {path: path.stat().st_mtime_ns for path in reference.folder.rglob("*")}
