"""Models as graphs: compiled without a break for any length, decoding without recompilation, exported."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from softmax_rnn.attention.nonpositive import counted
from softmax_rnn.attention.parts import KeptKeys
from softmax_rnn.attention.table.model_table import MODEL_VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM
from softmax_rnn.model.sizes import build_config

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inductor's own
VOCABULARY = 32
KEPT = [name for name, row in MODEL_VARIANTS.items() if isinstance(row.spec.structure, KeptKeys)]
"""A sequence of them is no graph; the page about graphs says why."""
GRAPHED = [name for name in MODEL_VARIANTS if name not in KEPT]
EXPORTED = [name for name in GRAPHED if "mixer" not in MODEL_VARIANTS[name].options]
"""The mixer of transformers' own is not ours to export."""


@pytest.fixture(autouse=True)
def forgotten_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model_of(name: str) -> SoftmaxRNNForCausalLM:
    torch.manual_seed(0)
    config = build_config("nano", name, vocab_size=VOCABULARY)
    first = {} if config.specs[0] is None else {"attention_spec": config.specs[0]}
    config = build_config("nano", name, vocab_size=VOCABULARY, num_hidden_layers=1, **first)
    return SoftmaxRNNForCausalLM(config).eval()


def tokens(time: int, batch: int = 2) -> Tensor:
    return torch.randint(0, VOCABULARY, (batch, time), generator=torch.Generator().manual_seed(time))


def check_training(name: str, backend: str) -> None:
    model, counter = model_of(name), CompileCounterWithBackend(backend)
    graph = torch.compile(model, backend=counter, fullgraph=True)
    with counted():
        for time in (24, 33):
            ids = tokens(time)
            torch._dynamo.mark_dynamic(ids, 1)
            losses = [f(input_ids=ids, labels=ids).loss for f in (graph, model)]
            grads = [torch.autograd.grad(loss, list(model.parameters()), allow_unused=True) for loss in losses]
            torch.testing.assert_close(losses[0], losses[1])
            torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-5)
    assert counter.frame_count == 1


@pytest.mark.parametrize(("name", "backend"), [("taylor_2", "eager"), ("forgetting_transformer", "aot_eager")])
def test_training_is_one_graph_for_all_lengths(name: str, backend: str) -> None:
    check_training(name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", GRAPHED)
def test_every_model(name: str, backend: str) -> None:
    check_training(name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["taylor_2", "softmax", "linear_elu"])
def test_inductor(name: str) -> None:
    check_training(name, "inductor")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODEL_VARIANTS)
def test_decoding_does_not_recompile(name: str) -> None:
    model, counter = model_of(name), CompileCounterWithBackend("aot_eager")
    graph = torch.compile(model, backend=counter, fullgraph=True)
    with torch.no_grad(), counted():
        caches = [SpecCache(model.config.specs) for _ in range(2)]
        for cache in caches:
            model(input_ids=tokens(9, 1), past_key_values=cache)
        graphs = []
        for _ in range(5):
            ids = tokens(1, 1)
            got, known = (
                f(input_ids=ids, past_key_values=c).logits for f, c in zip((graph, model), caches, strict=True)
            )
            torch.testing.assert_close(got, known)
            graphs.append(counter.frame_count)
    # The number of positions becomes a symbol at the second token, that of the ends of chunks at the third.
    first = 2 if name.startswith("rat_") else 1
    assert graphs[-1] == graphs[first] <= first + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_export(name: str) -> None:
    """Convolutions have at least as many positions as they are wide."""
    model, length = model_of(name), torch.export.Dim("length", min=8, max=4096)
    with torch.no_grad():
        options = {"input_ids": tokens(24), "use_cache": False}
        shapes = {"input_ids": {1: length}, "use_cache": None}
        exported = torch.export.export(model, (), options, dynamic_shapes=shapes)
        ids = tokens(37)
        got = exported.module()(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(got, model(input_ids=ids, use_cache=False).logits)


@pytest.mark.parametrize("use_cache", [False, True])
def test_an_export_of_keys_that_are_chosen_one_by_one_is_refused(use_cache: bool) -> None:
    with torch.no_grad(), pytest.raises(InputError, match="cannot choose keys one by one"):
        torch.export.export(model_of("kept_keys_64"), (), {"input_ids": tokens(24), "use_cache": use_cache})
