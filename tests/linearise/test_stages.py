"""The stages by themselves: every row of the table as a target, closed forms, what learns, budgets, settings."""

import math

import numpy as np
import pytest
import torch
from tests.linearise.small import build

from attention.cases import KINDS, some
from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.table.model_table import MODEL_VARIANTS
from softmax_rnn.attention.table.refused import REFUSED
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.linearise.closed_form import METHODS, HeadSums, apply, head_sums, refitted, scales
from softmax_rnn.linearise.constant_channel import divides_by_a_norm, with_constant_channel
from softmax_rnn.linearise.distil import Imitation, divergence_sum
from softmax_rnn.linearise.handles import add_low_rank, add_scales, folded
from softmax_rnn.linearise.layers import choose
from softmax_rnn.linearise.measure import losses
from softmax_rnn.linearise.models import (
    RowReader,
    as_original,
    attentions,
    converted,
    own_what_learns,
    target_specs,
    untie,
)
from softmax_rnn.linearise.settings import StageSettings, resolve
from softmax_rnn.linearise.stored_logits import Likely
from softmax_rnn.linearise.target import target_spec
from softmax_rnn.linearise.trained import prepare
from softmax_rnn.linearise.transfer import LayerErrors, Matching, layer_errors, layer_units


def rows(count=3, time=20, seed=0):
    chance = np.random.default_rng(seed)
    made = [chance.integers(0, 257, time + 1) for _ in range(count)]
    segments = np.repeat([0, 1], [time // 2, time - time // 2])
    return [{"input_ids": one[:-1], "targets": one[1:], "segment_ids": segments} for one in made]


@pytest.fixture(scope="module")
def original():
    return as_original(build("llama"))


@pytest.mark.parametrize("name", some(KINDS))
def test_every_row_is_a_target_that_calibration_brings_nearer(name, original):
    specs = target_specs(original, VARIANTS[name])
    student = converted(original, specs, forget_bias=8.0)
    errors = LayerErrors(original, student, [0, 1])
    with nonpositive.counted():
        before = layer_errors(errors, rows())
        apply(student, original, head_sums(original, student, rows()), "scales")
        after = layer_errors(errors, rows())
    # One number per head is the best one on the text that it was found on; softmax itself has nothing to gain.
    assert all(new <= old + 1e-9 for new, old in zip(after, before, strict=True))
    assert all(math.isfinite(one) for one in after)


@pytest.mark.parametrize("name", some(KINDS))
def test_every_row_learns_in_every_stage(name, original):
    student = converted(original, target_specs(original, target_spec(name, {})), forget_bias=8.0)
    prepare(student, [0, 1], StageSettings(weights="all"), seed=0)
    batch = {key: torch.tensor(np.stack([row[key] for row in rows(2)])) for key in rows()[0]}
    matched = LayerErrors(original, student, [0, 1]).train()
    layers = attentions(student)
    with nonpositive.counted():
        units = layer_units(matched, rows(2))
    for objective, network, learning in (
        (Matching(units), matched, [x for one in layers for x in one.parameters()]),
        (Imitation(RowReader(original)), RowReader(student), list(student.parameters())),
    ):
        with nonpositive.counted():
            loss = objective.loss_sum(network, batch)
            loss.backward()
        gradients = [x.grad for x in learning]
        assert all(x is not None and x.isfinite().all() for x in gradients)
        # On rows within its window an attention is softmax, which has nothing to learn.
        assert sum(float(x.abs().sum()) for x in gradients) > 0 or float(loss.detach()) < 1e-6
        student.zero_grad()


@pytest.mark.parametrize("name", [*sorted(set(MODEL_VARIANTS) - set(VARIANTS)), *REFUSED])
def test_what_is_not_a_target_says_why(name):
    with pytest.raises(InputError, match="a block of its own" if name in MODEL_VARIANTS else "is refused: "):
        target_spec(name, {})


def test_scales_are_those_of_least_squares():
    generator = torch.Generator().manual_seed(0)
    new = torch.randn(50, 6, generator=generator)
    old = new * torch.tensor([2.0, 2, 2, -0.5, -0.5, -0.5])
    sums = HeadSums.empty(6, 1)
    sums.add(new, old, torch.ones(50, 1))
    weight = torch.randn(4, 6, generator=generator)
    assert scales(sums, weight, 2).tolist() == pytest.approx([2.0, -0.5], abs=1e-5)
    assert torch.allclose(refitted(sums, weight, 2), weight * torch.tensor([2.0, 2, 2, -0.5, -0.5, -0.5]), atol=1e-5)


@pytest.mark.parametrize("name", ["softmax_l2", "like=softmax_l2,output_norm=rms"])
def test_with_a_constant_channel_the_norm_divides_by_the_row_sum(name):
    model = build("qwen2")  # it has biases, so a channel can be exactly constant
    with torch.no_grad():
        for layer in model.model.layers:
            for values in (layer.self_attn.v_proj.weight, layer.self_attn.v_proj.bias):
                values[::8] = 0  # each head has a channel to spare
    original = as_original(model)
    student = converted(original, target_specs(original, target_spec(name, {})), forget_bias=8.0)
    sums = head_sums(original, student, rows(), with_inputs=True)
    apply(student, original, sums, "matrix")
    plain = layer_errors(LayerErrors(original, student, [0, 1]), rows())
    with_constant_channel(student, original, sums, rows())
    found = layer_errors(LayerErrors(original, student, [0, 1]), rows())
    assert max(found) < 1e-4 < min(plain)


def test_a_function_of_the_inputs_that_is_nearly_constant():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 5, generator=generator) * 0.1 + torch.tensor([0.0, 0.0, 3.0, 0.0, -2.0])
    sums = HeadSums.empty(2, 5)
    sums.add(inputs[:, :2], inputs[:, :2], inputs)
    assert float((inputs.double() @ sums.constant(1e-6) - 1).square().mean().sqrt()) < 0.05


@pytest.mark.parametrize(
    ("name", "yes"), [("softmax_l2", True), ("softmax", False), ("taylor_2", False), ("gated_deltanet", False)]
)
def test_only_attentions_with_a_norm_have_a_constant_channel(name, yes):
    assert divides_by_a_norm(VARIANTS[name]) is yes


def test_a_matrix_comes_nearer_than_scales(original):
    student = converted(original, target_specs(original, VARIANTS["linear_elu"]), forget_bias=8.0)
    network, sums = LayerErrors(original, student, [0, 1]), head_sums(original, student, rows())
    errors = [layer_errors(network, rows())]
    for method in METHODS:
        apply(student, original, sums, method)
        errors.append(layer_errors(network, rows()))
    for unchanged, by_scales, by_matrix in zip(*errors, strict=True):
        assert by_matrix < by_scales < unchanged


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma", "mistral"])
def test_packed_documents_are_read_as_if_alone(family):
    reader = RowReader(as_original(build(family)))
    (row,) = rows(1)
    ids, segments = torch.tensor(row["input_ids"])[None], torch.tensor(row["segment_ids"])[None]
    with torch.no_grad():
        packed = reader(input_ids=ids, segment_ids=segments).logits[:, 10:]
        alone = reader(input_ids=ids[:, 10:]).logits
    assert torch.allclose(packed, alone, atol=1e-4)


def test_only_the_weights_of_a_stage_learn(original):
    student = converted(original, target_specs(original, VARIANTS["hedgehog"]), forget_bias=8.0)
    prepare(student, [1], StageSettings(weights="parts"), seed=0)
    learning = {name for name, weight in student.named_parameters() if weight.requires_grad}
    inside = "model.layers.1.self_attn."
    scale = f"{inside}o_proj.parametrizations.weight.0.scale"
    original_weight = f"{inside}o_proj.parametrizations.weight.original"
    assert scale in learning
    assert {f"{inside}parts.query_map", f"{inside}parts.key_map"} <= learning
    assert not {original_weight, f"{inside}q_proj.weight", "model.embed_tokens.weight"} & learning


def test_transfer_gives_gradients_to_converted_layers_alone(original):
    student = converted(original, target_specs(original, VARIANTS["taylor_2"]), forget_bias=8.0)
    prepare(student, [0], StageSettings(weights="attention"), seed=0)
    network = LayerErrors(original, student, [0]).train()
    batch = {name: torch.tensor(np.stack([row[name] for row in rows()])) for name in rows()[0]}
    Matching(layer_units(network, rows())).loss_sum(network, batch).backward()
    first, second = attentions(student)
    assert first.q_proj.weight.grad is not None
    assert float(first.q_proj.weight.grad.abs().sum()) > 0
    assert second.q_proj.weight.grad is None
    assert all(weight.grad is None for weight in original.parameters())


def in_memory_once(student, original):
    known = {weight.data_ptr() for weight in original.parameters()}
    return {name for name, weight in student.named_parameters() if weight.data_ptr() in known}


def test_only_what_learns_is_copied(original):
    student = converted(original, target_specs(original, VARIANTS["taylor_2"]), forget_bias=8.0)
    names = {name for name, _ in student.named_parameters()}
    inside = {name for name in names if ".self_attn." in name}
    assert in_memory_once(student, original) == names - inside
    student.requires_grad_(False)
    attentions(student)[0].requires_grad_(True)
    own_what_learns(student, original)
    learning = {name for name in names if ".layers.0.self_attn." in name}
    assert learning and in_memory_once(student, original) == names - learning
    student.requires_grad_(True)
    own_what_learns(student, original)
    assert not in_memory_once(student, original)


def test_a_copy_in_another_precision_leaves_the_original_as_it_is():
    half = as_original(build("llama").bfloat16())
    student = converted(half, target_specs(half, VARIANTS["taylor_2"]), forget_bias=8.0)
    assert {weight.dtype for weight in half.parameters()} == {torch.bfloat16}
    assert {weight.dtype for weight in student.parameters()} == {torch.float32}


def test_what_is_folded_computes_the_same():
    torch.manual_seed(0)
    project = torch.nn.Linear(6, 4)
    add_scales(project, heads=2)
    add_low_rank(project, rank=2)
    with torch.no_grad():
        for weight in project.parameters():
            weight.add_(torch.randn_like(weight))
    plain = torch.nn.Linear(6, 4)
    plain.load_state_dict(folded(project.state_dict()))
    x = torch.randn(3, 6)
    assert torch.allclose(plain(x), project(x), atol=1e-6)
    with pytest.raises(InputError, match="rank: expected at most 4"):
        add_low_rank(torch.nn.Linear(6, 4), rank=5)


def test_divergence_counts_positions_that_count():
    result, wanted = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).double().split(1)
    counted = torch.tensor([[True, False, True]])
    literal = 0.0
    for t in (0, 2):
        p, q = wanted[0, t].softmax(-1), result[0, t].softmax(-1)
        literal += sum(float(a * (a / b).log()) for a, b in zip(p, q, strict=True))
    assert float(divergence_sum(result, wanted, counted)) == pytest.approx(literal, abs=1e-10)


def test_stored_predictions_count_all_other_tokens_as_one():
    result, wanted = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0)).double().split(1)
    counted = torch.tensor([[True, False, True]])
    literal = 0.0
    for t in (0, 2):
        p, q = wanted[0, t].softmax(-1).tolist(), result[0, t].softmax(-1).tolist()
        kept = sorted(range(6), key=lambda i: -p[i])[:2]
        literal += sum(p[i] * math.log(p[i] / q[i]) for i in kept)
        rest = [sum(x for i, x in enumerate(one) if i not in kept) for one in (p, q)]
        literal += rest[0] * math.log(rest[0] / rest[1])
    assert float(Likely.of(wanted, 2).divergence_sum(result, counted)) == pytest.approx(literal, abs=1e-10)
    whole = float(divergence_sum(result, wanted, counted))
    assert literal < whole
    assert float(Likely.of(wanted, 5).divergence_sum(result, counted)) == pytest.approx(whole, abs=1e-10)


def test_untied_embeddings_are_two():
    model = as_original(build("llama"))
    assert untie(model)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    assert torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)
    assert not untie(model)


def test_losses_that_are_not_finite_are_said_to_be_so(original):
    student = converted(original, target_specs(original, VARIANTS["linear_elu"]), forget_bias=8.0)
    with torch.no_grad():
        student.lm_head.weight.fill_(torch.nan)
    assert losses(student, {"text": rows(1)})[0]["loss"] is None


def test_budgets():
    rises = [0.3, 0.01, -0.005, 0.05]
    assert choose(rises, loss=2.0, keep_loss=0.031).layers == (1, 2, 3)
    assert choose(rises, loss=2.0, count=2).layers == (1, 2)
    sizes = [(100, 10), (100, 10), (100, 120), (100, 10)]
    # Layer 2 grows and is left alone.
    assert choose(rises, loss=2.0, sizes=sizes, state_bytes=250).layers == (1, 3)
    with pytest.raises(InputError, match="state_bytes: expected at least 130, what all layers converted need"):
        choose(rises, loss=2.0, sizes=sizes, state_bytes=50)
    with pytest.raises(InputError, match="at most the 4 layers"):
        choose(rises, loss=2.0, count=5)


def test_tokens_are_shared_by_the_stages():
    config = resolve({"model": "m", "to": "softmax_l2", "tokens": 1000, "context": 10, "batch_size": 1})
    assert [config.steps(name) for name in config.training] == [20, 80]
    config = resolve({"model": "m", "to": "softmax_l2", "tokens": 1000, "context": 10, "batch_size": 1,
                      "stages": ["distil", "tune"], "tune": {"context": 50}})  # fmt: skip
    assert [config.steps(name) for name in config.training] == [50, 10]
    assert resolve(config.values()) == config
