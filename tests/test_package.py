"""The wheel works without the clone: installed into an empty folder, it is all that Python sees of the project.

`make test-package` does the same in an empty environment, with everything that the wheel asks for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from softmax_rnn.version import __version__

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def run(installed: Path, where: Path, *words: str) -> str:
    """A Python that finds the installed copy first, started away from the clone."""
    environment = os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", *words]
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_stands_in_one_place(wheel):
    assert wheel.name == f"softmax_rnn-{__version__}-py3-none-any.whl"
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in text
    assert __version__ not in text


def test_types_studies_and_templates_are_in_the_wheel(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert "softmax_rnn/py.typed" in inside
    for kind in ("yaml", "html", "js", "css"):
        ours = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob(f"*.{kind}")}
        assert ours and ours <= inside
    assert not any(name.startswith("tests") for name in inside)


def test_commands_of_the_wheel(installed, tmp_path):
    where = run(installed, tmp_path, "-c", "import softmax_rnn; print(softmax_rnn.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
    said = run(installed, tmp_path, "-m", "softmax_rnn", "verify", "softmax", "taylor_2", "--json")
    assert json.loads(said)["passed"] is True
    planned = run(installed, tmp_path, "-m", "softmax_rnn", "study", "quick", "--dry-run", "--json")
    assert len(json.loads(planned)["runs"]) == 24
    assert list(tmp_path.iterdir()) == []
