"""The command that looks at the installation."""

from __future__ import annotations

import typer

from softmax_rnn.cli.root import AsJson, print_json


def doctor(as_json: AsJson = False) -> None:
    """Print the machine, which packages and extras are installed, and how to install what is missing.

    On a machine with a CUDA or ROCm card it also runs the kernels against float64.

    The exit code is 1 if something is missing that every command needs.

    Examples:
      softmax-rnn doctor
      softmax-rnn doctor --json
    """
    from softmax_rnn.installation import REQUIRED, extras, packages
    from softmax_rnn.machine import surroundings

    installed_packages = packages()
    broken = [package for package in installed_packages if package.serves == REQUIRED and not package.fits]
    # What torch says of the machine needs torch.
    facts = surroundings(with_torch=not any(package.name == "torch" for package in broken))
    if not broken:
        from softmax_rnn.bench.card import kernels_line

        facts["Triton kernels"] = kernels_line()
    installed = extras(installed_packages)
    if as_json:
        rows = [vars(package) | {"fits": package.fits} for package in installed_packages]
        print_json({"machine": facts, "extras": installed, "packages": rows, "ready": not broken})
    else:
        from softmax_rnn.report.terminal import print_doctor

        said = (", ".join(name for name, there in installed.items() if there is wanted) for wanted in (True, False))
        facts |= {name: text or "none" for name, text in zip(("extras installed", "extras missing"), said, strict=True)}
        print_doctor(facts, [(p.name, p.serves, p.wanted, p.installed, p.fits, p.install) for p in installed_packages])
    if broken:
        raise typer.Exit(1)
