"""A study that is continued from a saved result: whole seeds of another processor, everything of the same kind."""

import json
from pathlib import Path

import pytest
from tests.study.tiny import InThisProcess, tiny_study

from softmax_rnn.__main__ import main
from softmax_rnn.experiment.training import run_training
from softmax_rnn.study.execution import StudyRun
from softmax_rnn.study.folders import results_of
from softmax_rnn.study.result_file import read_results, save_results
from softmax_rnn.study.scoreboard import scoreboard

OTHER = "Some Processor, AVX2"


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The saved result of the tiny study after three of its four runs: seed 0 is whole, seed 1 lacks elu."""
    folder = tmp_path_factory.mktemp("half")
    whole = StudyRun(*tiny_study(folder), "cpu", folder / "out", "softmax-rnn study tiny.yaml")
    for run in whole.left[:3]:
        run_training(run.config, run.folder, quiet=True)
    whole.write()
    return save_results(results_of([folder / "out"]), folder / "half.json")


def changed(half: Path, folder: Path, change) -> Path:
    value = json.loads(half.read_text())
    change(value)
    path = folder / "changed.json"
    path.write_text(json.dumps(value))
    return path


def elsewhere(value) -> None:
    for entry in value["runs"]:
        entry["processor"] = OTHER


def test_what_is_finished_is_not_trained_again(half: Path, tmp_path: Path):
    whole = StudyRun(*tiny_study(tmp_path), "cpu", tmp_path / "out", "x", half)
    assert [(run.config.seed, run.config.variant) for run in whole.left] == [(1, "linear_elu")]
    results = whole.carry_out(InThisProcess())
    assert [entry["state"] for entry in results["runs"]] == ["finished"] * 4
    before = {entry["name"]: entry["result"] for entry in read_results(half)["runs"] if entry["result"]}
    after = {entry["name"]: entry["result"] for entry in results["runs"]}
    assert len(before) == 3
    assert all(after[name]["test_loss"] == before[name]["test_loss"] for name in before)
    assert results["claims"][0]["left"] == 0 and "2 seeds" in results["claims"][0]["evidence"]
    assert results_of([tmp_path / "out"])["claims"] == results["claims"]
    assert not whole.left


def test_of_another_processor_whole_seeds_count_and_no_pair_is_mixed(half: Path, tmp_path: Path):
    path = changed(half, tmp_path, elsewhere)
    whole = StudyRun(*tiny_study(tmp_path), "cpu", tmp_path / "out", "x", path)
    assert [(run.config.seed, run.config.variant) for run in whole.left] == [(1, "softmax"), (1, "linear_elu")]
    results = whole.carry_out(InThisProcess())
    kinds = {entry["varied"]["seed"]: entry["processor"] for entry in results["runs"]}
    assert kinds[0] == OTHER != kinds[1]
    assert "2 seeds" in results["claims"][0]["evidence"]
    assert main(["report", str(tmp_path / "out"), "--no-figures", "--save", str(tmp_path / "whole.json")]) == 0
    assert f"{OTHER} (seed 0) and {kinds[1]} (seed 1)" in (tmp_path / "out" / "report.html").read_text()
    again = read_results(tmp_path / "whole.json")
    assert {entry["varied"]["seed"]: entry["processor"] for entry in again["runs"]} == kinds


def of_another_study(half: Path, folder: Path) -> Path:
    """A folder with a result that is called otherwise, and with what is no result."""
    folder.mkdir()
    changed(half, folder, lambda value: value["study"].update(name="another"))
    (folder / "speed.json").write_text("{}")
    return folder


def test_a_folder_gives_what_any_study_has_finished(half: Path, tmp_path: Path):
    saved = of_another_study(half, tmp_path / "saved")
    whole = StudyRun(*tiny_study(tmp_path), "cpu", tmp_path / "out", "x", saved)
    assert [(run.config.seed, run.config.variant) for run in whole.left] == [(1, "linear_elu")]
    names = {entry["name"]: entry["state"] for entry in whole.results()["runs"]}
    assert names == {run.name: "planned" if run in whole.left else "finished" for run in whole.runs}


def test_a_folder_of_two_processors_mixes_no_seed(half: Path, tmp_path: Path):
    """Seed 1 has softmax here and elu elsewhere: that is no pair, so only the run from here counts."""
    saved = of_another_study(half, tmp_path / "saved")

    def elu_elsewhere(value) -> None:
        elsewhere(value)
        planned = {run.name: run.config.content_hash() for run in StudyRun(*study, "cpu", tmp_path / "out", "x").runs}
        softmax, elu = (next(one for one in value["runs"] if one["name"] == f"recall-seed1-{name}")
                        for name in ("softmax", "linear_elu"))  # fmt: skip
        elu |= {name: softmax[name] for name in ("state", "result", "train_curve", "test_curve", "accuracy_curve")}
        elu["result"] = softmax["result"] | {"config_hash": planned[elu["name"]], "variant": "linear_elu"}
        softmax |= {"state": "planned", "result": None}

    study = tiny_study(tmp_path)
    changed(half, tmp_path, elu_elsewhere).rename(saved / "elsewhere.json")
    whole = StudyRun(*study, "cpu", tmp_path / "out", "x", saved)
    assert [(run.config.seed, run.config.variant) for run in whole.left] == [(1, "linear_elu")]
    kinds = {entry["name"]: entry.get("processor") for entry in whole.results()["runs"]}
    assert OTHER not in kinds.values()


def test_a_claim_waits_for_all_of_its_runs(half: Path):
    claim = read_results(half)["claims"][0]
    assert (claim["state"], claim["needed"]) == ("undecided", "the other 1 of its 4 runs")
    assert claim["evidence"].startswith("so far ")
    row = scoreboard(half.parent)["studies"][0]["claims"][0]
    assert (row["state"], row["needed"]) == ("unfinished", "the other 1 of its 4 runs")


def test_the_command_says_what_is_left(half: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny_study(tmp_path)
    command = ["study", "tiny.yaml", "--continue-from", str(half)]
    assert main([*command, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == ["recall-seed1-linear_elu"]
    monkeypatch.setattr("softmax_rnn.study.runner.LocalRunner", lambda jobs: InThisProcess())
    assert main(command) == 0
    written = json.loads(Path("runs/tiny/results.json").read_text())
    assert written["study"]["command"] == f"softmax-rnn study tiny.yaml --continue-from {half}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--continue-from", "none.json"], "continue-from: "),
        (["--continue-from", "."], "continue-from: the folder . holds no saved results of a study"),
        (["--continue-from", "x.json", "--check", "x.json"], "continue-from: cannot be combined with --check"),
    ],
)
def test_wrong_uses_are_one_line(words, said, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["study", "quick", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and said in err, err


def steps(value) -> None:
    value["common_settings"]["steps"] = 7
    for entry in value["runs"]:
        if entry["result"]:
            entry["result"]["config_hash"] = "0"


def foreign(value) -> None:
    value["runs"][0]["name"] = "recall-mamba-seed0"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (steps, "recall-seed0-softmax had other settings: steps was 7 and is 6"),
        (foreign, "recall-mamba-seed0 is not a run of this study"),
        (lambda value: value["study"].update(name="quick"), "is the result of quick at scale cpu, not of tiny at cpu"),
        (lambda value: value["study"].update(scale="paper"), "is the result of tiny at scale paper, not of tiny"),
    ],
)
def test_a_result_of_other_settings_is_refused(change, said, half: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny_study(tmp_path)
    path = changed(half, tmp_path, change)
    assert main(["study", "tiny.yaml", "--continue-from", path.name]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and said in err, err
