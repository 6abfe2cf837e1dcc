"""Files are whole or absent, charts are drawn in every format."""

import json
import math

import pytest

from softmax_rnn import files
from softmax_rnn.report import bench_charts as charts
from softmax_rnn.report.figures import figure, save_chart

ATTENTION = {
    "rows": [
        {"variant": name, "time": time, "key_dim": 64, "backward": backward}
        | {"seconds": 0.1 * time, "sdpa_seconds": 0.2, "ratio": 0.5 * time}
        for name in ("softmax", "<script>alert(1)</script>")
        for time in (64, 128)
        for backward in (False, True)
    ],
    "memory": [{"variant": "softmax", "time": 64, "bytes": 10_000_000}],
}
MODEL = {"rows": [{"variant": "softmax", "ratio": 1.0}, {"variant": "taylor_2", "ratio": 1.3}]}
DECODE = {
    "rows": [
        {"variant": "taylor_2", "context": c, "seconds": 1e-3, "llama_seconds": 2e-3, "state_bytes": 1000}
        for c in (512, 1024)
    ]
}
STATE = {"memory": [{"variant": "softmax", "context": c, "bytes": 1000 * c} for c in (1024, 2048)]}


@pytest.mark.parametrize(
    "chart",
    [
        charts.attention_chart(ATTENTION),
        charts.model_chart(MODEL),
        charts.decode_chart(DECODE),
        charts.state_chart(STATE),
    ],
)
def test_a_chart_becomes_a_file_of_every_format(chart, tmp_path):
    made = save_chart(chart, tmp_path, "chart")
    starts = {".html": b"<", ".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    assert {path.suffix for path in made} == set(starts)
    assert all(path.read_bytes().lstrip().startswith(starts[path.suffix]) for path in made)
    assert sorted(tmp_path.iterdir()) == sorted(made)


def test_names_in_a_page_are_no_markup(tmp_path):
    (page,) = save_chart(charts.attention_chart(ATTENTION), tmp_path, "chart", ("html",))
    assert "<script>alert(1)</script>" not in page.read_text()


def test_the_page_needs_no_network(tmp_path):
    (page,) = save_chart(charts.model_chart(MODEL), tmp_path, "chart", ("html",))
    assert "cdn.jsdelivr.net" not in page.read_text()


def test_what_a_bench_did_not_measure_is_not_drawn():
    parts = charts.attention_chart({"rows": ATTENTION["rows"][1::2], "memory": []}).to_dict()["vconcat"]
    assert len(parts) == 1
    whole = charts.attention_chart(ATTENTION).to_dict()
    assert len(whole["vconcat"]) == 3
    # Parts with bands of their own height: a shared offset would draw the dots of one beside its lines.
    assert whole["resolve"]["scale"]["yOffset"] == "independent"


def test_a_peer_is_one_line_however_often_it_was_measured():
    rows = [row | {"variant": name} for name in ("taylor_2", "linear_elu") for row in DECODE["rows"]]
    values = charts.decode_chart({"rows": rows}).to_dict()["data"]["values"]
    llama = [(row["x"], row["y"]) for row in values if row["series"] == "transformers' Llama"]
    assert llama == [(512, 2.0), (1024, 2.0)]


def test_a_figure_has_its_title_and_its_width():
    spec = figure(charts.decode_chart(DECODE), "word " * 60).to_dict()
    lines = spec["title"]["text"]
    width = 2 * (330 + 30)
    assert len(lines) > 1
    assert max(map(len, lines)) <= width / 6.6
    assert [one["value"] for one in spec["params"] if one["name"] == "page_width"] == [width]


def test_numbers_that_json_lacks_become_null(tmp_path):
    path = files.write_json(tmp_path / "deep" / "x.json", {"a": [math.inf, 1.5], "b": (math.nan,), "c": "∑"})
    assert json.loads(path.read_text()) == {"a": [None, 1.5], "b": [None], "c": "∑"}


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    path = files.write_json(tmp_path / "x.json", {"old": True})

    def fail(temporary):
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write_whole(path, fail)
    assert json.loads(path.read_text()) == {"old": True}
    assert list(tmp_path.iterdir()) == [path]
