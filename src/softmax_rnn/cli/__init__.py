"""The command line: reads arguments, calls the library, prints. Heavy imports wait until a command runs."""

from __future__ import annotations

from softmax_rnn.cli.app import app
from softmax_rnn.cli.attention import explain, variants, verify
from softmax_rnn.cli.bench import bench_app
from softmax_rnn.cli.doctor import doctor
from softmax_rnn.cli.model import convert_report, evaluate, generate
from softmax_rnn.cli.report import compare, report, watch
from softmax_rnn.cli.study import study
from softmax_rnn.cli.terms import terms
from softmax_rnn.cli.train import train

for command in (variants, explain, verify, generate, train, study, report, compare, watch, terms, doctor):
    app.command()(command)
app.command("convert-report")(convert_report)
app.command("eval", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(evaluate)
app.add_typer(bench_app, name="bench")

__all__ = ["app"]
