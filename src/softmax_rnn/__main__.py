"""``python -m softmax_rnn`` and ``softmax-rnn``: errors are one line; exit code 2 for wrong use, 1 for a failed run."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    _prepare_streams()
    # Progress bars of other libraries would appear between our lines; both are read when the library is imported.
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(name, "1")
    return _flush_streams(_run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    import typer

    from softmax_rnn.cli import app
    from softmax_rnn.cli.usage import usage_text
    from softmax_rnn.errors import InputError, RunError
    from softmax_rnn.files import system_error

    # The root of typer's errors of use; newer versions bundle their own click, so it is not click's.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        result = app(args=arguments or ["--help"], standalone_mode=False, prog_name="softmax-rnn")
        return result if isinstance(result, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except usage_error as error:
        return _say(usage_text(error), 2)
    except InputError as error:
        return _say(str(error), 2)
    except RunError as error:
        return _say(str(error), 1)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", 130)
    except Exception as error:
        if (failed := system_error(error)) is not None:
            return _say(_failed_io(failed), 1)
        if not _out_of_memory(error):
            raise
        return _say(f"out of memory: {error or 'the system gives no more'}", 1)


def _failed_io(error: OSError) -> str:
    """The file and the reason, as far as the error knows them; standard output has no name."""
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"{error.filename}: {reason}"


def _out_of_memory(error: Exception) -> bool:
    """Torch has a class for accelerators only; on the CPU the text of a RuntimeError must do."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


LONGEST = 800
"""Characters of an error's line; what was typed may be thousands."""


def _say(text: str, code: int) -> int:
    line = " ".join(text.split())
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    with contextlib.suppress(OSError):
        print(f"softmax-rnn: {line}", file=sys.stderr)
    return code


def _prepare_streams() -> None:
    """Streams that were closed lead nowhere, and letters that an encoding lacks are written as escapes."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken, which is this one: no file opened later can receive what is printed.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]


def _flush_streams(code: int) -> int:
    """Write out what is left. The interpreter must not find it again at its end: it would print a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if not _flushed(stream):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = code or _say("standard output could not be written", 1)
    return code


def _flushed(stream: IO[str]) -> bool:
    try:
        stream.flush()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
