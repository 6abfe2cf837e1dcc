"""Models with a window of their own: converted, decoded with a state that stays small, saved, cropped."""

from __future__ import annotations

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from softmax_rnn.attention.parts import Window
from softmax_rnn.errors import InputError
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.convert import convert, specs_of
from softmax_rnn.model.windows import layer_windows

from .pretrained_models import SIZES, batch, build, greedy


def test_windows_of_layers() -> None:
    assert layer_windows(build("mistral, window").config) == (4, 4)
    assert layer_windows(build("qwen2, window").config) == (None, 4)
    assert layer_windows(build("gemma3").config) == (4, None)
    assert layer_windows(build("llama").config) == (None, None)


@pytest.mark.parametrize("name", ["mistral, window", "gemma3"])
def test_generation_is_that_of_the_model(name: str) -> None:
    options = {"num_beams": 2}
    expected = greedy(build(name), **options)
    assert torch.equal(greedy(convert(build(name), "softmax"), **options), expected)


def test_inside_transformers_own_class() -> None:
    ids, options = batch()
    model = build("mistral, window")
    expected, tokens = model(input_ids=ids, **options).logits, greedy(model)
    model.set_attn_implementation("softmax_rnn:softmax")
    real = options["attention_mask"].bool()
    torch.testing.assert_close(model(input_ids=ids, **options).logits[real], expected[real], atol=1e-10, rtol=0)
    assert torch.equal(greedy(model), tokens)


@pytest.mark.parametrize("cap", [None, 0.3])
def test_gemma_2(cap: float | None) -> None:
    """transformers' own Gemma 2 takes softmax in float32, so it is compared there."""
    torch.manual_seed(0)
    config = Gemma2Config(**SIZES, sliding_window=4, attn_logit_softcapping=cap)
    model = Gemma2ForCausalLM(config).eval()
    model.set_attn_implementation("eager")  # only this one has the cap
    ids = batch()[0]
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        result = convert(model, "softmax")(input_ids=ids).logits
    assert float((result - expected).abs().max() / expected.abs().max()) < 2e-5
    assert [spec and spec.structure for spec in specs_of(model)] == [Window(4), None]
    assert {spec and spec.score.ceiling for spec in specs_of(model)} == {cap}
    if cap is not None:
        with torch.no_grad():
            cache = SpecCache(specs_of(model))
            pieces = [model(input_ids=part, past_key_values=cache).logits for part in (ids[:, :5], ids[:, 5:])]
        torch.testing.assert_close(torch.cat(pieces, 1), result, atol=2e-5, rtol=2e-5)
        with pytest.raises(InputError, match=r"caps its scores at 0\.3, which needs the score exp without a clamp"):
            convert(Gemma2ForCausalLM(config), "taylor_2")


def test_another_score_keeps_the_window_and_a_structure_replaces_it() -> None:
    model = convert(build("mistral, window"), "taylor_2")
    assert {spec and spec.structure for spec in specs_of(model)} == {Window(4)}
    wider = convert(build("mistral, window"), "streaming_llm_6")
    assert {spec and spec.structure for spec in specs_of(wider)} == {Window(6, 4)}


@torch.no_grad()
def test_state_stays_small_is_saved_and_cropped(tmp_path) -> None:
    model = convert(build("llama"), "streaming_llm_8")
    ids = torch.randint(1, 48, (2, 50), generator=torch.Generator().manual_seed(2))
    whole = model(input_ids=ids, use_cache=False).logits
    cache, sizes = SpecCache(specs_of(model)), []
    for t in range(48):
        model(input_ids=ids[:, t : t + 1], past_key_values=cache)
        sizes.append(cache.state_bytes())
    assert max(sizes[20:]) == max(sizes[14:20])
    cache.save(tmp_path / "state.safetensors")
    loaded = SpecCache.load(tmp_path / "state.safetensors", specs_of(model))
    assert loaded.get_seq_length() == 48
    tail = model(input_ids=ids[:, 48:], past_key_values=loaded).logits
    torch.testing.assert_close(tail, whole[:, 48:], atol=1e-10, rtol=0)
    loaded.crop(-1)
    again = model(input_ids=ids[:, 49:], past_key_values=loaded).logits
    torch.testing.assert_close(again, whole[:, 49:], atol=1e-10, rtol=0)
    with pytest.raises(InputError, match="keys that left the window are gone, so 30 positions"):
        loaded.crop(-30)


@torch.no_grad()
def test_near_and_far_is_padded_saved_and_not_cropped(tmp_path) -> None:
    model = convert(build("llama"), "near_far_2")
    ids, options = batch()
    real = options["attention_mask"].bool()
    whole = model(input_ids=ids, **options, use_cache=False).logits
    cache = SpecCache(specs_of(model))
    first = {"attention_mask": options["attention_mask"][:, :8], "position_ids": options["position_ids"][:, :8]}
    head = model(input_ids=ids[:, :8], past_key_values=cache, **first).logits
    torch.testing.assert_close(head[real[:, :8]], whole[:, :8][real[:, :8]], atol=1e-10, rtol=0)
    cache.save(tmp_path / "state.safetensors")
    loaded = SpecCache.load(tmp_path / "state.safetensors", specs_of(model))
    loaded.select(torch.tensor([2, 0, 1]))
    last = {
        "attention_mask": options["attention_mask"][[2, 0, 1]],
        "position_ids": options["position_ids"][[2, 0, 1], 8:],
    }
    tail = model(input_ids=ids[[2, 0, 1], 8:], past_key_values=loaded, **last).logits
    torch.testing.assert_close(tail, whole[[2, 0, 1], 8:], atol=1e-10, rtol=0)
    with pytest.raises(InputError, match="keys that left the window are gone"):
        loaded.crop(-1)
