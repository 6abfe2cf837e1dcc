import pytest

from softmax_rnn.attention.table.model_table import MODEL_VARIANTS, block_options
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import UnknownNameError


def test_every_variant_of_the_core_is_a_model():
    assert set(VARIANTS) < set(MODEL_VARIANTS)
    assert set(MODEL_VARIANTS) - set(VARIANTS) == {"gated_softmax_plusplus", "linear_mamba"}
    assert len(MODEL_VARIANTS) == len(VARIANTS) + 2
    assert all(MODEL_VARIANTS[name].spec == VARIANTS[name] for name in VARIANTS)


def test_families_take_any_number():
    assert MODEL_VARIANTS["taylor_7"].spec == VARIANTS["taylor_7"]
    assert "taylor_7" in MODEL_VARIANTS


def test_blocks_that_differ_from_llamas():
    assert block_options("softmax") == {}
    assert block_options("gated_softmax_decay") == {"use_rope": False}
    assert block_options("two_mamba")["conv_width"] == 2 and not block_options("two_mamba")["use_rope"]
    assert block_options("gated_softmax_plusplus") == {"conv_width": 4, "conv_activation": "silu"}
    assert block_options("linear_mamba") == {"mixer": "mamba2"}


def test_an_unknown_name_gives_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'gated_softmax_plusplus'"):
        block_options("gated_softmax_plusplu")
