"""Pretrained models that decode with kept keys: steps, left padding, beams, files; what cannot be taken back."""

from __future__ import annotations

import pytest
import torch

from softmax_rnn.attention.parts import KeptKeys, taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.convert import convert, specs_of

from .pretrained_models import batch, build, greedy

SPEC = AttentionSpec(score=taylor_score(2), structure=KeptKeys(2, 1, kept=2))


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_padded_stepwise_selected_saved_and_not_cropped(name, tmp_path) -> None:
    model = convert(build(name), SPEC)
    ids, options = batch()
    real = options["attention_mask"].bool()
    whole = model(input_ids=ids, **options, use_cache=False).logits
    cache = SpecCache(specs_of(model))
    first = {"attention_mask": options["attention_mask"][:, :8], "position_ids": options["position_ids"][:, :8]}
    head = model(input_ids=ids[:, :8], past_key_values=cache, **first).logits
    torch.testing.assert_close(head[real[:, :8]], whole[:, :8][real[:, :8]], atol=1e-10, rtol=0)
    size = cache.state_bytes()
    cache.save(tmp_path / "state.safetensors")
    loaded = SpecCache.load(tmp_path / "state.safetensors", specs_of(model))
    rows = [2, 0, 1]
    loaded.select(torch.tensor(rows))
    for t in range(8, ids.shape[1]):
        here = {
            "attention_mask": options["attention_mask"][rows, : t + 1],
            "position_ids": options["position_ids"][rows, t : t + 1],
        }
        step = model(input_ids=ids[rows, t : t + 1], past_key_values=loaded, **here).logits
        torch.testing.assert_close(step, whole[rows, t : t + 1], atol=1e-10, rtol=0)
    assert loaded.state_bytes() == size
    with pytest.raises(InputError, match="which keys are kept depends on all positions"):
        loaded.crop(-1)


def test_beam_search_is_that_without_a_cache() -> None:
    model = convert(build("llama"), SPEC)
    assert torch.equal(greedy(model, num_beams=2), greedy(model, num_beams=2, use_cache=False))


def test_transformers_own_cache_is_refused() -> None:
    model = build("llama")
    model.set_attn_implementation("softmax_rnn:kept_keys_2")
    with pytest.raises(InputError, match="kept_keys chooses its keys as it reads; decode after convert"):
        greedy(model)
