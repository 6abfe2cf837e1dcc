"""What the documents show is run: doctests, Python blocks and commands. The site is built and complete."""

import contextlib
import doctest
import importlib
import io
import math
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
import typer.main
import yaml

import softmax_rnn
import softmax_rnn.model
from softmax_rnn.__main__ import main
from softmax_rnn.cli import app

ROOT = Path(__file__).parent.parent
HOOKS = ROOT / "docs" / "hooks"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [
    one.name for one in pkgutil.walk_packages(softmax_rnn.__path__, "softmax_rnn.") if not one.name.endswith("__main__")
]


@pytest.mark.parametrize("name", ["softmax_rnn", *MODULES])
def test_examples_of_docstrings(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def same_text(printed, shown):
    """Equal words; numbers within a fifth: other processors round differently, and training magnifies it."""
    number = r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?"
    result, expected = (list(map(float, re.findall(number, text))) for text in (printed, shown))
    return re.split(number, printed) == re.split(number, shown) and all(
        math.isclose(x, y, rel_tol=0.2) for x, y in zip(result, expected, strict=True)
    )


def test_the_readme_is_read_to_its_end():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1200


def test_same_text_compares_words_and_numbers():
    assert same_text("softmax 0.98", "softmax 1.00")
    assert not same_text("softmax 0.5", "softmax 1.00")
    assert not same_text("softmax True", "softmax False")


def slow_with(words, items):
    """The items as parameters; those that name one of the words load a pretrained model or start processes: slow."""
    return [pytest.param(one, marks=pytest.mark.slow) if any(w in text for w in words) else one for one, text in items]


@pytest.mark.parametrize(
    "page",
    slow_with(
        ["smollm2", '"steps": 250'],
        [(page, "".join(blocks(page, "python"))) for page in PAGES if blocks(page, "python")],
    ),
    ids=lambda page: page.name,
)
def test_python_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    """A block of text that follows one of Python is what it prints."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    pairs = r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?"
    for block, shown in re.findall(pairs, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, page.name, "exec"), names)
        assert not shown or same_text(printed.getvalue(), shown), f"printed:\n{printed.getvalue()}\nshown:\n{shown}"


def commands(program):
    """The README's commands that begin so, without the name of the program."""
    for line in "\n".join(blocks(ROOT / "README.md", "sh")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == [program]:
            yield words[1:]


def test_no_command_of_the_readme_is_left_out():
    lines = "\n".join(blocks(ROOT / "README.md", "sh")).splitlines()
    run = [words for program in ("softmax-rnn", "torchrun", "make") for words in commands(program)]
    assert len(run) == len([line for line in lines if line.strip()])


@pytest.mark.parametrize(
    "words", slow_with(["smollm2"], [(words, words) for words in commands("softmax-rnn")]), ids=" ".join
)
def test_commands_of_the_readme(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("words", list(commands("make")), ids=" ".join)
def test_targets_of_the_readme(words):
    """`make run` takes nine minutes and `make test` is this: it is only looked at where they lead."""
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert {"run": "softmax-rnn study quick", "test": "-m pytest"}[words[0]] in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_exist(page):
    targets = re.findall(r"\]\(([^)#:]+?)\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: every warning is an error (with --quiet none would be seen)."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def text_of(page):
    return unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))


@pytest.fixture
def hook(monkeypatch):
    """Import a module of the hooks as MkDocs does."""
    monkeypatch.syspath_prepend(str(HOOKS))
    return importlib.import_module


@pytest.mark.parametrize("name", sorted(path.stem for path in HOOKS.glob("*.py")))
def test_examples_of_hooks(name, hook):
    failed, _ = doctest.testmod(hook(name))
    assert failed == 0


def entries(nav):
    for entry in nav:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else entries(value)


def test_every_page_is_in_the_navigation(hook):
    root_pages = hook("repository_links").ROOT_PAGES
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} | set(root_pages.values())
    named = list(entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert sorted(named) == sorted(pages)


@pytest.mark.slow
def test_the_generated_page_has_every_variant_with_its_formula(site):
    page = text_of(site / "variants.html")
    missing = [name for name in softmax_rnn.VARIANTS if name not in page]
    missing += [name for name in softmax_rnn.VARIANTS if softmax_rnn.formula(softmax_rnn.VARIANTS[name]) not in page]
    missing += [family.name for family in softmax_rnn.VARIANTS.families if family.name not in page]
    assert missing == []


@pytest.mark.slow
def test_the_generated_page_has_every_command_with_its_options(site):
    page = text_of(site / "cli.html")
    commands = typer.main.get_command(app).commands
    missing = [name for name in commands if f"softmax-rnn {name}" not in page]
    missing += [word for one in commands.values() for option in one.params for word in option.opts
                if word.startswith("--") and word != "--help" and word not in page]  # fmt: skip
    assert missing == []


def test_the_reference_has_every_public_name():
    shown = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    public = {f"softmax_rnn.{name}" for name in softmax_rnn.__all__} - {"softmax_rnn.__version__"}
    assert public - set(shown) == set()
    assert set(softmax_rnn.model.__all__) - {name.rpartition(".")[2] for name in shown} == set()


@pytest.mark.slow
def test_the_site_asks_nothing_of_other_places(site):
    loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//")
    result = [page.name for page in site.rglob("*.html") if loads.search(page.read_text(encoding="utf-8"))]
    assert result == []


@pytest.mark.slow
def test_the_search_works_without_a_server(site):
    """A page from file:// loads scripts, but neither JSON nor a worker: index and worker have a script each."""
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = ")
    assert "taylor_4" in index
    assert '<script src="iframe-worker.js"' in (site / "cli.html").read_text(encoding="utf-8")
    assert (site / "iframe-worker.js").is_file()


@pytest.mark.slow
def test_equations_and_examples_are_drawn(site):
    assert (site / "idea.html").read_text(encoding="utf-8").count("<math") >= 6
    assert "```" not in text_of(site / "idea.html")
    assert "<!-- here:" not in "".join(page.read_text(encoding="utf-8") for page in site.glob("*.html"))
