"""docs/add-a-part.md, followed to the letter: its files written, run, and held against the truth that it writes."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import oracle
from attention import cases
from attention.compare import assert_same, run
from softmax_rnn.attention.parts import Part
from softmax_rnn.attention.variants import VARIANTS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "add-a-part.md").read_text(encoding="utf-8")
FORMS = {
    "linear_softplus": {"parallel", "blockwise", "chunked", "recurrent"},
    "softmax_tanh_gate": {"parallel", "fused", "blockwise", "recurrent"},
    "softplus_tanh_gate": {"parallel", "blockwise", "chunked", "recurrent"},
}


def written(folder: Path, **changes: tuple[str, str]) -> Path:
    """The page's Python blocks in files, by the name in their first line; ``changes`` replaces one place of a file."""
    files: dict[str, str] = defaultdict(str)
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        result = re.match(r"# (\w+\.py)\n", block)
        assert result, f"a block that names no file: {block[:60]!r}"
        files[result[1]] += block
    for name, text in files.items():
        old, new = changes.get(Path(name).stem, ("", ""))
        assert not old or text.count(old) == 1
        (folder / name).write_text(text.replace(old, new) if old else text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """What the page adds is forgotten afterwards."""
    monkeypatch.setattr(VARIANTS, "_rows", dict(VARIANTS._rows))
    known = [(mapping, set(mapping)) for mapping in (oracle.ORACLE, *Part.registry.values())]
    yield
    for mapping, names in known:
        for name in set(mapping) - names:
            del mapping[name]


def errors_of(name: str, mask: str) -> None:
    """Every form of a name, and decoding, against the page's truth."""
    spec = VARIANTS[name]
    tensors, masks = cases.inputs(spec, time=9), cases.MASKS[mask](9)
    truth = run(oracle.ORACLE[name], tensors, **masks)
    for form in cases.allowed_forms(spec, mask):
        assert_same(run(cases.attention(spec, form=form), tensors, **masks), truth, torch.float64)


def test_every_form_of_the_new_names_equals_the_truth(tmp_path):
    folder = written(tmp_path)
    runpy.run_path(str(folder / "my_parts.py"))
    runpy.run_path(str(folder / "my_truth.py"))
    for name, forms in FORMS.items():
        assert set(cases.allowed_forms(VARIANTS[name])) == forms
        for mask in ("plain", "both"):
            errors_of(name, mask)


def test_a_wrong_part_is_found(tmp_path):
    folder = written(tmp_path, my_parts=('return tensors["tanh_gate"]', 'return tensors["tanh_gate"] * (1 + 1e-8)'))
    runpy.run_path(str(folder / "my_parts.py"))
    runpy.run_path(str(folder / "my_truth.py"))
    errors_of("linear_softplus", "plain")
    with pytest.raises(AssertionError, match="errors above 1e-10"):
        errors_of("softmax_tanh_gate", "plain")


def test_it_trains_decodes_converts_and_is_saved(tmp_path, capsys):
    ran = runpy.run_path(str(written(tmp_path) / "my_parts.py"), run_name="__main__")
    assert ran["losses"][-1] < ran["losses"][0]
    assert "o = Σ w gⁱ v / Σ w,  w = softplus(Wq)·softplus(Wk)" in capsys.readouterr().out
    names = [name for name, _ in ran["again"].named_parameters() if ".parts." in name]
    assert {name.split(".parts.")[1] for name in names} >= {"query_softplus", "key_softplus", "tanh_gate.weight"}


@pytest.mark.slow
def test_the_command_of_the_page(tmp_path):
    command = re.search(r"^PYTHONPATH=tests \.venv/bin/python -m pytest (.*)$", PAGE, re.MULTILINE)
    assert command
    path = os.pathsep.join([str(written(tmp_path)), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *shlex.split(command[1])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
