"""Random uses of the command line, each from its number alone: what is typed, and what is checked if it succeeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import yaml

from fuzz import damage, runs
from fuzz.inputs import OUT, Case, json_or_text, train_words, variant
from softmax_rnn.attention.variants import VARIANTS
from study.tiny import VALUES


def case(number: int, place: Path) -> Case:
    """The case of this number; what it needs is put into ``place/case``."""
    random = Random(f"softmax-rnn {number}")
    folder = place / "case"
    folder.mkdir()
    kinds, weights = zip(*KINDS.items(), strict=True)
    return random.choices(kinds, weights)[0](random, folder)


def explain(random: Random, folder: Path) -> Case:
    """A name, inline parts or a spec's file; the JSON must hold the spec that was given."""
    name = variant(random, folder)
    words = ["explain", name]
    for option in ("--time", "--head-dim", "--heads"):
        if random.random() < 0.3:
            words += [option, random.choice(damage.NUMBERS)]

    def check(out: str) -> None:
        assert out.strip()
        if out.lstrip().startswith("{"):
            said = json.loads(out)["spec"]
            assert _holds(said, _given_parts(name)), (name, said)

    return Case([*words, *random.choice([["--json"], ["--train", "--json"], []])], check)


def _holds(said: Any, given: Any) -> bool:
    """Whether everything that was given is said; what was left out has its default."""
    if isinstance(said, dict) and isinstance(given, dict):
        return all(name in said and _holds(said[name], value) for name, value in given.items())
    return said == given


def _given_parts(name: str) -> dict[str, Any]:
    """The parts that were asked for."""
    if name in VARIANTS:
        return VARIANTS[name].to_dict()
    try:
        text = Path(name).read_text(encoding="utf-8") if name.endswith(".json") else name
        values = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, OSError):
        return {}
    base = VARIANTS[values.pop("like")].to_dict() if "like" in values else {}
    return base | values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ; any other must have been refused."""
    assert len(dict(pairs)) == len(pairs), "a key appears twice"
    return dict(pairs)


FILTERS = {
    "--like": damage.NAMES,
    "--family": ("paper", "decays", "taylor", "orders and powers", "", "pap", "zzz", "٣"),
    "--state": ("fixed", "growing", "fixed", "", "none"),
    "--part": ("exp", "cosine", "l2", "forget_gate", "window 64", "", "expp", "*"),
}


def variants(random: Random, folder: Path) -> Case:
    """The table, filtered; its head dimension must be the one that was given, and each row have the part."""
    number, part = random.choice(damage.NUMBERS if random.random() < 0.5 else ("8", "64")), ""
    typed = ["variants", "--json", "--head-dim", number]
    for option, values in FILTERS.items():
        if random.random() < 0.25:
            typed += [option, random.choice(values)]
            part = typed[-1] if option == "--part" else part

    def check(out: str) -> None:
        value = json.loads(out)
        assert value["head_dim"] == Decimal(number)
        assert all(part.partition(" ")[0] in json.dumps(row["spec"]) for row in value["variants"])

    return Case(typed, check)


CONVERSION = ("window", "sinks", "order", "distil", "distil.rank", "distil.weights", "data", "spec", "stages", "keep")


def linearise(random: Random, folder: Path) -> Case:
    """A conversion, planned and not run: the plan has the attention that was asked for."""
    name = variant(random, folder)
    typed = ["linearise", random.choice(["runs/text/final"] * 5 + ["notes", "smolm2", ""]), "--to", name]
    for option in ("--tokens", "--context", "--seed", "--keep-loss", "--state-bytes", "--convert-layers"):
        if random.random() < 0.15:
            typed += [option, random.choice([*damage.NUMBERS, "3%", "50k"])]
    if random.random() < 0.3:
        typed += ["--stages", random.choice(["calibrate", "distil", "calibrate,distil", "", "distil,calibrate"])]
    if random.random() < 0.3:
        typed += ["--set", f"{random.choice(CONVERSION)}={random.choice(['1', '2', '{}', 'banana', '-1', '1e300'])}"]

    def check(out: str) -> None:
        config = json.loads(out)["config"]
        if "--set" not in typed:
            assert _holds(config["spec"], _given_parts(name)), (name, config["spec"])

    return Case([*typed, "--dry-run", "--json"], check)


def verify(random: Random, folder: Path) -> Case:
    """Mostly what cannot be verified: a check of everything takes long."""
    name = variant(random, folder)

    def check(out: str) -> None:
        assert json.loads(out)["passed"] is True

    return Case(["verify", name, "--json"], check)


def dry_run(random: Random, folder: Path) -> Case:
    """Settings by option, by --set and in a file; an accepted value must be in the plan as it was given."""
    words, given = train_words(random, folder)

    def check(out: str) -> None:
        config = json.loads(out)["config"]
        for name, value in given.items():
            if isinstance(config.get(name), int | float | str) and not isinstance(value, bool):
                assert str(config[name]) == str(value) or float(config[name]) == float(value), (name, value)

    return Case([*words, "--dry-run", "--json"], check)


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
    return Case(["study", "case/study.yaml", "--dry-run", "--json", *scale], json_or_text())


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


KINDS: dict[Callable[[Random, Path], Case], int] = {
    explain: 24, variants: 5, verify: 3, dry_run: 20, study: 11, words: 8, linearise: 8,
    runs.train: 4, runs.resume: 4, runs.cached: 3, runs.data: 4, runs.compare: 8, runs.report: 5, runs.checked: 4,
    runs.board: 3, runs.generate: 4, runs.state: 3, runs.terms: 1,
}  # fmt: skip
