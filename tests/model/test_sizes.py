import pytest
import torch

from softmax_rnn.errors import UnknownNameError
from softmax_rnn.model import SIZES, SoftmaxRNNForCausalLM, build_config


@pytest.mark.parametrize(
    ("size", "variant", "count"),
    [
        ("small", "softmax", 275_293_184),
        ("small", "softmax_gate", 275_621_184),
        ("small", "gated_softmax", 275_951_744),
        ("small", "linear_cosine", 275_293_504),
        ("large", "softmax", 2_084_170_752),
        ("large_depth", "softmax", 694_805_504),
    ],
)
def test_parameter_counts_of_the_paper(size, variant, count):
    with torch.device("meta"):
        assert SoftmaxRNNForCausalLM(build_config(size, variant)).num_parameters() == count


@pytest.mark.parametrize(("size", "vocab", "low", "high"), [("nano", 256, 8e5, 1.2e6), ("micro", 2048, 9e6, 1.1e7)])
def test_sizes_for_a_cpu(size, vocab, low, high):
    with torch.device("meta"):
        assert low < SoftmaxRNNForCausalLM(build_config(size, vocab_size=vocab)).num_parameters() < high


def test_common_options_and_overrides():
    config = build_config("small")
    assert (config.vocab_size, config.rms_norm_eps, config.tie_word_embeddings) == (32_000, 1e-5, False)
    config = build_config("nano", "two_mamba", vocab_size=100, use_rope=True, num_key_value_heads=1)
    assert (config.vocab_size, config.use_rope, config.conv_width, config.num_key_value_heads) == (100, True, 2, 1)
    assert set(SIZES) == {"nano", "micro", "small", "large", "large_depth"}


def test_unknown_names_give_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown size 'smal'; did you mean 'small'"):
        build_config("smal")
    with pytest.raises(UnknownNameError, match="unknown variant 'linear_ellu'; did you mean 'linear_elu'"):
        build_config("nano", "linear_ellu")
    with pytest.raises(UnknownNameError, match="did you mean 'hidden_size'"):
        build_config("nano", hiden_size=3)
