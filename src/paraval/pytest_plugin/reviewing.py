"""What is said of a recorded session at its end: where it is, what is flaky, what the gate says."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paraval.errors import ParavalError
from paraval.pytest_plugin.flaky import Flaky, flaky_tests
from paraval.pytest_plugin.journal import Journal
from paraval.pytest_plugin.store_hints import for_tests
from paraval.records import RunInfo
from paraval.report.document import Report
from paraval.report.gate import Gate, Verdict
from paraval.report.wording import counted
from paraval.settings import default_store
from paraval.store.store import Store

MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A session, looked back at."""

    run: RunInfo
    flaky: tuple[Flaky, ...] = ()
    gate: Gate | None = None
    """None: nobody asked for a rate, or nothing can be told."""
    failure: ParavalError | None = None
    """What went wrong with the store."""

    @property
    def is_good_enough(self) -> bool:
        return self.gate is not None and self.gate.verdict is Verdict.MET

    def lines(self) -> Iterator[str]:
        yield f"run {self.run.id}: {_how_to_report(self.run)}"
        yield from map(str, self.flaky[:MOST_NAMED])
        if (more := len(self.flaky) - MOST_NAMED) > 0:
            yield f"flaky: {counted(more, 'more test')}"
        if self.gate is not None:
            yield self.gate.sentence
        if self.failure is not None:
            yield f"not all is recorded: {for_tests(self.failure)}"


def review_of(store: Store, journal: Journal, fail_under: float | None) -> Review:
    """Of a journal that is closed. What cannot be read is told, and ends no session."""
    flaky: tuple[Flaky, ...] = ()
    gate: Gate | None = None
    failure: ParavalError | None = journal.failure
    try:
        flaky = flaky_tests(store, journal.plan)
        if fail_under is not None and failure is None:
            with store.reader(journal.run) as reader:
                gate = Report(reader).gate
    except ParavalError as error:
        failure = failure or error
    return Review(run=journal.run, flaky=flaky, gate=gate, failure=failure)


def _how_to_report(run: RunInfo) -> str:
    store = Path(run.folder).parent.parent
    if store == default_store().absolute():
        return f"paraval report {run.id}"
    return f"paraval report {run.id} --store {shlex.quote(str(store))}"
