"""The page: its structure, its escapes, what it may do, and its files."""

import base64
import hashlib
import json
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from softmax_rnn.errors import InputError
from softmax_rnn.report import theme
from softmax_rnn.report.elements import (
    ChartBlock,
    Note,
    Page,
    Prose,
    Section,
    Subheading,
    TableBlock,
    Verdict,
    Verdicts,
)
from softmax_rnn.report.page import TEMPLATES, page_html, save_figures, write_page
from softmax_rnn.report.plots import heat_map, line_chart

from .pages import HARMLESS, HOSTILE, every_block


class Parsed(HTMLParser):
    """Tags with their attributes, the text between them, and the scripts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.scripts = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.lasttag == "script" and data.strip():
            self.scripts[-1] += data
        self.texts.append(data)

    def named(self, name):
        return [attrs for tag, attrs in self.tags if tag == name]


@pytest.fixture(scope="module")
def hostile():
    html = page_html(every_block(HOSTILE))
    return html, Parsed(html)


@pytest.fixture(scope="module")
def harmless():
    html = page_html(every_block(HARMLESS))
    return html, Parsed(html)


def small(chart=None, text="x"):
    rows = [{"x": 1, "y": 2, "s": text}, {"x": 2, "y": 3, "s": text}]
    chart = chart or line_chart(rows, x="x", y="y", series="s")
    table = TableBlock("data", ["x"], [[1]], "Data")
    return Page("T", "S", [Section("one", "One", [ChartBlock("chart", chart, "alt", "caption", table)])])


def test_no_text_becomes_markup(hostile, harmless):
    def shape(parsed):
        return [(tag, sorted(attrs)) for tag, attrs in parsed.tags if tag != "wbr"]

    def without_own_marks(tags):
        # Text that a spreadsheet would run has another form in CSV, which is the one difference there may be.
        return [(tag, [name for name in names if name != "data-csv"]) for tag, names in tags]

    assert without_own_marks(shape(hostile[1])) == without_own_marks(shape(harmless[1]))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_as_they_are(hostile, name):
    text = "".join(hostile[1].texts)
    assert text.count(name) > 20


def test_embedded_json_holds_no_markup_and_every_name(hostile):
    _, parsed = hostile
    (embedded,) = [
        text
        for attrs, text in zip(parsed.named("script"), parsed.scripts, strict=True)
        if attrs.get("type") == "application/json"
    ]
    assert not set(embedded) & {"<", ">", "&", "\u2028", "\u2029"}
    domain = json.loads(embedded)["specs"]["chart-0"]["layer"][1]["encoding"]["color"]["scale"]["domain"]
    assert domain == HOSTILE


def test_fields_of_a_chart_have_fixed_names(hostile):
    _, parsed = hostile
    specs = json.loads(next(text for text in parsed.scripts if text.startswith('{"config"')))["specs"]
    fields = set()

    def walk(value):
        if isinstance(value, dict):
            fields.update([value["field"]] if isinstance(value.get("field"), str) else [])
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(specs)
    assert fields == {"x", "y", "low", "high", "series", "name", "value", "panel", "place"}


def test_the_library_is_embedded_once(harmless):
    html, parsed = harmless
    assert html.count("window.vegaEmbed") == 1
    assert len(parsed.scripts) == 3
    assert "vegaEmbed =" not in page_html(Page("T", "S", [Section("one", "One", [Prose("x")])]))


def test_only_the_pages_own_scripts_may_run(hostile):
    _, parsed = hostile
    own = [
        text
        for attrs, text in zip(parsed.named("script"), parsed.scripts, strict=True)
        if attrs.get("type") != "application/json"
    ]
    digests = {"'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'" for text in own}
    policy = next(attrs["content"] for attrs in parsed.named("meta") if "http-equiv" in attrs)
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert set(parts["script-src"].split()) == digests
    assert parts["default-src"] == "'none'"


def test_nothing_is_loaded_and_nothing_runs_from_an_attribute(hostile):
    _, parsed = hostile
    for tag, attrs in parsed.tags:
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
        assert "src" not in attrs
        assert attrs.get("href", "#").startswith("#")


def test_landmarks_headings_and_anchors(harmless):
    _, parsed = harmless
    names = [tag for tag, _ in parsed.tags]
    assert [names.count(name) for name in ("header", "nav", "main", "footer", "h1")] == [1, 1, 1, 1, 1]
    assert parsed.named("html")[0]["lang"] == "en"
    levels = [int(name[1]) for name in names if name in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for attrs in parsed.named("a")} <= set(ids)


def test_charts_have_words_and_tables_have_captions_and_scopes(harmless):
    _, parsed = harmless
    plots = [attrs for attrs in parsed.named("div") if attrs.get("class") == "plot"]
    assert len(plots) == 4
    assert all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    assert len(parsed.named("details")) == 4
    assert len(parsed.named("caption")) == len(parsed.named("table")) == 5
    assert {head["scope"] for head in parsed.named("th")} == {"col", "row"}
    assert all(button["type"] == "button" for button in parsed.named("button"))
    sortable = [head for head in parsed.named("th") if head["scope"] == "col"]
    assert {head["aria-sort"] for head in sortable} == {"none"}


def test_a_verdict_is_told_in_a_word_and_a_sign():
    states = ("reproduced", "not reproduced", "undecided")
    verdicts = Verdicts([Verdict("c", state, "e", "r") for state in (*states, "undecided")])
    html = page_html(Page("T", "S", [Section("one", "One", [verdicts])]))
    for sign, word in (("✓", "Reproduced"), ("✗", "Not reproduced"), ("?", "Undecided")):
        assert f'aria-hidden="true">{sign}</span> {word}</p>' in html
    assert "<strong>2</strong> undecided" in html


def test_every_block_has_a_template():
    from typing import get_args

    from softmax_rnn.report.elements import Block

    assert set(TEMPLATES) == set(get_args(Block))


def test_markup_is_kept_and_what_is_put_into_it_is_not():
    text = Markup("<em>{}</em>").format("<b>")
    html = page_html(Page("T", "S", [Section("one", "One", [Prose(text), Note(text)])]))
    assert html.count("<em>&lt;b&gt;</em>") == 2


def contrast(one, other):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "panel"])
def test_text_can_be_read(colours, ground):
    for name in ("ink", "ink-soft", "accent", "good", "bad", "unsure"):
        assert contrast(colours[name], colours[ground]) >= 4.5, name


def test_contrast_of_black_on_white_is_21():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_charts_take_their_colours_from_the_page():
    config = json.dumps(theme.vega_config(theme.on_page))
    assert "#" not in config
    assert {f"--{name}" for name in theme.LIGHT if f"var(--{name})" in config} >= {"--ink", "--series-9", "--grid"}
    assert set(theme.LIGHT) == set(theme.DARK)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Verdict("c", "reproducd", "e", "r"), "did you mean 'reproduced'"),
        (lambda: Note("x", "warn"), "did you mean 'warning'"),
        (lambda: TableBlock("t", ["a", "b"], [[1, 2], [1]], "c"), r"rows\[1\] of table 't': expected 2 cells, got 1"),
        (lambda: ChartBlock("c", None, " ", "x", TableBlock("t", ["a"], [], "c")), "alt of chart 'c'"),
        (lambda: Page("T", "S", [Section("../up", "x", [])]), r"id '\.\./up': expected"),
        (lambda: Page("T", "S", [Section("a", "x", []), Section("a", "y", [])]), "id 'a': .* twice"),
    ],
)
def test_what_cannot_be_shown_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_page_is_whole_or_absent(tmp_path):
    path = write_page(Page("Old", "S", []), tmp_path / "deep" / "page.html")
    before = path.read_bytes()

    class Broken:
        def to_dict(self, **options):
            raise RuntimeError("no chart")

    with pytest.raises(RuntimeError, match="no chart"):
        write_page(small(Broken()), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_texts_that_utf8_lacks_are_written(tmp_path):
    path = write_page(Page("half \ud800 pair", "S", [Section("one", "One", [Subheading("x")])]), tmp_path / "p.html")
    assert "half ? pair" in path.read_text(encoding="utf-8")


def test_numbers_that_json_lacks_do_not_reach_the_page():
    chart = line_chart([{"x": 1, "y": float("nan"), "s": "a"}, {"x": 2, "y": 1, "s": "a"}], x="x", y="y", series="s")
    assert "NaN" not in page_html(small(chart)).split('id="Specs">')[1].split("</script>")[0]


def test_figures_are_written_in_the_light_colours(tmp_path):
    name = HOSTILE[0]
    made = save_figures(small(text=name), tmp_path)
    starts = {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    assert {path.name for path in made} == {"chart.svg", "chart.png", "chart.pdf"}
    assert all(path.read_bytes().lstrip().startswith(starts[path.suffix]) for path in made)
    assert sorted(tmp_path.iterdir()) == sorted(made)
    svg = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    assert "var(" not in svg
    assert theme.LIGHT["series-1"].lower() in svg.lower()


def test_names_in_a_figure_are_text(tmp_path):
    rows = [{"x": name, "y": "row", "v": i} for i, name in enumerate(HOSTILE[:3])]
    (svg,) = save_figures(small(heat_map(rows, x="x", y="y", value="v")), tmp_path, ("svg",))
    root = ElementTree.parse(svg).getroot()
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert "row" in texts
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_describing_a_page_imports_neither_altair_nor_jinja():
    code = "import sys, softmax_rnn.report.page; sys.exit(any(m in sys.modules for m in ('altair', 'jinja2', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
