"""Keys and values of other widths, one query and key for all heads, the token shift."""

from __future__ import annotations

import pytest
import torch

from softmax_rnn.errors import InputError
from softmax_rnn.model import SoftmaxRNNForCausalLM, build_config
from softmax_rnn.model.convert import convert

from .tiny import same_model

SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32}


@pytest.mark.parametrize("name", ["retnet", "mamba2_ssd", "recgrela", "mlstm"])
def test_a_block_with_both_options_decodes_as_it_reads_and_is_saved(name, tmp_path):
    torch.manual_seed(0)
    options = {"value_expand": 1.75, "shared_query_key": True, "conv_width": 3}
    model = SoftmaxRNNForCausalLM(build_config("nano", name, **(SMALL | options))).double()
    attention = model.model.layers[0].self_attn
    assert (attention.q_proj.out_features, attention.k_proj.out_features) == (4, 4)
    assert (attention.v_proj.out_features, attention.o_proj.in_features) == (2 * 7, 4 * 7)
    ids = torch.randint(0, 32, (2, 9))
    whole = model(input_ids=ids, labels=ids)
    whole.loss.backward()
    assert all(bool(x.grad.isfinite().all()) for x in model.parameters() if x.grad is not None)
    with torch.no_grad():
        first = model(input_ids=ids[:, :4], use_cache=True)
        rest = model(input_ids=ids[:, 4:], past_key_values=first.past_key_values)
    both = torch.cat([first.logits, rest.logits], 1)
    assert float((both - whole.logits.detach()).abs().max()) < 1e-10
    model.save_pretrained(tmp_path)
    again = SoftmaxRNNForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert same_model(again, model, ids)
    assert convert(again, "hedgehog")(input_ids=ids).logits.shape == whole.logits.shape


AS_BUILT = ["retnet", "mamba2_ssd", "gla", "hgrn2", "rwkv6", "gated_deltanet", "mlstm"]


@pytest.mark.parametrize("name", AS_BUILT)
def test_a_block_as_its_authors_build_it(name, tmp_path):
    """Whole = in pieces = packed = padded = saved and loaded."""
    torch.manual_seed(0)
    model = SoftmaxRNNForCausalLM(build_config("nano", name, **SMALL)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # token shifts start with A = 0
    ids = torch.randint(0, 32, (2, 9))
    with torch.no_grad():
        whole = model(input_ids=ids).logits
        first = model(input_ids=ids[:, :4], use_cache=True)
        steps = [model(input_ids=ids[:, t : t + 1], past_key_values=first.past_key_values).logits for t in range(4, 9)]
        packed = model(input_ids=ids.reshape(1, -1), segment_ids=torch.arange(2).repeat_interleave(9)[None]).logits
        mask = torch.tensor([[0, 0, 0] + [1] * 9] * 2)
        padded = model(input_ids=torch.nn.functional.pad(ids, (3, 0)), attention_mask=mask).logits[:, 3:]
        model.save_pretrained(tmp_path)
        loaded = SoftmaxRNNForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)(input_ids=ids).logits
    for other in (torch.cat([first.logits, *steps], 1), packed.view_as(whole), padded, loaded):
        assert float((other - whole).abs().max()) < 1e-10


def test_what_the_authors_blocks_are_made_of():
    def attention(name, layer=0):
        return SoftmaxRNNForCausalLM(build_config("nano", name, **SMALL)).model.layers[layer].self_attn

    assert attention("retnet").v_proj.out_features == 2 * 8
    mamba = attention("mamba2_ssd")
    assert (mamba.q_proj.out_features, mamba.k_proj.out_features, mamba.v_proj.out_features) == (4, 4, 16)
    assert tuple(mamba.parts.norm_weight.shape) == (4, 1, 8)
    assert attention("gla").k_proj.out_features == 2 * 2
    assert "lower_bound" not in attention("hgrn2").parts.spec.tensors
    assert attention("hgrn2", 1).parts.lower_bound.sigmoid().tolist() == [pytest.approx([0.5] * 4)] * 2
    assert attention("mlstm").parts.forget_gate.bias.tolist() == pytest.approx([3, 4, 5, 6])
    shift = attention("rwkv6").token_shift
    assert shift.targets == ("q", "k", "v", "output_gate", "channel_gate")
    assert shift.mixes[1].tolist() == pytest.approx([1 - c / 16 for c in range(16)])
    assert attention("rwkv6").parts.channel_gate.between(torch.tensor(9.0)) < 1


def test_what_a_block_refuses():
    with pytest.raises(InputError, match=r"value_expand: expected a whole number of channels, got 0 of 32"):
        build_config("nano", "softmax", value_expand=0.0)
    with pytest.raises(InputError, match=r"key_expand: expected a whole number of channels, got 2.5 of 5"):
        build_config("nano", "gla", head_dim=5)
    with pytest.raises(InputError, match="token_shift: expected a token shift or a convolution"):
        build_config("nano", "rwkv6", conv_width=4)
