"""Random uses that train, continue, read and report runs; what they say is held against the files."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import yaml

from fuzz import damage
from fuzz.inputs import OUT, Case, json_or_text, run_folder, train_words, variant
from softmax_rnn.attention.variants import VARIANTS

MEASURED = ("tokens_per_second", "memory_bytes")
"""What differs when the same run is run again."""


def train(random: Random, folder: Path) -> Case:
    """A run of a few steps with a setting that may be wrong: its labels are those of the model that was trained."""
    words, _ = train_words(random, folder, most=1)
    if random.random() < 0.6:
        words += ["--variant", variant(random, folder)]

    def check(out: str) -> None:
        result = json.loads(out)["result"]
        assert result == json.loads(Path(OUT, "result.json").read_text())
        config = yaml.safe_load(Path(OUT, "config.yaml").read_text())
        assert [result[name] for name in ("variant", "size", "seed")] == [
            config["variant"],
            config["size"],
            config["seed"],
        ]
        assert result["step"] == config["steps"] == 2
        model = json.loads(Path(OUT, "final", "config.json").read_text())
        own = config.get("variants") or {}
        spec = own[result["variant"]] if result["variant"] in own else VARIANTS[result["variant"]].to_dict()
        assert model.get("attention_spec") == spec, result["variant"]
        _check_numbers(result, Path(OUT))

    return Case([*words, "--set", "steps=2", "--set", "checkpoint_every=2", "--output", OUT, "--json"], check)


def _check_numbers(result: dict[str, Any], folder: Path) -> None:
    """Losses are numbers, and the last ones of the metrics are those of the result."""
    assert math.isfinite(result["test_loss"]) and math.isfinite(result["train_loss"])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    tested = [line["test_loss"] for line in lines if "test_loss" in line]
    trained = [line["loss"] for line in lines if "loss" in line]
    assert (tested[-1], trained[-1]) == (result["test_loss"], result["train_loss"])


def resume(random: Random, folder: Path) -> Case:
    """A run that was interrupted, and one of its files damaged since: it ends as it would have, or not at all."""
    shutil.copytree("runs/half", OUT)
    damage.inside(Path(OUT), random)
    return Case(["train", "--config", "four.yaml", "--output", OUT, "--json"], _same_as("runs/four", Path(OUT)))


def cached(random: Random, folder: Path) -> Case:
    """Training on a text whose tokens are cached, and damaged there: made again, never trained on."""
    shutil.copytree("cache", Path(OUT, "cache"))
    damage.inside(Path(OUT, "cache"), random)
    words = ["train", "--config", "text.yaml", "--output", f"{OUT}/run", "--json"]
    return Case(words, _same_as("runs/text", Path(OUT, "run")), {"SOFTMAX_RNN_CACHE": f"{OUT}/cache"})


def _same_as(expected: str, folder: Path) -> Callable[[str], None]:
    def known(path: Path) -> dict[str, Any]:
        return {name: value for name, value in json.loads(path.read_text()).items() if name not in MEASURED}

    def check(out: str) -> None:
        assert known(folder / "result.json") == known(Path(expected, "result.json"))
        one, other = (path / "final" / "model.safetensors" for path in (folder, Path(expected)))
        assert one.read_bytes() == other.read_bytes()

    return check


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
    words += ["--set", "steps=1", "--set", "data.tokenizer=bytes", "--set", "data.test_fraction=0.3"]
    return Case(words, lambda out: _check_numbers(json.loads(out)["result"], Path(OUT)))


def compare(random: Random, folder: Path) -> Case:
    """Names, files, runs and studies, of which some are damaged; runs' numbers are those of their files."""
    two = [random.choice([variant, run_folder, run_folder, _study])(random, folder) for _ in range(2)]

    def check(out: str) -> None:
        value = json.loads(out)
        if value["kind"] != "runs":
            return
        for number, path in enumerate(two):
            written = Path(path, "result.json")
            loss = value["metrics"].get("test_loss", [None, None])[number]
            assert loss is None or math.isfinite(loss)
            if written.is_file():
                assert loss == json.loads(written.read_text())["test_loss"]

    return Case(["compare", *two, "--json"], check)


def _study(random: Random, folder: Path) -> str:
    """The folder of a study's results, whole or damaged."""
    copied = Path(shutil.copytree("runs/both", folder / f"study{len(list(folder.iterdir()))}"))
    if random.random() < 0.8:
        damage.file(copied / "results.json", random)
    return f"case/{copied.name}"


def report(random: Random, folder: Path) -> Case:
    """A report from runs of which some are damaged; each stands there under the variant that its settings name."""
    runs = [run_folder(random, folder) for _ in range(random.choice([1, 1, 2]))]
    if random.random() < 0.3:
        runs = [f"{_study(random, folder)}{random.choice(['', '/results.json'])}"]
    figures = ["--no-figures"] if random.random() < 0.9 else []

    def check(out: str) -> None:
        value = json.loads(out)
        assert value == json.loads(Path(OUT, "results.json").read_text())
        assert "</html>" in Path(OUT, "report.html").read_text()
        for entry in value["runs"]:
            config = Path(entry["folder"], "config.yaml")
            if entry["folder"] in runs:
                assert entry["settings"]["variant"] == yaml.safe_load(config.read_text())["variant"]
            result = entry["result"]
            # A result that has lost its label gets that of its settings.
            assert (result or {}).get("variant", entry["settings"]["variant"]) == entry["settings"]["variant"]

    return Case(["report", *runs, "--output", OUT, "--json", *figures], check)


def checked(random: Random, folder: Path) -> Case:
    """A saved result, whole or damaged, whose sample is listed: finished runs of the file."""
    shutil.copy("good.yaml", folder / "runs.yaml")  # the name of a study is that of its file
    saved = Path(_study(random, folder), "results.json")
    count = random.choice(["1", "2", "9", "0", "-1", "two"])

    def check(out: str) -> None:
        names = [run["name"] for run in json.loads(saved.read_text())["runs"] if run["state"] == "finished"]
        assert 1 <= len(json.loads(out)["runs"]) <= int(count) and set(json.loads(out)["runs"]) <= set(names)

    words = ["study", "case/runs.yaml", "--check", str(saved), "--runs", count, "--dry-run", "--json"]
    return Case([*words, "--output", OUT], check)


def board(random: Random, folder: Path) -> Case:
    """A folder of saved results, of which some are damaged: a page, and every number of it in a file."""
    place = folder / "board"
    place.mkdir()
    for number in range(random.choice([1, 2, 3])):
        shutil.copy(Path(_study(random, folder), "results.json"), place / f"{number}.json")

    def check(out: str) -> None:
        value = json.loads(out)
        assert value == json.loads(Path(OUT, "claims.json").read_text())
        assert len(value["studies"]) >= 1 and "</html>" in Path(OUT, "report.html").read_text()

    return Case(["report", "case/board", "--output", OUT, "--json"], check)


def generate(random: Random, folder: Path) -> Case:
    """A small model of text whose files are damaged, or options that are wrong."""
    shutil.copytree("runs/text/final", folder / "model")
    if random.random() < 0.7:
        damage.file(random.choice(sorted((folder / "model").iterdir())), random)
    prompt = random.choice(["To be", "", "\x7f", "é" * 50])
    words = ["generate", "case/model", prompt]
    for option in ("--temperature", "--top-k", "--top-p", "--seed"):
        if random.random() < 0.2:
            words += [option, random.choice(damage.NUMBERS)]
    most = random.choice(damage.NUMBERS[:-12]) if random.random() < 0.2 else "2"
    name = random.choice(damage.NAMES) if random.random() < 0.3 else None
    state = random.choice([f"{OUT}/state", "one.txt", "notes", "runs/done/config.yaml"])
    words += ["--variant", name] if name is not None else []
    words += ["--state-out", state] if random.random() < 0.2 else []

    def check(out: str) -> None:
        value = json.loads(out)
        assert (value["prompt"], value["variant"] or None) == (prompt, name or None)
        assert 1 <= value["tokens"] <= int(most)
        assert all(math.isfinite(one) for one in value.values() if isinstance(one, int | float))
        assert "--state-out" not in words or Path(state).is_file()

    return Case([*words, "--max-new-tokens", most, "--json"], check)


def state(random: Random, folder: Path) -> Case:
    """A saved decoding state that was damaged: continued as before, or not at all."""
    shutil.copy("runs/state", folder / "state")
    if random.random() < 0.9:
        damage.file(folder / "state", random)
    words = ["generate", "runs/text/final", " be", "--max-new-tokens", "2", "--state-in", "case/state", "--json"]
    expected = json.loads(Path("runs/continued.json").read_text())

    def check(out: str) -> None:
        value = json.loads(out)
        assert (value["text"], value["context"]) == (expected["text"], expected["context"])

    return Case(words, check)


def terms(random: Random, folder: Path) -> Case:
    """Statistics of a model whose files are damaged."""
    shutil.copytree("runs/text/final", folder / "model")
    damage.file(random.choice(sorted((folder / "model").iterdir())), random)
    words = ["terms", "case/model", "--text", "poems/0.txt", "--tokens", "8", "--orders", "3", "--statistics-only"]
    return Case([*words, "--output", OUT, "--json"], json_or_text())
