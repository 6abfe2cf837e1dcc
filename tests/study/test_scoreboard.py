"""One page with every claim at each scale, and a result checked by training a sample of its runs again."""

import json
from pathlib import Path

import pytest
from tests.study.tiny import tiny_study

from report.study_results import L2_NORM, language, results
from softmax_rnn.__main__ import main
from softmax_rnn.study.execution import StudyRun
from softmax_rnn.study.result_file import judged, save_results
from softmax_rnn.study.scoreboard import scoreboard


def saved(path: Path, name: str, scale: str) -> Path:
    value = results(language({"softmax": 1.8, L2_NORM: 1.8, "softmax_divS_gate": 2.0}, panels=["shakespeare"]))
    value["study"] |= {"name": name, "scale": scale}
    return save_results(judged(value), path)


def test_every_claim_stands_there_at_every_scale(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "saved"
    saved(folder / "2026-01-01-sec4.1.json", "sec4.1-denominator", "cpu")
    saved(folder / "2026-01-02-quick.json", "quick", "cpu")
    (folder / "other.json").write_text('{"rows": []}')
    board = scoreboard(folder)
    assert [study["name"] for study in board["studies"]] == ["sec4.1-denominator", "quick"]
    first = board["studies"][0]["claims"]
    assert [row["scale"] for row in first] == [*["cpu", "overnight"] * 3, "overnight"]
    assert first[1]["state"] == "not run"
    assert first[1]["needed"].startswith("softmax-rnn study sec4.1-denominator --scale overnight (about 70 min")
    assert first[2]["state"] == "reproduced" and first[2]["needed"] == ""
    assert main(["report", "saved"]) == 0
    assert "overnight: 4 not run" in capsys.readouterr().out
    html = Path("runs/claims/report.html").read_text()
    assert "The gate is worse than softmax" in html and "Mongaras" in html
    assert main(["report", "saved"]) == 0
    assert main(["report", "saved", "--save", "all.json"]) == 2
    assert "--save: cannot be combined with a folder of saved results" in capsys.readouterr().err
    one = str(folder / "2026-01-02-quick.json")
    assert main(["study", "quick", "--check", one, "--scale", "paper"]) == 2
    assert "the result of the scale cpu, not of paper" in capsys.readouterr().err


def test_a_claim_that_the_file_has_got_since_is_not_run(tmp_path):
    saved(tmp_path / "2026-01-01-sec4.1.json", "sec4.1-denominator", "overnight")
    rows = [row for row in scoreboard(tmp_path)["studies"][0]["claims"] if row["scale"] == "overnight"]
    states = {row["claim"].partition(" ")[0]: row["state"] for row in rows}
    assert states == {"A": "reproduced", "L2": "not run", "The": "reproduced"}
    assert [row["needed"].partition(" (")[0] for row in rows if row["state"] == "not run"] == [
        "softmax-rnn study sec4.1-denominator --scale overnight"
    ]


def test_a_saved_result_is_checked_by_training_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    whole = StudyRun(*tiny_study(tmp_path), "cpu", tmp_path / "out", "x")
    monkeypatch.setattr(type(whole), "left", property(lambda self: []))
    from softmax_rnn.experiment.training import run_training

    for run in whole.runs[:1]:
        run_training(run.config, run.folder, quiet=True)
    path = save_results(whole.carry_out(), tmp_path / "tiny.json")
    command = ["study", "tiny.yaml", "--check", "tiny.json", "--runs", "1", "--output"]
    assert main([*command, "again"]) == 0
    assert "the same to the last digit" in capsys.readouterr().out
    value = json.loads(path.read_text())
    value["runs"][0]["result"]["test_loss"] += 1e-6
    path.write_text(json.dumps(value))
    assert main([*command, "again"]) == 1
    said = capsys.readouterr()
    assert "-1.00e-06" in said.out and "1 number moved" in said.err
    assert main(["study", "quick", "--check", "tiny.json"]) == 2
    assert "is the result of tiny, not of quick" in capsys.readouterr().err
    assert main([*command, "dry", "--dry-run"]) == 0
    assert whole.runs[0].name in capsys.readouterr().out and not Path("dry").exists()
    assert main([*command, "dry", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == [whole.runs[0].name]


@pytest.mark.parametrize("text", ["{}", "[]", "nothing"])
def test_a_file_that_is_no_result_cannot_be_checked(tmp_path, text, capsys):
    path = tmp_path / "x.json"
    path.write_text(text)
    assert main(["study", "quick", "--check", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
