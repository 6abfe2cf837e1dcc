"""Decoding with the state says what the model says without one."""

import pytest
import torch
from transformers import DynamicCache

from attention.cases import KINDS, some
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.model import MODEL_VARIANTS, SpecCache

from .tiny import left_padded, tiny_model, tokens

negative_weights = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")
SOME = ["softmax", "gated_softmax_cumgate", "taylor_2", "two_mamba", "gated_softmax_plusplus", "linear_mamba"]
SOME += ["log_linear_taylor_2", "rat_3", "streaming_llm_2", "near_far_2", "kept_keys_1"]


def greedy_without_cache(model, ids, mask, count):
    """The argmax of whole forward passes, nothing of transformers' generate()."""
    for _ in range(count):
        with torch.no_grad():
            logits = model(ids, attention_mask=mask, use_cache=False).logits
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], 1)
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
    return ids, mask


@negative_weights
@pytest.mark.parametrize("variant", some({*KINDS, *SOME}, MODEL_VARIANTS))
def test_greedy_text_with_left_padding_and_continued(variant):
    model = tiny_model(variant)
    ids, mask = left_padded(tokens(2, 8), 3)
    cache = SpecCache(model.config.specs)
    first = model.generate(
        ids, attention_mask=mask, past_key_values=cache, max_new_tokens=5, do_sample=False, pad_token_id=0
    )
    expected, mask_after = greedy_without_cache(model, ids, mask, 5)
    assert torch.equal(first, expected)
    assert cache.get_seq_length() == 12
    # Continued: two more tokens are said by the user, then the model goes on from the same cache.
    more, mask_after = torch.cat([first, tokens(2, 2, seed=5)], 1), torch.cat([mask_after, torch.ones(2, 2).long()], 1)
    second = model.generate(
        more, attention_mask=mask_after, past_key_values=cache, max_new_tokens=4, do_sample=False, pad_token_id=0
    )
    assert torch.equal(second, greedy_without_cache(model, more, mask_after, 4)[0])
    assert bool((first[0] != first[1]).any()), "a model that says one thing tests nothing"


@negative_weights
@pytest.mark.parametrize("variant", some({*KINDS, *SOME}, MODEL_VARIANTS))
def test_logits_of_pieces_are_those_of_the_whole(variant):
    model, ids = tiny_model(variant, learned_positions=True), tokens(2, 9)
    ids, mask = left_padded(ids, 2)
    with torch.no_grad():
        whole = model(ids, attention_mask=mask, use_cache=False).logits
        cache, pieces = None, []
        for start, stop in [(0, 4), (4, 5), (5, 8), (8, 9)]:
            outputs = model(ids[:, start:stop], attention_mask=mask[:, :stop], past_key_values=cache, use_cache=True)
            cache, pieces = outputs.past_key_values, [*pieces, outputs.logits]
    result = torch.cat(pieces, 1)
    assert bool(torch.isfinite(whole).all())
    torch.testing.assert_close(result[0, 2:], whole[0, 2:], atol=2e-4, rtol=1e-3)
    torch.testing.assert_close(result[1], whole[1], atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("variant", SOME)
def test_beam_search(variant):
    model = tiny_model(variant)
    ids, mask = left_padded(tokens(2, 6), 2)
    options = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    beams = {"num_beams": 4, "num_return_sequences": 4}
    with_cache = model.generate(ids, **beams, **options)
    assert torch.equal(with_cache, model.generate(ids, use_cache=False, **beams, **options))


@pytest.mark.parametrize("variant", SOME)
def test_prefill_in_chunks_and_several_samples(variant):
    model, ids = tiny_model(variant), tokens(2, 7)
    options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(ids, prefill_chunk_size=3, **options), model.generate(ids, **options))
    several = model.generate(ids, max_new_tokens=3, do_sample=True, num_return_sequences=2, pad_token_id=0)
    assert several.shape == (4, 10)


def test_fixed_states_do_not_grow_and_growing_ones_do():
    sizes = {}
    for variant in ("linear_elu", "two_mamba", "linear_mamba", "softmax"):
        model, seen = tiny_model(variant), []
        for count in (2, 30):
            cache = SpecCache(model.config.specs)
            model.generate(tokens(1, 3), past_key_values=cache, max_new_tokens=count, do_sample=False, pad_token_id=0)
            seen.append(cache.state_bytes())
        sizes[variant] = seen
    assert all(sizes[name][0] == sizes[name][1] for name in ("linear_elu", "two_mamba", "linear_mamba"))
    assert sizes["softmax"][1] > 4 * sizes["softmax"][0]


def test_prompt_lookup_where_tokens_can_be_taken_back():
    model, ids = tiny_model("softmax"), tokens(1, 4).repeat(1, 3)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(ids, prompt_lookup_num_tokens=3, **options), model.generate(ids, **options))
    for variant in ("linear_elu", "gated_softmax_plusplus", "linear_mamba", "gated_softmax_cumgate"):
        with pytest.raises(ValueError, match="not supported with stateful models"):
            tiny_model(variant).generate(ids, prompt_lookup_num_tokens=3, **options)


def test_a_smaller_model_may_guess_where_tokens_can_be_taken_back():
    model, ids = tiny_model("softmax"), tokens(1, 4)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    guessed = model.generate(ids, assistant_model=tiny_model("softmax", seed=1), **options)
    assert torch.equal(guessed, model.generate(ids, **options))
    with pytest.raises(InputError, match="crop: a state of fixed size sums over all positions"):
        model.generate(ids, assistant_model=tiny_model("taylor_2"), **options)


def test_a_polynomial_of_many_coefficients():
    spec = AttentionSpec(score=Polynomial(coefficients=(1.0,) + (1e-3,) * 199))
    model, ids = tiny_model(attention_spec=spec, initializer_range=0.02), tokens()
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits
        cache = SpecCache(model.config.specs)
        pieces = [model(part, past_key_values=cache).logits for part in (ids[:, :5], ids[:, 5:])]
    torch.testing.assert_close(torch.cat(pieces, 1), whole, atol=2e-5, rtol=2e-5)


def test_other_caches_are_refused():
    model, ids = tiny_model(), tokens()
    with pytest.raises(InputError, match=r"expected a SpecCache .* got a DynamicCache"):
        model.generate(ids, past_key_values=DynamicCache(), max_new_tokens=2, pad_token_id=0)
    with pytest.raises(InputError, match="expected a SpecCache"):
        model(ids, past_key_values=DynamicCache())
    with pytest.raises(InputError, match="cache_implementation: this model decodes with its own state"):
        model.generate(ids, cache_implementation="static", max_new_tokens=2, pad_token_id=0)
    with pytest.raises(InputError, match=r"layer 0 belongs to another spec .* differ in: score"):
        model(ids, past_key_values=SpecCache(tiny_model("taylor_2").config.specs))
    with pytest.raises(InputError, match="a state continues one document"):
        model(ids, past_key_values=SpecCache(model.config.specs), segment_ids=torch.zeros_like(ids))


def test_text_beyond_the_positions():
    with pytest.raises(InputError, match="but the model has 64"):
        tiny_model().generate(tokens(1, 60), max_new_tokens=9, do_sample=False, pad_token_id=0)
