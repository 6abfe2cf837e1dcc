"""The public names: what they are, that they are all there, and that importing the package is cheap."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

import softmax_rnn


@pytest.mark.parametrize("name", [n for n in softmax_rnn.__all__ if n != "__version__"])
def test_public_name_resolves_to_something_documented(name):
    thing = getattr(softmax_rnn, name)
    module = importlib.import_module(f"softmax_rnn.{softmax_rnn._HOMES[name]}")
    assert thing is getattr(module, name)
    assert inspect.getdoc(thing)


def test_type_checkers_see_the_names_that_exist_at_run_time():
    """The imports under TYPE_CHECKING, run as they stand, give what the lookup gives, and nothing more."""
    tree = ast.parse(inspect.getsource(softmax_rnn))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    names: dict[str, object] = {}
    exec(compile(ast.Module(block.body, type_ignores=[]), "TYPE_CHECKING", "exec"), names)
    del names["__builtins__"]
    assert set(names) == set(softmax_rnn.__all__) - {"__version__"}
    assert all(thing is getattr(softmax_rnn, name) for name, thing in names.items())


def test_dir_lists_the_public_names():
    assert set(dir(softmax_rnn)) == set(softmax_rnn.__all__)


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'atend'"):
        softmax_rnn.atend  # noqa: B018


def test_the_package_its_specs_and_the_completion_need_no_torch():
    code = """
import sys
import softmax_rnn
from softmax_rnn.cli import complete

softmax_rnn.VARIANTS["softmax"].to_json()
assert complete.variants("soft")
sys.exit("torch" in sys.modules or "numpy" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
