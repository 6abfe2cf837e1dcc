"""The page of a study: its sections, its numbers, what it says of failed, unfinished and lonely runs."""

import json
import math
import subprocess
import sys

import pytest

from softmax_rnn.files import finite
from softmax_rnn.report.elements import ChartBlock, CommandBlock, Formula, Note, Prose, TableBlock, Verdicts
from softmax_rnn.report.page import page_html
from softmax_rnn.report.study_final import ONE_SEED, near_gaps
from softmax_rnn.report.study_page import study_page, write_files, write_report
from softmax_rnn.report.tables import shown_rows

from .pages import HOSTILE
from .study_results import L2_NORM, LEVELS, SHORT, entry, everything, language, recall, results

EVERY_SECTION = ["verdicts", "losses", "effects", "trends", "recall", "orders", "curves", "positions", "terms", "costs"]
EVERY_SECTION += ["published", "variants", "runs", "repeat"]


@pytest.fixture(scope="module")
def whole():
    return study_page(everything())


def section(page, name):
    (result,) = (one for one in page.sections if one.id == name)
    return result


def blocks(page, name, kind):
    return [block for block in section(page, name).blocks if isinstance(block, kind)]


def table(page, name):
    (result,) = (one for one in page.tables() if one.id == name)
    return result


def cells(result, **values):
    """The shown rows of a table as dictionaries, those whose cells have these values."""
    titles = [head.title for head in result.heads]
    rows = [dict(zip(titles, row, strict=True)) for row in shown_rows(result)]
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def test_every_section_is_there(whole):
    assert [one.id for one in whole.sections] == EVERY_SECTION


def test_the_facts_under_the_title(whole):
    assert whole.title == "A study of attention"
    assert whole.facts == {
        "Date": "2026-11-16",
        "Runs": "150 of 153 finished, 1 incomplete, 1 failed, 1 planned",
        "Seeds": "3",
        "Scale": "cpu",
        "Machine": "Some Processor at 2 GHz",
        "Cores": "2",
        "torch": "2.13.0",
    }


def test_a_study_without_runs_says_so():
    page = study_page(results([]))
    assert [one.id for one in page.sections] == ["verdicts", "runs", "repeat"]
    assert page.facts["Runs"] == "0 of 0 finished"


def test_results_that_went_through_a_file_give_the_same_page(whole):
    page = study_page(json.loads(json.dumps(finite(everything()))))
    assert page_html(page) == page_html(whole)


def test_verdicts_have_evidence_rule_and_the_papers_words(whole):
    (result,) = blocks(whole, "verdicts", Verdicts)
    assert [one.state for one in result.verdicts] == ["reproduced", "not reproduced", "undecided"]
    assert "+0.2100 ± 0.0100, 3 seeds" in result.verdicts[0].evidence
    assert "section 4.1" in result.verdicts[0].evidence.lower()
    assert "95 % interval" in result.verdicts[0].rule


def test_the_table_of_losses_shows_the_summary(whole):
    result = table(whole, "final-losses")
    assert result.filterable
    assert [head.title for head in result.heads if head.select] == ["data"]
    rows = everything()["summary"]["final"]
    for data in ("shakespeare", "kjv"):
        shown = cells(result, data=data)
        (row,) = (one for one in rows if one["variant"] == "linear_elu" and one["setting"] == {"data": data})
        (line,) = (one for one in shown if one["variant"] == "linear_elu")
        assert line["test loss"] == f"{row['test_loss']['mean']:.3f} ± {row['test_loss']['half']:.3f}"
        assert line["gap to softmax"] == f"+{row['gap']['mean']:.4f} ± {row['gap']['half']:.4f}"
        assert line["seeds"] == "3"
        losses = [float(one["test loss"].split()[0]) for one in shown]
        assert losses == sorted(losses)
        assert {one["variant"] for one in shown} == set(SHORT.values())


@pytest.mark.parametrize(
    ("runs", "order"), [(language(), ["shakespeare", "kjv"]), (language()[::-1], ["kjv", "shakespeare"])]
)
def test_settings_stand_in_the_order_of_the_study_whatever_the_losses(runs, order):
    shown = cells(table(study_page(results(runs)), "final-losses"))
    assert list(dict.fromkeys(row["data"] for row in shown)) == order


def test_the_gap_of_softmax_to_itself_is_no_number(whole):
    assert {row["gap to softmax"] for row in cells(table(whole, "final-losses"), variant="softmax")} == {"–"}


def test_gaps_near_softmax_have_a_chart_of_their_own():
    def rows(*gaps):
        return [{"variant": str(i), "gap": {"mean": gap}} for i, gap in enumerate(gaps)]

    assert near_gaps(rows(0.01, -0.02, 1.0)) == rows(0.01, -0.02)
    assert near_gaps(rows(0.5, 1.0)) == []
    assert near_gaps(rows(0.001, 0.09)) == []
    assert near_gaps([]) == []


def test_curves_are_logarithms_with_bands_and_zoom(whole):
    names = [chart.id for chart in whole.charts() if chart.id.startswith("curve-")]
    texts = ("shakespeare", "kjv")
    assert [name for name in names if "accuracy" not in name] == [
        f"curve-{kind}-{data}" for kind in ("test", "gap", "train", "position") for data in texts
    ]
    (chart,) = (one for one in whole.charts() if one.id == "curve-test-kjv")
    spec = chart.chart.to_dict()
    assert "area" in [layer["mark"]["type"] for layer in spec["layer"]]
    assert "zoom" in json.dumps(spec["params"])
    last = [row for row in chart.table.rows if row[1] == "softmax"][-1]
    rows = [one for one in everything()["summary"]["final"] if one["variant"] == "softmax"]
    (final,) = (one for one in rows if one["setting"] == {"data": "kjv"})
    assert last[4] == pytest.approx(math.log(final["test_loss"]["mean"]), abs=0.01)  # mean of logs, log of the mean


def test_the_gap_while_training_is_a_curve_with_a_band_around_softmax_at_zero(whole):
    (chart,) = (one for one in whole.charts() if one.id == "curve-gap-kjv")
    assert "area" in [layer["mark"]["type"] for layer in chart.chart.to_dict()["layer"]]
    assert {row[4] for row in chart.table.rows if row[0] == "softmax"} == {0.0}
    rows = [one for one in everything()["summary"]["final"] if one["variant"] == "linear_elu"]
    (final,) = (one for one in rows if one["setting"] == {"data": "kjv"})
    last = [row for row in chart.table.rows if row[0] == "linear_elu"][-1]
    assert last[4] == pytest.approx(final["gap"]["mean"], abs=0.02)
    assert last[5] < last[4] < last[6]


def test_scores_have_a_section_where_they_were_measured(whole):
    assert "scores" not in [one.id for one in whole.sections]
    results = everything()
    kinds = ("test_largest_score", "test_dominant_order", "test_order_within")
    losses = [row for row in results["summary"]["curves"] if row["kind"] == "test" and row["metric"] == "test_loss"]
    results["summary"]["curves"] += [row | {"kind": kind} for row in losses for kind in kinds]
    page = study_page(results)
    text = " ".join(one.caption for one in blocks(page, "scores", ChartBlock))
    assert all(words in text for words in ("Largest score", "Order of the largest term", "Order for 1 %"))


def test_lines_of_unfinished_runs_come_last_and_say_what_they_are(whole):
    (chart,) = (one for one in whole.charts() if one.id == "curve-test-kjv")
    lines = list(dict.fromkeys(row[1] for row in chart.table.rows))
    assert lines == [*SHORT.values(), "softmax, seed 7, failed", "softmax, seed 8, incomplete"]


def test_many_settings_are_panels_of_one_chart():
    page = study_page(results(language(seeds=2, panels=["a", "b", "c", "d", "e"])))
    names = [chart.id for chart in page.charts() if chart.id.startswith("curve-")]
    assert names == ["curve-test", "curve-gap", "curve-train", "curve-position"]


def test_orders_have_softmax_as_a_level(whole):
    rows = table(whole, "orders-chart-data").rows
    assert {row[0] for row in rows} == {"softmax", "taylor_n"}
    assert [row[1] for row in rows if row[0] == "taylor_n" and row[3] == "kjv"] == [1, 2, 4]
    assert len({row[4] for row in rows if row[0] == "softmax" and row[3] == "kjv"}) == 1


def test_recall_by_dimension_and_learning_rate(whole):
    result = table(whole, "recall-accuracy")
    (row,) = cells(result, variant="linear_elu", **{"hidden size": "64", "pairs": "8"})
    assert row["best rate"] == "1.0e−03"
    assert row["behind softmax"].startswith("+0.8")
    rows = table(whole, "recall-chart-data").rows
    assert {row[2] for row in rows} == {32.0, 64.0, 128.0}
    assert all(0 <= row[4] <= row[3] <= row[5] <= 1 for row in rows)
    assert len(table(whole, "recall-rates-data").rows) == 3 * 3 * 2 * 3


def test_recall_in_one_setting_is_dots():
    page = study_page(results(recall(dims=[64], pairs=[8])))
    (chart,) = (one for one in page.charts() if one.id == "recall-chart")
    assert "row" not in json.dumps(chart.chart.to_dict()["layer"][0]["encoding"])
    assert [head.title for head in chart.table.heads] == ["variant", "setting", "accuracy", "low", "high"]


def test_one_seed_claims_nothing():
    page = study_page(results(language(seeds=1)))
    (note,) = blocks(page, "losses", Note)
    assert note.text == ONE_SEED
    assert ONE_SEED in blocks(page, "curves", Prose)[0].text
    assert not any("±" in text for row in shown_rows(table(page, "final-losses")) for text in row)
    (chart,) = (one for one in page.charts() if one.id == "curve-test-kjv")
    assert "area" not in [layer["mark"]["type"] for layer in chart.chart.to_dict()["layer"]]


def test_a_study_that_only_began():
    states = [("incomplete", None), ("planned", None), ("failed", None)]
    runs = [
        entry("language", {"variant": "softmax", "seed": seed}, 2.0, 0.4, state=state, error=error)
        for seed, (state, error) in enumerate(states)
    ]
    page = study_page(results(runs))
    assert [one.id for one in page.sections] == ["verdicts", "curves", "variants", "runs", "repeat"]
    warning, note = blocks(page, "runs", Note)
    assert "no reason is known" in warning.text
    assert "2 of 3 runs are not finished" in note.text


def test_failed_runs_are_told_with_their_reason(whole):
    warning, _ = blocks(whole, "runs", Note)
    assert "language-softmax-7-kjv: RunError: the loss is no longer finite" in warning.text
    (row,) = cells(table(whole, "runs-table"), run="language-softmax-7-kjv")
    assert (row["state"], row["step"]) == ("failed", "200")


def test_every_variant_has_its_formula(whole):
    assert len(blocks(whole, "variants", Formula)) == len(LEVELS)
    assert "The same function as another_name." in blocks(whole, "variants", Prose)[0].text


def test_published_numbers_are_marked_and_stand_beside_ours(whole):
    (result,) = blocks(whole, "published", TableBlock)
    assert result.heads[0].title == "source (theirs)"
    softmax, other, gate = shown_rows(result)
    rows = [row for row in everything()["summary"]["final"] if row["variant"] == "softmax"]
    assert softmax[-2:-1] + other[-2:-1] + gate[-2:] == ["shakespeare", "kjv", "–", "–"]
    assert softmax[-1].startswith(f"{rows[0]['test_loss']['mean']:.3f} ± ")


def test_terms_say_the_largest_order(whole):
    # (1.5 + l)^n / n! is largest at n = floor(1.5 + l).
    assert table(whole, "terms-dominant").rows == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert len(table(whole, "terms-map-data").rows) == 4 * 13


def test_a_trend_says_that_it_is_an_extrapolation(whole):
    (row,) = cells(table(whole, "trends-table"))
    assert row["extrapolated gap there"] == "+0.020 ± 0.100" and row["size in the paper"] == "3,072"
    assert "extrapolation" in blocks(whole, "trends", Prose)[0].text
    assert [row[0] for row in table(whole, "effects-chart-data").rows] == ["norm l2", "clamp"]


def test_the_commands_to_repeat_it():
    runs = [entry("g", {"variant": "softmax", "seed": 0}, 2.0, 0.4)]
    runs[0]["folder"] = "runs/it's; rm -rf $HOME"
    first, second = blocks(study_page(results(runs)), "repeat", CommandBlock)
    assert first.text == "softmax-rnn study demo"
    assert second.text == """softmax-rnn train --config 'runs/it'"'"'s; rm -rf $HOME/config.yaml' --output DIR"""


def test_hostile_names_stay_text():
    levels = {"softmax": 1.8} | {name: 2.0 + i / 10 for i, name in enumerate(HOSTILE)}
    runs = language(levels, panels=HOSTILE[:2])
    html = page_html(study_page(results(runs, title=HOSTILE[0])))
    body = html.split('<script type="application/json"')[0]
    assert "<script>window.__pwned" not in html
    assert "<img src=x" not in html
    assert body.count("&lt;img src=x onerror=") > 10


def test_the_report_is_a_page_with_figures_and_tables(tmp_path):
    runs = language({"softmax": 1.8, L2_NORM: 1.79}, seeds=2, panels=["kjv"])
    for run in runs:
        run["by_position"] = []
    page = study_page(results(runs))
    path = write_report(page, tmp_path)
    write_files(page, tmp_path)
    assert path == tmp_path / "report.html"
    charts = {"gaps", "curve-test-kjv", "curve-gap-kjv", "curve-train-kjv", "speeds"}
    figures = {one.name for one in (tmp_path / "figures").iterdir()}
    assert figures == {f"{chart}.{ending}" for chart in charts for ending in ("svg", "png", "pdf")}
    tables = {one.stem for one in (tmp_path / "tables").iterdir()}
    assert tables == {*(f"{chart}-data" for chart in charts), "final-losses", "costs-table", "runs-table"}
    assert {one.suffix for one in (tmp_path / "tables").iterdir()} == {".csv", ".md", ".tex"}


def test_the_page_needs_no_torch():
    code = "import sys; import softmax_rnn.report.study_page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
