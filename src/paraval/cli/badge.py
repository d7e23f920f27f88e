"""`paraval badge`: the latest figures of a suite, in a text's front matter or a JSON file.

Which run they are of is picked in `badge_runs`; what is written, and how, is the report's.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import click

from paraval.cli.badge_runs import Picking, suite_of
from paraval.cli.complaints import talk
from paraval.cli.history import chosen
from paraval.cli.options import store_option
from paraval.composition import open_store
from paraval.errors import RequestError
from paraval.report.badge_figures import Figures
from paraval.report.badge_front_matter import read_front_matter
from paraval.report.badge_json import SHIELDS_ENDING, badge_json, is_badge
from paraval.report.badge_prompt import Known, has_known_text, known_in, with_figures
from paraval.report.files import check_place, not_written, opened_whole, why
from paraval.report.text import printable
from paraval.report.wording import counted
from paraval.settings import Options

MOST_BYTES = 4_000_000
_PROSE = frozenset((".md", ".markdown", ".mdx", ".txt", ".prompt", ".prompty"))
"""Endings of files that may get front matter where they have none."""
EXIT_WOULD_CHANGE = 1


@click.command("badge")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--suite", metavar="SUITE", help="Of this suite: its file, or its name. [default: the only one]"
)
@click.option(
    "--run", "run", metavar="RUN", help="Of this run, instead of the newest complete one."
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="AXIS=VALUE",
    help="Only trials with this value.",
)
@click.option(
    "--dry-run", is_flag=True, help="Print what would change, as a diff, and change nothing."
)
@click.option(
    "--check", is_flag=True, help="Change nothing; end with 1 where something would change."
)
@store_option
def badge_command(  # noqa: PLR0913 - an argument for each option
    file: Path,
    suite: str | None,
    run: str | None,
    variants: tuple[str, ...],
    store: Path,
    *,
    dry_run: bool,
    check: bool,
) -> int:
    """Write the latest figures of a suite into a FILE.

    Into the front matter of a text (a prompt in Markdown), or a whole .json file, also for
    shields.io (.shields.json). Complete runs alone count, and errors are no wrong answers.
    """
    if suite is not None and run is not None:
        raise RequestError("--suite and --run cannot go together")
    opened = open_store(Options(store=store))
    picking = Picking(store=opened, choice=chosen(variants))
    before = _read(file)
    figures = picking.of_run(run) if run is not None else picking.newest_of(suite_of(opened, suite))
    after = _text_with(file, before, figures, picking, only=run is not None)
    _tell_variants(figures)
    if after == before:
        talk(f"{file} has the figures of run {figures.run.id} already: {figures.message}")
        return 0
    if dry_run:
        _print_diff(file, before or "", after)
    if dry_run or check:
        talk(f"{file} would change: {figures.message}, run {figures.run.id}")
        return EXIT_WOULD_CHANGE if check else 0
    _write(file, after)
    cases = counted(figures.summary.cases, "case")
    talk(f"{file}: {figures.message}, {cases}, run {figures.run.id}")
    return 0


def _tell_variants(figures: Figures) -> None:
    number = len(figures.summary.variants)
    if number > 1:
        talk(f"note: the figures are over {number:,} variants; --variant AXIS=VALUE chooses one")


# ---- the file


def _text_with(
    file: Path, before: str | None, figures: Figures, picking: Picking, *, only: bool
) -> str:
    """`only`: the run was asked for by its name, and those before it were not."""
    name = file.name.lower()
    if name.endswith(".json"):
        return badge_json(figures, for_shields=name.endswith(SHIELDS_ENDING))
    assert before is not None, "only .json files are made"
    front = read_front_matter(before, str(file))
    if not front.is_there and file.suffix.lower() not in _PROSE:
        raise RequestError(
            f"{file} has no front matter, and may be no text that takes one",
            hint="begin it with two lines of ---, or write a .json file",
        )
    known = known_in(front)
    is_known = has_known_text(front, known)
    if is_known and known.test_run == figures.run.id:
        new_runs: list[Figures] = []
    elif only:
        new_runs = [figures]
    else:
        # What a function or a program read is in no part of a suite: the file's time tells.
        written_at = 0.0 if is_known else file.stat().st_mtime
        new_runs = picking.since(figures, known.test_run, written_at=written_at)
    text = with_figures(front, figures, new_runs)
    if not is_known:
        _tell_of_the_text(file, known, figures)
    return text


def _tell_of_the_text(file: Path, known: Known, figures: Figures) -> None:
    """Where the runs begin anew."""
    if known.prompt_hash is None and known.test_runs:
        talk(
            f"note: {file} has no prompt_hash, which would tell of what text its test_runs are:"
            " its test_runs begin anew"
        )
    if file.stat().st_mtime > figures.run.started_at:
        talk(
            f"note: {file} was written after run {figures.run.id} began: see to it that the run"
            " was of this text"
        )


def _read(file: Path) -> str | None:
    """None where there is none yet, which is fine for .json alone."""
    check_place(file)
    is_json = file.suffix.lower() == ".json"
    if not file.exists():
        if is_json:
            return None
        raise RequestError(f"there is no file {file}", hint="only .json files are made")
    if file.stat().st_size > MOST_BYTES:
        raise RequestError(f"{file} is larger than {MOST_BYTES // 1_000_000} MB: no prompt is")
    try:
        text = file.read_bytes().decode()
    except UnicodeDecodeError:
        raise RequestError(f"{file} is not UTF-8", hint="nothing was changed") from None
    except OSError as error:
        raise RequestError(f"cannot read {file}: {why(error)}") from error
    if is_json and text.strip() and not is_badge(text):
        raise RequestError(
            f"{file} is there already, and no badge", hint="name another file, or remove it"
        )
    return text


def _write(file: Path, text: str) -> None:
    try:
        with opened_whole(file, "xb") as beside:
            beside.write(text.encode())
    except OSError as error:
        raise not_written(file, error) from error


def _print_diff(file: Path, before: str, after: str) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(file), str(file), lineterm=""
    )
    if sys.stdout is not None:
        sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
        sys.stdout.flush()
