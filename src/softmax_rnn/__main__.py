"""``python -m softmax_rnn`` and ``softmax-rnn``: errors are one line; exit code 2 for wrong use, 1 for a failed run."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    import typer

    from softmax_rnn.cli import app
    from softmax_rnn.errors import InputError, RunError

    # The root of typer's errors of use; newer versions carry a click of their own, so it is not click's.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    given = sys.argv[1:] if arguments is None else arguments
    try:
        result = app(args=given or ["--help"], standalone_mode=False, prog_name="softmax-rnn")
        return result if isinstance(result, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except usage_error as error:
        text = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
    except InputError as error:
        text = str(error)
    except RunError as error:
        print(f"softmax-rnn: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        print("softmax-rnn: interrupted", file=sys.stderr)
        return 130
    print(f"softmax-rnn: {' '.join(text.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
