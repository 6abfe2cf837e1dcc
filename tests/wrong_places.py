"""A folder with everything that can be wrong in it, made once for the tour of wrong uses."""

import copy
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from tests.study.tiny import SETTINGS, VALUES

from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.training import run_training

BINARY = bytes(range(256)) * 4


def make_place(place: Path) -> None:
    """Files of a user who makes mistakes, beside a finished run and a good study."""
    _texts(place)
    _settings(place)
    _studies(place)
    _runs(place)


def _texts(place: Path) -> None:
    (place / "empty.txt").write_text("")
    (place / "binary.txt").write_bytes(BINARY)
    (place / "one.txt").write_text("To be, or not to be.")
    (place / "photo.png").write_bytes(BINARY)
    (place / "poems.jsonl").write_text("".join(json.dumps({"poem": f"Rose {n} is red."}) + "\n" for n in range(9)))
    (place / "torn.jsonl").write_text('{"text": "Rose')
    (place / "deep.jsonl").write_text('{"text": ' + "[" * 100_000 + "\n")
    (place / "cut.txt.gz").write_bytes(gzip.compress(BINARY)[:-9])
    (place / "page").mkdir()
    (place / "page" / "report.html").write_text("My own page.")
    (place / "page" / "results.json").write_text('{"mine": 1}')
    (place / "notes").mkdir()
    (place / "notes" / "todo.txt").write_text("Write the thesis.")


def _settings(place: Path) -> None:
    (place / "run.yaml").write_text(yaml.safe_dump(SETTINGS))
    (place / "empty.yaml").write_text("")
    (place / "list.yaml").write_text("- steps: 3\n")
    (place / "torn.yaml").write_text("steps: [1\nsize: nano\n")
    (place / "binary.yaml").write_bytes(BINARY)
    (place / "key.yaml").write_text("stpes: 3\n")
    (place / "type.yaml").write_text("steps: three\n")
    (place / "torn.json").write_text('{"score": ')
    (place / "softmax.json").write_text('{"normaliser": null}')
    (place / "twice.yaml").write_text("steps: 3\nsize: nano\nsteps: 4\n")
    (place / "deep.yaml").write_text("steps: " + "[" * 5000)
    (place / "digits.yaml").write_text("steps: " + "9" * 5000)
    aliases = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)]
    (place / "laughs.yaml").write_text("a0: &a0 ha\n" + "".join(aliases))
    (place / "twice.json").write_text('{"score": null, "score": null}')
    (place / "deep.json").write_text("[" * 100_000)
    (place / "digits.json").write_text('{"score": ' + "9" * 5000 + "}")
    (place / "loop.json").symlink_to("loop.json")
    (place / "kind.json").write_text('{"score": {"kind": "expp"}}')


def _studies(place: Path) -> None:
    """The small study with one fault each."""

    def study(name: str, change: Callable[[dict[str, Any]], object]) -> None:
        values = copy.deepcopy(VALUES)
        change(values)
        (place / f"{name}.yaml").write_text(yaml.safe_dump(values))

    def grid(values: dict[str, Any]) -> dict[str, Any]:
        return values["scales"]["cpu"]["grids"]["recall"]

    study("good", lambda values: None)
    study("no-runs", lambda values: values["scales"]["cpu"].update(grids={}))
    study("no-seeds", lambda values: grid(values)["vary"].update(seed=[]))
    study("one-seed", lambda values: grid(values)["vary"].update(seed=0))
    study("bad-variant", lambda values: grid(values)["vary"].update(variant=["softmax", "linear_elu", "sofmax"]))
    study("bad-key", lambda values: values.update(claim=[]))
    study("bad-inner-key", lambda values: grid(values).update(varies={}))
    study("bad-kind", lambda values: values["claims"][0]["rule"].update(kind="behnd"))
    study("bad-grid", lambda values: values["claims"][0].update(grid="recal"))
    study("no-title", lambda values: values.pop("title"))


def _runs(place: Path) -> None:
    """A finished run, and copies of it that were harmed."""
    done = place / "runs" / "done"
    run_training(resolve(SETTINGS | {"steps": 2, "checkpoint_every": 2}), done, quiet=True)

    def harmed(name: str) -> Path:
        return shutil.copytree(done, place / "runs" / name)

    (harmed("torn-config") / "config.yaml").write_text("steps: [1")
    (harmed("torn-result") / "result.json").write_text('{"step": ')
    weights = harmed("torn-weights") / "final" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    other = harmed("other-weights") / "final" / "config.json"
    other.write_text(json.dumps(json.loads(other.read_text()) | {"vocab_size": 40}))
    for name, text in (("torn-study", '{"study": '), ("other-study", '{"runs": []}')):
        (place / name).mkdir()
        (place / name / "results.json").write_text(text)
