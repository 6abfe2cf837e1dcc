"""Small texts, and a cache of its own for every test."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTMAX_RNN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def jsonl(tmp_path):
    """A folder of three files with 60 short documents of different lengths; returns it and the texts."""
    folder = tmp_path / "texts"
    folder.mkdir()
    texts = [f"document {number} " + "abcdefg "[: number % 8] * (number % 5) for number in range(60)]
    for part in range(3):
        lines = [json.dumps({"text": text}) for text in texts[part * 20 : part * 20 + 20]]
        (folder / f"part{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder, texts
