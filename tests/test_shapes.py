"""What signatures say of shapes is checked at run time, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from attention.cases import KINDS, MASKS, NAMES

SCRIPT = Path(__file__).with_name("shapes.py")
ALL = pytest.param(NAMES, list(MASKS), marks=pytest.mark.slow)


@pytest.mark.parametrize(("names", "masks"), [(KINDS, ["both"]), ALL], ids=["kinds", "all"])
def test_tensors_have_the_shapes_that_signatures_state(names, masks):
    command = [sys.executable, "-W", "ignore", str(SCRIPT), ",".join(masks), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) >= 3 * len(names)
