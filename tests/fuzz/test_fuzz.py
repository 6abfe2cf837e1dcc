"""Two thousand random uses: none ends in a traceback, a signal or a hang, lies, or changes a file it was not asked to.

Most run in forks of this process. A case is made from its number alone, which a failure names.
"""

import os
import shutil
import subprocess
import sys
from functools import partial

import pytest

from fuzz.cases import case
from fuzz.inputs import OUT
from fuzz.place import make_place
from fuzz.runner import BUG, content, one

pytestmark = pytest.mark.slow
CASES = 2400
CHUNK = 80
PROCESSES = 16


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "place"
    folder.mkdir()
    make_place(folder)
    return folder


@pytest.fixture
def inside(place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("SOFTMAX_RNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(place / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return place


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_random_uses_end_well(first, inside):
    wrong = {number: one(partial(case, number), inside) for number in range(first, first + CHUNK)}
    listed = [f"case {number}: {text}" for number, texts in wrong.items() for text in texts]
    assert not listed, "\n".join(listed)


@pytest.mark.parametrize("number", range(CASES, CASES + PROCESSES))
def test_random_uses_as_processes(number, inside):
    shutil.rmtree("case", ignore_errors=True)
    made = case(number, inside)
    before = content(inside)
    words = [word.replace("\x00", "") for word in made.words]
    command = [sys.executable, "-m", "softmax_rnn", *words]
    environment = os.environ | made.environment | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1, 2) and done.returncode != BUG
    assert "Traceback" not in done.stderr
    assert content(inside) == before
    shutil.rmtree(OUT, ignore_errors=True)
