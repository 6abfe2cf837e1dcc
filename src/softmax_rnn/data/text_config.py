"""Which text, cut how, into which tokens.

>>> TextConfig(source="shakespeare").tokenizer
'bytes'
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from softmax_rnn.errors import InputError
from softmax_rnn.files import cache_folder, expanded


class TextConfig(BaseModel):
    """A text as training data. The length of the rows and the seed are arguments of `load_text`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = "shakespeare"
    """The name of an embedded corpus, the path of a file or folder, or a hub name ``owner/name``."""
    config: str | None = None
    """The hub's configuration, such as ``CC-MAIN-2024-51``."""
    split: str = "train"
    """The hub's split; our own test split is cut from it."""
    text_column: str = "text"
    """Where a record has its text."""
    streaming: bool = False
    """Read while training instead of tokenising everything first."""
    tokenizer: str = "bytes"
    """``bytes``, ``bpe`` (trained on the training split), or a name or path for `AutoTokenizer`."""
    vocab_size: int = Field(2048, ge=258)
    """Tokens of ``bpe``."""
    layout: Literal["packed", "padded"] = "packed"
    """Documents one after another in full rows, or one document per row."""
    test_fraction: float | None = Field(None, gt=0, lt=1)
    """The share of documents for testing; when not given 0.03 for an embedded corpus, 0.05 for local files, 0.001
    (the paper's) for the hub."""
    test_documents: int | None = Field(None, ge=1)
    """The most documents of the test split; when not given 1000 for a stream, and all otherwise."""
    max_documents: int | None = Field(None, ge=1)
    """Read only this many documents, both splits together."""
    shuffle_buffer: int = Field(1000, ge=1)
    """Rows of a stream that are shuffled among each other."""
    workers: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    """Threads that tokenise; the first use in a process decides how many there are."""
    cache: Path = Field(default_factory=cache_folder)
    """The folder of tokenised texts; ``$SOFTMAX_RNN_CACHE`` when not given."""

    @field_validator("source")
    @classmethod
    def _named(cls, source: str) -> str:
        if not source.strip():
            raise InputError(f"expected a corpus, a file, a folder or a hub name, got {source!r}")
        return source

    @field_validator("cache")
    @classmethod
    def _expand(cls, cache: Path) -> Path:
        return expanded(cache)
