"""A run in memory, in the few figures that lists show: read once, then only what changed.

Texts stay on disk: those of the cases on the screen are read when they are shown.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.records import Outcome, RunInfo, Variant
from paraval.report.page.trials import kind_of
from paraval.report.transcript import main_text
from paraval.runner.live import LIVE_FILE, read_live
from paraval.store.connection import RUN_FILE, explaining
from paraval.store.locks import is_worked_on
from paraval.store.reader import AttemptBrief, RunReader, TrialEntry
from paraval.text.terminal import one_line

RUNNING, WAITING = "running", "wait"
KINDS = ("wrong", "error", "pass", "skip", RUNNING, WAITING)
"""Of trials; the first four are CSS classes of the report page too."""
UNPASSED = ("wrong", "error")
_SETTLED_S = 1.0
"""A file that was written more recently may change again without a new time of change."""
_MOST_SAMPLES = 120
_SAMPLE_S = 2.0
_LONGEST_SNIPPET = 120


@dataclass(slots=True)
class TrialState:
    entry: TrialEntry
    kind: str = WAITING
    outcome: Outcome | None = None
    attempts: int = 0
    started_at: float = 0.0
    """Of its last attempt."""
    seconds: float = 0.0
    usd: float | None = None
    failed_by: tuple[str, ...] = ()
    why: str = ""

    @property
    def index(self) -> int:
        return self.entry.trial


@dataclass(slots=True)
class CaseState:
    number: int
    id: str
    tags: tuple[str, ...]
    trials: list[TrialState] = field(default_factory=list)
    version: int = 0
    """Changes whenever one of its trials does."""

    @property
    def unpassed(self) -> int:
        return sum(trial.kind in UNPASSED for trial in self.trials)

    @property
    def seconds(self) -> float:
        return max((trial.seconds for trial in self.trials), default=0.0)

    @property
    def usd(self) -> float:
        return sum(trial.usd or 0.0 for trial in self.trials)


class OutcomeTally:
    """Trials counted by kind, and the pass rate as the report has it: averaged by case."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.usd: float | None = None
        self.is_partly_unknown = False
        """Some of the cost is unknown."""
        self._shares = 0.0
        self._cells = 0

    def change_share(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        """Passed and judged trials of one case with one variant, before and after a change."""
        for sign, (passed, judged) in ((-1, before), (1, after)):
            if judged:
                self._shares += sign * passed / judged
                self._cells += sign

    @property
    def rate(self) -> float | None:
        return min(1.0, max(0.0, self._shares / self._cells)) if self._cells else None

    @property
    def trials(self) -> int:
        return self.kinds.total()

    @property
    def done(self) -> int:
        return self.trials - self.kinds[RUNNING] - self.kinds[WAITING]


class RunState:
    """One run, refreshed on demand. Not for several threads at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        self._stamp: object = None
        self.worked_on = False
        self.live: Mapping[str, Any] = {}
        self._clear()

    def _clear(self) -> None:
        self.info: RunInfo | None = None
        self.variants: list[Variant] = []
        self.cases: list[CaseState] = []
        self.trials: list[TrialState] = []
        self.whole = OutcomeTally()
        self.by_variant: defaultdict[int, OutcomeTally] = defaultdict(OutcomeTally)
        self.graders: Counter[str] = Counter()
        self.samples: list[tuple[float, int]] = []
        """Time and number of running attempts."""
        self._cells: dict[tuple[int, int], tuple[int, int]] = {}
        self._unended: dict[int, int] = {}
        """Row of each attempt that has not ended -> its trial."""
        self._row = 0
        self._session = 0
        self._snippets: dict[int, str] = {}
        self.rows: dict[tuple[int, str], tuple[int, Markup]] = {}
        """Rendered rows with their versions, by number of the case and query of the page."""

    @property
    def running(self) -> list[TrialState]:
        return [self.trials[index] for index in self._unended.values()]

    def refresh(self) -> bool:
        """Read what changed; whether something did."""
        stamp, is_settled = self._look()
        if stamp == self._stamp and is_settled:
            return False
        self._stamp = stamp
        worked_on = is_worked_on(self.folder)
        has_ended, self.worked_on = self.worked_on and not worked_on, worked_on
        self.live = read_live(self.folder) or {}
        # A stranger's run may hold anything.
        with RunReader(self.folder) as reader, explaining(self.folder / RUN_FILE):
            if has_ended:
                # What its engine rewrote at the end is read again, with everything else.
                self._clear()
            self._read(reader)
        return True

    def _look(self) -> tuple[object, bool]:
        """A value that changes with the run's files, and whether they were left alone since."""
        marks: list[tuple[int, int] | None] = []
        latest = 0.0
        for name in (RUN_FILE, f"{RUN_FILE}-wal", LIVE_FILE):
            try:
                status = (self.folder / name).stat()
            except OSError:
                marks.append(None)
                continue
            marks.append((status.st_size, status.st_mtime_ns))
            latest = max(latest, status.st_mtime)
        return (marks, is_worked_on(self.folder)), time.time() - latest > _SETTLED_S

    def _read(self, reader: RunReader) -> None:
        changes = reader.changes_since(
            trials=len(self.trials), row=self._row, unended=self._unended.keys()
        )
        known = {one.row for one in changes.attempts if self._unended.get(one.row) == one.trial}
        if changes.session != self._session or len(known) < len(self._unended):
            # Another engine took over, perhaps with another plan; or attempts whose start was
            # recorded ahead did not start, and others may have their rows.
            self._clear()
            self._session = changes.session
            changes = reader.changes_since(trials=0, row=0, unended=())
            known.clear()
        if changes.trials:
            # `done` and the like are of this moment: the figures here are counted.
            self.info = reader.info()
            self.variants = reader.variants()
            names = reader.case_names()
            for number in range(len(self.cases), len(names)):
                self.cases.append(CaseState(number, *names[number]))
            for entry in changes.trials:
                self._add(entry)
        for brief in changes.attempts:
            if brief.outcome is not None or brief.row not in known:
                self._apply(brief)
        if changes.trials:
            self.samples = self._past_samples()
        now = time.time()
        if not self.samples or now - self.samples[-1][0] > _SAMPLE_S:
            self.samples.append((now, self.whole.kinds[RUNNING]))
        if len(self.samples) > _MOST_SAMPLES:
            self.samples = [*self.samples[:-1:2], self.samples[-1]]

    def _add(self, entry: TrialEntry) -> None:
        trial = TrialState(entry)
        self.trials.append(trial)
        self.cases[entry.case].trials.append(trial)
        for tally in (self.whole, self.by_variant[entry.variant]):
            tally.kinds[WAITING] += 1

    def _apply(self, brief: AttemptBrief) -> None:
        trial = self.trials[brief.trial]
        self._row = max(self._row, brief.row)
        is_open = brief.outcome is None and self.worked_on and brief.session == self._session
        if brief.decides and not brief.number:
            # Canceled: the end of its attempt is not recorded.
            for row in [row for row, index in self._unended.items() if index == brief.trial]:
                del self._unended[row]
        if is_open:
            self._unended[brief.row] = brief.trial
        else:
            self._unended.pop(brief.row, None)
        trial.attempts = max(trial.attempts, brief.number)
        trial.started_at = max(trial.started_at, brief.started_at)
        if brief.outcome is not None:
            trial.seconds += brief.duration_s
            self._add_cost(trial, brief)
        is_postponed = not brief.number and (brief.session == self._session or not self.worked_on)
        if brief.decides or is_postponed:
            trial.outcome, trial.why = brief.outcome, brief.why
            trial.failed_by = brief.failed_by
            self.graders.update(brief.failed_by)
            self._change_kind(trial, kind_of(brief.outcome))
        elif trial.outcome is None:
            self._change_kind(trial, RUNNING if is_open else WAITING)
        self.cases[trial.entry.case].version += 1

    def _add_cost(self, trial: TrialState, brief: AttemptBrief) -> None:
        for one in (trial, self.whole, self.by_variant[trial.entry.variant]):
            if brief.usd is not None:
                one.usd = (one.usd or 0.0) + brief.usd
        for tally in (self.whole, self.by_variant[trial.entry.variant]):
            tally.is_partly_unknown = tally.is_partly_unknown or brief.is_partly_unknown

    def _change_kind(self, trial: TrialState, kind: str) -> None:
        cell = (trial.entry.case, trial.entry.variant)
        passed, judged = before = self._cells.get(cell, (0, 0))
        for sign, one in ((-1, trial.kind), (1, kind)):
            passed += sign * (one == "pass")
            judged += sign * (one in ("pass", "wrong"))
        after = self._cells[cell] = (passed, judged)
        for tally in (self.whole, self.by_variant[trial.entry.variant]):
            tally.kinds[trial.kind] -= 1
            tally.kinds[kind] += 1
            tally.change_share(before, after)
        trial.kind = kind

    def _past_samples(self) -> list[tuple[float, int]]:
        """How many attempts ran, from the times of those that are known."""
        began = [trial for trial in self.trials if trial.started_at]
        steps = Counter[float]()
        for trial in began:
            steps[trial.started_at] += 1
            if trial.kind != RUNNING:
                steps[trial.started_at + max(trial.seconds, 1e-3)] -= 1
        running, samples = 0, []
        for at in sorted(steps):
            running += steps[at]
            samples.append((at, running))
        # The largest of each stretch, so that no peak is lost.
        each = max(1, -(-len(samples) // (_MOST_SAMPLES // 2)))
        return [
            max(samples[start : start + each], key=lambda sample: sample[1])
            for start in range(0, len(samples), each)
        ]

    def cases_with(self, text: str) -> set[int]:
        with RunReader(self.folder) as reader:
            return reader.cases_with(text)

    def snippets(self, cases: Iterable[CaseState]) -> Mapping[int, str]:
        """The beginning of the inputs of these cases, by number; others may be there too."""
        missing = [case.number for case in cases if case.number not in self._snippets]
        if missing:
            with RunReader(self.folder) as reader:
                for number, case in reader.cases_at(missing).items():
                    self._snippets[number] = _snippet(case.input)
        return self._snippets


def _snippet(given: Any) -> str:
    text = "" if given is None else main_text(given)
    return one_line(text[: 2 * _LONGEST_SNIPPET], _LONGEST_SNIPPET)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """Which cases are listed, in which order, as the address of the page has it."""

    outcome: str = ""
    tag: str = ""
    grader: str = ""
    text: str = ""
    sort: str = ""
    page: int = 1

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> CaseFilter:
        """Unknown values are ignored: an address may be old, or typed."""
        outcome, sort, page = (query.get(name, "") for name in ("outcome", "sort", "page"))
        return cls(
            outcome=outcome if outcome in (*KINDS, "unpassed") else "",
            tag=query.get("tag", ""),
            grader=query.get("grader", ""),
            text=query.get("q", "").strip()[:200],
            sort=sort if sort in SORTS else "",
            page=max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
        )

    def query(self, **changed: Any) -> dict[str, str]:
        """As the query of an address, without what is the default."""
        told = {
            "outcome": self.outcome,
            "tag": self.tag,
            "grader": self.grader,
            "q": self.text,
            "sort": self.sort,
            "page": self.page if self.page > 1 else "",
        }
        return {name: str(value) for name, value in (told | changed).items() if value}

    def select(self, state: RunState, with_text: set[int] | None) -> list[CaseState]:
        """The cases that match. `with_text`: those that have the text; None: not asked for."""
        if not (self.query(page="", sort="") or self.sort):
            return state.cases
        found = [
            case
            for case in state.cases
            if (with_text is None or case.number in with_text)
            and (not self.tag or self.tag in case.tags)
            and self._has_trial(case)
        ]
        key = SORTS.get(self.sort)
        return found if key is None else sorted(found, key=key[1], reverse=True)

    def _has_trial(self, case: CaseState) -> bool:
        if not (self.outcome or self.grader):
            return True
        kinds = (
            UNPASSED if self.outcome == "unpassed" else (self.outcome,) if self.outcome else KINDS
        )
        return any(
            trial.kind in kinds and (not self.grader or self.grader in trial.failed_by)
            for trial in case.trials
        )


SORTS = {
    "slowest": ("slowest first", lambda case: case.seconds),
    "costliest": ("costliest first", lambda case: case.usd),
    "failures": ("most failures first", lambda case: case.unpassed),
}
"""Name in an address -> name on the page, and what to sort by."""


def neighbors(cases: list[CaseState], number: int) -> Iterator[tuple[str, int]]:
    """The listed cases before and after one, and those of them that have a trial that did not
    pass."""
    places = [place for place, case in enumerate(cases) if case.number == number]
    if not places:
        return
    before, after = cases[: places[0]][::-1], cases[places[0] + 1 :]
    for label, side in (("previous", before), ("next", after)):
        unpassed = next((case for case in side if case.unpassed), None)
        if side:
            yield label, side[0].number
        if unpassed is not None:
            yield f"{label} that did not pass", unpassed.number
