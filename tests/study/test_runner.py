import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from tests.study.tiny import SETTINGS, VALUES, tiny_study

from softmax_rnn.__main__ import main
from softmax_rnn.study.execution import StudyRun
from softmax_rnn.study.runner import Event, LocalRunner, unfinished
from softmax_rnn.study.shared_runs import finished_in_other_studies


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyRun, list[Event]]:
    """The tiny study, carried out by two workers."""
    folder = tmp_path_factory.mktemp("study")
    whole = StudyRun(*tiny_study(folder), "cpu", folder / "out", "softmax-rnn study tiny.yaml")
    events: list[Event] = []
    whole.carry_out(LocalRunner(2), events.append)
    return whole, events


def test_all_runs_finish_and_are_written_down(finished: tuple[StudyRun, list[Event]]):
    whole, events = finished
    assert [run.name for run in whole.left] == []
    assert sorted(event.state for event in events) == ["finished"] * 4 + ["started"] * 4
    results = json.loads((whole.output / "results.json").read_text())
    assert [entry["state"] for entry in results["runs"]] == ["finished"] * 4
    for entry in results["runs"]:
        metrics = [json.loads(line) for line in Path(entry["folder"], "metrics.jsonl").read_text().splitlines()]
        tested = [line for line in metrics if "test_loss" in line]
        assert entry["result"]["test_loss"] == tested[-1]["test_loss"] == entry["test_curve"][-1][1]
    assert results["claims"][0]["state"] in ("reproduced", "not reproduced", "undecided")
    assert "2 seeds" in results["claims"][0]["evidence"]


def test_a_finished_run_is_not_repeated(finished: tuple[StudyRun, list[Event]]):
    whole, _ = finished
    before = {run.folder: (run.folder / "result.json").stat().st_mtime_ns for run in whole.runs}
    events: list[Event] = []
    whole.carry_out(LocalRunner(1), events.append)
    assert events == []
    assert before == {run.folder: (run.folder / "result.json").stat().st_mtime_ns for run in whole.runs}


def test_workers_train_an_attention_that_only_the_study_describes(tmp_path: Path):
    own = {"my_own": {"like": "linear_elu", "normaliser": None, "output_norm": {"kind": "l2"}}}
    grid = {"settings": SETTINGS, "vary": {"variant": ["softmax", "my_own"], "seed": [0]}}
    study = tiny_study(tmp_path, variants=own, scales={"cpu": {"minutes": 1, "grids": {"one": grid}}}, claims=[])
    whole = StudyRun(*study, "cpu", tmp_path / "out", "x")
    results = whole.carry_out(LocalRunner(1))
    assert [entry["state"] for entry in results["runs"]] == ["finished"] * 2
    assert results["variants"]["my_own"]["formula"] == "o = L2(Σ w v),  w = (elu(q)+1)·(elu(k)+1)"
    saved = json.loads(next((tmp_path / "out" / "runs").glob("*my_own*/final/config.json")).read_text())
    assert saved["attention_spec"]["output_norm"]["kind"] == "l2"


def test_a_run_of_two_grids_is_trained_once(tmp_path: Path):
    grid = {"settings": SETTINGS, "vary": {"variant": ["softmax"], "seed": [0]}}
    study = tiny_study(tmp_path, scales={"cpu": {"minutes": 1, "grids": {"one": grid, "two": grid}}}, claims=[])
    whole = StudyRun(*study, "cpu", tmp_path / "out", "x")
    assert [run.grid for run in whole.runs] == ["one", "two"]
    assert (whole.count, len(whole.left)) == (1, 1)


def test_what_another_study_has_finished_is_taken_over(finished: tuple[StudyRun, list[Event]], tmp_path: Path):
    whole, _ = finished
    vary = {"variant": ["softmax"], "seed": [0, 7]}
    other = tiny_study(
        tmp_path, scales={"cpu": {"minutes": 1, "grids": {"mine": {"settings": SETTINGS, "vary": vary}}}}, claims=[]
    )
    again = StudyRun(*other, "cpu", whole.output.parent / "other", "x")
    assert [run.config.seed for run in again.left] == [7]
    events: list[Event] = []
    results = again.carry_out(LocalRunner(1), events.append)
    assert [event.run.config.seed for event in events if event.state == "finished"] == [7]
    mine, theirs = again.runs[0], next(run for run in whole.runs if run.config == again.runs[0].config)
    for name in ("result.json", "metrics.jsonl", "final/model.safetensors"):
        assert (mine.folder / name).read_bytes() == (theirs.folder / name).read_bytes()
    assert [entry["state"] for entry in results["runs"]] == ["finished", "finished"]


def test_a_run_of_the_same_name_but_other_content_is_not_taken_over(
    finished: tuple[StudyRun, list[Event]], tmp_path: Path
):
    whole, _ = finished
    run = whole.runs[0]
    fake = tmp_path / "theirs" / "runs" / run.folder.name
    shutil.copytree(run.folder, fake)
    config = fake / "config.yaml"
    config.write_text(config.read_text().replace("steps: 6", "steps: 5", 1))
    moved = dataclasses.replace(run, folder=tmp_path / "mine" / "runs" / run.folder.name)
    assert finished_in_other_studies([moved], tmp_path / "mine") == {}
    shutil.copy(run.folder / "config.yaml", config)
    assert finished_in_other_studies([moved], tmp_path / "mine") == {moved.folder: fake}


def test_a_changed_setting_is_another_run(finished: tuple[StudyRun, list[Event]], tmp_path: Path):
    whole, _ = finished
    grids = {"recall": {"settings": SETTINGS | {"steps": 7}, "vary": {"variant": ["softmax"], "seed": [0]}}}
    changed = tiny_study(tmp_path, scales={"cpu": {"minutes": 1, "grids": grids}}, claims=[])
    again = StudyRun(*changed, "cpu", whole.output, "x")
    assert [run.folder for run in again.left] == [again.runs[0].folder]
    assert again.runs[0].folder not in [run.folder for run in whole.runs]


def test_a_failing_run_does_not_stop_the_others(tmp_path: Path):
    vary = {"variant": ["softmax"], "data": ["no/such/folder.txt", SETTINGS["data"]]}
    grids = {"mixed": {"settings": {key: SETTINGS[key] for key in SETTINGS if key != "data"}, "vary": vary}}
    study = tiny_study(tmp_path, scales={"cpu": {"minutes": 1, "grids": grids}}, claims=[])
    whole = StudyRun(*study, "cpu", tmp_path / "out", "x")
    results = whole.carry_out(LocalRunner(1))
    assert [entry["state"] for entry in results["runs"]] == ["failed", "finished"]
    assert "no/such/folder.txt" in results["runs"][0]["error"]
    assert unfinished(whole.runs) == [whole.runs[0]]


def test_a_failed_run_is_told_and_is_the_exit_code_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    grids = {"one": {"settings": SETTINGS | {"data": "no/such/folder.txt"}, "vary": {"variant": ["softmax"]}}}
    tiny_study(tmp_path, scales={"cpu": {"minutes": 1, "grids": grids}}, claims=[])
    assert main(["study", "tiny.yaml", "--jobs", "1", "--output", "out", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["runs"][0]["state"] == "failed"
    assert "failed: out/runs/one-softmax" in said.err and "no/such/folder.txt" in said.err


def test_a_killed_worker_fails_its_run_only_and_the_run_resumes(tmp_path: Path):
    long = SETTINGS | {"steps": 400, "checkpoint_every": 5}
    grids = {"one": {"settings": long, "vary": {"variant": ["softmax"], "seed": [0]}}}
    study = tiny_study(tmp_path, scales={"cpu": {"minutes": 1, "grids": grids}}, claims=[])
    whole = StudyRun(*study, "cpu", tmp_path / "out", "x")
    runner = LocalRunner(1)
    folder = whole.runs[0].folder

    def kill_when_on_its_way() -> None:
        while not list((folder / "checkpoints").glob("step-*")):
            time.sleep(0.05)
        (worker,) = runner._workers
        os.kill(worker.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_when_on_its_way, daemon=True)
    killer.start()
    results = whole.carry_out(runner)
    killer.join()
    assert results["runs"][0]["state"] == "failed"
    assert "ended with code -9" in results["runs"][0]["error"]
    again = StudyRun(*study, "cpu", tmp_path / "out", "x")
    assert again.carry_out(LocalRunner(1))["runs"][0]["state"] == "finished"
    starts = json.loads((folder / "environment.json").read_text())["starts"]
    assert starts[0]["step"] == 0
    assert starts[1]["step"] > 0


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)], ids=str
)
def test_a_study_that_is_stopped_leaves_checkpoints_and_no_process(sent: signal.Signals, code: int, tmp_path: Path):
    long = SETTINGS | {"steps": 2000, "checkpoint_every": 1000}
    scales = {"cpu": {"minutes": 1, "grids": {"one": {"settings": long, "vary": {"variant": ["softmax"]}}}}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(VALUES | {"scales": scales, "claims": []}))
    command = [sys.executable, "-m", "softmax_rnn", "study", "s.yaml", "--jobs", "1", "--output", "out"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    metrics = None
    while metrics is None or len(metrics.read_text().splitlines()) < 3:
        assert process.poll() is None
        metrics = next(iter((tmp_path / "out" / "runs").glob("*/metrics.jsonl")), None)
        time.sleep(0.1)
    process.send_signal(sent)
    # The worker holds the other end of standard error: this returns when both have ended.
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    # A runner that can still speak waits for its worker's last word; one that is killed cannot.
    assert (said.count("stopped") == 1) == (sent != signal.SIGKILL), said
    assert len(list((tmp_path / "out" / "runs").glob("*/checkpoints/step-*"))) == 1
