"""A folder is made once and is whole."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from softmax_rnn.cached_folder import cached, key
from softmax_rnn.errors import InputError, RunError

WRITER = """
import sys, time
from pathlib import Path
from softmax_rnn.cached_folder import cached

def make(folder):
    print("made")
    time.sleep(0.3)
    (folder / "text").write_text("whole")

print((cached(Path(sys.argv[1]), make) / "text").read_text())
"""


def test_made_once(tmp_path):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "text").write_text("x")

    for _ in range(3):
        assert (cached(tmp_path / "deep" / "folder", make) / "text").read_text() == "x"
    assert len(made) == 1


@pytest.mark.parametrize("harm", ["zeros", "cut", "delete", "add", "lose the hashes", "random hashes", "deep hashes"])
def test_a_damaged_folder_is_made_again_with_one_line(tmp_path, capsys, harm):
    folder = cached(tmp_path / "folder", lambda made: (made / "text").write_text("whole"))
    text, hashes = folder / "text", folder / "hashes.json"
    match harm:
        case "zeros":
            text.write_bytes(bytes(text.stat().st_size))
        case "cut":
            text.write_text("who")
        case "delete":
            text.unlink()
        case "add":
            (folder / "other").touch()
        case "lose the hashes":
            hashes.unlink()
        case "random hashes":
            hashes.write_bytes(bytes(range(256)))
        case "deep hashes":
            hashes.write_text("[" * 100_000)
    again = cached(folder, lambda made: (made / "text").write_text("again"))
    assert (again / "text").read_text() == "again"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cache: {folder} is damaged (")


def test_a_whole_folder_that_cannot_be_written_is_read(tmp_path, monkeypatch):
    folder = cached(tmp_path / "folder", lambda made: (made / "text").write_text("whole"))

    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert (cached(folder, refuse) / "text").read_text() == "whole"
    with pytest.raises(InputError, match=r"^cache: .* cannot be written: Permission denied; set SOFTMAX_RNN_CACHE"):
        cached(tmp_path / "other", refuse)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), Exception("No space (os error 28)")]
)
def test_a_full_disk_is_one_line(tmp_path, error):
    def fail(folder):
        raise error

    with pytest.raises(RunError, match=r"^cache: .*folder cannot be written: No space .*; set SOFTMAX_RNN_CACHE to"):
        cached(tmp_path / "folder", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.lock"]


def test_a_maker_that_fails_leaves_nothing_behind(tmp_path):
    def fail(folder):
        (folder / "text").write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        cached(tmp_path / "folder", fail)
    assert not (tmp_path / "folder").exists()
    folder = cached(tmp_path / "folder", lambda made: (made / "other").write_text("whole"))
    assert sorted(path.name for path in folder.iterdir()) == ["hashes.json", "other"]


def test_two_processes_at_once_make_it_once(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "folder")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0].split() for process in running)
    assert said == [["made", "whole"], ["whole"]]


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        InputError,
        match=r"^cache: .*file.* cannot be written: Not a directory; set SOFTMAX_RNN_CACHE to another folder$",
    ):
        cached(tmp_path / "file" / "tokens" / "key", lambda made: None)


def test_keys_differ_where_facts_do():
    assert key(a=1) != key(a=2) != key(b=2)
    assert key(a=1, b=None) == key(b=None, a=1)
