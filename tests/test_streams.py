"""Standard output that is full, closed, gone or of few letters; disks that are full. The command line as processes."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from softmax_rnn.files import write_folder, write_json, write_whole

FULL = Path("/dev/full")


def run(typed, *, shell="", **environment):
    command = f"{sys.executable} -m softmax_rnn {typed} {shell}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=False, timeout=120, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("typed", ["explain softmax", "variants --json"])
def test_a_full_standard_output_is_one_line(typed):
    code, _, error = run(typed, shell=f"> {FULL}")
    assert code == 1
    (line,) = error.splitlines()
    assert line in ("softmax-rnn: No space left on device", "softmax-rnn: standard output could not be written")


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-", f"2>{FULL}"])
def test_closed_streams_do_no_harm(closed):
    code, _, error = run("explain softmax", shell=closed)
    assert (code, error) == (0, "")


def test_an_error_that_nobody_can_read_keeps_its_exit_code():
    assert run("explain sofmax", shell=f"> {FULL} 2> {FULL}")[0] == 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("typed", ["explain softmax", "compare softmax linear_elu", "variants --json"])
def test_an_encoding_of_few_letters(typed, encoding):
    code, out, error = run(typed, PYTHONIOENCODING=encoding)
    assert (code, error) == (0, "")
    if "--json" in typed:
        assert "Σ" in str(json.loads(out.decode(encoding)))
    else:
        assert r"\u03a3" in out.decode(encoding)  # Σ


@pytest.fixture
def small_files():
    """No file may become larger than 1000 bytes: writing more fails as on a full disk, for every user."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_does_not_fit_is_named_and_the_old_one_stays(tmp_path, small_files):
    path = write_json(tmp_path / "x.json", {"old": 1})
    with pytest.raises(OSError, match=r"File too large: '.*x.json'$"):
        write_json(path, {"new": "x" * 10_000})
    with pytest.raises(OSError, match=r"File too large: '.*folder'$"):
        write_folder(tmp_path / "folder", lambda made: (made / "text").write_text("x" * 10_000))
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]
    assert json.loads(path.read_text()) == {"old": 1}


def test_an_error_without_a_file_is_named_after_what_is_written(tmp_path):
    """As a disk that is full says it: the system call knows only a number."""
    with pytest.raises(OSError, match=r"No space left on device: '.*x.txt'$"):
        write_whole(tmp_path / "x.txt", lambda path: FULL.write_text("x"))


def test_libraries_that_report_a_full_disk_as_text(tmp_path, small_files):
    tensors = {"x": np.zeros(10_000)}
    with pytest.raises(OSError, match=r"File too large: '.*state'$"):
        write_whole(tmp_path / "state", lambda path: save_file(tensors, path))
    assert list(tmp_path.iterdir()) == []


def test_a_command_on_a_full_disk_is_one_line(tmp_path, small_files):
    target = tmp_path / "verify.json"
    code, _, error = run(f"verify softmax --output {target}")
    assert code == 1
    assert error.splitlines()[-1] == f"softmax-rnn: {target}: File too large"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_home_that_cannot_be_written_is_not_the_fault_of_the_data(tmp_path):
    (tmp_path / "book.txt").write_text("".join(f"Line {n} of a book.\n" for n in range(99)))
    typed = f"train --data {tmp_path / 'book.txt'} --steps 1 --context 32 --output {tmp_path / 'run'}"
    code, _, error = run(typed, HOME="/dev/null", SOFTMAX_RNN_CACHE="")
    assert code == 2
    said = "softmax-rnn: cache: /dev/null/.cache/softmax-rnn/tokens cannot be written: Not a directory; set SOFTMAX_RNN"
    assert error.splitlines()[-1].startswith(said)
