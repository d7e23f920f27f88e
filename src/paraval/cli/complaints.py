"""Errors as messages on stderr, and as exit codes."""

from __future__ import annotations

import click

from paraval.errors import ParavalError, RunBrokenOffError, RunBusyError

EXIT_WRONG_REQUEST = 2
EXIT_CANNOT_TELL = 3
EXIT_BUSY = 75
EXIT_INTERRUPTED = 130


def complain(error: ParavalError) -> None:
    for line in error.message.split("\n"):
        click.echo(f"error: {line}", err=True)
    if error.hint is not None:
        click.echo(f"hint: {error.hint}", err=True)


def exit_code_of(error: ParavalError) -> int:
    match error:
        case RunBusyError():
            return EXIT_BUSY
        case RunBrokenOffError():
            return EXIT_CANNOT_TELL
        case _:
            return EXIT_WRONG_REQUEST
