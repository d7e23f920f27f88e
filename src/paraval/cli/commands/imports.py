"""`paraval import`: a suite, or a run, from the files of another program."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from paraval.cli.error_messages import talk
from paraval.cli.help import SuggestingGroup
from paraval.cli.output import own_name
from paraval.errors import SuiteError
from paraval.importers.imported import SUITE_FILE, ImportedSuite, write_suite
from paraval.runner.run import load_suite
from paraval.text.terminal import one_line
from paraval.text.words import counted

SHOWN = 20
"""Left-out keys that are printed; all are in the suite's head."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group("import", cls=SuggestingGroup)
def import_command() -> None:
    """Write a suite from what you have.

    Each format writes a folder with a suite.yaml that you can read and edit. Every key of the
    source is honored, or listed by name as not honored, in the terminal and at the head of the
    suite. The source is only read; importing again gives the same files.
    """


def writing_options(command: _Command) -> _Command:
    """The options of every format that writes a suite: --to and --replace."""
    to = click.option(
        "--to",
        "folder",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        help="Write the suite here. [default: a new folder, named after the source]",
    )
    replace = click.option("--replace", is_flag=True, help="Overwrite files that differ.")
    return to(replace(command))


def write_and_tell(imported: ImportedSuite, folder: Path, *, replace: bool) -> None:
    """Write the suite, check that it loads, and print what was left out and what to do next."""
    changed = write_suite(imported, folder, replace=replace)
    suite_file = folder / SUITE_FILE
    talk(f"{suite_file}: {'written' if changed else 'unchanged'}.")
    if imported.not_honored:
        talk(f"Not honored ({counted(len(imported.not_honored), 'key')}):")
        for one in imported.not_honored[:SHOWN]:
            talk(f"  {one_line(one.key, 100)}: {one_line(one.why, 200)}")
        if len(imported.not_honored) > SHOWN:
            talk(f"  ... all are listed at the head of {suite_file}")
    for note in imported.notes:
        talk(note)
    try:
        load_suite(suite_file)
    except SuiteError as error:
        talk(f"Before it runs, change this:\n{error}")
        return
    command = shlex.join([own_name(), "plan", os.path.relpath(suite_file)])
    talk(f"Next: {command}")


@import_command.command("promptfoo")
@click.argument("config", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@writing_options
def promptfoo_command(config: Path, folder: Path | None, replace: bool) -> None:
    """Write a suite from a promptfoo CONFIG (promptfooconfig.yaml or .json).

    Prompts, providers, tests and assertions, with the files that they name. Scripts stay where they
    are; the suite calls them there.
    """
    from paraval.importers.promptfoo.config import read_promptfoo  # noqa: PLC0415 - only this needs it

    folder = folder or Path(config.stem)
    write_and_tell(read_promptfoo(config, folder), folder, replace=replace)
