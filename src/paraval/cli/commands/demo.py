"""`paraval demo`: a bundled suite, or a bundled race."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from paraval.cli.commands.init import BUNDLED, bundled_files, write_bundled
from paraval.cli.commands.run import progress_option, report_and_code, verbose_option
from paraval.cli.options import files_option, store_option
from paraval.cli.output import own_name
from paraval.cli.progress.progress import RunOutput, can_show_bar
from paraval.errors import RequestError
from paraval.runner.run import load_suite, open_store
from paraval.settings import Options, Selection, default_store

PAGES = (".html", ".htm")
SUITE_PARALLEL = 10


EXAMPLE = "\b\nExample:\n  paraval demo -o demo.html\n  paraval demo race"


@click.command("demo", epilog=EXAMPLE)
@click.argument("what", type=click.Choice(["suite", "race"]), default="suite")
@click.option("-j", "--parallel", type=click.IntRange(min=1), help="How many run in parallel.")
@files_option("the report, e.g. demo.html (of a race: .json .md .txt .patch)")
@progress_option
@store_option
@verbose_option
def demo_command(what: str, parallel: int | None, store: Path, **given: Any) -> int:
    """See paraval at work: no key, no network.

    \b
    suite  Three simulated models answer twenty questions (the default; 6 seconds).
           They differ in speed, accuracy, price and rate limit; one answer never
           arrives, and one request is refused.
    race   Eight changes to a slow function: which are correct, and which is
           fastest? Takes about a minute; needs git and pytest.

    With --progress auto, the suite's progress is shown only on a terminal.
    """
    showing = RunOutput.from_options(given)
    if what == "race":
        return _race(parallel, store, showing)
    return _suite(parallel, store, showing)


# ---- suite


def _suite(parallel: int | None, store: Path, showing: RunOutput) -> int:
    _print("Three simulated models answer twenty questions: no key, no network.")
    if showing.progress == "auto" and not can_show_bar(sys.stderr):
        showing = replace(showing, progress="none")
    report, code = report_and_code(
        load_suite(BUNDLED / "suite.yaml"),
        Selection(parallel=parallel or SUITE_PARALLEL),
        Options(store=store),
        showing,
    )
    if report.run.interrupted:
        return code
    pages = [path for path in showing.outputs if path.suffix.lower() in PAGES]
    run, name, at = report.run.id, own_name(), _store_flag(store)
    if pages:
        first = (f"{name} compare model=swift model=sage{at}", "compare two of the models")
    else:
        first = (f"{name} report {run} -o demo.html{at}", "write the report as a page")
    _print("")
    _print_next(
        first,
        (f"{name} demo race{at}", "race eight code changes"),
        (f"{name} init my-evals", "start a suite of your own"),
    )
    return code


def _store_flag(store: Path) -> str:
    """The option that a later command needs to find this store."""
    if store == default_store().absolute():
        return ""
    return f" --store {shlex.quote(os.path.relpath(store))}"


def _print_next(*commands: tuple[str, str]) -> None:
    """Print what to type next, each command with its purpose."""
    width = max(len(command) for command, _ in commands)
    _print("Next:")
    for command, purpose in commands:
        _print(f"  {command:{width}}  # {purpose}")


def _print(line: str) -> None:
    click.echo(line, err=True)


# ---- race


def _race(parallel: int | None, store: Path, showing: RunOutput) -> int:
    # Only here: the suite needs nothing of it.
    from paraval.cli.progress.race_showing import (  # noqa: PLC0415 - see above
        exit_code_after,
        race_and_show,
    )
    from paraval.racing.file.race_file import load_race  # noqa: PLC0415
    from paraval.racing.file.short_forms import FlagValue  # noqa: PLC0415
    from paraval.racing.run import run_race_stoppably  # noqa: PLC0415

    _check_tools()
    folder = _copy_of_race(store)
    _print(
        "Eight changes to a slow function: tested in parallel, then timed one at a time.\n"
        f"They are in {os.path.relpath(folder)}.\n"
    )
    flags = []
    if parallel is not None:
        flags = [FlagValue(flag="--parallel", steps=("limits", "parallel"), value=parallel)]
    request = load_race(folder / "race.yaml", flags)
    options = Options(store=store)
    report = race_and_show(
        request,
        lambda observer: run_race_stoppably(request, options=options, observer=observer),
        showing,
    )
    code = exit_code_after(report, showing)
    if not report.run.interrupted:
        _print("")
        _print_next((f"{own_name()} race --help", "race changes to your own code"))
    return code


def _check_tools() -> None:
    """RequestError if git or pytest is missing."""
    if shutil.which("git") is None:
        raise RequestError(
            "the demo race needs git, which is not on PATH", hint="install it: https://git-scm.com"
        )
    if importlib.util.find_spec("pytest") is None:
        python = shlex.quote(sys.executable)
        raise RequestError(
            f"the demo race needs pytest, which {sys.executable} does not have",
            hint=f"install it: {python} -m pip install pytest",
        )


def _copy_of_race(store: Path) -> Path:
    """A copy of the race in the store, as a git repository; one per version of its files.

    It stays there: a race that was interrupted needs it to be resumed.
    """
    original = BUNDLED / "race"
    folder = open_store(Options(store=store)).root / "demo" / f"race-{_digest(original)}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as new:
            made = Path(new, "race")
            write_bundled(original, bundled_files(original), made)
            if not folder.is_dir():  # Another process may have been quicker.
                made.rename(folder)
    except OSError as error:
        raise RequestError(f"cannot copy the demo race to {folder}: {error}") from error
    return folder


def _digest(folder: Path) -> str:
    """A short name for the contents of a folder."""
    digest = hashlib.sha256()
    for file in bundled_files(folder):
        digest.update(f"{file}\0".encode() + (folder / file).read_bytes())
    return digest.hexdigest()[:8]
