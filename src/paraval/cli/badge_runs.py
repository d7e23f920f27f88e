"""Which run a badge tells of: a complete one in which something was judged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from paraval.cli.complaints import talk
from paraval.cli.suite_names import named_suites, suite_named
from paraval.errors import RequestError
from paraval.past import StoredRun, chosen_variants, order, runs_of_suites
from paraval.records import RunInfo
from paraval.report.badge_figures import Figures
from paraval.report.badge_prompt import MOST_RUNS
from paraval.report.history.gathering import Past
from paraval.report.history.records import Entry, Standing, standing_of
from paraval.report.part import Choice, choice_text
from paraval.report.text import one_line
from paraval.report.wording import counted
from paraval.store.store import Store

_MOST_LOOKED_AT = 50
"""Runs from the newest on; each that will not do is said."""


def suite_of(store: Store, asked: str | None) -> str:
    """The one that is asked for, or the only one; races are none."""
    runs = store.runs()
    if asked is not None:
        return suite_named(asked, runs, store)
    names = list(dict.fromkeys(run.suite for run in runs_of_suites(store, _one_of_each(runs))))
    if len(names) == 1:
        return names[0]
    if not names:
        raise RequestError(f"the store {store.root} has no run of a suite yet")
    raise RequestError(
        f"the store {store.root} has runs of several suites: {named_suites(names)}",
        hint="choose one with --suite",
    )


def _one_of_each(runs: list[RunInfo]) -> list[RunInfo]:
    """The newest run of each name: to tell races apart, each run would have to be opened."""
    return list({run.suite: run for run in reversed(runs)}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Picking:
    """Picks runs that may be told, and says why others may not."""

    store: Store
    choice: Choice

    def newest_of(self, suite: str) -> Figures:
        for run in islice(self._runs(suite), _MOST_LOOKED_AT):
            try:
                return self._figures(run)
            except PassedOverError as error:
                talk(f"note: run {run.id} is passed over: {error.why}")
        raise RequestError(
            f"there is no complete run of suite '{one_line(suite, 60)}' to tell of",
            hint="run it to its end: paraval run SUITE, or paraval resume; of a run over chosen"
            " variants, --variant AXIS=VALUE tells",
        )

    def of_run(self, name: str) -> Figures:
        run = next(runs_of_suites(self.store, [self.store.find(name)]), None)
        if run is None:
            raise RequestError(f"run {name} is a race, and has no pass rate")
        try:
            return self._figures(run, any_extent=True)
        except PassedOverError as error:
            raise RequestError(f"run {run.id} cannot be told of: {error.why}") from None

    def since(
        self, figures: Figures, last: str | None, *, written_at: float = 0.0
    ) -> list[Figures]:
        """Runs of the same prompt and cases after the last that is known, up to this one; the
        oldest first, and no more than are kept. None began before the text was written."""
        found = [figures]
        alike = _made_of(figures.run)
        # Ids tell which run came first to the second; the store knows better, if it has the run.
        is_here = any(run.id == last for run in self.store.runs())
        for run in self._runs(figures.run.suite):
            is_known = run.id == last or (last is not None and not is_here and run.id <= last)
            if len(found) == MOST_RUNS or is_known or alike is None:
                break
            if order(run) < order(figures.run):
                if _made_of(run) != alike or run.started_at < written_at:
                    break
                with contextlib.suppress(PassedOverError):
                    found.insert(0, self._figures(run))
        return found

    def _runs(self, suite: str) -> Iterator[RunInfo]:
        """Newest first."""
        of_suite = (run for run in self.store.runs() if run.suite == suite)
        return runs_of_suites(self.store, of_suite)

    def _figures(self, run: RunInfo, *, any_extent: bool = False) -> Figures:
        standing = standing_of(run)
        if standing is not Standing.COMPLETE:
            how = standing.value.replace("_", " ")
            raise PassedOverError(f"it is not complete ({how})")
        entry = self._read(run)
        if not entry.has_verdicts:
            errors = counted(entry.summary.errors, "error")
            raise PassedOverError(f"nothing was judged ({errors}), which is no pass rate of 0")
        partial = self._extent(entry)
        if partial is not None and not any_extent:
            raise PassedOverError(f"it is of {partial}")
        if partial is not None:
            talk(f"note: run {run.id} is of {partial}")
        return Figures(run=run, summary=entry.summary, choice=self.choice)

    def _extent(self, entry: Entry) -> str | None:
        """None: it is over all of the suite, or of what was chosen of it."""
        whole = entry.suite_cases
        if whole is not None and entry.cases < whole:
            return f"{entry.cases:,} of {counted(whole, 'case')} alone"
        chosen = chosen_variants(self.store, entry.run, self.choice)
        return f"chosen variants alone ({chosen})" if chosen else None

    def _read(self, run: RunInfo) -> Entry:
        past = Past(choice=self.choice, tells_shifts=False)
        entry = next(past.entries([StoredRun(self.store, run)]), None)
        if entry is not None:
            return entry
        if run.id in past.unreadable:
            raise PassedOverError(past.unreadable[run.id])
        raise PassedOverError(f"it has no trial with {choice_text(self.choice)}")


class PassedOverError(Exception):
    """A run that may not be told."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def _made_of(run: RunInfo) -> tuple[str, str] | None:
    """What must be the same for runs to be of one version; None where nobody noted it."""
    prompt, cases = run.parts.get("prompt"), run.parts.get("cases")
    return None if prompt is None or cases is None else (prompt, cases)
