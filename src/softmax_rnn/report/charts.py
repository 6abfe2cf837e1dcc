"""Altair charts of measured results, and their files: HTML, SVG, PNG and PDF from one chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt

from softmax_rnn.report.files import write_whole
from softmax_rnn.report.theme import COLOURS

FORMATS = ("html", "svg", "png", "pdf")


def attention_chart(results: dict[str, Any]) -> alt.VConcatChart:
    """Time and memory against T: one line a variant, the platform's softmax among them."""
    return alt.vconcat(_time_chart(results), _memory_chart(results)).resolve_scale(color="independent")


def _time_chart(results: dict[str, Any]) -> alt.Chart | alt.FacetChart:
    values = []
    for row in results["rows"]:
        panel = f"{'training step' if row['backward'] else 'forward'}, D = {row['key_dim']}"
        values.append({"panel": panel, "variant": row["variant"], "T": row["time"], "seconds": row["seconds"]})
        values.append({"panel": panel, "variant": "SDPA", "T": row["time"], "seconds": row["sdpa_seconds"]})
    line = alt.Chart(alt.Data(values=values)).mark_line(point=True)
    encoded = line.encode(
        x=alt.X("T:Q", scale=alt.Scale(type="log", base=2), title="positions T"),
        y=alt.Y("mean(seconds):Q", scale=alt.Scale(type="log"), title="seconds"),
        color=alt.Color("variant:N", scale=alt.Scale(range=COLOURS), legend=alt.Legend(labelLimit=400)),
        tooltip=["variant:N", "T:Q", alt.Tooltip("mean(seconds):Q", format=".4f")],
    )
    panels = encoded.properties(width=320, height=220).facet(facet=alt.Facet("panel:N", title=None), columns=2)
    return panels.resolve_scale(x="independent", y="independent").properties(title="Time of attention")


def _memory_chart(results: dict[str, Any]) -> alt.Chart:
    values = [
        {"variant": row["variant"], "T": f"T = {row['time']}", "GB": row["bytes"] / 1e9} for row in results["memory"]
    ]
    bars = alt.Chart(alt.Data(values=values)).mark_bar()
    return bars.encode(
        x=alt.X("GB:Q", title="gigabytes above the inputs"),
        y=alt.Y("variant:N", title=None, axis=alt.Axis(labelLimit=400)),
        yOffset="T:N",
        color=alt.Color("T:N", scale=alt.Scale(range=COLOURS), title="positions"),
        tooltip=["variant:N", "T:N", alt.Tooltip("GB:Q", format=".3f")],
    ).properties(width=640, title="Peak memory of a training step")


def model_chart(results: dict[str, Any]) -> alt.LayerChart | alt.FacetChart:
    """The training step of each variant in units of transformers' Llama."""
    values = [{"variant": row["variant"], "ratio": row["ratio"]} for row in results["rows"]]
    base = alt.Chart(alt.Data(values=values))
    bars = base.mark_bar(color=COLOURS[0]).encode(
        x=alt.X("ratio:Q", title="training step, in units of transformers' Llama with SDPA"),
        y=alt.Y("variant:N", title=None, sort="x", axis=alt.Axis(labelLimit=400)),
        tooltip=["variant:N", alt.Tooltip("ratio:Q", format=".2f")],
    )
    one = alt.Chart(alt.Data(values=[{"one": 1}])).mark_rule(color=COLOURS[1], strokeDash=[4, 3]).encode(x="one:Q")
    return (bars + one).properties(width=480, title="Training step of 1024 tokens")


def decode_chart(results: dict[str, Any]) -> alt.HConcatChart:
    """Time of a new token and bytes of the state against the context; where lines cross is the break-even."""
    values = []
    for row in results["rows"]:
        values.append({**row, "milliseconds": 1e3 * row["seconds"], "megabytes": row["state_bytes"] / 1e6})
        values.append(
            {"variant": "transformers' Llama", "context": row["context"], "milliseconds": 1e3 * row["llama_seconds"]}
        )
    line = alt.Chart(alt.Data(values=values)).mark_line(point=True)

    def panel(field: str, title: str) -> alt.Chart:
        return line.encode(
            x=alt.X("context:Q", scale=alt.Scale(type="log", base=2), title="context, tokens"),
            y=alt.Y(f"mean({field}):Q", scale=alt.Scale(type="log"), title=title),
            color=alt.Color("variant:N", scale=alt.Scale(range=COLOURS), legend=alt.Legend(labelLimit=400)),
            tooltip=["variant:N", "context:Q", alt.Tooltip(f"mean({field}):Q", format=".3f")],
        ).properties(width=320, height=260)

    time, size = panel("milliseconds", "milliseconds a new token"), panel("megabytes", "megabytes of state")
    return alt.hconcat(time, size.transform_filter("isValid(datum.megabytes)")).properties(title="Decoding")


def save_chart(chart: Any, folder: Path, name: str, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """The chart in every format; the HTML needs no network."""

    def write(path: Path) -> None:
        if path.suffix == ".html":
            path.write_text(page(chart), encoding="utf-8")
        else:
            chart.save(str(path), **({"ppi": 144} if path.suffix == ".png" else {}))

    return [write_whole(folder / f"{name}.{ending}", write) for ending in formats]


def page(chart: Any) -> str:
    """The chart as a page of its own. Names in the data are data: no ``<`` of theirs reaches the page's markup."""
    html = chart.to_html(inline=True)
    begin = html.rindex("const spec = ")
    end = html.index("\n", begin)
    return html[:begin] + html[begin:end].replace("<", "\\u003c") + html[end:]
