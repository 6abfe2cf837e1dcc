"""The attention of pretrained models swapped, weights kept."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
)

from softmax_rnn.attention.algebra import fixed_state_score
from softmax_rnn.attention.parts import ChannelGate, ForgetGate, InputGate, LayerNorm, MambaDecay, OutputGate, RMSNorm
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import FixedState
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, UnknownNameError
from softmax_rnn.model import SoftmaxRNNForCausalLM, SpecCache
from softmax_rnn.model.convert import convert, specs_of
from softmax_rnn.model.foreign import ConvertedGemma, ConvertedQwen3
from softmax_rnn.model.generating import generate_text
from softmax_rnn.model.loading import load_model
from softmax_rnn.model.sizes import build_config

from .pretrained_models import L2, MODELS, batch, build, greedy, logits
from .tiny import same_model


@pytest.mark.parametrize("name", MODELS)
def test_softmax_changes_nothing(name: str) -> None:
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        model = build(name, dtype)
        before, text = logits(model), greedy(model)
        converted = convert(model, "softmax")
        torch.testing.assert_close(logits(converted), before, atol=tolerance, rtol=0)
        assert torch.equal(greedy(converted), text)


NEUTRAL = {
    "softmax_divS_gate": "softmax_divs",
    "gated_softmax_no_norm": "softmax_divs",
    "gated_softmax_no_out_gate_no_norm": "softmax_divs",
    "gated_softmax": "gated_softmax_no_gate",
    "softmax_gate": AttentionSpec(score=VARIANTS["softmax_gate"].score, normaliser=None),
    "gated_softmax_post_out_gate_L2norm_nodivS_noclamp": L2,
    "gated_softmax_cumgate": "softmax_divs",
    "forgetting_transformer": "softmax",
    "two_mamba": "power_2",
    "gated_softmax_decay": "gated_softmax_no_gate",
    "power_attention_2": "power_2",
    AttentionSpec(forget_gate=MambaDecay()): "softmax",
    AttentionSpec(forget_gate=ChannelGate(rank=4, bonus=True)): "softmax",
    AttentionSpec(forget_gate=ForgetGate(divisor=16.0)): "softmax",
    AttentionSpec(input_gate=InputGate(), output_gate=OutputGate(), forget_gate=ForgetGate()): "softmax",
    AttentionSpec(output_gate=OutputGate(after_norm=True), input_gate=InputGate(), output_norm=RMSNorm()): (
        AttentionSpec(output_norm=RMSNorm())
    ),
    AttentionSpec(output_norm=LayerNorm(), output_gate=OutputGate()): AttentionSpec(output_norm=LayerNorm()),
    AttentionSpec(output_norm=RMSNorm()): AttentionSpec(output_norm=RMSNorm(affine=False)),
}


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("pair", NEUTRAL.items(), ids=str)
def test_added_parameters_are_neutral(name: str, pair: tuple[Any, Any]) -> None:
    with_gates, without = pair
    expected = logits(convert(build(name), without))
    torch.testing.assert_close(logits(convert(build(name), with_gates)), expected, atol=1e-10, rtol=0)
    expected = logits(convert(build(name, torch.float32), without))
    torch.testing.assert_close(logits(convert(build(name, torch.float32), with_gates)), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_there_and_back(name: str) -> None:
    """Gates that come and go leave the weights as they were."""
    model = build(name)
    before = logits(model)
    weights = {key: x.clone() for key, x in model.state_dict().items()}
    for spec in ("gated_softmax", "forgetting_transformer", "linear_cosine", "softmax"):
        model = convert(model, spec)
    assert torch.equal(logits(model), before)
    for key, x in model.state_dict().items():
        torch.testing.assert_close(x, weights[key], atol=0, rtol=0)


def test_parameters_that_both_specs_have_are_kept() -> None:
    model = convert(build("llama"), "gated_softmax")
    parts = model.model.layers[1].self_attn.parts
    with torch.no_grad():
        parts.output_gate.weight.fill_(0.25)
        parts.norm_weight.fill_(3.0)
    after = convert(model, "gated_softmax_no_in_gate").model.layers[1].self_attn.parts
    assert bool((after.output_gate.weight == 0.25).all()) and bool((after.norm_weight == 3.0).all())


def test_gates_learn_and_so_does_the_rest() -> None:
    ids, _ = batch()
    for name in ("llama", "qwen3"):
        model = convert(build(name, torch.float32).train(), "gated_softmax")
        assert model.training
        model(input_ids=ids, labels=ids).loss.backward()
        for key, parameter in model.named_parameters():
            assert parameter.grad is not None, key
            assert parameter.grad.abs().max() > 0, key
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        first = model(input_ids=ids, labels=ids).loss
        optimizer.step()
        assert model(input_ids=ids, labels=ids).loss < first


def test_gradients_of_softmax_are_those_of_the_original() -> None:
    ids, _ = batch()
    model = build("llama")
    model(input_ids=ids, labels=ids).loss.backward()
    expected = {key: x.grad.clone() for key, x in model.named_parameters()}
    model.zero_grad()
    converted = convert(model, "softmax")
    converted(input_ids=ids, labels=ids).loss.backward()
    for key, x in converted.named_parameters():
        torch.testing.assert_close(x.grad, expected[key], atol=1e-8, rtol=1e-6)


def test_frozen_weights_stay_frozen_and_weights_are_not_copied() -> None:
    model = build("llama")
    model.requires_grad_(False)
    weight = model.model.layers[0].self_attn.q_proj.weight
    converted = convert(model, "softmax_gate")
    assert converted.model.layers[0].self_attn.q_proj.weight is weight
    learning = {key.split("self_attn.")[1] for key, x in converted.named_parameters() if x.requires_grad}
    assert learning == {"parts.output_gate.weight", "parts.output_gate.bias"}


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma"])
@pytest.mark.parametrize(
    "spec", ["softmax", "taylor_2", "gated_softmax", "forgetting_transformer", "linear_cosine", L2]
)
def test_decoding_with_the_state_is_decoding_without(name: str, spec: str) -> None:
    model = convert(build(name), spec)
    text = greedy(model)
    assert torch.equal(text, greedy(model, use_cache=False))
    ids, inputs = batch()
    with torch.no_grad():
        outputs = model(input_ids=ids, **inputs, use_cache=True)
    cache = outputs.past_key_values
    assert isinstance(cache, SpecCache)
    fixed = fixed_state_score(VARIANTS[spec], 8) is not None
    assert all(isinstance(layer.state, FixedState) == fixed for layer in cache.layers)
    if name != "gemma":
        beams = greedy(model, num_beams=2)
        assert torch.equal(beams, greedy(model, num_beams=2, use_cache=False))


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_spec_for_each_layer(name: str) -> None:
    model = convert(build(name), ["softmax", VARIANTS["taylor_2"]])
    assert specs_of(model) == (VARIANTS["softmax"], VARIANTS["taylor_2"])
    assert torch.equal(greedy(model), greedy(model, use_cache=False))
    with pytest.raises(InputError, match="expected 2 specs, one per layer, got 3"):
        convert(build(name), ["softmax"] * 3)
    with pytest.raises(UnknownNameError, match="did you mean 'taylor_"):
        convert(build(name), ["softmax", "tailor_2"])


@pytest.mark.parametrize("name", ["llama", "llama, biases, tied", "llama, scaled rope", "mistral", "qwen2"])
def test_saved_and_loaded(name: str, tmp_path) -> None:
    model = convert(build(name, torch.float32), ["gated_softmax", "taylor_2"])
    assert isinstance(model, SoftmaxRNNForCausalLM)
    with torch.no_grad():
        model.model.layers[0].self_attn.parts.output_gate.weight.normal_()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(loaded, SoftmaxRNNForCausalLM)
    torch.testing.assert_close(logits(loaded), logits(model), atol=1e-5, rtol=0)
    assert torch.equal(greedy(loaded), greedy(model))


@pytest.mark.parametrize(("name", "kind"), [("qwen3", ConvertedQwen3), ("gemma", ConvertedGemma)])
def test_a_foreign_class_is_saved_and_loaded(name: str, kind: type, tmp_path) -> None:
    model = convert(build(name, torch.float32), layers={"0": "gated_softmax", "1-": "taylor_2"})
    with torch.no_grad():  # what starts neutral must not hide what is lost
        for key, parameter in model.named_parameters():
            if ".parts." in key:
                parameter.add_(0.3 * torch.randn_like(parameter))
    assert torch.equal(logits(copy.deepcopy(model)), logits(model))
    model.save_pretrained(tmp_path)
    assert "import softmax_rnn.model" in (tmp_path / "README.md").read_text(encoding="utf-8")
    for loaded in (AutoModelForCausalLM.from_pretrained(tmp_path), load_model(tmp_path)):
        assert type(loaded) is kind and specs_of(loaded) == specs_of(model)
        assert same_model(loaded, model, batch()[0]) and torch.equal(greedy(loaded), greedy(model))
    again = convert(load_model(tmp_path), "softmax")
    assert again.config.specs == (AttentionSpec(),) * 2


def test_packed_documents_and_caches_that_are_not_ours() -> None:
    ids, _ = batch()
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2]]).expand(3, -1)
    model = build("qwen3")
    expected = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    model = convert(model, "softmax")
    packed = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(packed, expected, atol=1e-10, rtol=0)
    with pytest.raises(InputError, match="past_key_values"):
        model(input_ids=ids, past_key_values=SpecCache([VARIANTS["taylor_2"]] * 2))
    with pytest.raises(InputError, match="cache_implementation"):
        model.generate(ids, max_new_tokens=2, cache_implementation="static")
    with pytest.raises(InputError, match="attention_mask: expected causal attention with padding"):
        model(input_ids=ids, attention_mask=torch.ones(3, 1, 9, 9, dtype=torch.bool), use_cache=False)


def test_forget_bias() -> None:
    model = convert(build("llama"), "forgetting_transformer", forget_bias=8.0)
    assert bool((model.model.layers[0].self_attn.parts.forget_gate.bias == 8.0).all())
    asleep = logits(convert(build("llama"), "forgetting_transformer"))
    assert (logits(model) - asleep).abs().max() > 1e-6


def test_our_own_models_are_converted_too() -> None:
    ids, _ = batch()
    model = SoftmaxRNNForCausalLM(build_config("nano", "gated_softmax_plusplus", vocab_size=48)).eval()
    conv = model.model.layers[0].self_attn.conv
    assert conv is not None
    taps = conv.state_dict()
    converted = convert(model, "taylor_2")
    assert converted.config.conv_width == 4
    for key, x in converted.model.layers[0].self_attn.conv.state_dict().items():
        assert torch.equal(x, taps[key])
    assert converted(input_ids=ids).logits.isfinite().all()
    mamba = SoftmaxRNNForCausalLM(build_config("nano", "linear_mamba", vocab_size=48))
    with pytest.raises(InputError, match=r"mixer: .* Mamba-2 mixers"):
        convert(mamba, "softmax")


def test_another_process_needs_one_import_to_read_a_foreign_class(tmp_path) -> None:
    convert(build("qwen3", torch.float32), "taylor_2").save_pretrained(tmp_path)
    code = """
import sys
import softmax_rnn.model
from transformers import AutoModelForCausalLM

assert "softmax_rnn.model.foreign" not in sys.modules, "a run that trains would wait for classes that it does not need"
print(type(AutoModelForCausalLM.from_pretrained(sys.argv[1])).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.strip() == "ConvertedQwen3", done.stderr


def test_a_foreign_class_makes_text() -> None:
    model = convert(build("qwen3"), "taylor_2")
    ids, _ = batch()
    expected = model.generate(ids[:1], max_new_tokens=5, do_sample=False)[0, 9:].tolist()
    result = generate_text(model, ids[0].tolist(), max_new_tokens=5)
    assert list(result.tokens) == expected
    assert result.state_bytes == generate_text(model, ids[0].tolist(), max_new_tokens=9).state_bytes
