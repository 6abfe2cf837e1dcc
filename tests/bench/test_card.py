"""What would be measured on a card, as far as a machine without one can run it."""

from __future__ import annotations

import pytest
import torch

from softmax_rnn.__main__ import main
from softmax_rnn.attention.kernels.triton import tiles
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench import card
from softmax_rnn.bench.results import Results
from softmax_rnn.bench.verify import check_variant

NO_CARD = not torch.cuda.is_available()


@pytest.mark.parametrize(
    "command",
    [["verify", "softmax"], ["bench", "attention"], ["bench", "decode"], ["bench", "model"], ["bench", "train"]],
    ids=" ".join,
)
def test_without_a_card_one_line_says_so(command, capsys, tmp_path):
    assert NO_CARD
    output = [] if command[0] == "verify" else ["--output", str(tmp_path / "out")]
    assert main([*command, "--device", "cuda", *output]) == 2
    said = capsys.readouterr()
    assert "sees no CUDA or ROCm card" in said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "out").exists()


def test_an_unknown_device_is_refused(capsys):
    assert main(["verify", "softmax", "--device", "gpu"]) == 2
    assert "device: expected cpu or cuda" in capsys.readouterr().err


def test_doctor_says_whether_the_kernels_are_used(capsys):
    assert main(["doctor", "--json"]) == 0
    assert "not used: torch sees no CUDA or ROCm card" in capsys.readouterr().out


def test_a_race_on_the_default_device_names_its_contestants():
    results = Results()
    with card.measured_on("cpu"):
        card._race("gated_softmax", 32, 16, True, 1, 1).work(results)
    assert {row["contestant"] for row in results.rows} == {"ours", "sdpa"}
    assert [row["form"] for row in results.rows if row["contestant"] == "ours"] == ["parallel"]


def test_there_is_a_race_for_every_kind_of_kernel():
    titles = [task.title for task in card.attention_tasks()]
    assert titles[0] == "tiles of this card"
    assert all(any(name in title for title in titles) for name in card.VARIANTS_ON_CARD)
    assert set(card.TUNED_WITH) == set(tiles.KERNELS)


def test_checks_of_one_form_on_a_device():
    checks = list(check_variant("linear_elu", "cpu", ("chunked",)))
    assert [(check.form, check.dtype, check.passed) for check in checks] == [
        ("chunked", "float64", True),
        ("chunked", "float32", True),
    ]
    assert list(check_variant("linear_elu", "cpu", ("triton",))) == []


def test_a_tile_that_is_tried_is_taken_and_forgotten(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    tile = tiles.Tile(16, 16, 4, 1)
    with tiles.trying("block_sums", tile):
        assert tiles.tile("block_sums", 64, 64, torch.bfloat16) is tile
    assert "block_sums" not in tiles._TRIED


def test_peers_compute_the_same_kind_of_attention():
    assert set(card.peers("taylor_2")) == {"sdpa"}
    assert all(name in VARIANTS for name in card.VARIANTS_ON_CARD)
