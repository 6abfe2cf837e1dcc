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
from tests.study.tiny import SETTINGS, TASK, VALUES, InThisProcess, tiny_study

from softmax_rnn.__main__ import main
from softmax_rnn.experiment import network
from softmax_rnn.study.execution import StudyRun
from softmax_rnn.study.folders import results_of
from softmax_rnn.study.live import StudyTable
from softmax_rnn.study.runner import Event, LocalRunner, unfinished
from softmax_rnn.study.shared_runs import finished_in_other_studies
from softmax_rnn.train.folder import RunFolder


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
    assert all(entry["result"]["state_bytes"] > 0 for entry in results["runs"])


def test_a_finished_run_is_not_repeated(finished: tuple[StudyRun, list[Event]]):
    whole, _ = finished
    before = {run.folder: (run.folder / "result.json").stat().st_mtime_ns for run in whole.runs}
    events: list[Event] = []
    whole.carry_out(LocalRunner(1), events.append)
    assert events == []
    assert before == {run.folder: (run.folder / "result.json").stat().st_mtime_ns for run in whole.runs}


def test_a_study_trains_an_attention_that_only_it_describes(tmp_path: Path):
    own = {"my_own": {"like": "linear_elu", "normaliser": None, "output_norm": {"kind": "l2"}}}
    grid = {"settings": SETTINGS, "vary": {"variant": ["softmax", "my_own"], "seed": [0]}}
    study = tiny_study(tmp_path, variants=own, scales={"cpu": {"minutes": 1, "grids": {"one": grid}}}, claims=[])
    whole = StudyRun(*study, "cpu", tmp_path / "out", "x")
    results = whole.carry_out(InThisProcess())
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


def test_runs_are_trained_seed_by_seed(tmp_path: Path):
    whole = StudyRun(*tiny_study(tmp_path), "cpu", tmp_path / "out", "x")
    pairs = [(run.config.seed, run.config.variant) for run in whole.left]
    assert pairs == [(0, "softmax"), (0, "linear_elu"), (1, "softmax"), (1, "linear_elu")]


def test_what_another_study_has_finished_is_taken_over(finished: tuple[StudyRun, list[Event]], tmp_path: Path):
    whole, _ = finished
    vary = {"variant": ["softmax"], "seed": [0, 7]}
    other = tiny_study(
        tmp_path, scales={"cpu": {"minutes": 1, "grids": {"mine": {"settings": SETTINGS, "vary": vary}}}}, claims=[]
    )
    again = StudyRun(*other, "cpu", whole.output.parent / "other", "x")
    assert [run.config.seed for run in again.left] == [7]
    events: list[Event] = []
    results = again.carry_out(InThisProcess(), events.append)
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
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": ')
    vary = {"variant": ["softmax"], "data": [str(broken), SETTINGS["data"]]}
    grids = {"mixed": {"settings": {key: SETTINGS[key] for key in SETTINGS if key != "data"}, "vary": vary}}
    study = tiny_study(tmp_path, scales={"cpu": {"minutes": 1, "grids": grids}}, claims=[])
    whole = StudyRun(*study, "cpu", tmp_path / "out", "x")
    results = whole.carry_out(InThisProcess())
    assert [entry["state"] for entry in results["runs"]] == ["failed", "finished"]
    assert "is not valid JSON" in results["runs"][0]["error"]
    assert unfinished(whole.runs) == [whole.runs[0]]


def test_a_failed_run_is_told_and_is_the_exit_code_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("softmax_rnn.study.runner.LocalRunner", lambda jobs: InThisProcess())
    Path("broken.jsonl").write_text('{"text": ')
    grids = {"one": {"settings": SETTINGS | {"data": "broken.jsonl"}, "vary": {"variant": ["softmax"]}}}
    tiny_study(tmp_path, scales={"cpu": {"minutes": 1, "grids": grids}}, claims=[])
    assert main(["study", "tiny.yaml", "--jobs", "1", "--output", "out", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["runs"][0]["state"] == "failed"
    assert "failed: out/runs/one-softmax" in said.err and "is not valid JSON" in said.err


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("no/such/folder.txt", "grids.one: source: there is no file or folder 'no/such/folder.txt'"),
        ("shakespear", "grids.one: unknown source 'shakespear'; did you mean 'shakespeare'?"),
    ],
)
@pytest.mark.parametrize("option", ["--dry-run", "--json"])
def test_data_that_is_not_there_is_told_before_the_first_run(
    source: str, said: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    vary = {"variant": ["softmax"], "data": [TASK, source]}
    settings = {key: SETTINGS[key] for key in SETTINGS if key != "data"}
    tiny_study(
        tmp_path, scales={"cpu": {"minutes": 1, "grids": {"one": {"settings": settings, "vary": vary}}}}, claims=[]
    )
    assert main(["study", str(tmp_path / "tiny.yaml"), "--output", str(tmp_path / "out"), option]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_very_many_runs_are_refused_before_they_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    vary = {"variant": ["softmax", "linear_elu"], "seed": list(range(6_000))}
    tiny_study(
        tmp_path, scales={"cpu": {"minutes": 1, "grids": {"one": {"settings": SETTINGS, "vary": vary}}}}, claims=[]
    )
    assert main(["study", str(tmp_path / "tiny.yaml"), "--output", str(tmp_path / "out"), "--dry-run"]) == 2
    assert "expected at most 2,000 runs, got 12,000; --max-runs 12000 allows them" in capsys.readouterr().err


def test_each_run_is_read_once_and_no_model_is_built(
    finished: tuple[StudyRun, list[Event]], monkeypatch: pytest.MonkeyPatch
):
    whole, _ = finished
    again = StudyRun(whole.name, whole.study, "cpu", whole.output, "x")
    reads: list[Path] = []
    metrics = RunFolder.metrics
    monkeypatch.setattr(RunFolder, "metrics", lambda folder: reads.append(folder.path) or metrics(folder))
    monkeypatch.setattr(network, "model_config", lambda *_: pytest.fail("a model was built"))
    for _ in range(5):
        again.results()
    assert sorted(reads) == sorted(run.folder for run in whole.runs)
    again._entries.changed(whole.runs[0].folder)
    again.results()
    assert reads.count(whole.runs[0].folder) == 2 and len(reads) == len(whole.runs) + 1


def test_a_finished_study_is_reported_from_its_results_alone(
    finished: tuple[StudyRun, list[Event]], monkeypatch: pytest.MonkeyPatch
):
    whole, _ = finished
    before = json.loads((whole.output / "results.json").read_text())
    monkeypatch.setattr(RunFolder, "metrics", lambda folder: pytest.fail(f"{folder.path} was read"))
    monkeypatch.setattr(network, "model_config", lambda *_: pytest.fail("a model was built"))
    shown = results_of([whole.output])
    assert [run["result"] for run in shown["runs"]] == [run["result"] for run in before["runs"]]
    assert shown["claims"] == before["claims"]


def test_the_time_left_is_divided_among_the_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    whole = StudyRun(*tiny_study(tmp_path), "cpu", tmp_path / "out", "x")
    for jobs, said in ((1, "about 5 min left"), (2, "about 3 min left")):
        table = StudyTable("tiny", whole.runs, whole.runs, lambda jobs=jobs: jobs)
        table.watch(Event(whole.runs[0], "finished", seconds=100.0))
        assert said in capsys.readouterr().err


def test_a_killed_worker_fails_its_run_only_and_the_run_resumes(tmp_path: Path):
    long = SETTINGS | {"steps": 120, "checkpoint_every": 5}
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
    assert again.carry_out(InThisProcess())["runs"][0]["state"] == "finished"
    starts = json.loads((folder / "environment.json").read_text())["starts"]
    assert starts[0]["step"] == 0
    assert starts[1]["step"] > 0


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow),
    ],
    ids=str,
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
    assert (said.count("softmax stopped") == 1) == (sent != signal.SIGKILL), said
    assert ("the same command continues: softmax-rnn study s.yaml --output out" in said) == (sent != signal.SIGKILL)
    assert len(list((tmp_path / "out" / "runs").glob("*/checkpoints/step-*"))) == 1


def test_a_worker_that_is_stopped_before_it_trains_has_not_failed(tmp_path: Path):
    whole = StudyRun(*tiny_study(tmp_path), "cpu", tmp_path / "out", "softmax-rnn study tiny.yaml")
    runner, events = LocalRunner(1), list[Event]()

    def watch(event: Event) -> None:
        events.append(event)
        runner._stop()

    runner(whole.left, watch)
    assert [(event.state, event.error) for event in events] == [("started", None), ("stopped", None)]
