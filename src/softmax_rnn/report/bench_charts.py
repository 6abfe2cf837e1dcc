"""Charts of the benches: attention alone, a whole model's training step, and decoding, each beside its peer.

>>> rows = [{"variant": "softmax", "ratio": 1.01}, {"variant": "taylor_2", "ratio": 0.9}]
>>> model_chart({"rows": rows}).to_dict()["layer"][1]["encoding"]["y"]["scale"]["domain"]
['taylor_2', 'softmax']
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Any

import altair as alt

from softmax_rnn.report.chart_data import Axis
from softmax_rnn.report.plots import Chart, interval_chart, line_chart, panel_chart
from softmax_rnn.report.theme import FIGURE_WIDTH

__all__ = ["attention_chart", "decode_chart", "model_chart", "state_chart", "state_loss_chart"]

Row = dict[str, Any]


def attention_chart(results: dict[str, Any]) -> alt.VConcatChart:
    """Time against T beside the platform's softmax, the cost of a training step in its units, and the memory."""
    results = _labelled(results)
    forward = [row for row in results["rows"] if not row["backward"]]
    training = [row for row in results["rows"] if row["backward"]]
    parts = [_times(forward)] if forward else []
    parts += [_training_steps(training)] if training else []
    parts += [_memory(results["memory"])] if results["memory"] else []
    return alt.vconcat(*parts, spacing=40).resolve_scale(
        color="independent", shape="independent", yOffset="independent"
    )


def _times(rows: list[Row]) -> Any:
    by_dim = sorted(rows, key=lambda row: (row["key_dim"], row["time"]))
    records = [(f"D = {row['key_dim']}", "SDPA", row["time"], row["sdpa_seconds"]) for row in by_dim]
    records += [(f"D = {row['key_dim']}", row["variant"], row["time"], row["seconds"]) for row in by_dim]
    chart = panel_chart(
        _means(records, ("panel", "variant", "T", "seconds")),
        x=Axis("T", "positions T", log=True),
        y=Axis("seconds", log=True),
        series="variant",
        panel="panel",
        columns=3,
        width=190,
    )
    return chart.properties(title="Attention forward: seconds against T, by key dimension")


def _training_steps(rows: list[Row]) -> Any:
    several = len({row["key_dim"] for row in rows}) > 1
    records = [
        row | {"size": f"T = {row['time']:,}" + (f", D = {row['key_dim']}" if several else "")}
        for row in sorted(rows, key=lambda row: (-row["time"], row["ratio"]))
    ]
    chart = interval_chart(
        records,
        name="variant",
        value=Axis("ratio", "time ÷ that of the platform's softmax (SDPA)"),
        series="size",
        reference=1.0,
    )
    return chart.properties(width=FIGURE_WIDTH, title="Training step of attention; left of the dashed line is faster")


def _memory(rows: list[Row]) -> Any:
    records = [
        {"variant": row["variant"], "size": f"T = {row['time']:,}", "GB": row["bytes"] / 1e9}
        for row in sorted(rows, key=lambda row: (-row["time"], row["bytes"]))
    ]
    value = Axis("GB", "gigabytes above the inputs")
    chart = interval_chart(records, name="variant", value=value, series="size")
    return chart.properties(width=FIGURE_WIDTH, title="Peak memory of a training step")


def model_chart(results: dict[str, Any]) -> Chart:
    """The training step of each variant in units of transformers' Llama, the fastest first."""
    results = _labelled(results)
    rows = sorted(results["rows"], key=lambda row: row["ratio"])
    value = Axis("ratio", "time ÷ that of transformers' Llama with SDPA")
    chart = interval_chart(rows, name="variant", value=value, reference=1.0)
    return chart.properties(title="Training step of a whole model; left of the dashed line is faster")


def decode_chart(results: dict[str, Any]) -> Chart:
    """Time of a new token and bytes of the state against the context; where lines cross is the break-even."""
    results = _labelled(results)
    time, state = "milliseconds per new token", "megabytes of state"
    records = [(time, "transformers' Llama", row["context"], 1e3 * row["llama_seconds"]) for row in results["rows"]]
    records += [(time, row["variant"], row["context"], 1e3 * row["seconds"]) for row in results["rows"]]
    records += [(state, row["variant"], row["context"], row["state_bytes"] / 1e6) for row in results["rows"]]
    chart = panel_chart(
        _means(records, ("panel", "variant", "context", "value")),
        x=Axis("context", "context, tokens", log=True),
        y=Axis("value", log=True),
        series="variant",
        panel="panel",
        columns=2,
        same_scale=False,
        width=330,
        height=260,
    )
    return chart.properties(title="Decoding: time and memory against the length of the context")


def state_chart(results: dict[str, Any]) -> Chart:
    """Bytes of a head's decoding state against the context."""
    rows = [row | {"kB": row["bytes"] / 1e3} for row in _labelled(results)["memory"]]
    chart = line_chart(
        rows,
        x=Axis("context", "context, tokens", log=True),
        y=Axis("kB", "kilobytes of state per head", log=True),
        series="variant",
    )
    return chart.properties(title="Decoding: memory against the length of the context", width=FIGURE_WIDTH)


def state_loss_chart(results: dict[str, Any]) -> Chart:
    """The loss against the bytes of the decoding state, a line per structure."""
    rows = [row | {"MB": row["state_bytes"] / 1e6} for row in results["rows"]]
    rows.sort(key=lambda row: row["MB"])
    chart = line_chart(
        rows, x=Axis("MB", "megabytes of state", log=True), y=Axis("loss", "loss, nats"), series="variant"
    )
    return chart.properties(title="A pretrained model, not trained further: loss against state", width=FIGURE_WIDTH)


def _labelled(results: dict[str, Any]) -> dict[str, Any]:
    """Every variant under the short name that the results give it.

    >>> _labelled({"labels": {"a_long_name": "brief"}, "rows": [{"variant": "a_long_name"}]})["rows"]
    [{'variant': 'brief'}]
    """
    labels = results.get("labels", {})
    kept = {name: results[name] for name in ("rows", "memory") if name in results}
    renamed = {
        name: [row | {"variant": labels.get(row["variant"], row["variant"])} for row in rows]
        for name, rows in kept.items()
    }
    return results | renamed


def _means(records: Iterable[tuple[Any, ...]], columns: tuple[str, ...]) -> list[Row]:
    """Records by column, the last column averaged over those that agree in the others: a peer is measured repeatedly.

    >>> _means([("a", 1, 2.0), ("a", 1, 4.0)], ("name", "x", "y"))
    [{'name': 'a', 'x': 1, 'y': 3.0}]
    """
    groups: dict[tuple[Any, ...], list[float]] = {}
    for *keys, value in records:
        groups.setdefault(tuple(keys), []).append(value)
    return [dict(zip(columns, (*keys, fmean(values)), strict=True)) for keys, values in groups.items()]
