"""The command that opens the live page."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from softmax_rnn.errors import InputError


def explore(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model's folder, a run, a study, or a hub name; smollm2, or a tiny model, by default.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder whose runs can be compared; runs/ by default.", show_default=False),
    ] = None,
    other: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="A model to compare with the first, as linearise writes; repeatable."),
    ] = None,
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 7860,
    host: Annotated[str, typer.Option(help="Address to listen on; any but 127.0.0.1 is public.")] = ("127.0.0.1"),
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Take attention apart live in the browser: order by order, part by part, token by token. Ctrl-C ends it.

    Examples:
      softmax-rnn explore
      softmax-rnn explore runs/quick --no-browser
      softmax-rnn explore smollm2 --other runs/linear --port 0
    """
    from softmax_rnn.explore.server import HOSTS, serve
    from softmax_rnn.explore.source import Others, find_model, model_folders, source

    if runs is not None and not runs.is_dir():
        raise InputError(f"runs: there is no folder {runs}")
    chosen = source(model)

    def ready(address: str) -> None:
        if host not in HOSTS:
            warning = f"warning: --host {host}: everyone who can reach this machine can use the page and its model"
            print(warning, file=sys.stderr)
        print(f"{chosen.name}: {address} (Ctrl-C ends it)", flush=True)
        if browser:
            import webbrowser

            webbrowser.open(address)

    folder = runs if runs is not None else Path(model) if model and Path(model).is_dir() else Path("runs")
    for name in other or ():
        find_model(name)
    others = Others(list(dict.fromkeys([*(other or ()), *model_folders(folder)])))
    serve(chosen, folder, host, port, ready, others)
    # Nothing is left to save, and Python takes seconds to free a loaded model and the threads that use it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
