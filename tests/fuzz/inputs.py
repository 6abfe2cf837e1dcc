"""What random uses are given: variants, settings and runs, whole or damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzz import damage
from softmax_rnn.attention.variants import VARIANTS
from study.tiny import SETTINGS

OUT = "out"
"""Everything that a command is asked to write goes here."""
SETTABLE = ("steps", "warmup_steps", "weight_decay", "seed", "precision", "trackers", "variants.mine", "data.pairs")
SETTABLE += ("layers", "layers.0", "layers.0-1", "measure_scores")
SETTABLE += ("model.hidden_size", "model.dtype", "model.hidden_act", "model.attention_spec", "model.rms_norm_eps")
Check = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """What is typed, and what its output must say when the exit code is 0."""

    words: list[str]
    check: Check = lambda out: None
    environment: Mapping[str, str] = field(default_factory=dict)


def json_or_text() -> Check:
    """Output of some kind, which is JSON where it looks like it."""

    def check(out: str) -> None:
        assert out.strip()
        if out.lstrip().startswith("{"):
            json.loads(out)

    return check


def variant(random: Random, folder: Path) -> str:
    """A variant's name, inline parts, or a file."""
    if random.random() < 0.4:
        return random.choice([*damage.NAMES, *list(VARIANTS)[:20]])
    values: Any = VARIANTS[random.choice(list(VARIANTS))].to_dict()
    for _ in range(random.choice([0, 1, 1, 2])):
        values = damage.tree(values, random)
    text = damage.text_of(values, random)
    if random.random() < 0.3 and "\x00" not in text and len(text) < 100_000:
        return text
    path = folder / f"spec{len(list(folder.iterdir()))}.json"
    path.write_text(text, encoding="utf-8")
    if random.random() < 0.3:
        damage.file(path, random)
    return f"case/{path.name}"


def run_folder(random: Random, folder: Path) -> str:
    """The folder of a run, whole or damaged."""
    if random.random() < 0.1:
        return "runs/done"
    copied = Path(shutil.copytree("runs/done", folder / f"run{len(list(folder.iterdir()))}"))
    files = sorted(path for path in copied.iterdir() if path.is_file() and not path.name.startswith("."))
    damage.file(random.choice(files), random)
    return f"case/{copied.name}"


def train_words(random: Random, folder: Path, most: int = 3) -> tuple[list[str], dict[str, Any]]:
    """A settings file and options, some of them wrong; the options that must be in the plan."""
    values: Any = SETTINGS
    if random.random() < 0.4:
        values = damage.tree(values, random)
    path = folder / "run.yaml"
    path.write_text(damage.text_of(values, random), encoding="utf-8")
    if random.random() < 0.2:
        damage.file(path, random)
    typed, given = ["train", "--config", "case/run.yaml"], {}
    for _ in range(random.randrange(most + 1)):
        option = random.choice(["--seed", "--learning-rate", "--batch-size", "--variant", "--size", "--data", "--set"])
        if option == "--set":
            inner = random.choice(SETTABLE)
            shown = random.choice([*damage.NUMBERS, "banana", "[1", "{a: 1}", "*x", "!!python/object:os.system ls"])
            typed += ["--set", f"{inner}={shown}"]
            continue
        shown = random.choice(damage.NAMES if option in ("--variant", "--size", "--data") else damage.NUMBERS)
        typed += [option, shown]
        if option in ("--seed", "--learning-rate", "--batch-size"):
            given[option[2:].replace("-", "_")] = shown
    given = {} if "--set" in typed else given
    return typed, given
