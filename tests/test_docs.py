"""What the documents show is run: doctests, Python blocks and commands."""

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import softmax_rnn
from softmax_rnn.__main__ import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [
    one.name for one in pkgutil.walk_packages(softmax_rnn.__path__, "softmax_rnn.") if not one.name.endswith("__main__")
]
# A quarter of an hour each; their quick versions are run by `make run`.
TOO_LONG = ("bench",)


@pytest.mark.parametrize("name", ["softmax_rnn", *MODULES])
def test_examples_of_docstrings(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)
    assert "__name__" in names


def commands():
    for line in "\n".join(blocks(ROOT / "README.md", "sh")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["softmax-rnn"] and words[1] not in TOO_LONG:
            yield words[1:]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_commands_of_the_readme(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_exist(page):
    targets = re.findall(r"\]\(([^)#:]+?)\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []
