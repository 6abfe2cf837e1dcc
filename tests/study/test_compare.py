"""The difference of two runs and of two specs."""

import json

import pytest

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.cli.report import compare as command
from softmax_rnn.errors import InputError
from softmax_rnn.study.compare import compare


def test_two_runs(trained):
    found = compare(str(trained / "softmax"), str(trained / "elu"))
    assert found["settings"] == {"variant": ["softmax", "linear_elu"]}
    results = [json.loads((trained / name / "result.json").read_text()) for name in ("softmax", "elu")]
    for name in ("test_loss", "tokens_per_second", "parameters"):
        assert found["metrics"][name] == [result[name] for result in results]
    assert found["finished"] == [True, True]
    assert "feature_map" in found["specs"]["parts"]


def test_a_run_that_is_not_finished_is_compared_as_far_as_it_went(trained):
    found = compare(str(trained / "softmax"), str(trained / "half"))
    assert found["finished"] == [True, False]
    assert found["settings"] == {"seed": [0, 1]}
    assert found["metrics"]["step"][1] < found["metrics"]["step"][0]
    assert found["specs"] is None


def test_a_run_without_measurements(runs):
    (runs / "half" / "metrics.jsonl").unlink()
    found = compare(str(runs / "half"), str(runs / "half"))
    assert found["settings"] == found["metrics"] == {}


def test_two_names_of_one_function():
    found = compare("softmax_divs", "gated_softmax_no_gate_no_norm")
    assert found["same_function"] is True
    assert compare("taylor_2", "based")["parts"] == {}


def test_the_block_around_the_attention_counts():
    found = compare("gated_softmax", "gated_softmax_plusplus")
    assert found["parts"] == {}
    assert found["same_function"] is False
    assert found["block"]["conv_width"] == [None, 4]


def test_a_spec_in_a_file(tmp_path):
    path = tmp_path / "spec.json"
    path.write_text(VARIANTS["linear_elu"].to_json())
    assert compare(str(path), "linear_elu")["same_function"] is True
    path.write_text("{")
    with pytest.raises(InputError, match="is no JSON"):
        compare(str(path), "linear_elu")


def test_the_command_prints_settings_losses_and_formulas(trained, capsys):
    command(str(trained / "softmax"), str(trained / "elu"))
    shown = capsys.readouterr().out
    result = json.loads((trained / "elu" / "result.json").read_text())
    assert "linear_elu" in shown
    assert f"{result['test_loss']:.4f}" in shown
    assert "Different functions." in shown


def test_the_command_as_json(trained, capsys):
    command(str(trained / "softmax"), str(trained / "elu"), as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed == compare(str(trained / "softmax"), str(trained / "elu"))
