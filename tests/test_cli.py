"""The command line as a user meets it: exit codes, tables, JSON that parses. Wrong uses: `test_wrong_uses`."""

import json
import subprocess
import sys

import pytest

from softmax_rnn.__main__ import main
from softmax_rnn.attention.variants import VARIANTS
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
        "import sys; from softmax_rnn.__main__ import main; main(['--help']); "
        "sys.exit(bool({'torch', 'transformers', 'altair', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


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
