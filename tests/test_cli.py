"""The command line as a user meets it: exit codes, tables, JSON that parses. Wrong uses: `test_wrong_uses`."""

import json
import subprocess
import sys

import pytest

from softmax_rnn.__main__ import main
from softmax_rnn.attention.table.model_table import SIZES
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.cli import complete
from softmax_rnn.data.corpora import CORPORA
from softmax_rnn.data.tasks.table import TASKS
from softmax_rnn.experiment.recipes import RECIPES
from softmax_rnn.study.definition import STUDIES, load_study
from softmax_rnn.version import __version__


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"softmax-rnn {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(arguments, capsys):
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in ("variants", "explain", "verify", "generate", "convert-report", "bench"))


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from softmax_rnn.__main__ import main; main(['--help']); main(['train', '--help']); "
        "sys.exit(bool({'torch', 'transformers', 'altair', 'numpy', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_help_shows_no_value_for_a_flag(capsys):
    for words in (["--help"], ["explain", "--help"], ["bench", "attention", "--help"]):
        assert main(words) == 0
    shown = capsys.readouterr().out
    assert "--version" in shown and "--json" in shown and "--quick" in shown
    assert "<bool>" not in shown


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("explain line", "linear_elu"),
        ("verify softmax tayl", "taylor_2"),
        ("study sec4.1", "sec4.1-denominator"),
        ("train --variant gated_softmax_d", "gated_softmax_decay"),
        ("train --size mi", "micro"),
        ("train --data sel", "selective_copy"),
        ("train --recipe p", "paper"),
        ("study quick --scale o", "overnight"),
        ("compare softmax linear_e", "linear_elu"),
        ("generate smollm2 hello --variant taylor_", "taylor_4"),
    ],
)
def test_the_shell_offers_names(typed, offered, monkeypatch, capsys):
    words = f"softmax-rnn {typed}"
    monkeypatch.setenv("_SOFTMAX_RNN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert offered in capsys.readouterr().out.split()


def test_the_shell_knows_what_the_package_knows():
    assert set(complete.SIZES) == set(SIZES)
    assert set(complete.RECIPES) == set(RECIPES)
    assert set(complete.SCALES) == {
        scale for path in STUDIES.glob("*.yaml") for scale in load_study(path.stem)[1].scales
    }
    assert set(complete.DATA) == {*CORPORA, *TASKS}


def test_a_variant_may_be_written_as_parts(capsys):
    assert main(["explain", "like=taylor_4,normaliser=none", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["name"] == "taylor_4_normaliser_none"
    assert said["spec"]["normaliser"] is None


def test_variants_as_json_hold_every_row(capsys):
    assert main(["variants", "--json", "--head-dim", "16"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["variants"]}
    assert set(rows) == set(VARIANTS)
    assert rows["taylor_2"]["state_numbers"] == 153 * 17
    assert rows["softmax"]["state_numbers"] is None
    assert rows["softmax_divs"]["same_as"] == ["gated_softmax_no_gate_no_norm"]


def test_the_table_of_variants_shows_names_and_formulas(capsys):
    assert main(["variants"]) == 0
    shown = capsys.readouterr().out
    assert "gated_softmax_decay" in shown
    assert "o = Σ w v / Σ w" in shown


def test_explain(capsys):
    assert main(["explain", "gated_softmax_out_gate_L2norm_nodivS_noclamp"]) == 0
    shown = capsys.readouterr().out
    assert "the output gate cancels" in shown
    assert "fused" in shown


def test_explain_as_json(capsys):
    assert main(["explain", "taylor_2", "--json", "--time", "65536", "--head-dim", "16"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["form"] == "chunked"


def test_verify_saves_what_it_prints(capsys, tmp_path):
    target = tmp_path / "verify.json"
    assert main(["verify", "softmax", "taylor_1", "--json", "--output", str(target)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(target.read_text())
    assert printed["passed"] is True
    assert {check["form"] for check in printed["checks"]} == {
        "parallel",
        "fused",
        "blockwise",
        "chunked",
        "recurrent",
    }
    assert [order["order"] for order in printed["orders"]][:3] == [1, 2, 4]
    assert list(tmp_path.iterdir()) == [target]


def test_verify_prints_tables(capsys):
    assert main(["verify", "linear_elu"]) == 0
    shown = capsys.readouterr().out
    assert "8 of 8 checks passed" in shown
    assert "Taylor order" in shown
