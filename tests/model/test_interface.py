"""Parameter-free variants through transformers' AttentionInterface."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.parts import ChunkEnds, KeptKeys, NearFar
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, UnknownNameError
from softmax_rnn.model.interface import PREFIX, attend_at_end, register_attention, with_scaling
from softmax_rnn.model.masks import read_mask

from .pretrained_models import SIZES

torch.set_num_threads(1)

FREE = [name for name in VARIANTS if not VARIANTS[name].tensors]
DECODED = [name for name in FREE if not isinstance(VARIANTS[name].structure, (NearFar, KeptKeys))]
"""Those that can go on from a cache of keys and values; a far state is a sum, which only `convert` keeps."""


def llama(implementation: str = "sdpa", **options) -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM._from_config(LlamaConfig(**{**SIZES, **options}), attn_implementation=implementation)
    return model.double().eval()


def padded(side: str) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(1, 48, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    for row, count in enumerate((0, 2, 5)):
        if count:
            mask[row, slice(0, count) if side == "left" else slice(9 - count, 9)] = 0
    return ids, mask


def test_names_are_registered_with_a_mask_function() -> None:
    assert set(register_attention()) == {PREFIX + name for name in FREE}
    for name in FREE:
        assert PREFIX + name in AttentionMaskInterface._global_mapping
    assert len(FREE) > 15


@pytest.mark.parametrize("side", ["left", "right"])
def test_softmax_is_the_model_as_it_was(side: str) -> None:
    ids, mask = padded(side)
    model = llama()
    expected = model(ids, attention_mask=mask).logits
    model.set_attn_implementation("softmax_rnn:softmax")
    torch.testing.assert_close(
        model(ids, attention_mask=mask).logits[mask.bool()], expected[mask.bool()], atol=1e-10, rtol=0
    )


@pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")
@pytest.mark.parametrize("name", FREE)
def test_padding_has_no_effect(name: str) -> None:
    """Each row of a padded batch is the row alone: the mask arrives."""
    ids, mask = padded("left")
    model = llama(PREFIX + name)
    together = model(ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0)).logits
    for row in range(3):
        real = mask[row].bool()
        alone = model(ids[row : row + 1, real]).logits
        torch.testing.assert_close(together[row : row + 1, real], alone, atol=1e-5, rtol=1e-5)


def test_the_mask_matters() -> None:
    ids, mask = padded("left")
    model = llama("softmax_rnn:linear_elu")
    with_mask, without = model(ids, attention_mask=mask).logits, model(ids).logits
    assert (with_mask - without)[2, -1].abs().max() > 1e-3


@pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")
@pytest.mark.parametrize("name", DECODED)
def test_generate_with_the_cache_is_generate_without(name: str) -> None:
    ids, mask = padded("left")
    model = llama(PREFIX + name)
    options = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False}
    with_cache = model.generate(ids, **options)
    assert torch.equal(with_cache, model.generate(ids, **options, use_cache=False))


@pytest.mark.parametrize("name", ["softmax", "taylor_2", "softmax_divs"])
def test_other_ways_to_generate(name: str) -> None:
    ids, mask = padded("left")
    model = llama(PREFIX + name)
    options = {"attention_mask": mask, "max_new_tokens": 5, "do_sample": False}
    greedy = model.generate(ids, **options)
    assert torch.equal(model.generate(ids, **options, cache_implementation="static"), greedy)
    beams = model.generate(ids, **options, num_beams=3)
    assert torch.equal(beams, model.generate(ids, **options, num_beams=3, use_cache=False))


@pytest.mark.parametrize("name", ["softmax", "taylor_4", "linear_relu", "gated_softmax_no_gate_L2norm_nodivS_noclamp"])
def test_queries_that_continue_a_cache(name: str) -> None:
    ids, mask = padded("left")
    model = llama(PREFIX + name)
    whole = model(ids, attention_mask=mask).logits
    first = model(ids[:, :6], attention_mask=mask[:, :6], use_cache=True)
    rest = model(ids[:, 6:], attention_mask=mask, past_key_values=first.past_key_values).logits
    torch.testing.assert_close(rest, whole[:, 6:], atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")
@pytest.mark.parametrize("name", DECODED)
def test_attend_at_end_is_the_end_of_attend(name: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, 7, 4, dtype=torch.float64) for heads in (4, 2, 2))
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, :3] = False
    whole = attend(VARIANTS[name], q, k, v, key_mask=mask)
    for count in (1, 3):
        end = attend_at_end(VARIANTS[name], q[:, :, -count:], k, v, mask)
        torch.testing.assert_close(end, whole[:, :, -count:], atol=1e-10, rtol=1e-8)


def test_a_far_state_is_not_made_from_a_cache_of_keys() -> None:
    q, k, v = torch.randn(3, 1, 2, 7, 4)
    with pytest.raises(InputError, match=r"structure: near_far sums up the keys .* decode after convert\(\)"):
        attend_at_end(VARIANTS["near_far_64"], q[:, :, -1:], k, v, None)
    with pytest.raises(InputError, match=r"structure: chunk_ends keeps only the ends .* decode after convert\(\)"):
        attend_at_end(AttentionSpec(structure=ChunkEnds(2)), q[:, :, -1:], k, v, None)


def test_backward_and_packed_documents() -> None:
    ids, _ = padded("left")
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2]]).expand(3, -1)
    grads = []
    for implementation in ("sdpa", "softmax_rnn:softmax"):
        model = llama(implementation)
        loss = model(ids, labels=ids, position_ids=positions, use_cache=False).loss
        loss.backward()
        grads.append([loss.detach(), *(p.grad for p in model.parameters())])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-5)


def test_gradient_checkpointing() -> None:
    ids, mask = padded("right")
    grads = []
    for checkpointing in (False, True):
        model = llama("softmax_rnn:taylor_2").train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(ids, attention_mask=mask, labels=ids, use_cache=False).loss.backward()
        grads.append(model.model.layers[0].self_attn.q_proj.weight.grad)
    torch.testing.assert_close(*grads)


def test_the_models_scaling_replaces_the_root_of_d() -> None:
    config = GraniteConfig(**{**SIZES, "attention_multiplier": 0.7})
    torch.manual_seed(0)
    model = GraniteForCausalLM._from_config(config, attn_implementation="sdpa").double().eval()
    ids, mask = padded("left")
    expected = model(ids, attention_mask=mask).logits
    model.set_attn_implementation("softmax_rnn:softmax")
    torch.testing.assert_close(
        model(ids, attention_mask=mask).logits[mask.bool()], expected[mask.bool()], atol=1e-10, rtol=0
    )
    softmax, linear = VARIANTS["softmax"], VARIANTS["linear_elu"]
    assert with_scaling(softmax, 0.7) == replace(softmax, score=replace(softmax.score, scale=0.7))
    assert with_scaling(linear, 0.7) == linear


def test_what_a_spec_does_not_have_is_refused_by_name() -> None:
    ids, _ = padded("left")
    small = {**SIZES, "head_dim": 8}
    capped = Gemma2Config(**{**small, "sliding_window": 64, "layer_types": ["full_attention"] * 2})
    with pytest.raises(InputError, match="softcap"):
        Gemma2ForCausalLM._from_config(capped, attn_implementation="softmax_rnn:softmax")(ids)
    sinks = GptOssConfig(**{**small, "layer_types": ["full_attention"] * 2, "num_local_experts": 2})
    with pytest.raises(InputError, match="s_aux: attention sinks"):
        GptOssForCausalLM._from_config(sinks, attn_implementation="softmax_rnn:softmax")(ids)
    dropout = llama("softmax_rnn:softmax", attention_dropout=0.1)
    dropout(ids)
    with pytest.raises(InputError, match="attention_dropout"):
        dropout.train()(ids)


def test_masks_that_are_neither_padding_nor_segments_are_refused() -> None:
    model = llama("softmax_rnn:softmax")
    ids, mask = padded("left")
    both_ways = torch.ones(3, 1, 9, 9, dtype=torch.bool)
    with pytest.raises(InputError, match="attention_mask"):
        model(ids, attention_mask=both_ways)
    pairs = sdpa_mask(3, 9, 9, attention_mask=mask.bool(), allow_is_causal_skip=False)
    expected = model(ids, attention_mask=mask, position_ids=torch.arange(9)[None]).logits
    given = model(ids, attention_mask=pairs, position_ids=torch.arange(9)[None]).logits
    torch.testing.assert_close(given[mask.bool()], expected[mask.bool()])
    additive = torch.zeros(3, 1, 9, 9, dtype=torch.float64).masked_fill(~pairs, torch.finfo(torch.float64).min)
    given = model(ids, attention_mask=additive, position_ids=torch.arange(9)[None]).logits
    torch.testing.assert_close(given[mask.bool()], expected[mask.bool()])
    causal = torch.ones(1, 4, 4, dtype=torch.bool).tril()
    assert read_mask(causal, 4) is None


def test_names() -> None:
    assert register_attention("taylor_6") == ["softmax_rnn:taylor_6"]
    assert register_attention("softmax_rnn:taylor_6") == ["softmax_rnn:taylor_6"]
    ids, _ = padded("left")
    assert llama("softmax_rnn:taylor_6")(ids).logits.isfinite().all()
    with pytest.raises(UnknownNameError, match="did you mean 'softmax'"):
        register_attention("sofmax")
    with pytest.raises(InputError, match=r"softmax_gate: .* needs output_gate; .*convert"):
        register_attention("softmax_gate")
    with pytest.raises(ValueError, match="softmax_gate"):
        llama("softmax_rnn:softmax_gate")


def test_bfloat16() -> None:
    ids, mask = padded("left")
    model = llama("softmax_rnn:taylor_2").bfloat16()
    assert model(ids, attention_mask=mask).logits.dtype == torch.bfloat16
    assert model.generate(ids, attention_mask=mask, max_new_tokens=2, do_sample=False).shape == (3, 11)


def test_names_are_found_when_they_are_asked_for():
    config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    model = LlamaForCausalLM._from_config(config, attn_implementation="softmax_rnn:taylor_7").eval()
    expected = model(torch.tensor([[1, 2, 3]])).logits
    model.set_attn_implementation("sdpa")
    assert torch.allclose(model(torch.tensor([[1, 2, 3]])).logits, expected, atol=1e-4)
    with pytest.raises(InputError, match="attn_implementation: unknown variant 'sofmax'; did you mean 'softmax'"):
        model.set_attn_implementation("softmax_rnn:sofmax")
    with pytest.raises(InputError, match="this variant needs output_gate"):
        model.set_attn_implementation("softmax_rnn:softmax_gate")
    with pytest.raises(ValueError, match="is not supported"):
        model.set_attn_implementation("spda")
