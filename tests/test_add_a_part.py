"""docs/add-a-part.md, followed to the letter: its files written, its commands run, and what they must find found."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from softmax_rnn.attention.variants import VARIANTS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "add-a-part.md").read_text(encoding="utf-8")
FORMS_OF_THE_NEW_NAMES = {
    "linear_softplus": {"parallel", "blockwise", "chunked", "recurrent"},
    "softmax_root_length": {"parallel", "blockwise", "recurrent"},
    "softplus_root_length": {"parallel", "blockwise", "chunked", "recurrent"},
}


def files_of_the_page() -> dict[str, str]:
    """Name → text: the Python blocks, put together by the file that their first line names."""
    files: dict[str, str] = defaultdict(str)
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        found = re.match(r"# (\w+\.py)\n", block)
        assert found, f"a block that names no file: {block[:60]!r}"
        files[found[1]] += block
    return dict(files)


def written(folder: Path, **changes: tuple[str, str]) -> Path:
    """The page's files in a folder; ``changes`` replaces one place of a file by another text."""
    for name, text in files_of_the_page().items():
        old, new = changes.get(Path(name).stem, ("", ""))
        assert not old or text.count(old) == 1
        (folder / name).write_text(text.replace(old, new) if old else text, encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Ran:
    """Which tests passed and which did not, as (file, test, its parameters), and what pytest printed."""

    passed: set[tuple[str, str, str]]
    failed: set[tuple[str, str, str]]
    text: str


def run_tests(folder: Path, words: list[str]) -> Ran:
    """pytest in a process of its own, with the folder's modules beside those of the tests."""
    report = folder / "report.xml"
    path = os.pathsep.join([str(folder), str(ROOT / "tests")])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
    done = subprocess.run(
        [*command, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    outcomes: dict[bool, set[tuple[str, str, str]]] = {True: set(), False: set()}
    for one in ET.parse(report).iter("testcase"):
        test, _, case = one.attrib["name"].partition("[")
        assert one.find("skipped") is None
        outcomes[len(one) == 0].add((one.attrib["classname"].rpartition(".")[2], test, case.rstrip("]")))
    assert (done.returncode == 0) == (not outcomes[False]), done.stdout
    return Ran(outcomes[True], outcomes[False], done.stdout)


def command_of_the_page() -> list[str]:
    """What follows `pytest` in the page's first command."""
    command = re.search(r"^PYTHONPATH=tests \.venv/bin/python -m pytest (.*)$", PAGE, re.MULTILINE)
    assert command
    return shlex.split(command[1])


def test_the_suite_picks_up_the_new_names_in_every_form(tmp_path):
    ran = run_tests(written(tmp_path), command_of_the_page())
    assert ran.failed == set(), ran.text
    against_the_truth = defaultdict(set)
    for _, test, case in ran.passed:
        if test == "test_form_equals_the_literal_truth":
            name, mask, form, dtype = case.split("-")
            against_the_truth[name].add((mask, form, dtype))
    assert dict(against_the_truth) == {
        name: {
            (mask, form, dtype)
            for mask in ("plain", "padded", "packed", "both")
            for form in forms
            for dtype in ("torch.float32", "torch.float64")
        }
        for name, forms in FORMS_OF_THE_NEW_NAMES.items()
    }
    everywhere = {"test_forms", "test_state", "test_padding", "test_degenerate", "test_huge_scores", "test_precision"}
    for name in FORMS_OF_THE_NEW_NAMES:
        files = {file for file, _, case in ran.passed if name in case}
        assert everywhere <= files, everywhere - files
    assert 450 < len(ran.passed) < 500  # "nearly 500", says the page


def test_the_suite_finds_a_wrong_part_and_a_missing_truth(tmp_path):
    almost = ("** -part.exponent", "** -(part.exponent + 1e-8)")
    forgotten = ('ORACLE["softplus_root_length"]', 'ORACLE["softplus_root"]')
    few = "test_every_name or ((softplus or root_length) and test_form_equals and plain and float64)"
    ran = run_tests(
        written(tmp_path, my_parts=almost, my_truth=forgotten),
        ["-p", "my_parts", "-p", "my_truth", "tests/attention/test_forms.py", "-k", few],
    )
    forms = {name: {case.split("-")[2] for _, _, case in ran.failed if name in case} for name in FORMS_OF_THE_NEW_NAMES}
    assert forms == FORMS_OF_THE_NEW_NAMES | {"linear_softplus": set()}
    assert {case.split("-")[0] for _, _, case in ran.passed} == {"linear_softplus"}
    assert "errors above 1e-10" in ran.text
    assert "KeyError: 'softplus_root_length'" in ran.text
    assert ("test_forms", "test_every_name_has_a_literal_truth", "") in ran.failed


def test_the_new_variant_trains_and_generates(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(VARIANTS, "_rows", dict(VARIANTS._rows))  # what the page adds is forgotten afterwards
    ran = runpy.run_path(str(written(tmp_path) / "my_parts.py"), run_name="__main__")
    assert ran["outcome"].step == 5
    assert "o = Σ w v / n^0.5,  w = softplus(q)·softplus(k)" in capsys.readouterr().out
    model = ran["model"]
    assert model.config.attention_spec == ran["spec"].to_dict()
    assert {part["kind"] for part in model.config.attention_spec.values() if part} >= {"softplus", "length_power"}
