"""A run by one call: what its folder holds, what is refused, and that it learns."""

import json
import math

import pytest
import torch
from tests.experiment.small import MODEL, SETTINGS, same_metrics, write_texts
from transformers import AutoModelForCausalLM, AutoTokenizer

from softmax_rnn.data.rows import IGNORED
from softmax_rnn.errors import InputError
from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.run_data import load_run_data
from softmax_rnn.experiment.training import run_training
from softmax_rnn.model import SoftmaxRNNForCausalLM, build_config
from softmax_rnn.train.nonfinite import NonFiniteError
from softmax_rnn.validation import read_settings


def test_the_folder_holds_the_run(references):
    reference = references("packed")
    names = {path.name for path in reference.folder.iterdir() if path.name[0] != "."}
    records = {"config.yaml", "data.json", "environment.json", "metrics.jsonl", "result.json"}
    assert names == {*records, "checkpoints", "final"}
    assert resolve(read_settings(reference.folder / "config.yaml", "config")) == resolve(reference.settings)
    assert [path.name for path in sorted((reference.folder / "checkpoints").iterdir())] == [
        "step-000000012",
        "step-000000016",
    ]
    assert not [path for path in reference.folder.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]


def test_the_corpus_is_recorded_by_its_hash(references):
    reference = references("packed")
    facts = json.loads((reference.folder / "data.json").read_text())
    assert len(facts["content_hash"]) == 64
    assert reference.outcome.result["data"] == facts


def test_the_final_model_comes_with_its_tokenizer(references):
    final = references("packed").folder / "final"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(final), AutoTokenizer.from_pretrained(final)
    text = "the old king"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    assert model.generate(ids, max_new_tokens=3, do_sample=False).shape[1] == ids.shape[1] + 3
    assert model.config.use_cache


def test_scores_are_measured_with_each_test_and_change_nothing(tmp_path):
    plain = SETTINGS | {"variant": "softmax"}
    asked = plain | {"measure_scores": True}
    assert "measure_scores" not in resolve(plain).content()
    assert resolve(plain).content_hash() != resolve(asked).content_hash()
    result = run_training(resolve(asked), tmp_path / "asked", quiet=True).result
    run_training(resolve(plain), tmp_path / "plain", quiet=True)
    names = ("test_largest_score", "test_dominant_order", "test_order_within")
    tested = [line for line in same_metrics(tmp_path / "asked") if "test_loss" in line]
    assert [line["step"] for line in tested] == [0, 4, 8, 10]
    assert {name: result[name] for name in names} == {name: tested[-1][name] for name in names}
    without = [{k: v for k, v in line.items() if k not in names} for line in same_metrics(tmp_path / "asked")]
    assert without == same_metrics(tmp_path / "plain")
    # The largest score of the final model, by hand.
    config = resolve(asked)
    model = SoftmaxRNNForCausalLM.from_pretrained(tmp_path / "asked" / "final")
    rows = load_run_data(config).test
    scores = []

    def look(module, arguments, options):
        q, k, _ = module.project(arguments[0], options["position_embeddings"])
        scores.append((q @ k.mT / q.shape[-1] ** 0.5).tril().abs().max())

    model.model.layers[0].self_attn.register_forward_pre_hook(look, with_kwargs=True)
    with torch.no_grad():
        for i in range(len(rows)):
            model(input_ids=torch.from_numpy(rows[i]["input_ids"])[None], use_cache=False)
    assert float(max(scores)) == pytest.approx(result["test_largest_score"], rel=1e-5)


@pytest.mark.parametrize("kind", ["packed", "task"])
def test_the_test_loss_is_that_of_the_final_model_over_the_whole_test_side(references, kind):
    reference = references(kind)
    model = AutoModelForCausalLM.from_pretrained(reference.folder / "final")
    rows = load_run_data(resolve(reference.settings)).test
    total, count, by_position = 0.0, 0, {}
    for number in range(len(rows)):
        row = {name: torch.from_numpy(values)[None] for name, values in rows[number].items()}
        targets = row.pop("targets")[0]
        with torch.no_grad():
            logs = model(**row).logits[0].double().log_softmax(-1)
        for t, target in enumerate(targets.tolist()):
            if target != IGNORED:
                total, count = total - float(logs[t, target]), count + 1
                by_position.setdefault(t, []).append(-float(logs[t, target]))
    last = [line for line in same_metrics(reference.folder) if "test_loss" in line][-1]
    assert last["test_tokens"] == count
    assert last["test_loss"] == pytest.approx(total / count, abs=1e-6)
    assert last["test_perplexity"] == pytest.approx(math.exp(total / count), rel=1e-6)
    expected = [sum(by_position[t]) / len(by_position[t]) if t in by_position else None for t in range(len(targets))]
    assert last["test_loss_by_position"] == pytest.approx(expected, abs=2e-6)


def test_the_result_says_what_the_metrics_say(references):
    reference = references("task")
    result, metrics = reference.outcome.result, same_metrics(reference.folder)
    assert result["test_loss"] == metrics[-1]["test_loss"]
    assert result["train_loss"] == [line["loss"] for line in metrics if "loss" in line][-1]
    assert result["step"] == 10
    assert result["config_hash"] == resolve(reference.settings).content_hash()


def test_a_compiled_network_trains_the_same(references, tmp_path):
    reference = references("packed")
    run_training(resolve({**reference.settings, "compile": "eager"}), tmp_path, quiet=True)
    for got, known in zip(same_metrics(tmp_path), same_metrics(reference.folder), strict=True):
        for name in got.keys() & {"loss", "test_loss", "grad_norm"}:
            assert got[name] == pytest.approx(known[name], rel=1e-4)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    AutoModelForCausalLM.from_pretrained(tmp_path / "final")


def test_recompute_gives_the_same_bit_for_bit(references, tmp_path):
    reference = references("task")
    run_training(resolve({**reference.settings, "recompute": True}), tmp_path, quiet=True)
    assert same_metrics(tmp_path) == same_metrics(reference.folder)


def test_an_accuracy_that_can_be_learned_is_learned(tmp_path):
    data = {"source": "induction", "vocab_size": 8, "length": 8, "train_examples": 4096, "test_examples": 64}
    settings = {"data": data, "steps": 150, "batch_size": 32, "learning_rate": 1e-2, "warmup_steps": 10}
    model = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    outcome = run_training(resolve({**settings, "model": model, "eval_every": None}), tmp_path, quiet=True)
    assert outcome.result["test_accuracy"] > 0.6


def test_another_run_in_the_folder_is_refused_by_the_setting(references):
    reference = references("task")
    with pytest.raises(InputError, match=r"holds a run with other settings \(seed: 0 → 1\); choose another folder"):
        run_training(resolve({**reference.settings, "seed": 1}), reference.folder)
    with pytest.raises(InputError, match=r"\(steps: 10 → 11 and 1 more\)"):
        run_training(resolve({**reference.settings, "steps": 11, "seed": 1}), reference.folder)


def test_a_folder_of_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(InputError, match="holds other files and no run"):
        run_training(resolve(SETTINGS), tmp_path)
    with pytest.raises(InputError, match="expected a folder, got the file"):
        run_training(resolve(SETTINGS), tmp_path / "thesis.txt")


def test_data_that_has_changed_is_refused(tmp_path):
    texts = write_texts(tmp_path / "texts.jsonl")
    data = {"source": str(texts), "cache": str(tmp_path / "cache"), "test_fraction": 0.2}
    config = resolve({**SETTINGS, "data": data, "context": 24, "steps": 2})
    run_training(config, tmp_path / "run", quiet=True)
    (tmp_path / "run" / "result.json").unlink()
    write_texts(texts, seed=1)
    with pytest.raises(InputError, match=r"data: the data has changed since the run in .* began \(content_hash: "):
        run_training(config, tmp_path / "run", quiet=True)


def test_a_diverging_run_names_the_suspicious_part(tmp_path):
    config = resolve({**SETTINGS, "variant": "softmax_gate", "learning_rate": 1e20, "warmup_steps": 0, "clip": None})
    with pytest.raises(NonFiniteError) as caught:
        run_training(config, tmp_path, quiet=True)
    said = str(caught.value)
    assert "on batch " in said
    assert "likely causes: the sum of the weights, which grows with the length" in said
    assert len(said.splitlines()) == 1


def test_bf16_on_a_tiny_shape(references, tmp_path):
    reference = references("task")
    outcome = run_training(resolve({**reference.settings, "precision": "bf16"}), tmp_path, quiet=True)
    # 8 bits of mantissa: the loss of 3.4 is known to about 0.01.
    assert outcome.result["test_loss"] == pytest.approx(reference.outcome.result["test_loss"], abs=0.02)
    assert outcome.result["test_loss"] != reference.outcome.result["test_loss"]


def test_padded_rows_train_too(references, tmp_path):
    settings = references("packed").settings
    padded = {**settings, "data": {**settings["data"], "layout": "padded"}, "steps": 2}
    assert run_training(resolve(padded), tmp_path, quiet=True).result["test_tokens"] > 0


def test_tied_embeddings_resume_too(tmp_path):
    config = resolve({**SETTINGS, "model": {**MODEL, "tie_word_embeddings": True}})
    first = run_training(config, tmp_path, quiet=True)
    (tmp_path / "result.json").unlink()
    last = max((tmp_path / "checkpoints").iterdir())
    (last / "manifest.json").unlink()
    assert run_training(config, tmp_path, quiet=True).result["test_loss"] == first.result["test_loss"]


def test_a_hybrid_trains_is_saved_and_continued(tmp_path):
    model = MODEL | {"num_hidden_layers": 3}
    layers = {"0": "rat_4", "1": "log_linear_linear", "2-": "softmax"}
    settings = SETTINGS | {"variant": "rat_4", "layers": layers, "model": model, "steps": 4}
    result = run_training(resolve(settings), tmp_path, quiet=True).result
    assert result["layers"] == layers and math.isfinite(result["test_loss"])
    final = AutoModelForCausalLM.from_pretrained(tmp_path / "final")
    kinds = [spec.structure and spec.structure.kind for spec in final.config.specs]
    assert kinds == ["chunk_ends", "levels", None]
    with pytest.raises(InputError, match="holds a run with other settings"):
        run_training(resolve(settings | {"layers": {"0-": "rat_4"}}), tmp_path, quiet=True)


def test_settings_that_were_not_resolved_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"^config: expected what resolve\(settings\) returns, got a dict$"):
        run_training(dict(SETTINGS), tmp_path / "run")


def test_row_sums_that_are_not_positive_are_counted_and_said_once(tmp_path, capsys):
    model = {**MODEL, "initializer_range": 1.0}
    config = resolve({**SETTINGS, "variant": "taylor_1", "model": model, "nonfinite": "skip", "steps": 4})
    result = run_training(config, tmp_path / "run").result
    assert result["nonpositive_row_sums"] > 0
    said = [line for line in capsys.readouterr().err.splitlines() if "row sum" in line and "left out" not in line]
    assert said == [
        f"{result['nonpositive_row_sums']:,} row sums were not positive; the outputs of these rows are not averages"
    ]
    # Interrupted and continued, the count is that of the whole run.
    (tmp_path / "run" / "result.json").unlink()
    assert (
        run_training(config, tmp_path / "run", quiet=True).result["nonpositive_row_sums"]
        == result["nonpositive_row_sums"]
    )


def test_a_softmax_has_none(references):
    assert references("packed").outcome.result["nonpositive_row_sums"] == 0


def test_a_model_of_ours_trains_under_transformers_own_trainer(tmp_path):
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    network = SoftmaxRNNForCausalLM(build_config("nano", "gated_softmax", vocab_size=16, **MODEL))
    ids = torch.randint(0, 16, (1, 12))
    rows = [{"input_ids": ids[0], "labels": ids[0]}] * 16
    words = TrainingArguments(
        output_dir=str(tmp_path), max_steps=12, per_device_train_batch_size=4, learning_rate=1e-2, use_cpu=True,
        report_to="none", disable_tqdm=True, logging_steps=1, save_strategy="no",
    )  # fmt: skip
    trainer = Trainer(model=network, args=words, train_dataset=rows)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert len(losses) == 12
    assert losses[-1] < losses[0] - 0.2
