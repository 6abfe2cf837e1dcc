"""Values wider than keys, and one query and key for all heads."""

from __future__ import annotations

import pytest
import torch

from softmax_rnn.errors import InputError
from softmax_rnn.model import SoftmaxRNNForCausalLM, build_config
from softmax_rnn.model.convert import convert

SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32}


@pytest.mark.parametrize("name", ["retnet", "mamba2_ssd", "recgrela", "mlstm"])
def test_a_block_with_both_options_decodes_as_it_reads_and_is_saved(name, tmp_path):
    torch.manual_seed(0)
    options = {"value_dim": 7, "shared_query_key": True, "conv_width": 3}
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
    assert torch.equal(again(input_ids=ids).logits, model(input_ids=ids).logits)
    assert convert(again, "hedgehog")(input_ids=ids).logits.shape == whole.logits.shape


def test_a_value_dimension_is_positive():
    with pytest.raises(InputError, match="value_dim: expected 1 or more"):
        build_config("nano", "softmax", value_dim=0)
