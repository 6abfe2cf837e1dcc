"""Signals, errors of the disk, trackers' places, the words in the terminal."""

import errno
import os
import signal
from pathlib import Path

import pytest
from rich.console import Console
from safetensors import SafetensorError

from softmax_rnn.errors import InputError
from softmax_rnn.train import progress, trackers
from softmax_rnn.train.folder import DiskError, disk_errors
from softmax_rnn.train.progress import TrainProgress
from softmax_rnn.train.settings import TrainSettings
from softmax_rnn.train.signals import StopSignal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request_and_handlers_come_back(number):
    before = signal.getsignal(number)
    with StopSignal() as stop:
        assert stop.name is None
        os.kill(os.getpid(), number)
        assert stop.name == number.name
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_interrupts():
    with pytest.raises(KeyboardInterrupt), StopSignal():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_errors_of_the_disk_are_one_line(error):
    with (
        pytest.raises(DiskError, match=r"^the model could not be written: No space left on device$"),
        disk_errors("the model"),
    ):
        raise error


def test_other_errors_pass():
    with pytest.raises(FileNotFoundError), disk_errors("the model"):
        Path("no/such/file").read_text()


def test_a_tracker_that_is_not_installed_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="trackers: wandb is not installed; pip install wandb"):
        trackers.check_trackers(["wandb"])


def test_what_a_user_has_set_for_trackers_stays(monkeypatch):
    monkeypatch.setenv("WANDB_DIR", "mine")
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    settings = TrainSettings(trackers=("tensorboard", "wandb"))
    tensorboard, wandb = trackers.trackers_of(settings, Path("run"), "one")
    assert wandb.init_kwargs["dir"] == "mine"
    assert tensorboard.logging_dir_param == str(Path("run/tensorboard"))


VALUES = {"step": 3, "loss": 1.23456, "tokens_per_second": 12345.6}


def test_plain_lines_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "ERR", Console(stderr=True, force_terminal=False, width=200))
    with TrainProgress("softmax", 10) as shown:
        shown.at(3)
        shown.measured(VALUES)
        shown.measured({"step": 3, "test_loss": 2.0, "test_accuracy": None})
    said = capsys.readouterr().err.splitlines()
    assert said == ["softmax 3/10 loss 1.2346, 12,346 tokens/s", "softmax 3/10 test loss 2.0000"]


def test_plain_lines_say_the_time_left(monkeypatch, capsys):
    monkeypatch.setattr(progress, "ERR", Console(stderr=True, force_terminal=False, width=200))
    now = iter([100.0, 140.0, 180.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with TrainProgress("softmax", 100) as shown:
        for step in (0, 10, 20):
            shown.measured({"step": step, "loss": 1.0})
    assert capsys.readouterr().err.splitlines() == [
        "softmax 0/100 loss 1.0000",
        "softmax 10/100 loss 1.0000, 6 min left",
        "softmax 20/100 loss 1.0000, 5 min left",
    ]


def test_a_bar_with_loss_and_speed_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "ERR", Console(stderr=True, force_terminal=True, width=160))
    with TrainProgress("softmax", 10) as shown:
        shown.measured(VALUES)
    said = capsys.readouterr().err
    assert "3/10" in said
    assert "loss 1.2346, 12,346 tokens/s" in said


def test_quiet_says_only_what_must_be_said(capsys):
    with TrainProgress("softmax", 10, quiet=True) as shown:
        shown.measured(VALUES)
        shown.say("hidden")
        shown.say("left out", always=True)
    assert capsys.readouterr().err.splitlines() == ["left out"]
