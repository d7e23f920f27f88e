"""`paraval badge`: the latest figures of a suite, in a text's front matter or a JSON file.

This module picks a complete run in which something was judged; `report.badge` words it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

from paraval.cli.commands.report import chosen
from paraval.cli.error_messages import talk
from paraval.cli.options import store_option
from paraval.cli.suites import suite_of
from paraval.dataclass import dataclass
from paraval.errors import RequestError, why
from paraval.records import RunInfo
from paraval.report.badge import BadgeFigures, is_badge, shields_json, with_front_matter
from paraval.report.contents import Choice, choice_text
from paraval.report.files import check_place, write_whole
from paraval.report.history.history import Completeness, EarlierRuns, HistoryEntry, standing_of
from paraval.runner.run import open_store
from paraval.runner.stored_runs import StoredRun, chosen_variants, runs_of_suites
from paraval.settings import Options
from paraval.store.store import Store
from paraval.text.terminal import one_line
from paraval.text.words import counted

MOST_BYTES = 4_000_000
_PROSE = frozenset((".md", ".markdown", ".mdx", ".txt", ".prompt", ".prompty"))
"""Suffixes of texts that may have front matter."""
EXIT_WOULD_CHANGE = 1
_MOST_LOOKED_AT = 50
"""How many runs to try, newest first; each that is skipped is reported."""


@click.command("badge")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--suite", metavar="SUITE", help="The suite: its file or its name. [default: the only one]"
)
@click.option(
    "--run", "run", metavar="RUN", help="Use this run instead of the newest complete one."
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="AXIS=VALUE",
    help="Only trials with this value.",
)
@click.option(
    "--check", is_flag=True, help="Change nothing; exit with 1 if something would change."
)
@store_option
def badge_command(
    file: Path,
    suite: str | None,
    run: str | None,
    variants: tuple[str, ...],
    store: Path,
    *,
    check: bool,
) -> int:
    """Write a suite's latest pass rate into a FILE.

    FILE is a text (a prompt in Markdown), whose front matter gets the keys `pass_rate` and
    `last_tested`, or a .json file for shields.io, which is replaced. Only complete runs count, and
    errors are not counted as failures.
    """
    if suite is not None and run is not None:
        raise RequestError("--suite and --run cannot be combined")
    opened = open_store(Options(store=store))
    picking = Picking(store=opened, choice=chosen(variants))
    before = _read(file)
    figures = picking.of_run(run) if run is not None else picking.newest_of(suite_of(opened, suite))
    if file.suffix.lower() == ".json":
        after = shields_json(figures)
    else:
        after = with_front_matter(before or "", figures, str(file))
    _tell_variants(figures)
    if after == before:
        talk(f"{file} has the figures of run {figures.run.id} already: {figures.message}")
        return 0
    if check:
        talk(f"{file} would change: {figures.message}, run {figures.run.id}")
        return EXIT_WOULD_CHANGE
    write_whole(file, after.encode())
    cases = counted(figures.summary.cases, "case")
    talk(f"{file}: {figures.message}, {cases}, run {figures.run.id}")
    return 0


def _tell_variants(figures: BadgeFigures) -> None:
    number = len(figures.summary.variants)
    if number > 1:
        talk(f"note: the figures are over {number:,} variants; --variant AXIS=VALUE chooses one")


# ---- the file


def _read(file: Path) -> str | None:
    """None if there is none yet, which is fine only for .json."""
    check_place(file)
    is_json = file.suffix.lower() == ".json"
    if not is_json and file.suffix.lower() not in _PROSE:
        raise RequestError(f"{file} is neither a text with front matter nor a .json file")
    if not file.exists():
        if is_json:
            return None
        raise RequestError(f"there is no file {file}", hint="only .json files are created")
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
            f"{file} already exists and is not a badge", hint="name another file, or remove it"
        )
    return text


# ---- the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Picking:
    """Picks usable runs, and reports why others are skipped."""

    store: Store
    choice: Choice

    def newest_of(self, suite: str) -> BadgeFigures:
        for run in islice(self._runs(suite), _MOST_LOOKED_AT):
            try:
                return self._figures(run)
            except PassedOverError as error:
                talk(f"note: run {run.id} is skipped: {error.why}")
        raise RequestError(
            f"there is no complete run of suite '{one_line(suite, 60)}' to use",
            hint="run it to its end: paraval run SUITE, or paraval resume; for a run over selected"
            " variants, add --variant AXIS=VALUE",
        )

    def of_run(self, name: str) -> BadgeFigures:
        run = next(runs_of_suites(self.store, [self.store.find(name)]), None)
        if run is None:
            raise RequestError(f"run {name} is a race, and has no pass rate")
        try:
            return self._figures(run, any_extent=True)
        except PassedOverError as error:
            raise RequestError(f"run {run.id} cannot be used: {error.why}") from None

    def _runs(self, suite: str) -> Iterator[RunInfo]:
        """Newest first."""
        of_suite = (run for run in self.store.runs() if run.suite == suite)
        return runs_of_suites(self.store, of_suite)

    def _figures(self, run: RunInfo, *, any_extent: bool = False) -> BadgeFigures:
        standing = standing_of(run)
        if standing is not Completeness.COMPLETE:
            how = standing.value.replace("_", " ")
            raise PassedOverError(f"it is not complete ({how})")
        entry = self._read(run)
        if not entry.has_verdicts:
            errors = counted(entry.summary.errors, "error")
            raise PassedOverError(f"nothing was judged ({errors}), which is not a pass rate of 0")
        partial = self._extent(entry)
        if partial is not None and not any_extent:
            raise PassedOverError(f"it covers only {partial}")
        if partial is not None:
            talk(f"note: run {run.id} covers only {partial}")
        return BadgeFigures(run=run, summary=entry.summary, choice=self.choice)

    def _extent(self, entry: HistoryEntry) -> str | None:
        """None: it covers the whole suite, or all of what was selected."""
        whole = entry.suite_cases
        if whole is not None and entry.cases < whole:
            return f"{entry.cases:,} of {counted(whole, 'case')}"
        chosen = chosen_variants(self.store, entry.run, self.choice)
        return f"the selected variants ({chosen})" if chosen else None

    def _read(self, run: RunInfo) -> HistoryEntry:
        past = EarlierRuns(choice=self.choice, tells_shifts=False)
        entry = next(past.entries([StoredRun(self.store, run)]), None)
        if entry is not None:
            return entry
        if run.id in past.unreadable:
            raise PassedOverError(past.unreadable[run.id])
        raise PassedOverError(f"it has no trial with {choice_text(self.choice)}")


class PassedOverError(Exception):
    """A run that cannot be used."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
