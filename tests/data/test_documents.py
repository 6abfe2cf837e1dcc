"""Files and hub names: what is read, and one line for what cannot be."""

import gzip
import json
import os
import random
import subprocess
import sys

import datasets
import huggingface_hub
import pytest

from softmax_rnn.data.documents import open_records, open_texts
from softmax_rnn.data.text_config import TextConfig
from softmax_rnn.data.text_files import LONGEST, PIECES
from softmax_rnn.errors import InputError


def texts(source, **options):
    return list(open_texts(TextConfig(source=str(source), **options)))


def refusal(source, **options):
    with pytest.raises(InputError) as caught:
        texts(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_of_json_lines_in_the_order_of_its_files(jsonl):
    folder, written = jsonl
    assert texts(folder) == written
    assert texts(folder / "part1.jsonl") == written[20:40]
    assert texts(folder, max_documents=7) == written[:7]


def test_a_text_file_is_one_document(tmp_path):
    (tmp_path / "b.txt").write_text("second\n\nwith é and an empty line\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("first", encoding="utf-8")
    (tmp_path / ".hidden").write_text("not read")
    (tmp_path / "empty.txt").touch()
    assert texts(tmp_path) == ["first", "second\n\nwith é and an empty line\n"]


def test_parquet_and_another_column(tmp_path):
    datasets.Dataset.from_dict({"content": ["one", None, "", "two"]}).to_parquet(tmp_path / "x.parquet")
    assert texts(tmp_path / "x.parquet", text_column="content") == ["one", "two"]


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_compressed_json(tmp_path, ending):
    with gzip.open(tmp_path / f"x.{ending}.gz", "wt", encoding="utf-8") as file:
        file.write('{"text": "one"}\n{"text": "two"}\n')
    assert texts(tmp_path / f"x.{ending}.gz") == ["one", "two"]


def test_compressed_text(tmp_path):
    with gzip.open(tmp_path / "x.txt.gz", "wt", encoding="utf-8") as file:
        file.write("one\ntwo\n")
    assert texts(tmp_path) == ["one\ntwo\n"]


def test_the_hash_is_of_the_content_not_of_the_place(jsonl, tmp_path):
    folder, _ = jsonl
    before = open_texts(TextConfig(source=str(folder))).content_hash
    moved = folder.rename(tmp_path / "moved")
    assert open_texts(TextConfig(source=str(moved))).content_hash == before
    (moved / "part1.jsonl").write_text('{"text": "changed"}\n')
    assert open_texts(TextConfig(source=str(moved))).content_hash != before


def test_an_embedded_corpus_can_be_streamed():
    records, fingerprint = open_records(TextConfig(source="shakespeare"))
    at_hand = open_texts(TextConfig(source="shakespeare"))
    assert fingerprint == at_hand.content_hash
    assert [record["text"] for record in records] == list(at_hand)


def test_what_is_not_there(tmp_path):
    assert refusal(tmp_path / "no.jsonl") == f"source: there is no file or folder '{tmp_path}/no.jsonl'"
    assert refusal("texts/no.jsonl") == "source: there is no file or folder 'texts/no.jsonl'"
    assert refusal("shakespear") == "unknown source 'shakespear'; did you mean 'shakespeare'?"


def test_endings_that_nobody_reads(tmp_path):
    (tmp_path / "x.docx").write_text("x")
    known = ".txt, .jsonl, .json, .parquet"
    assert refusal(tmp_path) == f"source: expected a file that ends in {known}, got {tmp_path / 'x.docx'}"


def test_a_folder_of_two_kinds(jsonl):
    folder, _ = jsonl
    (folder / "x.txt").write_text("x")
    assert refusal(folder) == f"source: expected files of one kind in {folder}, got json and text"


def test_nothing_to_read(tmp_path):
    (tmp_path / "x.txt").touch()
    assert refusal(tmp_path) == f"source: {tmp_path} holds no text"


def test_a_missing_column_and_the_nearest_one(jsonl):
    where = f"source: {jsonl[0]}/part0.jsonl"
    assert refusal(jsonl[0], text_column="txt") == f"{where}: unknown text_column 'txt'; did you mean 'text'?"


def test_a_column_of_numbers(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": 3}\n')
    assert refusal(tmp_path) == "text_column: expected text in column 'text', got int"


BROKEN = {
    "x.jsonl": (b'{"text": "a"}\nnot json\n', ": line 2 is not valid JSON: Expecting value at character 1"),
    "list.jsonl": (b"[1]\n", ": expected a record in line 1, got a list"),
    "deep.jsonl": (b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", ": line 1 is nested too deeply"),
    "deep.json": (b"[" * 100_000, ": it is nested too deeply"),
    "digits.jsonl": (b'{"text": ' + b"9" * 5000 + b"}\n", ": line 1 cannot be read: Exceeds the limit"),
    "latin.jsonl": ('{"text": "é"}\n'.encode("latin-1"), ": line 1 is not text in UTF-8: "),
    "x.txt": (b"\xff\xfe\xfa", ": expected text in UTF-8, got invalid start byte at byte 0"),
    "late.txt": (b"a" * (1 << 20) + b"\xc3", ": expected text in UTF-8, got unexpected end of data at byte 1048576"),
    "cut.txt.gz": (gzip.compress(bytes(range(64)) * 99)[:-9], " is truncated: its compressed data ends early"),
    "cut.jsonl.gz": (gzip.compress(b'{"text": "a"}\n')[:20], " is truncated: its compressed data ends early"),
    "none.txt.gz": (b"no gzip", " cannot be read: Not a gzipped file"),
    "x.parquet": (b"no parquet, but long enough", " cannot be read: Parquet magic bytes not found"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_line_that_names_it(tmp_path, name):
    content, said = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    assert refusal(tmp_path / name).startswith(f"source: {tmp_path / name}{said}")


def test_json_that_is_one_value(tmp_path):
    (tmp_path / "x.json").write_text('\n[\n{"text": "one"},\n{"text": "two"}]')
    assert texts(tmp_path) == ["one", "two"]
    (tmp_path / "x.json").write_text('{\n"text":\n"one"}')
    assert texts(tmp_path) == ["one"]


def test_a_text_that_is_alone_is_cut_at_blank_lines(tmp_path):
    paragraphs = [f"Paragraph {number}\nhas {'many ' * (number % 7)} words.\n\n" for number in range(400)]
    (tmp_path / "x.txt").write_text("".join(paragraphs))
    pieces = texts(tmp_path / "x.txt")
    assert "".join(pieces) == "".join(paragraphs)
    assert all(piece.endswith("\n\n") for piece in pieces)
    assert 20 <= len(pieces) <= 40
    assert texts(tmp_path) == pieces


@pytest.mark.parametrize("text", ["word " * 20_000, "line of a text\r\n" * 20_000, "é" * 100_000, "a\n\n" * 100_000])
def test_a_text_without_paragraphs_is_cut_by_length(tmp_path, text):
    (tmp_path / "x.txt").write_text(text, encoding="utf-8", newline="")
    pieces = texts(tmp_path)
    assert "".join(pieces) == text.replace("\r\n", "\n")
    assert max(map(len, pieces)) <= 2 * LONGEST
    assert min(map(len, pieces[:-1])) >= min(LONGEST, len(text) // PIECES // 2)


def test_no_copy_of_local_files_is_made_and_the_datasets_library_stays_away(jsonl):
    code = f"""
import sys
from softmax_rnn.data.documents import open_texts
from softmax_rnn.data.text_config import TextConfig
assert len(list(open_texts(TextConfig(source={str(jsonl[0])!r})))) == 60
assert "datasets" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "HOME": "/dev/null"})


def test_the_hub_is_asked_for_a_fixed_revision(monkeypatch):
    asked = {}

    def load_dataset(name, config, **options):
        asked.update(options, name=name, config=config)
        return datasets.Dataset.from_dict({"text": ["one", "two"]})

    class Known:
        sha = "abc123"

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda self, name: Known)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert texts("HuggingFaceFW/fineweb", config="CC-MAIN-2024-51", split="test") == ["one", "two"]
    options = {"split": "test", "streaming": False, "revision": "abc123"}
    assert asked == {"name": "HuggingFaceFW/fineweb", "config": "CC-MAIN-2024-51", **options}


def test_without_a_connection(monkeypatch):
    def offline(*args, **kwargs):
        raise ConnectionError("Couldn't reach 'owner/name' on the Hub\nTry again")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", offline)
    monkeypatch.setattr(datasets, "load_dataset", offline)
    message = "source: owner/name cannot be loaded from the hub: Couldn't reach 'owner/name' on the Hub"
    assert refusal("owner/name") == message


def test_the_order_of_files_is_that_of_their_names(tmp_path):
    names = [f"{number:02}.jsonl" for number in range(20)]
    for name in random.Random(0).sample(names, len(names)):
        (tmp_path / name).write_text(json.dumps({"text": name}) + "\n")
    assert texts(tmp_path) == names
