"""The public names: what they are, that they are all there, and that importing the package is cheap."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
import typing

import pytest

import softmax_rnn


@pytest.mark.parametrize("name", [n for n in softmax_rnn.__all__ if n != "__version__"])
def test_public_name_resolves_to_something_documented(name):
    thing = getattr(softmax_rnn, name)
    module = importlib.import_module(f"softmax_rnn.{softmax_rnn._HOMES[name]}")
    assert thing is getattr(module, name)
    assert inspect.getdoc(thing)


def test_type_checkers_see_the_same_names():
    source = inspect.getsource(softmax_rnn)
    assert typing.TYPE_CHECKING is False
    assert all(f" as {name}\n" in source for name in softmax_rnn._HOMES)


def test_dir_lists_the_public_names():
    assert set(dir(softmax_rnn)) == set(softmax_rnn.__all__)


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'atend'"):
        softmax_rnn.atend  # noqa: B018


def test_importing_the_package_does_not_import_torch():
    code = "import sys, softmax_rnn; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_spec_needs_no_torch():
    code = "import sys, softmax_rnn; softmax_rnn.VARIANTS['softmax'].to_json(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
