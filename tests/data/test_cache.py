"""A folder is made once and is whole."""

import subprocess
import sys

import pytest

from softmax_rnn.data.cache import cached, key
from softmax_rnn.errors import InputError

WRITER = """
import sys, time
from pathlib import Path
from softmax_rnn.data.cache import cached

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


@pytest.mark.parametrize("harm", ["cut", "delete", "lose the sizes"])
def test_a_harmed_folder_is_made_again(tmp_path, harm):
    folder = cached(tmp_path / "folder", lambda made: (made / "text").write_text("whole"))
    if harm == "cut":
        (folder / "text").write_text("who")
    else:
        (folder / ("text" if harm == "delete" else "sizes.json")).unlink()
    again = cached(folder, lambda made: (made / "text").write_text("again"))
    assert (again / "text").read_text() == "again"


def test_a_maker_that_fails_leaves_nothing_behind(tmp_path):
    def fail(folder):
        (folder / "text").write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        cached(tmp_path / "folder", fail)
    assert not (tmp_path / "folder").exists()
    folder = cached(tmp_path / "folder", lambda made: (made / "other").write_text("whole"))
    assert sorted(path.name for path in folder.iterdir()) == ["other", "sizes.json"]


def test_two_processes_at_once_make_it_once(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "folder")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0].split() for process in running)
    assert said == [["made", "whole"], ["whole"]]


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"^cache: .*file.* cannot be written: Not a directory$"):
        cached(tmp_path / "file" / "tokens" / "key", lambda made: None)


def test_keys_differ_where_facts_do():
    assert key(a=1) != key(a=2) != key(b=2)
    assert key(a=1, b=None) == key(b=None, a=1)
