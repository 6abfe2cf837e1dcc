"""What stands behind the tabs: played heads, two models, runs; errors as one line."""

import re
from dataclasses import replace

import gradio as gr
import pytest

from explore.models import byte_model, save_tiny, tiny_source
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.explore import models_tab, rnn_tab, rnn_view, runs_tab
from softmax_rnn.explore.readings import Texts
from softmax_rnn.explore.source import Others, model_folders
from softmax_rnn.explore.tabs import in_one_line, playable, whole
from softmax_rnn.model.streaming import stream


@pytest.fixture(scope="module")
def shared():
    return tiny_source()


@pytest.mark.parametrize("name", ["taylor_2", "softmax", "linear_elu"])
def test_a_played_head_is_shown_token_by_token(shared, name):
    text = Texts(shared).get("a", "hello there")
    done = rnn_view.played(text, 0, 1, name)
    assert rnn_view.played(text, 0, 1, name) is done
    shown, state = rnn_view.frame(done, 5)
    assert "Token 5 of 11" in shown
    assert ("<img" in state) == (name != "softmax")
    assert ("5 of 5 keys are held exactly" in shown) == (name == "softmax")
    assert rnn_view.curves(done).count("data-chart") == (1 if name == "softmax" else 2)
    assert ("Every output is softmax&#x27;s" in rnn_view.curves(done)) == (name == "softmax")
    with pytest.raises(InputError, match="token: expected 1 to 11, got 12"):
        rnn_view.frame(done, 12)


@pytest.mark.parametrize("name", [name for _, name in rnn_tab.watchable()])
def test_everything_in_the_menu_can_be_played(shared, name):
    done = rnn_view.played(Texts(shared).get("a", "hello there, who is there"), 1, 2, name)
    shown, _ = rnn_view.frame(done, len(done.steps))
    assert "Token 25 of 25" in shown
    if VARIANTS[name].structure and name.endswith("_8"):
        assert len(done.steps[-1].held) in (8, 12, 20)  # the window, with four sinks, with eight that are kept


def test_menus_have_no_attention_that_needs_training():
    assert "softmax" in playable()
    assert not any(VARIANTS[name].tensors for name in playable())


def test_both_models_go_on_and_the_original_stays_as_it_is(shared):
    loaded = shared.get()
    before = [one.token for one in stream(loaded.model, [104, 105], 5)]
    other = replace(loaded, model=models_tab.converted(loaded.model, VARIANTS["taylor_2"]))
    pages = list(models_tab.continuations([("one", loaded), ("other", other)], "hi", 5))
    assert len(pages) >= 11 and all("loss on the prompt" in side for side in pages[-1])
    assert all(side.count("<rt>") == 5 for side in pages[-1])
    assert [one.token for one in stream(loaded.model, [104, 105], 5)] == before


def test_a_stream_is_what_generate_says():
    import torch

    model = byte_model("taylor_2")
    ids = torch.tensor([[104, 105, 33]])
    whole_text = model.generate(ids, max_new_tokens=6, do_sample=False)[0, 3:].tolist()
    assert [one.token for one in stream(model, ids[0].tolist(), 6)] == whole_text
    with pytest.raises(InputError, match="prompt: expected at least one token"):
        next(stream(model, [], 3))


@pytest.mark.parametrize(
    ("kind", "order", "said"),
    [
        ("extreme_keys_squared:", 3, "has no order 3; the nearest is 2"),
        ("no_such_variant", 3, "unknown variant"),
    ],
)
def test_attentions_that_there_are_not(kind, order, said):
    with pytest.raises(InputError, match=re.escape(said)):
        models_tab.other_attention(kind, order)


def test_a_gate_would_have_to_be_trained(shared):
    with pytest.raises(InputError, match="output_gate would have to be trained first"):
        models_tab.converted(shared.get().model, VARIANTS["softmax_divS_gate"])


def test_other_models_are_loaded_when_asked_for_and_one_is_kept(tmp_path):
    folders = [str(save_tiny(tmp_path / "runs" / name / "final").parent) for name in ("a", "b")]
    assert model_folders(tmp_path) == model_folders(tmp_path / "runs") == folders
    assert model_folders(None) == model_folders(tmp_path / "none") == []
    others = Others(folders)
    first = others.get(folders[0])
    assert others.get(folders[0]) is first
    others.get(folders[1])
    assert others.get(folders[0]) is not first
    with pytest.raises(InputError, match="unknown model '/etc'"):
        others.get("/etc")


def test_models_that_read_other_tokens_cannot_be_compared(shared):
    class Backwards:
        def __call__(self, text):
            return {"input_ids": list(text.encode())[::-1]}

    other = replace(shared.get(), tokenizer=Backwards())
    with pytest.raises(InputError, match="model: b reads the prompt as other tokens"):
        next(models_tab.continuations([("a", shared.get()), ("b", other)], "hi", 5))


def test_only_runs_of_the_folder_are_read(tmp_path):
    assert runs_tab.run_folders(tmp_path / "none") == {}
    with pytest.raises(InputError, match=r"there is no run '\.\./secret'"):
        runs_tab.report_html({}, ["../secret"])
    with pytest.raises(InputError, match="expected at least one"):
        runs_tab.report_html({}, [])


def test_bad_input_is_one_line():
    @in_one_line(2)
    def fails():
        raise InputError("text: <b> is wrong")

    first, second = fails()
    assert first == '<p class="problem" role="alert">text: &lt;b&gt; is wrong</p>'
    assert second == gr.skip()
    for value in ("1", None, float("nan"), True, 1e300):
        with pytest.raises(InputError, match="layer: expected a whole number"):
            whole(value, "layer")
