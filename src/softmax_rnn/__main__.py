"""``python -m softmax_rnn`` and ``softmax-rnn``: errors are one line; exit code 2 for wrong use, 1 for a failed run."""

from __future__ import annotations

import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    import typer

    from softmax_rnn.cli import app
    from softmax_rnn.cli.usage import usage_text
    from softmax_rnn.errors import InputError, RunError

    # The root of typer's errors of use; newer versions carry a click of their own, so it is not click's.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    given = sys.argv[1:] if arguments is None else arguments
    try:
        result = app(args=given or ["--help"], standalone_mode=False, prog_name="softmax-rnn")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except usage_error as error:
        text = usage_text(error)
    except InputError as error:
        text = str(error)
    except RunError as error:
        return _say(str(error), 1)
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; the interpreter must not write to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None or error.strerror is None:
            raise
        return _say(f"{error.filename}: {error.strerror}", 1)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", 130)
    return _say(text, 2)


def _say(text: str, code: int) -> int:
    print(f"softmax-rnn: {' '.join(text.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
