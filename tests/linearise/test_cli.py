"""`softmax-rnn linearise` as a user meets it."""

import json

import pytest
import yaml
from tests.linearise.small import saved, settings

from softmax_rnn.__main__ import main
from softmax_rnn.errors import InputError
from softmax_rnn.linearise import calibrate
from softmax_rnn.linearise.settings import resolve


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "model")
    return tmp_path


def config(folder, **more):
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings(folder, **more)))
    return str(path)


def test_a_model_a_report_and_a_text(here, capsys):
    words = ["linearise", "--config", config(here), "--stages", "calibrate", "--output", "new"]
    assert main(words) == 0
    assert "original" in capsys.readouterr().out
    page = (here / "new" / "report.html").read_text()
    assert "What each stage gained" in page
    assert str(here) not in (here / "new" / "README.md").read_text()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["to"] == "softmax_l2"
    assert main(["generate", "new", "the old", "--max-new-tokens", "3"]) == 0


def test_a_dry_run_makes_nothing(here, capsys):
    words = ["linearise", "model", "--to", "near_far", "--set", "window=8", "--tokens", "50k", "--output", "new"]
    assert main([*words, "--dry-run"]) == 0
    assert "distil: 78 steps" in capsys.readouterr().out
    assert main([*words, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["config"]["to"].startswith("near_far") and plan["steps"] == {"transfer": 19, "distil": 78}
    # What a conversion writes into its folder is read again: the label with its options belongs to the spec.
    assert resolve(plan["config"]).values() == plan["config"]
    with pytest.raises(InputError, match="spec: it is not the spec of near_far"):
        resolve(plan["config"] | {"to": plan["config"]["to"].replace("window 8", "window 9")})
    assert not (here / "new").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--to softmax_l2", "MODEL is missing"),
        ("model", "--to is missing"),
        ("model --to softmaxl2", "did you mean 'softmax_l2'?"),
        ("model --to linear_mamba", "to: linear_mamba is an attention with a block of its own"),
        ("model --to softmax_l2 --stages calibrate,distill", "unknown stage 'distill'; did you mean 'distil'?"),
        ("model --to softmax_l2 --stages distil,calibrate", "expected stages once each, in the order"),
        ("model --to softmax_l2 --tokens many", "--tokens: expected a positive number such as"),
        ("model --to softmax_l2 --keep-loss no", "--keep-loss: expected a positive fraction such as 3% or 0.03"),
        ("model --to softmax_l2 --keep-loss 3% --convert-layers 2", "expected one budget, got keep_loss and"),
        ("model --to softmax_l2 --set window=8", "window: softmax_l2 sees all keys; use near_far"),
        ("model --to hedgehog --set order=2", "order: the weights of hedgehog are not a Taylor polynomial"),
        ('model --to softmax_l2 --set spec={"score":{"kind":"exp"}}', "spec: it is not the spec of softmax_l2"),
        ("model --to softmax_l2 --set spec=3", "spec: expected parts by name, got 3"),
        ("model --to softmax_l2 --set distil.weights=some", "distil.weights: expected 'parts', 'attention' or 'all'"),
        ("model --to near_far --set window=0", "window: expected 1 or more, got 0"),
        ("model --to softmax_l2 --data mqar", "data: mqar is a recall task; a conversion reads text"),
        ("model --to softmax_l2 --tokens 999999999999999G", "tokens: expected a number less than or equal to 1"),
        ("modle --to softmax_l2 --dry-run", "unknown model 'modle'"),
        ("model --to softmax_l2 --data nope --dry-run", "unknown source 'nope'; expected one of: shakespeare"),
        ("model --to softmax_l2 --processes 3", "batch_size: expected a multiple of processes × accumulate = 3 × 1"),
        ("model --to softmax_l2 --set distil.rate=1", "unknown setting of distil 'rate'"),
        ("model --to softmax_l2 --set distill.rank=1", "unknown setting 'distill'; did you mean 'distil'?"),
        ("model --to softmax_l2 --text none.txt", "--text: none.txt cannot be read: no such file"),
        ("modle --to softmax_l2", "there is no folder modle"),
        ("model --to softmax_l2 --output model", "holds other files and no conversion"),
    ],
)
def test_wrong_uses_are_one_line(words, said, here, capsys):
    assert main(["linearise", *words.split()]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
    assert not (here / "models").exists()


def test_what_only_the_model_can_refuse_leaves_no_folder_and_takes_no_pass(here, capsys, monkeypatch):
    monkeypatch.setattr(calibrate, "head_sums", lambda *_, **__: pytest.fail("the budget was read after the work"))
    words = ["linearise", "--config", config(here), "--stages", "calibrate", "--output", "new"]
    assert main([*words, "--convert-layers", "99"]) == 2
    assert "convert_layers: expected at most the 2 layers of the model, got 99" in capsys.readouterr().err
    assert main([*words, "--state-bytes", "1"]) == 2
    assert "state_bytes: expected at least " in capsys.readouterr().err
    assert main([*words, "--state-bytes", "1G"]) == 2
    assert "budget: no layer is converted within it" in capsys.readouterr().err
    assert not (here / "new").exists()
