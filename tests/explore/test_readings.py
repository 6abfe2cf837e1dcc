"""Texts that pages keep, what they show of them, and where the model comes from."""

import re

import pytest
import torch

from explore.models import save_tiny, tiny_source
from softmax_rnn.analysis.methods import METHODS
from softmax_rnn.errors import InputError
from softmax_rnn.explore import order_view, readings
from softmax_rnn.explore.source import Source, find_model, source
from softmax_rnn.explore.views import png_data, problem_html, words_html


@pytest.fixture(scope="module")
def shared():
    return tiny_source()


def test_a_text_is_read_once_and_forgotten_with_its_last_page(shared):
    kept = readings.Texts(shared)
    first = kept.get("a", "one two")
    assert kept.get("b", "one two") is first
    assert kept.kept == 1
    kept.forget("a")
    assert kept.kept == 1
    kept.forget("b")
    assert kept.kept == 0
    assert first.tokens == tuple("one two")


def test_what_is_kept_is_bounded(shared):
    kept = readings.Texts(shared)
    for n in range(readings.TEXTS_PER_PAGE + 2):
        kept.get("a", f"text {n}")
    assert kept.kept == readings.TEXTS_PER_PAGE
    for n in range(readings.MOST_PAGES + 3):
        kept.get(f"page {n}", "text")
    assert kept.kept == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "text: expected some words, got none"),
        ("a", "text: expected 2 to 128 tokens, got 1"),
        ("a" * 129, "text: expected 2 to 128 tokens, got 129"),
        ("a" * 2001, "text: expected at most 2,000 characters, got 2,001"),
    ],
)
def test_texts_that_cannot_be_read(shared, text, said):
    with pytest.raises(InputError, match=re.escape(said)):
        readings.Texts(shared).get("a", text)


@pytest.mark.parametrize("method", METHODS)
def test_every_polynomial_is_shown(shared, method):
    text = readings.Texts(shared).get("a", "<b>bold & small</b>")
    words, orders = order_view.order_view(text, 1, 3, 9, method, 7)
    shown = 6 if METHODS[method].step == 2 else 7
    assert f"after order {shown}" in words
    assert ("has no order 7" in words) == (shown == 6)
    assert words.count("<img") == 3 and orders.count("data-chart") == 1
    assert "<b>" not in words and "&lt;" in words
    assert order_view.distance_view(text, 1, 3, 9, method).count("data-chart") == 1


def test_weights_that_are_not_numbers_are_shown_as_such():
    assert "not a number" in words_html(["a"], [float("nan")])
    assert png_data(torch.tensor([[float("nan"), 1.0]]).numpy()).startswith("data:image/png;base64,")
    assert problem_html("<script>") == '<p class="problem" role="alert">&lt;script&gt;</p>'


def test_a_model_that_cannot_be_loaded_is_one_line():
    def load():
        raise InputError("model: nothing there")

    with pytest.raises(InputError, match="model: nothing there"):
        Source("a", load).start().get()


def test_a_run_and_a_study_are_found_by_their_folder(tmp_path):
    save_tiny(tmp_path / "study" / "runs" / "b" / "final")
    (tmp_path / "study" / "runs" / "a" / "final").mkdir(parents=True)
    (tmp_path / "study" / "runs" / "a" / "final" / "config.json").write_text("{}")
    final = tmp_path / "study" / "runs" / "b" / "final"
    assert find_model(str(tmp_path / "study")) == str(final)
    assert find_model(str(final.parent)) == str(final)
    assert find_model("owner/name") == "owner/name"
    loaded = source(str(final)).start().get()
    assert loaded.tokenizer("ab")["input_ids"] == [97, 98]
    with pytest.raises(InputError, match="holds no saved model"):
        find_model(str(tmp_path))
