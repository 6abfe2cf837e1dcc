"""Checkpoints: complete or absent; damaged ones are seen and passed over."""

import json
import os

import pytest

from softmax_rnn.errors import InputError
from softmax_rnn.train.checkpoint import damage, latest_checkpoint, remove_leftovers, write_checkpoint

FILES = {"a.bin": lambda path: path.write_bytes(b"x" * 100), "b.json": lambda path: path.write_text("{}")}


@pytest.fixture
def folder(tmp_path):
    for step in (3, 6):
        write_checkpoint(tmp_path, step, FILES)
    return tmp_path


def test_the_newest_is_taken_and_the_oldest_removed(folder):
    write_checkpoint(folder, 10, FILES, keep=2)
    assert latest_checkpoint(folder).step == 10
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000006", "step-000000010"]


def truncate(path):
    os.truncate(path / "a.bin", 99)


def flip(path):
    (path / "a.bin").write_bytes(b"x" * 99 + b"y")


def remove(path):
    (path / "b.json").unlink()


def cut_manifest(path):
    os.truncate(path / "manifest.json", 20)


def no_manifest(path):
    (path / "manifest.json").unlink()


def other_manifest(path):
    (path / "manifest.json").write_text(json.dumps({"files": [1, 2]}))


def huge_manifest(path):
    (path / "manifest.json").write_text('{"files": {"a.bin": {"bytes": 1e999, "sha256": ""}}}')


def deep_manifest(path):
    (path / "manifest.json").write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (truncate, "a.bin has 99 bytes, not 100"),
        (flip, "the content of a.bin has changed"),
        (remove, "b.json is missing"),
        (cut_manifest, "manifest.json cannot be read"),
        (no_manifest, "manifest.json cannot be read"),
        (other_manifest, "manifest.json cannot be read"),
        (huge_manifest, "manifest.json cannot be read"),
        (deep_manifest, "manifest.json cannot be read"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_damaged_one_is_skipped_with_a_message(folder, harm, said):
    harm(folder / "step-000000006")
    heard = []
    assert latest_checkpoint(folder, heard.append).step == 3
    assert len(heard) == 1
    assert said in heard[0]
    assert "step-000000006" in heard[0]


def test_none_at_all(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "missing") is None


def test_other_folders_are_no_checkpoints(folder):
    (folder / "step-x").mkdir()
    (folder / "stepping-12").mkdir()
    assert latest_checkpoint(folder).step == 6


def test_a_damaged_one_is_replaced_when_its_step_comes_again(folder):
    truncate(folder / "step-000000006")
    write_checkpoint(folder, 6, FILES)
    assert damage(folder / "step-000000006") is None


def test_what_fails_on_the_way_leaves_nothing(folder):
    def fail(path):
        path.write_bytes(b"half")
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        write_checkpoint(folder, 9, {**FILES, "c": fail})
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000003", "step-000000006"]


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(folder):
    (folder / ".step-000000009.4711").mkdir()
    (folder / ".step-000000009.4711" / "a.bin").write_bytes(b"half")
    (folder / ".metrics.4711.jsonl").write_text("half")
    for name in (".lock", ".gitignore", "notes.4711.txt"):
        (folder / name).write_text("")
    remove_leftovers(folder)
    result = sorted(path.name for path in folder.iterdir())
    assert result == [".gitignore", ".lock", "notes.4711.txt", "step-000000003", "step-000000006"]


def test_a_checkpoint_of_another_format_is_refused_in_one_line(folder):
    manifest = folder / "step-000000006" / "manifest.json"
    values = json.loads(manifest.read_text())
    del values["format"]
    manifest.write_text(json.dumps(values))
    with pytest.raises(InputError, match=r"written by another version of softmax-rnn \(format 1, expected 2\)"):
        latest_checkpoint(folder)
