"""Random uses of the command line, each from its number alone: what is typed, and what is checked if it succeeds."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml

from fuzz import damage
from softmax_rnn.attention.variants import VARIANTS
from study.tiny import SETTINGS, VALUES

OUT = "out"
"""Everything that a command is asked to write goes here."""
SETTABLE = ("steps", "warmup_steps", "weight_decay", "seed", "precision", "trackers", "variants.mine", "data.pairs")
SETTABLE += ("model.hidden_size", "model.dtype", "model.hidden_act")
Check = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """What is typed, and what its output must say when the exit code is 0."""

    words: list[str]
    check: Check = lambda out: None


def case(number: int, place: Path) -> Case:
    """The case of this number; what it needs is put into ``place/case``."""
    random = Random(f"softmax-rnn {number}")
    folder = place / "case"
    folder.mkdir()
    kinds, weights = zip(*KINDS.items(), strict=True)
    return random.choices(kinds, weights)[0](random, folder)


def explain(random: Random, folder: Path) -> Case:
    """A name, inline parts or a spec's file; the JSON must hold the spec that was given."""
    name = _variant(random, folder)
    words = ["explain", name]
    for option in ("--time", "--head-dim", "--heads"):
        if random.random() < 0.3:
            words += [option, random.choice(damage.NUMBERS)]

    def check(out: str) -> None:
        assert out.strip()
        if out.lstrip().startswith("{"):
            said = json.loads(out)["spec"]
            given = _given_parts(name)
            assert all(said[slot] == part for slot, part in given.items()), (name, said)

    return Case([*words, *random.choice([["--json"], ["--train", "--json"], []])], check)


def _given_parts(name: str) -> dict[str, Any]:
    """The parts that were asked for, as JSON says them; options that were left out have their defaults."""
    if name in VARIANTS:
        return VARIANTS[name].to_dict()
    try:
        values = json.loads(Path(name).read_text(encoding="utf-8") if name.endswith(".json") else name)
    except (ValueError, OSError):
        return {}
    base = VARIANTS[values.pop("like")].to_dict() if "like" in values else VARIANTS["softmax"].to_dict()
    kinds = {slot: (part, base[slot]) for slot, part in values.items()}
    return {slot: default | part if default and default["kind"] == part["kind"] else part
            for slot, (part, default) in kinds.items() if part and len(part) == len(default or ())}  # fmt: skip


def variants(random: Random, folder: Path) -> Case:
    """The table; its head dimension must be the one that was given."""
    number = random.choice(damage.NUMBERS)

    def check(out: str) -> None:
        assert json.loads(out)["head_dim"] == int(number)

    return Case(["variants", "--json", "--head-dim", number], check)


def verify(random: Random, folder: Path) -> Case:
    """Mostly what cannot be verified: a check of everything takes long."""
    name = _variant(random, folder)

    def check(out: str) -> None:
        assert json.loads(out)["passed"] is True

    return Case(["verify", name, "--json"], check)


def compare(random: Random, folder: Path) -> Case:
    """Names, files, runs, and runs that were damaged."""
    two = [random.choice([_variant, _run, _run])(random, folder) for _ in range(2)]
    return Case(["compare", *two, "--json"], _json_or_text())


def dry_run(random: Random, folder: Path) -> Case:
    """Settings by option, by --set and in a file; an accepted value must be in the plan as it was given."""
    words, given = _train_words(random, folder)

    def check(out: str) -> None:
        config = json.loads(out)["config"]
        for name, value in given.items():
            if isinstance(config.get(name), int | float | str) and not isinstance(value, bool):
                assert str(config[name]) == str(value) or float(config[name]) == float(value), (name, value)

    return Case([*words, "--dry-run", "--json"], check)


def train(random: Random, folder: Path) -> Case:
    """A run of a few steps with a setting that may be wrong."""
    words, _ = _train_words(random, folder, most=1)

    def check(out: str) -> None:
        result = json.loads(out)["result"]
        assert result["test_loss"] is None or result["test_loss"] == result["test_loss"]

    return Case([*words, "--set", "steps=2", "--set", "checkpoint_every=2", "--output", OUT, "--json"], check)


def data(random: Random, folder: Path) -> Case:
    """Training data that was damaged."""
    lines = [json.dumps({"text": f"Rose {n} is red, {n * n} is blue."}) for n in range(12)]
    name = random.choice(["a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.gz", "a.json", "a.csv", "a.parquet"])
    text = "\n".join(lines) if "json" in name else "text\n" + "\n\n".join(lines)
    content = gzip.compress(text.encode(), mtime=0) if name.endswith(".gz") else text.encode()
    if random.random() < 0.1:
        content = damage.nested(random).encode()
    (folder / name).write_bytes(damage.data(content, random))
    words = ["train", "--config", "run.yaml", "--data", f"case/{name}", "--output", OUT, "--json", "--context", "8"]
    return Case([*words, "--set", "steps=1", "--set", "data.tokenizer=bytes", "--set", "data.test_fraction=0.3"])


def study(random: Random, folder: Path) -> Case:
    """A study's file with a fault, planned and not run."""
    path = folder / "study.yaml"
    values = VALUES
    for _ in range(random.choice([1, 1, 2, 4])):
        values = damage.tree(values, random)
    path.write_text(yaml.safe_dump(values) if random.random() < 0.5 else damage.text_of(values, random))
    if random.random() < 0.3:
        damage.file(path, random)
    scale = random.choice([[], [], ["--scale", random.choice(["cpu", "paper", "", "cpuu"])]])
    return Case(["study", "case/study.yaml", "--dry-run", "--json", *scale], _json_or_text())


def report(random: Random, folder: Path) -> Case:
    """A report from runs of which some are damaged."""
    runs = [_run(random, folder) for _ in range(random.choice([1, 1, 2]))]
    return Case(["report", *runs, "--output", OUT, "--json"], _json_or_text())


def generate(random: Random, folder: Path) -> Case:
    """A small model of text whose files are damaged, or options that are wrong."""
    shutil.copytree("runs/text/final", folder / "model")
    if random.random() < 0.7:
        damage.file(random.choice(sorted((folder / "model").iterdir())), random)
    words = ["generate", "case/model", random.choice(["To be", "", "\x7f", "é" * 50]), "--max-new-tokens", "2"]
    for option in ("--temperature", "--top-k", "--top-p", "--seed", "--max-new-tokens"):
        if random.random() < 0.2:
            words += [option, random.choice(damage.NUMBERS[:-12] if option == "--max-new-tokens" else damage.NUMBERS)]
    if random.random() < 0.3:
        words += ["--variant", random.choice(damage.NAMES)]
    if random.random() < 0.2:
        words += ["--state-out", random.choice([f"{OUT}/state", "one.txt", "notes", "runs/done/config.yaml"])]
    return Case([*words, "--json"], _json_or_text())


def words(random: Random, folder: Path) -> Case:
    """Words in no order."""
    known = ["train", "study", "explain", "report", "watch", "bench", "eval", "terms", "doctor", "compare", "generate"]
    known += [
        "--json",
        "--help",
        "--dry-run",
        "--output",
        "--variant",
        "--set",
        "--config",
        "--seed",
        "--version",
        "new",
    ]
    known += [*damage.NAMES, *damage.NUMBERS[:12], "run.yaml", "runs/done", "notes", "binary.txt", "/dev/null"]
    typed = [random.choice(known) for _ in range(random.randrange(1, 6))]
    # These take minutes, listen on a port, or write where they like.
    if any(word in typed for word in ("bench", "watch", "eval", "terms", "new")) and "--help" not in typed:
        typed.append("--no-such-option")
    if typed[0] in ("train", "study", "report", "generate"):
        typed += ["--output" if typed[0] != "generate" else "--state-out", OUT]
        typed += ["--dry-run"] if typed[0] in ("train", "study") else []
    return Case(typed)


def _json_or_text() -> Check:
    def check(out: str) -> None:
        assert out.strip()
        if out.lstrip().startswith("{"):
            json.loads(out)

    return check


def _variant(random: Random, folder: Path) -> str:
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


def _run(random: Random, folder: Path) -> str:
    """The folder of a run, whole or damaged."""
    if random.random() < 0.1:
        return "runs/done"
    copied = Path(shutil.copytree("runs/done", folder / f"run{len(list(folder.iterdir()))}"))
    files = sorted(path for path in copied.iterdir() if path.is_file() and not path.name.startswith("."))
    damage.file(random.choice(files), random)
    return f"case/{copied.name}"


def _train_words(random: Random, folder: Path, most: int = 3) -> tuple[list[str], dict[str, Any]]:
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


KINDS: dict[Callable[[Random, Path], Case], int] = {
    explain: 26, variants: 5, verify: 4, compare: 12, dry_run: 22, train: 2, data: 4, study: 12, report: 4, generate: 4,
    words: 8,
}  # fmt: skip
