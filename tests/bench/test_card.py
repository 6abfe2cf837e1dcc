"""What would be measured on a card, as far as a machine without one can run it."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch

from softmax_rnn.__main__ import main
from softmax_rnn.attention.kernels.triton import tiles
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench import card, decode, model_step, train
from softmax_rnn.bench.results import Results, Task, run
from softmax_rnn.bench.timing import Times
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


QUICK = ["forward at T=2048, D=64: gated_softmax_decay", "a step beside its two products: taylor_2, D=32"]
OF_LLAMA = "training step, 1024 tokens"


def on_other_devices() -> list[object]:
    """What is measured on a card, but for tiles; transformers' Llama reads values of its mask in training."""
    tasks = [*card.attention_tasks(quick=True), *decode.decode_tasks(quick=True), *model_step.model_tasks(quick=True)]
    there = [task for task in tasks[1:] if not task.title.startswith((OF_LLAMA, "size of the state"))]
    slow = [pytest.mark.slow]
    return [pytest.param(task, id=task.title, marks=[] if task.title in QUICK else slow) for task in there]


@pytest.mark.parametrize("task", on_other_devices())
def test_what_is_measured_runs_on_a_device_without_values(task: Task) -> None:
    """All tensors are on the default device, and the host reads none of them."""
    with torch.device("meta"):
        results = run([task])
    assert results.rows or results.claims


@pytest.mark.slow
def test_our_training_step_runs_on_a_device_without_values() -> None:
    with torch.device("meta"):
        ids = model_step._ids(16)
        for name in ("softmax", *model_step.OTHERS):
            loss = model_step.training_step(model_step.ours(name, "nano"), ids)()
            assert isinstance(loss, torch.Tensor) and loss.device.type == "meta"


def test_the_fastest_tile_that_fits_is_kept(monkeypatch, tmp_path):
    """The card is a stand-in: its clock prefers the last candidate that it can hold."""
    from triton.runtime.errors import OutOfResources

    known = list(tiles.candidates("block_sums", "sm80", "bfloat16"))
    tried: list[tiles.Tile] = []

    def race(contestants, rounds):
        tile = tiles._TRIED["block_sums"]
        tried.append(tile)
        if tile == known[-1]:
            raise OutOfResources(300_000, 166_912, "shared memory")
        return Times({name: [1 / len(tried)] for name in contestants})

    class Card:
        type = "cuda"

    monkeypatch.setattr(card, "race", race)
    monkeypatch.setattr(card, "TUNED_WITH", {"block_sums": "gated_softmax_decay"})
    monkeypatch.setattr(card, "on_device", lambda tensors, device: tensors)
    monkeypatch.setattr(card.torch, "get_default_device", Card)
    monkeypatch.setattr(tiles, "target", lambda: "sm80")
    monkeypatch.setattr(tiles, "tuned_file", lambda: tmp_path / "tiles.json")
    best = card.tuned(quick=True, time=16)
    assert tried == known and len(known) > 2
    assert [one["tile"] for one in best] == [asdict(known[-2])]
    assert json.loads((tmp_path / "tiles.json").read_text()) == best


def test_the_training_loop_is_measured_where_it_is_asked_for(monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(train, "_loop", lambda steps, rounds, device: asked.append(device))
    monkeypatch.setattr(train, "_start", lambda rounds, device: asked.append(device))
    for on_card in (False, True):
        list(train.train_tasks(quick=True, on_card=on_card))
    assert asked == ["cpu", "cpu", "auto", "auto"]


def test_a_tile_that_is_tried_is_taken_and_forgotten(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    tile = tiles.Tile(16, 16, 4, 1)
    with tiles.trying("block_sums", tile):
        assert tiles.tile("block_sums", 64, 64, torch.bfloat16) is tile
    assert "block_sums" not in tiles._TRIED


def test_peers_compute_the_same_kind_of_attention():
    assert set(card.peers("taylor_2")) == {"sdpa"}
    assert all(name in VARIANTS for name in card.VARIANTS_ON_CARD)
