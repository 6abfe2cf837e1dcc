"""The command line: reads arguments, calls the library, prints. Heavy imports wait until a command runs."""

from __future__ import annotations

from softmax_rnn.cli.attention import explain, variants, verify
from softmax_rnn.cli.bench import bench_app
from softmax_rnn.cli.doctor import doctor
from softmax_rnn.cli.explore import explore
from softmax_rnn.cli.linearise import linearise
from softmax_rnn.cli.model import convert_report, evaluate, generate
from softmax_rnn.cli.report import compare, report, watch
from softmax_rnn.cli.root import add, app
from softmax_rnn.cli.study import study
from softmax_rnn.cli.terms import terms
from softmax_rnn.cli.train import train

# Each with the extra that it needs.
for command in (variants, explain, verify):
    add(app, command)
add(app, generate, "models")
add(app, train, "train")
for command in (study, report, compare, watch, terms, linearise):
    add(app, command, "study")
add(app, explore, "explore")
add(app, doctor)
add(app, convert_report, "models", name="convert-report")
_passed_on = {"allow_extra_args": True, "ignore_unknown_options": True}
add(app, evaluate, "eval", name="eval", context_settings=_passed_on)
app.add_typer(bench_app, name="bench")

__all__ = ["app"]
