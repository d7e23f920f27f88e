"""Errors as messages on stderr, and as exit codes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click

from paraval.errors import NotWrittenError, ParavalError, RunBrokenOffError, RunBusyError
from paraval.text.terminal import printable

EXIT_WRONG_REQUEST = 2
EXIT_CANNOT_TELL = 3
EXIT_OUR_FAULT = 70
EXIT_INPUT_OUTPUT = 74
EXIT_BUSY = 75
EXIT_INTERRUPTED = 130
EXIT_NO_READER = 141


def talk(message: str) -> None:
    """Print to stderr, with control characters escaped: names of files, runs and refs may be a
    stranger's. A closed stderr is no reason to fail."""
    with suppress(OSError):
        click.echo(printable(message), err=True)


def complain(error: ParavalError) -> None:
    for line in printable(error.message).split("\n"):
        talk(f"error: {line}")
    if error.hint is not None:
        talk(f"hint: {error.hint}")


def exit_code_of(error: ParavalError) -> int:
    match error:
        case RunBusyError():
            return EXIT_BUSY
        case RunBrokenOffError():
            return EXIT_CANNOT_TELL
        case NotWrittenError():
            return EXIT_INPUT_OUTPUT
        case _:
            return EXIT_WRONG_REQUEST


def discard_stdout() -> None:
    """Redirect stdout to /dev/null: it is closed, and Python would complain again at exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
