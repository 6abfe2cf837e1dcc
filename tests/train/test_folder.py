"""The folder of a run: records that survive a kill, one process at a time."""

import json
import math
import re

import pytest

from softmax_rnn.errors import InputError
from softmax_rnn.train.folder import RunFolder


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_half_a_line_is_ignored_and_dropped_with_what_came_after_the_checkpoint(folder):
    for step in (1, 2, 3):
        folder.add_metrics({"step": step, "loss": 1 / 3})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    assert [line["step"] for line in folder.metrics()] == [1, 2, 3]
    folder.forget_after(2)
    assert (folder.path / "metrics.jsonl").read_text() == "".join(
        f'{{"step": {step}, "loss": {1 / 3!r}}}\n' for step in (1, 2)
    )


def test_numbers_that_json_lacks_become_null(folder):
    folder.add_metrics({"step": 1, "loss": math.nan})
    assert folder.metrics() == [{"step": 1, "loss": None}]


def test_two_runs_in_one_folder_are_refused(folder):
    with (
        folder.locked(),
        pytest.raises(InputError, match="another process is training"),
        RunFolder(folder.path).locked(),
    ):
        pass
    with folder.locked():
        assert (folder.path / ".lock").exists()


def test_a_folder_that_cannot_be_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match="cannot be written: Not a directory"),
        RunFolder(tmp_path / "file" / "x").locked(),
    ):
        pass


def test_every_start_is_noted_with_versions_and_machine(folder):
    folder.add_environment({"step": 0, "processes": 1})
    folder.add_environment({"step": 4, "processes": 2})
    starts = json.loads((folder.path / "environment.json").read_text())["starts"]
    assert [(one["step"], one["processes"]) for one in starts] == [(0, 1), (4, 2)]
    assert {"git", "packages", "processor", "python", "torch", "softmax_rnn", "date"} <= set(starts[0])
    assert starts[0]["packages"]["transformers"]


def test_the_result_is_there_when_the_run_is_finished(folder):
    assert folder.result() is None
    folder.write_result({"step": 3})
    assert folder.result() == {"step": 3}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"step": 1}\n{"st\n{"step": 3}\n', "line 2 is damaged; restore the file"),
        ('{"step": 1}\n' + "[" * 100_000 + '\n{"step": 3}\n', "line 2 is damaged; restore the file"),
        ("7\n", "line 1: expected measurements by name, got 7"),
        ('{"loss": 1.0}\n', "line 1: step is missing"),
        ('{"step": true}\n', "line 1: step: expected a whole number, got True"),
    ],
)
def test_damaged_metrics_are_refused_before_anything_is_dropped(folder, text, said):
    path = folder.path / "metrics.jsonl"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        folder.forget_after(0)
    assert str(caught.value) == f"runs: {path}: {said}"
    assert path.read_text() == text


@pytest.mark.parametrize("text", ["[]", '{"stars": []}', '{"starts": 1}'])
def test_damaged_records_of_starts_are_refused(folder, text):
    (folder.path / "environment.json").write_text(text)
    with pytest.raises(InputError, match=r"environment\.json is damaged"):
        folder.add_environment({})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("7", "is damaged: expected an object with a step"),
        ('{"step": "3"}', "is damaged: expected an object with a step"),
        ('{"step": 3, "test_loss": "low"}', "test_loss: expected a finite number, got 'low'"),
        ('{"step": 3, "test_loss": NaN}', "test_loss: expected a finite number, got nan"),
    ],
)
def test_a_damaged_result_is_refused(folder, text, said):
    (folder.path / "result.json").write_text(text)
    with pytest.raises(InputError, match=re.escape(said)):
        folder.result()
