"""The terms of whole models: what is captured, the cuts, the record, its page, and a little of a real model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from analysis.test_perplexity import letters
from model.tiny import tiny_model
from softmax_rnn.analysis.capture import read_windows
from softmax_rnn.analysis.cut_file import CutFile
from softmax_rnn.analysis.cuts import Cut, Cutter, lowest_order
from softmax_rnn.analysis.near_far import near_far_record
from softmax_rnn.analysis.perplexity import counted_perplexity, default_text, perplexity
from softmax_rnn.analysis.terms import most_steps, read_terms, terms_record
from softmax_rnn.attention.parts import Averaged, NearFar, Window, taylor_score
from softmax_rnn.attention.ranges.kinds import ExpOnRange, ExtremeKeys, MeanPoint, MomentRange
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.model.convert import convert, read_specs, specs_of
from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer
from softmax_rnn.report.terms_page import terms_page

torch.set_num_threads(1)
IDS = torch.randint(0, 32, (40,), generator=torch.Generator().manual_seed(0)).tolist()


def tiny(seed: int = 0, **options) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.6}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **options)).eval()


def captured(model) -> list[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]]:
    result = []
    read_windows(model, IDS, 25, lambda layer, q, k, v: result.append((layer, q, k, v)))
    return result


def test_captured_tensors_give_the_attention_of_the_model():
    model = tiny()
    before = model.config._attn_implementation
    seen = []
    handle = model.model.layers[1].self_attn.register_forward_hook(lambda module, args, output: seen.append(output[0]))
    rows = captured(model)
    handle.remove()
    assert [layer for layer, *_ in rows] == [0, 1, 0, 1] and model.config._attn_implementation == before
    _, q, k, v = rows[1]
    assert q.shape == (4, 25, 4) and k.shape == v.shape == (2, 25, 4)
    scores = (q @ k.repeat_interleave(2, 0).mT).masked_fill(~torch.ones(25, 25).tril().bool(), -torch.inf)
    output = scores.softmax(-1) @ v.repeat_interleave(2, 0)
    expected = model.model.layers[1].self_attn.o_proj(output.transpose(0, 1).flatten(1))
    assert torch.allclose(expected, seen[0][0], atol=1e-5)


def test_our_models_are_read_as_well():
    model = tiny()
    theirs = captured(model)
    ours = captured(convert(model, "softmax"))
    for a, b in zip(theirs, ours, strict=True):
        assert a[0] == b[0] and all(torch.allclose(x, y, atol=1e-6) for x, y in zip(a[1:], b[1:], strict=True))


def test_other_transformers_models_are_read():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=64, n_embd=16, n_layer=2, n_head=2)).eval()
    assert len(captured(model)) == 4
    result = read_terms(model, IDS, orders=3, context=20)
    assert result.layers[0].sketch.count == 2 * 20 * 21 // 2
    assert len(terms_record(model, IDS, orders=3, context=20, methods=[])["heads"]) == 4


def test_models_without_causal_attention_are_refused():
    bert = BertLMHeadModel(BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    with pytest.raises(InputError):
        captured(bert)
    with pytest.raises(InputError, match="Mamba-2 mixers"):
        captured(tiny_model("linear_mamba"))


def test_memory_of_statistics_does_not_grow_with_the_text():
    model = tiny()
    sizes = []
    for count in (20, 40):
        layers = read_terms(model, IDS[:count], orders=5, context=10).layers
        tensors = [*vars(layers[0]).values(), *vars(layers[0].sketch).values(), *vars(layers[0].magnitudes).values()]
        sizes.append(sum(x.numel() for x in tensors if isinstance(x, torch.Tensor)))
    assert sizes[0] == sizes[1]


def test_cuts_are_the_losses_of_converted_models(tmp_path):
    model = tiny()
    softmax = perplexity(model, IDS, 20).loss
    file = tmp_path / "cuts.jsonl"
    cutter = Cutter(model, IDS, 20, keep=file)
    assert cutter.softmax.loss == pytest.approx(softmax, abs=1e-6)
    cut, one = cutter.cut("taylor", 3), cutter.cut("taylor", 2, layer=1)
    specs = [AttentionSpec(), AttentionSpec(score=taylor_score(2))]
    assert one.loss == pytest.approx(perplexity(convert(tiny(), specs), IDS, 20).loss, abs=1e-6)
    assert cut.nonpositive > 0 and one.nonpositive == 0
    assert cutter.cut("taylor", 60).loss == pytest.approx(softmax, rel=0.02)
    # What stands in the file is not measured again; a torn line and lines of another text are left aside.
    file.write_text(file.read_text() + '{"about": ')
    again = Cutter(model, IDS, 20, keep=file)
    assert again.cut("taylor", 3) == cut
    assert CutFile(file, {"text": "another"}).find("taylor", 3, None) is None
    with pytest.raises(InputError, match="layer: expected 0 to 1, got 2"):
        cutter.cut("taylor", 2, layer=2)


@pytest.mark.parametrize("options", [{}, {"learned_positions": True}])
def test_a_layer_cut_alone_is_the_whole_model_converted(options):
    def model():
        return tiny_model("softmax", num_hidden_layers=3, **options)

    cutter = Cutter(model(), IDS, context=15)
    for layer in (2, 0, 1):
        for method, order in (("taylor", 3), ("extreme_keys_squared", 2)):
            specs = [cutter.spec(method, order, i) if i == layer else AttentionSpec() for i in range(3)]
            expected, nonpositive = counted_perplexity(convert(model(), specs), IDS, 15)
            result = cutter.cut(method, order, layer)
            assert (result.loss, result.nonpositive) == (expected.loss, nonpositive)
    assert cutter.cut("taylor", 3).loss != cutter.softmax.loss
    assert Cutter(cutter.model, IDS, context=15).softmax.loss == cutter.softmax.loss


def test_progress_never_passes_its_total():
    model, said = tiny(), []
    total = most_steps(model, len(IDS), 25, ["taylor", "box_squared"])
    terms_record(model, IDS, orders=4, context=25, methods=["taylor", "box_squared"], progress=said.append)
    assert 0.5 * total < len(said) <= total


def test_kept_cuts_belong_to_the_ranges_they_were_made_with(tmp_path):
    file = tmp_path / "cuts.jsonl"
    heads = read_terms(tiny(), IDS, orders=4, context=20).ranges()
    wide = [(tuple(x - 3 for x in low), tuple(x + 3 for x in high)) for low, high in heads]
    result = Cutter(tiny(), IDS, 20, ranges=heads, keep=file).cut("head", 3)
    assert Cutter(tiny(), IDS, 20, ranges=heads, keep=file).cut("head", 3) == result
    assert Cutter(tiny(), IDS, 20, ranges=wide, keep=file).cut("head", 3).loss != result.loss


def test_sweeps_stop_when_the_loss_has_recovered():
    cutter = Cutter(tiny(), IDS, 20)
    cuts = cutter.sweep("row_squared", (3, 4, 40, 60, 80), tolerance=1e-5)
    assert [cut.order for cut in cuts] == [4, 40, 60]
    assert lowest_order(cuts, 1e-5) == 40
    assert lowest_order([Cut("taylor", 2, None, 9.0, 9.0, float("nan"), 0, 0.0)]) is None


@pytest.fixture(scope="module")
def record():
    return terms_record(tiny(), IDS, orders=6, context=20, methods=["taylor", "extreme_keys_squared"])


def test_the_record_is_json_and_has_a_page(record, tmp_path):
    read = json.loads(json.dumps(record))
    assert len(read["layers"]) == 2 and len(read["heads"]) == 8 and len(read["layers"][0]["error"]) == 7
    assert {row["method"] for row in read["truncation"]["lowest"]} == {"taylor", "extreme_keys_squared"}
    assert {row["range"] for row in read["ranges"]} == {"head", "norm", "box", "moments", "extreme_keys"}
    page = terms_page(read)
    assert {chart.id for chart in page.charts()} == {"terms", "scores", "error", "losses", "layers"}
    assert "advice" in {table.id for table in page.tables()}


def test_the_advice_converts_a_model(record, tmp_path):
    file = tmp_path / "terms.json"
    file.write_text(json.dumps(record))
    model = convert(tiny(), file)
    assert list(specs_of(model)) == read_specs(file)
    assert perplexity(model, IDS, 20).loss == pytest.approx(record["advice"]["loss"], abs=1e-5)


@pytest.mark.parametrize("part", [MeanPoint(), MomentRange(), ExtremeKeys()], ids=lambda part: part.kind)
def test_models_with_exp_on_a_range_decode_train_and_are_saved(part, tmp_path):
    model = convert(tiny(), AttentionSpec(score=ExpOnRange(degree=4, range=part)))
    prompt = torch.tensor([IDS[:6]])
    fast = model.generate(prompt, max_new_tokens=8, do_sample=False)
    slow = prompt
    for _ in range(8):
        slow = torch.cat([slow, model(slow, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(fast, slow[:, : fast.shape[1]])
    model.save_pretrained(tmp_path / "saved")
    again = load_pretrained(tmp_path / "saved")
    assert torch.equal(again(prompt).logits, model(prompt).logits)
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        optimiser.zero_grad()
        loss = model(torch.tensor([IDS]), labels=torch.tensor([IDS])).loss
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_files_that_hold_no_specs(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        convert(tiny(), tmp_path / "none.json")
    (tmp_path / "text.json").write_text("not json")
    with pytest.raises(InputError, match="is not valid JSON"):
        convert(tiny(), tmp_path / "text.json")
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(InputError, match="has no list of specs"):
        convert(tiny(), tmp_path / "empty.json")


def test_bad_arguments():
    with pytest.raises(InputError, match="text: expected at least 2 tokens, got 1"):
        terms_record(tiny(), [1])
    with pytest.raises(InputError, match="epsilon: expected a positive number, got 0"):
        terms_record(tiny(), IDS, epsilon=0.0)
    with pytest.raises(InputError, match="unknown method 'tailor'"):
        terms_record(tiny(), IDS, methods=["tailor"])
    with pytest.raises(InputError, match=r"context: expected at most 4, .* \(its window\), got 5"):
        read_terms(windowed(), IDS, context=5)
    with pytest.raises(InputError, match="context: expected 1 or more, got 0"):
        read_terms(tiny(), IDS, context=0)


def windowed():
    from transformers import MistralConfig, MistralForCausalLM

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    return MistralForCausalLM(MistralConfig(**sizes, num_attention_heads=2, num_key_value_heads=2, sliding_window=4))


def test_a_model_with_a_window_is_read_in_pieces_that_it_sees():
    value = terms_record(windowed(), IDS, orders=4, context=20, methods=["taylor"], loss_ids=IDS[:9])
    assert value["window"] == value["context"] == 4 == value["truncation"]["context"]
    assert value["heads"][0]["pairs"] == 10 * (1 + 2 + 3 + 4)


def test_near_and_far_parts_alone():
    spec = AttentionSpec(score=taylor_score(2), structure=NearFar(5, 1))
    model = convert(tiny(), layers=["softmax", spec])
    value = terms_record(model, IDS, orders=4, context=20, methods=[])["near_far"]
    losses = {row["parts"]: row["loss"] for row in value["losses"]}
    assert specs_of(model)[1] == spec
    assert losses["both"] == pytest.approx(perplexity(model, IDS, 40).loss, rel=1e-9)
    window = convert(tiny(), layers=["softmax", AttentionSpec(structure=Window(5, 1))])
    assert losses["window alone"] == pytest.approx(perplexity(window, IDS, 40).loss)
    assert len(set(losses.values())) == 3
    (layer,) = value["layers"]
    assert layer["layer"] == 1 and layer["far_share"] == pytest.approx(literal_far_share(tiny(), 5, 1), rel=1e-5)
    page = terms_page(terms_record(model, IDS, orders=4, context=20, methods=[]))
    assert "near-far" in [section.id for section in page.sections]
    average = convert(model, AttentionSpec(score=taylor_score(2), structure=Averaged(5)))
    assert [row["far_share"] for row in near_far_record(average, IDS, 40)["layers"]] == [None, None]
    assert near_far_record(tiny(), IDS, 40) is None


def literal_far_share(model, width: int, sinks: int) -> float:
    (*_, (_, q, k, _)) = captured_whole(model)
    shares = []
    for h in range(len(q)):
        for i in range(width + sinks, q.shape[1]):
            near = {*range(sinks), *range(i - width + 1, i + 1)}
            scores = [float(q[h, i].double() @ k[h // 2, j].double()) for j in range(i + 1)]
            far = sum(1 + x + x * x / 2 for j, x in enumerate(scores) if j not in near)
            shares.append(far / (far + sum(math.exp(scores[j]) for j in near)))
    return sum(shares) / len(shares)


def captured_whole(model):
    result = []
    read_windows(model, IDS, 40, lambda layer, q, k, v: result.append((layer, q, k, v)))
    return result


def test_the_command(tmp_path, capsys):
    from softmax_rnn.cli.terms import terms

    model = tiny()
    model.save_pretrained(tmp_path / "model")
    letters().save_pretrained(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 3)
    output = tmp_path / "out"
    terms(
        str(tmp_path / "model"),
        text,
        output,
        orders=5,
        tokens=40,
        context=20,
        methods=["extreme_keys_squared"],
        loss_tokens=30,
    )
    assert "advice for an error of 0.01" in capsys.readouterr().out
    assert {path.name for path in output.iterdir()} == {"terms.json", "report.html", "figures", "cuts.jsonl"}
    assert (output / "figures" / "terms.svg").stat().st_size > 1000
    value = json.loads((output / "terms.json").read_text())
    assert value["tokens"] == 40 and value["truncation"]["tokens"] == 30 and value["text"] == "text.txt"
    with pytest.raises(InputError, match="unknown method"):
        terms(str(tmp_path / "model"), text, output, methods=["nothing"])
    with pytest.raises(InputError, match=r"none\.txt cannot be read"):
        terms(str(tmp_path / "model"), Path("none.txt"), output)


@pytest.mark.slow
def test_a_real_model():
    ids = load_tokenizer("smollm2")(default_text(), truncation=True, max_length=97)["input_ids"]
    model = load_pretrained("smollm2")
    reading = read_terms(model, ids[:64], orders=20, context=64)
    assert max(one.sketch.high.max() for one in reading.layers) > 10
    cutter = Cutter(model, ids, 96, reading.ranges())
    assert cutter.recovers(cutter.cut("extreme_keys_squared", 16), 0.02)
    assert cutter.cut("taylor", 16).loss > cutter.softmax.loss + 1


def test_a_file_of_cuts_that_is_not_ours_is_not_appended_to(tmp_path):
    file = tmp_path / "cuts.jsonl"
    file.write_text('{"notes": "of a user"}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"cuts\.jsonl exists and was not written by this command"):
        CutFile(file, {"model": "tiny"})
    file.write_text('{"about": {"model": "other"}, "cut": {"method": "taylor", "order": 2, "layer": null}}\n{"ab')
    assert CutFile(file, {"model": "tiny"}).known == {}


def test_the_command_replaces_no_results_of_others(tmp_path, capsys):
    from softmax_rnn.__main__ import main

    (tmp_path / "report.html").write_text("mine", encoding="utf-8")
    assert main(["terms", "smollm2", "--output", str(tmp_path)]) == 2
    assert "exists and was not written by this command" in capsys.readouterr().err
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == "mine"
