"""A conversion from a folder to a folder: what it leaves, that each stage gains, and that it continues exactly."""

import json
from pathlib import Path

import datasets
import pytest
import torch
from safetensors.torch import load_file
from tests.experiment.small import write_texts
from tests.linearise.small import FAMILIES, saved, settings
from tests.model.tiny import same_model

from softmax_rnn.data.tokenisers import byte_tokenizer
from softmax_rnn.errors import InputError
from softmax_rnn.linearise import run as running
from softmax_rnn.linearise.run import linearise
from softmax_rnn.linearise.settings import resolve
from softmax_rnn.linearise.stored_logits import Likely
from softmax_rnn.linearise.texts import load_texts
from softmax_rnn.model.loading import load_model
from softmax_rnn.train.folder import RunFolder


def fast_only(name, *fast):
    """The others are slow tests."""
    return name if name in fast else pytest.param(name, marks=pytest.mark.slow)


@pytest.fixture(autouse=True)
def _model(tmp_path):
    saved(tmp_path / "model")


def losses(record):
    return {row["stage"]: row["loss"] for row in record["losses"]}


def error(record, stage):
    result = [row["error"] for row in record["errors"] if row["stage"] == stage]
    return sum(result) / len(result)


def test_each_stage_lowers_its_own_measure(tmp_path):
    config = resolve(settings(tmp_path, to="hedgehog", tokens=4000, distil={"learning_rate": 3e-3}))
    record = linearise(config, tmp_path / "new", quiet=True).record
    assert record is not None
    assert error(record, "calibrate") < error(record, "before")
    lines = {name: RunFolder(tmp_path / "new" / "stages" / name).metrics() for name in ("transfer", "distil")}
    transfer = [line["test_loss"] for line in lines["transfer"] if "test_loss" in line]
    assert transfer[-1] < transfer[0]
    assert error(record, "transfer") < error(record, "calibrate")
    divergence = [line["loss"] for line in lines["distil"] if "loss" in line]
    assert sum(divergence[-3:]) < sum(divergence[:3])


def test_the_folder_loads_with_the_logits_of_the_last_stage(tmp_path):
    config = resolve(settings(tmp_path, stages=["calibrate", "distil"]))
    original_export, seen = running.export, {}

    def keep(folder, final, tokenizer, record):
        seen["model"] = load_model(final)
        original_export(folder, final, tokenizer, record)

    ids = torch.randint(0, 257, (2, 9), generator=torch.Generator().manual_seed(0))
    running.export = keep
    try:
        record = linearise(config, tmp_path / "new", quiet=True).record
    finally:
        running.export = original_export
    again = load_model(tmp_path / "new")
    assert same_model(again, seen["model"], ids)
    assert again.config.tie_word_embeddings is False
    assert again.lm_head.weight is not again.model.embed_tokens.weight
    assert (tmp_path / "new" / "tokenizer.json").is_file()
    card = (tmp_path / "new" / "README.md").read_text()
    assert f"{losses(record)['distil']:.4f}" in card
    assert str(tmp_path) not in json.dumps({k: v for k, v in record.items() if k not in ("settings", "model")})


@pytest.mark.parametrize("family", ["ours", *(fast_only(name, "qwen3", "mistral") for name in FAMILIES)])
def test_every_family_is_converted_saved_and_loaded(family, tmp_path):
    saved(tmp_path / "model", family)
    config = resolve(settings(tmp_path, stages=["calibrate", "transfer", "distil"], tokens=400))
    record = linearise(config, tmp_path / "new", quiet=True).record
    assert record is not None
    kept = record["calibration"]["method"]
    assert record["calibration"]["tried"][kept] == min(record["calibration"]["tried"].values())
    assert kept != "unchanged"  # a closed form comes closer to the original's predictions
    assert load_model(tmp_path / "new")(torch.tensor([[1, 2, 3]])).logits.isfinite().all()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_stored_predictions_are_read_instead_of_the_original(tmp_path, monkeypatch):
    given = settings(tmp_path, stages=["distil"], tokens=600, store_logits=8)
    config = resolve(given)
    linearise(config, tmp_path / "whole", quiet=True)
    (kept,) = (tmp_path / "cache" / "logits").iterdir()
    files = sorted(kept.iterdir())
    assert len(files) == config.steps("distil") * config.batch_size
    changed = files[0].stat().st_mtime_ns
    files[1].unlink()
    files[2].write_bytes(b"damaged")
    linearise(config, tmp_path / "again", quiet=True)
    assert sorted(kept.iterdir()) == files
    assert files[0].stat().st_mtime_ns == changed
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "again")
    assert all(torch.equal(one[name], other[name]) for name in one)

    def never(logits, count):
        raise AssertionError("the original is not read again")

    monkeypatch.setattr(Likely, "of", never)
    linearise(resolve(given | {"to": "linear_elu"}), tmp_path / "other", quiet=True)


def test_stored_predictions_are_fewer_than_all(tmp_path):
    with pytest.raises(InputError, match="store_logits: expected fewer than the 257 tokens of the vocabulary, got 300"):
        linearise(resolve(settings(tmp_path, store_logits=300)), tmp_path / "new", quiet=True)
    with pytest.raises(InputError, match="store_logits: only the stage distil reads logits"):
        resolve(settings(tmp_path, stages=["calibrate"], store_logits=8))


def test_low_rank_updates_leave_ordinary_matrices(tmp_path):
    config = resolve(settings(tmp_path, stages=["distil"], distil={"rank": 2}))
    linearise(config, tmp_path / "new", quiet=True)
    names = weights(tmp_path / "new")
    assert not any("parametrizations" in name for name in names)
    before = weights(tmp_path / "model")
    changed = names["model.layers.0.mlp.up_proj.weight"] - before["model.layers.0.mlp.up_proj.weight"]
    assert 0 < int(torch.linalg.matrix_rank(changed, atol=1e-6)) <= 2


def test_a_hybrid_under_a_budget(tmp_path):
    config = resolve(settings(tmp_path, to="taylor_2", stages=["calibrate"], convert_layers=1))
    record = linearise(config, tmp_path / "new", quiet=True).record
    assert record is not None
    layers = record["layers"]
    chosen = [row["layer"] for row in layers["rows"] if row["converted"]]
    cheapest = min(layers["rows"], key=lambda row: row["increase"])
    assert chosen == [cheapest["layer"]]
    assert layers["predicted"] == pytest.approx(layers["loss"] + cheapest["increase"])
    # One converted layer is what was measured alone.
    assert layers["measured"] == pytest.approx(layers["predicted"], abs=1e-4)
    assert {row["layer"] for row in record["errors"] if row["stage"] == "calibrate"} == set(chosen)


def test_window_alone_state_alone_and_both(tmp_path):
    config = resolve(settings(tmp_path, to="near_far", window=4, sinks=1, order=2, stages=["calibrate"]))
    record = linearise(config, tmp_path / "new", quiet=True).record
    assert record is not None
    result = {row["part"]: row["loss"] for row in record["halves"] if row["stage"] == "calibrate"}
    assert set(result) == {"window alone", "state alone"}
    assert len({losses(record)["calibrate"], *result.values()}) == 3


def test_a_polynomial_gets_the_ranges_of_its_heads(tmp_path):
    spec = {"kind": "exp_on_range", "degree": 4, "range": {"kind": "fixed", "low": [0.0], "high": [0.0]}}
    to = json.dumps({"score": spec})
    record = linearise(resolve(settings(tmp_path, to=to, stages=["calibrate"])), tmp_path / "new", quiet=True).record
    assert record is not None
    result = load_model(tmp_path / "new").config.specs
    assert all(len(set(spec.score.range.high)) == 4 for spec in result)
    assert abs(losses(record)["calibrate"] - losses(record)["original"]) < 0.2


def test_another_conversion_in_the_folder_is_refused(tmp_path):
    linearise(resolve(settings(tmp_path, stages=["calibrate"])), tmp_path / "new", quiet=True)
    with pytest.raises(InputError, match="holds a conversion with other settings"):
        linearise(resolve(settings(tmp_path, stages=["calibrate"], seed=1)), tmp_path / "new", quiet=True)
    with pytest.raises(InputError, match="holds other files and no conversion"):
        linearise(resolve(settings(tmp_path, stages=["calibrate"])), tmp_path / "model", quiet=True)


def test_what_is_converted_already_is_refused(tmp_path):
    with pytest.raises(InputError, match="every layer has this attention already"):
        linearise(resolve(settings(tmp_path, to="softmax", stages=["calibrate"])), tmp_path / "new", quiet=True)


def test_texts_are_joined_to_learn_from_and_measured_apart(tmp_path):
    one = settings(tmp_path)["data"]
    other = {**one, "source": str(write_texts(tmp_path / "more.jsonl", seed=1))}
    third = {**one, "source": str(write_texts(tmp_path / "other.jsonl", seed=2))}
    config = resolve(settings(tmp_path, data=[one, other], measure=[third], stages=["calibrate"]))
    record = linearise(config, tmp_path / "new", quiet=True).record
    assert record is not None
    assert {row["text"] for row in record["losses"]} == {"texts.jsonl", "more.jsonl", "other.jsonl"}
    joined = load_texts(config, byte_tokenizer(), 24).train
    counts = [len(load_texts(resolve(settings(tmp_path, data=x)), byte_tokenizer(), 24).train) for x in (one, other)]
    assert len(joined) == sum(counts)
    with pytest.raises(InputError, match="a stream cannot be joined"):
        linearise(resolve(settings(tmp_path, data=[one, other | {"streaming": True}])), tmp_path / "no", quiet=True)


def test_an_original_in_bfloat16(tmp_path):
    config = resolve(settings(tmp_path, original="bf16", tokens=600))
    record = linearise(config, tmp_path / "new", quiet=True).record
    assert record is not None
    exact = linearise(resolve(settings(tmp_path, tokens=600)), tmp_path / "exact", quiet=True).record
    assert exact is not None
    for stage, loss in losses(record).items():
        assert loss == pytest.approx(losses(exact)[stage], rel=0.02), stage
    assert losses(record)["original"] != losses(exact)["original"]
    assert all(x.dtype == torch.float32 for x in weights(tmp_path / "new").values())


@pytest.mark.parametrize("ending", ["txt", fast_only("parquet")])
def test_texts_of_other_kinds(ending, tmp_path):
    texts = [json.loads(line)["text"] for line in write_texts(tmp_path / "x.jsonl").read_text().splitlines()]
    path = tmp_path / f"texts.{ending}"
    if ending == "txt":
        path.write_text("\n\n".join(texts))
    else:
        datasets.Dataset.from_dict({"text": texts}).to_parquet(path)
    data = settings(tmp_path)["data"] | {"source": str(path), "test_fraction": 0.3}
    record = linearise(resolve(settings(tmp_path, data=data, tokens=300)), tmp_path / "new", quiet=True).record
    assert record is not None
    assert {row["text"] for row in record["losses"]} == {path.name}
