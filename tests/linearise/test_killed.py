"""Killed at any moment and started again, a conversion ends with the same weights and losses, bit for bit."""

import json
import signal
import time
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from tests.experiment.processes import start
from tests.linearise.small import saved, settings

from softmax_rnn.linearise.run import linearise
from softmax_rnn.linearise.settings import resolve
from softmax_rnn.train import loop

MAIN = ("final", "calibration.json", "measured.json", "result.json", "config.json", "linearise.json")


class KilledError(BaseException):
    pass


@pytest.fixture(autouse=True)
def _model(tmp_path):
    saved(tmp_path / "model")


def until_it_ends(config, folder):
    """Start again and again; returns the record, and how often it was killed."""
    ends = 0
    while True:
        try:
            return linearise(config, folder, quiet=True).record, ends
        except KilledError:
            ends += 1
            assert ends < 200


def assert_the_same(one: Path, other: Path):
    first, second = (json.loads((folder / "linearise.json").read_text()) for folder in (one, other))
    for name in ("losses", "errors", "halves", "calibration", "layers"):
        assert first[name] == second[name], name
    files = [(folder / "model.safetensors").read_bytes() for folder in (one, other)]
    assert load_file(one / "model.safetensors").keys() == load_file(other / "model.safetensors").keys()
    assert files[0] == files[1]


def test_in_the_middle_of_training(tmp_path, monkeypatch):
    config = resolve(settings(tmp_path, to="linear_elu", stages=["calibrate", "transfer", "distil", "tune"]))
    linearise(config, tmp_path / "whole", quiet=True)
    steps, step = 0, loop.TrainingLoop.step

    def dies(self):
        nonlocal steps
        steps += 1
        if steps % 5 == 0:
            raise KilledError
        return step(self)

    monkeypatch.setattr(loop.TrainingLoop, "step", dies)
    _, ends = until_it_ends(config, tmp_path / "cut")
    assert ends > 2
    assert_the_same(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("often", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_between_the_stages(often, tmp_path, monkeypatch):
    """Every file and folder appears by a rename. Often: killed before and after each; else after the main ones."""
    more = {"to": "near_far", "window": 4, "order": 2, "convert_layers": 1, "tokens": 400}
    config = resolve(settings(tmp_path, stages=["calibrate", "distil"], **more))
    linearise(config, tmp_path / "whole", quiet=True)
    died: set[tuple[str, bool]] = set()

    def dying(rename):
        def renamed(self, target):
            name = Path(target).relative_to(tmp_path).as_posix()
            fatal = name.startswith("cut/") and (often or Path(name).name in MAIN)
            for after in (False, True):
                if after:
                    rename(self, target)
                if fatal and (after or often) and (name, after) not in died:
                    died.add((name, after))
                    raise KilledError
            return Path(target)

        return renamed

    for name in ("replace", "rename"):
        monkeypatch.setattr(Path, name, dying(getattr(Path, name)))
    _, ends = until_it_ends(config, tmp_path / "cut")
    assert ends == len(died)
    names = {name.removeprefix("cut/") for name, _ in died}
    expected = {f"stages/{one}/measured.json" for one in ("original", "before", "calibrate", "distil")}
    expected |= {"stages/calibrate/final", "stages/calibrate/calibration.json"}
    expected |= {"stages/distil/final", "stages/distil/result.json", "config.json", "linearise.json"}
    assert expected <= names
    assert ("model.safetensors" in names) == often
    assert not list((tmp_path / "cut").glob("stages/*/final"))
    assert_the_same(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_a_stream_is_read_and_continued(tmp_path, monkeypatch):
    data = settings(tmp_path)["data"] | {"streaming": True, "shuffle_buffer": 5}
    config = resolve(settings(tmp_path, data=data, stages=["calibrate", "distil"]))
    linearise(config, tmp_path / "whole", quiet=True)
    left, step = 5, loop.TrainingLoop.step

    def dies_once(self):
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError
        return step(self)

    monkeypatch.setattr(loop.TrainingLoop, "step", dies_once)
    assert until_it_ends(config, tmp_path / "cut")[1] == 1
    assert_the_same(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_by_the_system_at_any_time(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(settings(tmp_path, to="hedgehog")))
    words = ["linearise", "--config", str(path), "--output"]
    began = time.monotonic()
    assert start([*words, str(tmp_path / "whole")], tmp_path / "log").code() == 0
    killed, pause = 0, (time.monotonic() - began) / 60
    while not (tmp_path / "cut" / "report.html").exists():
        child = start([*words, str(tmp_path / "cut")], tmp_path / "log")
        until = time.monotonic() + pause
        while child.process.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        child.send(signal.SIGKILL)
        killed += child.code() == -signal.SIGKILL
        pause *= 1.5
    assert killed > 3
    assert_the_same(tmp_path / "whole", tmp_path / "cut")
