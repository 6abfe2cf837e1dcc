"""Signals, errors of the disk, trackers' places, the meter, the words in the terminal."""

import errno
import os
import signal
from pathlib import Path

import pytest
from rich.console import Console
from safetensors import SafetensorError

from softmax_rnn.errors import InputError
from softmax_rnn.train import progress, trackers
from softmax_rnn.train.disk import DiskError, disk_errors
from softmax_rnn.train.meter import Meter
from softmax_rnn.train.progress import TrainProgress
from softmax_rnn.train.signals import StopWish


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_wish_and_handlers_come_back(number):
    before = signal.getsignal(number)
    with StopWish() as wish:
        assert wish.name is None
        os.kill(os.getpid(), number)
        assert wish.name == number.name
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_interrupts():
    with pytest.raises(KeyboardInterrupt), StopWish():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), SafetensorError("No space left")])
def test_errors_of_the_disk_are_one_line(error):
    with pytest.raises(DiskError, match=r"^the model could not be written: No space left$"), disk_errors("the model"):
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
    with trackers.tracker_places(Path("run")):
        assert os.environ["WANDB_DIR"] == "mine"
        assert os.environ["TENSORBOARD_LOGGING_DIR"] == str(Path("run/tensorboard"))
    assert "TENSORBOARD_LOGGING_DIR" not in os.environ


def test_the_meter_continues_from_its_state():
    meter, other = Meter(), Meter()
    meter.begin_step(5)
    meter.begin_step(6)
    meter.leave_out()
    other.load_state_dict(meter.state_dict())
    assert (other.tokens, other.skipped) == (11, 1)
    assert other.mean_of_kept(2.0) == 4.0
    other.end_window()
    assert other.mean_of_kept(2.0) == 2.0


VALUES = {"step": 3, "loss": 1.23456, "tokens_per_second": 12345.6}


def test_plain_lines_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "ERR", Console(stderr=True, force_terminal=False, width=200))
    with TrainProgress("softmax", 10) as shown:
        shown.at(3)
        shown.measured(VALUES)
        shown.measured({"step": 3, "test_loss": 2.0, "test_accuracy": None})
    said = capsys.readouterr().err.splitlines()
    assert said == ["softmax 3/10 loss 1.2346, 12,346 tokens/s", "softmax 3/10 test loss 2.0000"]


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
