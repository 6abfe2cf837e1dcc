"""The command that looks at the installation."""

from __future__ import annotations

import typer

from softmax_rnn.cli.app import AsJson, print_json


def doctor(as_json: AsJson = False) -> None:
    """Print the machine, what is installed, what is missing and the command that installs it.

    The exit code is 1 if something is missing that every command needs.

    Examples:
      softmax-rnn doctor
      softmax-rnn doctor --json
    """
    from softmax_rnn.installation import REQUIRED, packages
    from softmax_rnn.machine import surroundings

    found = packages()
    broken = [package for package in found if package.serves == REQUIRED and not package.fits]
    # What torch says of the machine needs torch.
    facts = surroundings(with_torch=not any(package.name == "torch" for package in broken))
    if as_json:
        rows = [vars(package) | {"fits": package.fits} for package in found]
        print_json({"machine": facts, "packages": rows, "ready": not broken})
    else:
        from softmax_rnn.report.terminal import print_doctor

        print_doctor(facts, [(p.name, p.serves, p.wanted, p.found, p.fits, p.install) for p in found])
    if broken:
        raise typer.Exit(1)
