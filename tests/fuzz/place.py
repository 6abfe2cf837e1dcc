"""The folder in which random uses happen: that of the wrong uses, a small model of text, and runs to damage."""

from __future__ import annotations

import os
import shutil
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

import yaml
from tests import wrong_places
from tests.study.tiny import SETTINGS

from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.training import run_training
from softmax_rnn.files import write_json
from softmax_rnn.model.generating import generate_command
from softmax_rnn.report.study_page import study_page, write_report
from softmax_rnn.study.folders import results_of


def make_place(place: Path) -> None:
    """Fill the folder."""
    wrong_places.make_place(place)
    (place / "home").mkdir()
    with chdir(place), patch.dict(os.environ, {"SOFTMAX_RNN_CACHE": str(place / "cache")}):
        _text_run(place)
        _half_run()
        _state()
    results = results_of([place / "runs" / "done", place / "runs" / "text"])
    write_json(place / "runs" / "both" / "results.json", results)
    write_report(study_page(results), place / "runs" / "both")


def _text_run(place: Path) -> None:
    poems = place / "poems"
    poems.mkdir()
    for number in range(8):
        (poems / f"{number}.txt").write_text(f"Rose {number} is red, and to be or not to be is the question.\n" * 9)
    settings = {
        "data": {"source": str(poems), "tokenizer": "bytes", "test_fraction": 0.3},
        "steps": 2,
        "batch_size": 2,
        "context": 16,
        "warmup_steps": 1,
        "model": {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1},
    }
    Path("text.yaml").write_text(yaml.safe_dump(settings))
    run_training(resolve(settings), Path("runs/text"), quiet=True)


def _half_run() -> None:
    """A run of four steps, and a copy that was interrupted after two."""
    settings = SETTINGS | {"steps": 4}
    Path("four.yaml").write_text(yaml.safe_dump(settings))
    run_training(resolve(settings), Path("runs/four"), quiet=True)
    half = Path(shutil.copytree("runs/four", "runs/half"))
    (half / "result.json").unlink()
    shutil.rmtree(half / "final")
    shutil.rmtree(half / "checkpoints" / "step-000000004")


def _state() -> None:
    """A decoding state, and what comes of it."""
    generate_command("runs/text/final", "To", max_new_tokens=2, state_out="runs/state")
    done = generate_command("runs/text/final", " be", max_new_tokens=2, state_in="runs/state")
    write_json(Path("runs/continued.json"), {"text": done.text, "context": done.context})
