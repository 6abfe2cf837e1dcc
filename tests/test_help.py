"""The help of every command: examples that fit into 80 columns, are read by the real parser, and name what exists."""

import shlex
from collections.abc import Callable

import pytest
import typer

from softmax_rnn.__main__ import main
from softmax_rnn.analysis.methods import METHODS
from softmax_rnn.attention.table.model_table import MODEL_VARIANTS, SIZES
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.cli import app
from softmax_rnn.cli.study import RUNNERS
from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.recipes import RECIPES
from softmax_rnn.study.definition import load_study

STARTS = ("softmax-rnn ", "torchrun ")


def commands(command, path=()):
    """Every command and group of the program, by the words that call it."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


TREE = dict(commands(typer.main.get_command(app)))


def examples(command):
    """The lines of a help text that are commands; a line that ends in \\ goes on in the next."""
    text = (command.help or "").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [" ".join(line.split()) for line in lines if line.startswith(STARTS)]


EXAMPLES = [(path, line) for path, command in TREE.items() for line in examples(command)]


def words_of(line):
    """What the program is given."""
    words = shlex.split(line)
    return words[words.index("softmax_rnn") + 1 :] if words[0] == "torchrun" else words[1:]


def read(line):
    """The command that the parser finds and the values it would be called with; the command itself is not run."""
    called = []
    tree = typer.main.get_command(app)
    for path, command in commands(tree):
        if not getattr(command, "commands", None):

            def note(path=path, **values):
                called.append((path, values))

            command.callback = note
    tree(args=words_of(line), standalone_mode=False, prog_name="softmax-rnn")
    ((path, values),) = called
    return path, values


@pytest.mark.parametrize("path", TREE, ids=lambda path: " ".join(path) or "softmax-rnn")
def test_every_command_has_two_examples_or_more(path):
    assert len(examples(TREE[path])) >= 2


@pytest.mark.parametrize("path", TREE, ids=lambda path: " ".join(path) or "softmax-rnn")
def test_examples_are_shown_on_lines_of_their_own_at_80_columns(path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    lines = [line.strip() for line in shown.splitlines()]
    assert max(map(len, shown.splitlines())) <= 80
    joined = [" ".join(line.split()) for line in "\n".join(lines).replace("\\\n", " ").splitlines()]
    assert [line for line in joined if line.startswith(STARTS)] == examples(TREE[path])


@pytest.mark.parametrize(("path", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_an_example_is_read_and_calls_its_command(path, line):
    called, _ = read(line)
    assert called[: len(path)] == path


def known_study(value):
    return value == "new" or bool(load_study(value))


def known_model(value):
    return value == "smollm2" or value.endswith("/final") or value.startswith("runs/")  # a run or a study as well


def known_run_or_variant(value):
    return value in MODEL_VARIANTS or "/" in value


# What an argument of this name may be, in all commands.
KNOWN: dict[str, Callable] = {
    "variant": MODEL_VARIANTS.__contains__,
    "variants": VARIANTS.__contains__,
    "names": VARIANTS.__contains__,
    "size": SIZES.__contains__,
    "recipe": RECIPES.__contains__,
    "methods": METHODS.__contains__,
    "runner": RUNNERS.__contains__,
    "model": known_model,
    "a": known_run_or_variant,
    "b": known_run_or_variant,
}
NAMES = {("explain",): VARIANTS.__contains__, ("study",): known_study}


@pytest.mark.parametrize(("path", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_names_in_an_example_exist(path, line):
    called, values = read(line)
    given = {name: value for name, value in values.items() if value is not None}
    for name, value in given.items():
        exists = NAMES[called] if name == "name" else KNOWN.get(name)
        for one in value if isinstance(value, list | tuple) else [value]:
            assert exists is None or exists(one), f"{name}: {one}"
    if called == ("train",):
        from softmax_rnn.cli.train import put_text

        settings = {name: given[name] for name in ("variant", "size", "data", "recipe", "steps") if name in given}
        for text in given.get("settings", []):
            put_text(settings, text)
        assert resolve(settings).steps > 0
