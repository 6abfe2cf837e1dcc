"""Charts from records: what they draw, what they leave out, what they refuse."""

import pytest

from softmax_rnn.errors import InputError
from softmax_rnn.report.plots import Axis, interval_chart, line_chart, panel_chart

ROWS = [{"step": s, "loss": 1 / s, "run": r} for r in "ab" for s in (1, 2, 4)]


def layers(chart):
    return {layer["mark"]["type"]: layer for layer in chart.to_dict()["layer"]}


def data(chart):
    return chart.to_dict()["data"]["values"]


def lines(count, points):
    return [{"x": x, "y": i, "s": f"run {i}"} for i in range(count) for x in range(points)]


@pytest.mark.parametrize(("points", "layer", "channel"), [(100, "line", "strokeDash"), (3, "point", "shape")])
def test_no_two_series_look_the_same(points, layer, channel):
    encoding = layers(line_chart(lines(30, points), x="x", y="y", series="s"))[layer]["encoding"]
    colours = [i % 9 for i in range(30)]
    marks = [str(mark) for mark in encoding[channel]["scale"]["range"]]
    assert len(set(zip(colours, marks, strict=True))) == 30
    assert encoding["color"]["scale"]["domain"] == encoding[channel]["scale"]["domain"]


def test_lines_that_lie_on_each_other_differ_in_their_dashes():
    encoding = layers(line_chart(lines(3, 3), x="x", y="y", series="s"))["line"]["encoding"]
    dashes = encoding["strokeDash"]["value"]["expr"]
    assert dashes == '[[1, 0], [7, 4], [2, 3]][indexof(["run 0", "run 1", "run 2"], datum.series)]'


def test_a_logarithmic_axis_says_so_and_has_round_ticks():
    rows = [{"x": x, "y": y, "s": "a"} for x, y in ((1, 0.0021), (2, 3.3), (3, 40.1))]
    encoding = layers(line_chart(rows, x="x", y=Axis("y", "loss, nats", log=True), series="s"))["line"]["encoding"]
    assert encoding["y"]["title"] == "loss, nats (log scale)"
    assert encoding["y"]["axis"]["values"] == [0.01, 0.1, 1, 10]
    assert encoding["x"]["title"] == "x"


def test_a_few_whole_numbers_have_a_tick_each():
    rows = [{"x": x, "y": 0.5 * x, "s": "a"} for x in (1, 2, 4)]
    encoding = layers(line_chart(rows, x="x", y="y", series="s"))["line"]["encoding"]
    assert encoding["x"]["axis"]["values"] == [1, 2, 3, 4]
    assert "values" not in encoding["y"]["axis"]


def test_a_name_with_one_series_stands_in_the_middle_of_its_row():
    rows = [{"run": r, "loss": 2, "data": d} for r, d in (("a", "prose"), ("a", "code"), ("b", "code"))]
    points = data(interval_chart(rows, name="run", value="loss", series="data"))
    assert [point["place"] for point in points] == pytest.approx([1 / 3, 2 / 3, 1 / 2])


def test_a_single_line_needs_no_legend():
    encoding = layers(line_chart(lines(1, 3), x="x", y="y", series="s"))["line"]["encoding"]
    assert encoding["color"]["legend"] is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0, -1, None])
def test_what_a_logarithmic_axis_cannot_show_is_a_gap(value):
    chart = line_chart(
        [*ROWS, {"step": 8, "loss": value, "run": "a"}], x="step", y=Axis("loss", log=True), series="run"
    )
    assert data(chart)[-1]["y"] is None
    assert None not in [row["y"] for row in data(chart)[:-1]]


def test_a_linear_axis_shows_zero_and_below():
    rows = [{"step": 1, "loss": value, "run": "a"} for value in (0, -1)]
    assert [row["y"] for row in data(line_chart(rows, x="step", y="loss", series="run"))] == [0, -1]


def test_a_band_is_drawn_if_it_has_both_ends():
    rows = [row | {"lo": 0.5, "hi": 2} for row in ROWS]
    assert "area" in layers(line_chart(rows, x="step", y="loss", series="run", low="lo", high="hi"))
    assert "area" not in layers(line_chart(rows, x="step", y="loss", series="run"))
    with pytest.raises(InputError, match="low and high"):
        line_chart(rows, x="step", y="loss", series="run", low="lo")


def test_axes_have_titles_and_scales():
    encoding = layers(line_chart(ROWS, x=Axis("step", log=True), y=Axis("loss", "two\nlines"), series="run"))["line"]
    assert encoding["encoding"]["x"]["scale"]["type"] == "log"
    assert encoding["encoding"]["x"]["title"] == "step (log scale)"
    assert encoding["encoding"]["y"]["title"] == "two lines"


def test_panels_come_in_the_order_of_the_rows():
    rows = [row | {"data": name} for name in ("prose", "code", "verse", "letters") for row in ROWS]
    chart = panel_chart(rows, x="step", y="loss", series="run", panel="data").to_dict()
    assert chart["columns"] == 2
    assert chart["facet"]["sort"] == {"field": "place", "op": "min"}
    assert {row["panel"]: row["place"] for row in chart["data"]["values"]} == {
        "prose": 0,
        "code": 1,
        "verse": 2,
        "letters": 3,
    }


def test_intervals_have_dots_ends_and_a_reference():
    rows = [{"run": r, "loss": 2, "lo": 1, "hi": 3} for r in "ba"]
    chart = interval_chart(rows, name="run", value="loss", low="lo", high="hi", reference=1.5).to_dict()
    assert [layer["mark"]["type"] for layer in chart["layer"]] == ["rule", "rule", "point"]
    assert chart["layer"][2]["encoding"]["y"]["scale"]["domain"] == ["b", "a"]
    assert chart["layer"][0]["data"]["values"] == [{"x": 1.5}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "expected at least one, got none"),
        ([{"step": 1, "run": "a", "los": 2}], "unknown column 'loss'; did you mean 'los'"),
        ([{"step": 1, "run": "a", "loss": "low"}], "column 'loss' of a chart: expected numbers, got 'low'"),
    ],
)
def test_rows_that_cannot_be_drawn_are_refused(rows, message):
    with pytest.raises(InputError, match=message):
        line_chart(rows, x="step", y="loss", series="run")
