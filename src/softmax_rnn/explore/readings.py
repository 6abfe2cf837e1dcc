"""Texts that were read, kept for as long as a page shows them: moving a slider does not run the model again.

A text is read once, whichever page asks. Each page keeps its last few texts; a page that is closed drops all of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from softmax_rnn.errors import InputError
from softmax_rnn.explore.source import Source

if TYPE_CHECKING:
    from softmax_rnn.analysis.reading import Reading

MOST_CHARACTERS = 2_000
MOST_TOKENS = 128
LONGEST_SHOWN = 24
"""Characters of a token that are shown."""
TEXTS_PER_PAGE = 3
MOST_PAGES = 32


@dataclass(frozen=True)
class Text:
    """A text in tokens, what the model made of it, and the head that was played last."""

    tokens: tuple[str, ...]
    reading: Reading
    played: dict[Hashable, Any] = field(default_factory=dict)


class Texts:
    """What pages have read, bounded per page and in the number of pages."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._pages: OrderedDict[str, OrderedDict[str, Text]] = OrderedDict()
        self._closed: deque[str] = deque(maxlen=8 * MOST_PAGES)

    def get(self, page: str, text: str) -> Text:
        """The text as the model reads it."""
        _check_length(text)
        reading = self._known(text)
        if reading is None:
            loaded = self.source.get()
            with loaded.lock:
                reading = self._known(text) or self._read(text)
        self._keep(page, text, reading)
        return reading

    def forget(self, page: str) -> None:
        """The page was closed."""
        with self._lock:
            self._pages.pop(page, None)
            self._closed.append(page)

    def closed(self, page: str) -> bool:
        """Whether the page is closed, so that its requests can end."""
        with self._lock:
            return page in self._closed

    @property
    def kept(self) -> int:
        """How many different texts are in memory."""
        with self._lock:
            return len({id(one) for texts in self._pages.values() for one in texts.values()})

    def _known(self, text: str) -> Text | None:
        with self._lock:
            return next((texts[text] for texts in self._pages.values() if text in texts), None)

    def _keep(self, page: str, text: str, reading: Text) -> None:
        with self._lock:
            texts = self._pages.setdefault(page, OrderedDict())
            self._pages.move_to_end(page)
            texts[text] = reading
            texts.move_to_end(text)
            while len(texts) > TEXTS_PER_PAGE:
                texts.popitem(last=False)
            while len(self._pages) > MOST_PAGES:
                self._pages.popitem(last=False)

    def _read(self, text: str) -> Text:
        from softmax_rnn.analysis.reading import read

        loaded = self.source.get()
        ids = token_ids(loaded.tokenizer, text)
        tokens = tuple(str(loaded.tokenizer.decode([one]))[:LONGEST_SHOWN] for one in ids)
        return Text(tokens, read(loaded.model, ids))


def token_ids(tokenizer: object, text: str, least: int = 2) -> list[int]:
    """The tokens of a text, refused where there are too few or too many."""
    _check_length(text)
    ids: list[int] = list(tokenizer(text)["input_ids"])  # pyright: ignore[reportCallIssue]
    if not least <= len(ids) <= MOST_TOKENS:
        raise InputError(f"text: expected {least} to {MOST_TOKENS} tokens, got {len(ids)}")
    return ids


def _check_length(text: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InputError("text: expected some words, got none")
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"text: expected at most {MOST_CHARACTERS:,} characters, got {len(text):,}")
