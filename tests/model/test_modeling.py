import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.model import MODEL_VARIANTS, SoftmaxRNNForCausalLM, SoftmaxRNNModel, build_config
from softmax_rnn.model.spec_attention import SpecAttention

from .tiny import VOCAB, same_model, tiny_config, tiny_model, tokens

SOME = ["softmax", "gated_softmax", "linear_elu", "two_mamba", "gated_softmax_plusplus", "linear_mamba"]
# Order 1 has negative weights, and says so.
negative_weights = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")


# -- parameters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [name for name in MODEL_VARIANTS if name != "linear_mamba"])
def test_attention_holds_only_what_its_spec_needs(variant):
    config = tiny_config(variant)
    with torch.device("meta"):
        names = {name.split(".")[0] for name, _ in SpecAttention(config, 0).parts.named_parameters()}
        result = {name for name, _ in SpecAttention(config, 0).named_parameters()}
    assert names == set(config.specs[0].tensors)
    projections = {f"{x}_proj.weight" for x in "qkvo"}
    conv = {"conv.weight"} if config.conv_width else set()
    conv |= {"conv.bias"} if config.conv_bias else set()
    conv |= {f"token_shift.{x}" for x in ("common", "mixes", "down", "up")} if config.token_shift else set()
    scan = {"scan.gate.weight", "scan.gate.bias"} if config.chunk_scan else set()
    assert {name for name in result if not name.startswith("parts.")} == projections | conv | scan


def test_linear_and_embedding_weights_start_at_the_recipes_width():
    torch.manual_seed(0)
    model = SoftmaxRNNForCausalLM(build_config("nano", "gated_softmax", vocab_size=256, learned_positions=True))
    for name, parameter in model.named_parameters():
        x = parameter.detach()
        if name.endswith("norm_weight") or "layernorm" in name or name == "model.norm.weight":
            assert bool((x == 1).all()), name
        elif name.endswith("bias"):
            assert bool((x == 0).all()), name
        else:
            assert abs(float(x.mean())) < 5e-3 and abs(float(x.std()) - 0.02) < 2e-3, name


def test_other_parameters_start_where_they_should():
    cosine = SoftmaxRNNForCausalLM(tiny_config("linear_cosine"))
    exponents = [p for name, p in cosine.named_parameters() if name.endswith("length_exponent")]
    assert len(exponents) == 2 and all(bool((p == 0.5).all()) for p in exponents)
    conv = SoftmaxRNNForCausalLM(tiny_config("two_mamba", initializer_range=0.02)).model.layers[0].self_attn.conv
    assert float(conv.weight.detach().std()) > 0.3 and bool((conv.bias == 0).all())
    mamba = SoftmaxRNNForCausalLM(tiny_config("linear_mamba", initializer_range=0.02)).model.layers[1].self_attn.mixer
    assert bool((mamba.D == 1).all()) and bool(torch.isfinite(mamba.dt_bias).all())
    assert abs(float(mamba.out_proj.weight.detach().std()) - 0.02) < 3e-3


def test_without_mlp_and_with_learned_positions():
    model = tiny_model(
        use_mlp=False, learned_positions=True, use_rope=False, num_attention_heads=1, num_key_value_heads=1
    )
    names = [name for name, _ in model.named_parameters()]
    assert not any("mlp" in name or "post_attention" in name for name in names)
    assert "model.embed_positions.weight" in names and model.model.rotary_emb is None
    ids = tokens()
    assert not torch.allclose(model(ids).logits, model(ids, position_ids=torch.arange(9)[None] + 3).logits)


# -- the function --------------------------------------------------------------------------------------


def test_softmax_is_transformers_llama():
    model = tiny_model("softmax")
    values = {k: v for k, v in model.config.to_dict().items() if k in LlamaConfig().to_dict() and k != "model_type"}
    llama = LlamaForCausalLM(LlamaConfig(**values)).eval()
    llama.load_state_dict(model.state_dict())
    ids, mask = tokens(), torch.ones(2, 9, dtype=torch.int64)
    mask[1, 7:] = 0
    ours = model(ids, attention_mask=mask, labels=ids)
    theirs = llama(ids, attention_mask=mask, labels=ids)
    torch.testing.assert_close(ours.logits[0], theirs.logits[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.logits[1, :7], theirs.logits[1, :7], atol=1e-5, rtol=1e-5)
    kept = llama(ids, labels=ids).loss
    torch.testing.assert_close(model(ids, labels=ids).loss, kept, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", ["gated_softmax", "linear_cosine", "forgetting_transformer", "taylor_2"])
def test_the_module_is_the_core_between_its_projections(variant):
    module = tiny_model(variant, use_rope=False).model.layers[0].self_attn
    hidden = torch.randn(2, 6, 32)
    q, k, v = (proj(hidden).view(2, 6, -1, 8).transpose(1, 2) for proj in (module.q_proj, module.k_proj, module.v_proj))
    inside = attend(VARIANTS[variant], q, k, v, **module.parts(hidden))
    expected = module.o_proj(inside.transpose(1, 2).reshape(2, 6, 32))
    torch.testing.assert_close(module(hidden), expected)


def test_layers_of_different_specs():
    model = tiny_model(attention_spec=["softmax", "taylor_2"])
    ids = tokens()
    both = model(ids).logits
    for name in ("softmax", "taylor_2"):
        assert not torch.allclose(both, tiny_model(attention_spec=name)(ids).logits, atol=1e-3)


@pytest.mark.parametrize("variant", SOME)
def test_packed_documents_are_separate_documents(variant):
    model = tiny_model(variant, learned_positions=True)
    ids = tokens(2, 9)
    segments = torch.tensor([[4, 4, 4, 4, 1, 1, 1, 1, 1], [0, 0, 1, 2, 2, 2, 2, 2, 2]])
    packed = model(ids, segment_ids=segments).logits
    for row, start, stop in [(0, 0, 4), (0, 4, 9), (1, 0, 2), (1, 2, 3), (1, 3, 9)]:
        alone = model(ids[row : row + 1, start:stop]).logits
        torch.testing.assert_close(packed[row : row + 1, start:stop], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", SOME)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(variant, side):
    model = tiny_model(variant, learned_positions=True)
    ids = tokens(1, 6)
    padding = torch.full((1, 3), 7)
    mask = torch.tensor([[0] * 3 + [1] * 6]) if side == "left" else torch.tensor([[1] * 6 + [0] * 3])
    padded = torch.cat([padding, ids] if side == "left" else [ids, padding], 1)
    logits = model(padded, attention_mask=mask).logits
    kept = logits[:, 3:] if side == "left" else logits[:, :6]
    torch.testing.assert_close(kept, model(ids).logits, atol=1e-5, rtol=1e-4)


def test_embeddings_in_place_of_tokens_and_logits_to_keep():
    model, ids = tiny_model("linear_elu"), tokens()
    whole = model(ids).logits
    torch.testing.assert_close(model(inputs_embeds=model.model.embed_tokens(ids)).logits, whole)
    torch.testing.assert_close(model(ids, logits_to_keep=2).logits, whole[:, -2:])
    outputs = model(ids, output_hidden_states=True)
    assert len(outputs.hidden_states) == 3
    assert torch.equal(model(ids, return_dict=False)[0], whole)


@pytest.mark.parametrize("variant", SOME)
def test_gradient_checkpointing_gives_the_same_gradients(variant):
    ids = tokens()
    result = []
    for checkpointing in (False, True):
        model = tiny_model(variant).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(ids, labels=ids).loss.backward()
        result.append({name: p.grad for name, p in model.named_parameters()})
    for name, grad in result[0].items():
        assert grad is not None and bool(torch.isfinite(grad).all()), name
        torch.testing.assert_close(result[1][name], grad, msg=name)


def test_training_makes_no_cache_and_inference_does():
    model, ids = tiny_model("taylor_2"), tokens()
    assert model(ids).past_key_values is None
    with torch.no_grad():
        assert model(ids).past_key_values.get_seq_length() == 9
        assert model(ids, use_cache=False).past_key_values is None
        assert model(ids, segment_ids=torch.zeros_like(ids)).past_key_values is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    for variant in ("gated_softmax", "two_mamba"):
        model, ids = tiny_model(variant), tokens()
        wanted = model(ids).logits
        logits = model.to(dtype)(ids).logits
        assert logits.dtype == dtype
        torch.testing.assert_close(logits.float(), wanted, atol=0.3 if dtype == torch.bfloat16 else 1e-4, rtol=0.1)


@pytest.mark.parametrize("variant", [*SOME, "gated_softmax_decay", "forgetting_transformer"])
def test_training_in_the_recipes_mixed_precision(variant):
    model, ids = tiny_model(variant).train(), tokens()
    wanted = model(ids, labels=ids).loss
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(ids, labels=ids).loss
    loss.backward()
    torch.testing.assert_close(loss.float(), wanted, atol=0.1, rtol=0.05)
    assert all(bool(torch.isfinite(p.grad).all()) and p.grad.dtype == torch.float32 for p in model.parameters())


# -- files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", SOME)
@pytest.mark.parametrize("tied", [False, True])
def test_saved_and_loaded_bit_for_bit(variant, tied, tmp_path):
    model, ids = tiny_model(variant, tie_word_embeddings=tied), tokens()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert (tmp_path / "model.safetensors.index.json").is_file()
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(again, SoftmaxRNNForCausalLM)
    assert same_model(again, model, ids)
    assert (again.lm_head.weight is again.model.embed_tokens.weight) is tied


def test_auto_classes(tmp_path):
    config = tiny_config("linear_elu")
    assert isinstance(AutoModel.from_config(config), SoftmaxRNNModel)
    assert isinstance(AutoModelForCausalLM.from_config(config), SoftmaxRNNForCausalLM)
    model = tiny_model("linear_elu")
    model.save_pretrained(tmp_path)
    base = AutoModel.from_pretrained(tmp_path)
    assert isinstance(base, SoftmaxRNNModel)
    ids = tokens()
    torch.testing.assert_close(base(ids).last_hidden_state, model.model(ids).last_hidden_state)


# -- errors --------------------------------------------------------------------------------------------


def test_a_context_beyond_the_positions():
    with pytest.raises(InputError, match="65 positions, but the model has 64"):
        tiny_model()(torch.zeros(1, 65, dtype=torch.int64))
    assert tiny_model("two_mamba")(torch.zeros(1, 65, dtype=torch.int64)).logits.shape == (1, 65, VOCAB)


def test_arguments_that_do_not_fit():
    model, ids = tiny_model(), tokens()
    with pytest.raises(InputError, match="exactly one of input_ids and inputs_embeds"):
        model()
    with pytest.raises(InputError, match="2 axes"):
        model(ids, attention_mask=torch.ones(2, 1, 9, 9))
    with pytest.raises(InputError, match="output_attentions: attention weights"):
        model(ids, output_attentions=True)
    with pytest.raises(InputError, match="each segment must be contiguous"):
        model(ids, segment_ids=torch.tensor([[0, 1, 0] * 3] * 2))


@negative_weights
@pytest.mark.parametrize("variant", MODEL_VARIANTS)
def test_every_variant_trains(variant):
    model, ids = tiny_model(variant).train(), tokens()
    model(ids, labels=ids).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(torch.isfinite(parameter.grad).all()), name
