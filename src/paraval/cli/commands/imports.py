"""`paraval import`: a suite, or a run, from the files of another program."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from paraval.cli.error_messages import talk
from paraval.cli.help import SuggestingGroup
from paraval.cli.options import store_option
from paraval.cli.output import own_name
from paraval.errors import SuiteError
from paraval.importers.imported import SUITE_FILE, ImportedSuite, write_suite
from paraval.importers.results import ImportedTrial, store_run
from paraval.runner.run import load_suite
from paraval.settings import default_store
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


results_option = click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Also store the results in this file as a run, to compare new runs with.",
)


@import_command.command("repo-search")
@click.argument("cases", type=click.Path(path_type=Path), required=False)
@click.option(
    "--repo",
    "repository",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="The repository that the cases ask about.",
)
@results_option
@store_option
@writing_options
def repo_search_command(
    cases: Path | None,
    repository: Path,
    results: tuple[Path, ...],
    store: Path,
    folder: Path | None,
    replace: bool,
) -> None:
    """Import CASES of repo-search-eval or codetect-eval: a folder of .jsonl files, or one file.

    By default, CASES is the folder that these programs would use: .codetect/evals/cases in the
    repository, else .repo_search/evals/cases, else evals/cases.
    """
    from paraval.importers import repo_search  # noqa: PLC0415 - each format is loaded when used

    source = cases or repo_search.find_cases(repository)
    folder = folder or Path("repo-search")
    settings = repo_search.settings_in(results[0]) if results else None
    imported = repo_search.read_repo_search(
        source, repository=repository, folder=folder, settings=settings
    )
    write_and_tell(imported, folder, replace=replace)
    for path in results:
        trials, when = repo_search.read_results(path, imported)
        name = imported.suite["name"]
        source_name = f"{path} (repo-search)"
        store_and_tell(trials, name=name, source=source_name, when=when, store=store)


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


def store_and_tell(
    trials: Sequence[ImportedTrial], *, name: str, source: str, when: float | None, store: Path
) -> None:
    """Store another program's results as a run, and print how to read it."""
    found = store_run(trials, name=name, source=source, when=when, store=store)
    results = counted(found.run.trials, "result")
    done = "stored as" if found.is_new else "already stored as"
    talk(f"{source}: {results} {done} run {found.run.id}.")
    command = [own_name(), "report", found.run.id]
    if store != default_store().absolute():
        command += ["--store", os.path.relpath(store)]
    talk(f"Read it: {shlex.join(command)}")
