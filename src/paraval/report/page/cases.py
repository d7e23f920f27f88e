"""The cases of a page: a column for each variant, with the words that differ marked; and all cases
of a run, written one by one within the page's size limit.

The page and the viewer show the same columns. The viewer calls `side_by_side`; the page fills
`CaseColumns` trial by trial: only one is in memory at a time.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import groupby
from typing import TextIO

from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.records import PATCH, AttemptRecord, Case, Exchange, Outcome, RunInfo, TrialResult
from paraval.report.compare.case_results import CaseBook, Cell, variant_key
from paraval.report.contents import Contents
from paraval.report.page import trials as trial
from paraval.report.page.plots import case_anchor
from paraval.report.page.rendering import rendered
from paraval.report.reasons import without_text
from paraval.report.summary.attempt_lines import step_lines
from paraval.report.summary.figures import WITHOUT_MATRIX
from paraval.report.transcript import Conversation, Turn, conversations_of, main_text, stop_reason
from paraval.text.terminal import one_line
from paraval.text.words import counted, listed, variant_label

LONGEST_NAME = 200
_MOST_TURNS = 60
_LONGEST_TURN = 10_000
_LONG_ENOUGH = 300
"""Texts from this length on are not shown a second time."""
_LONGER_THAN_EXPECTED = 2
"""An answer with more than this many times the words of the expected text does not repeat it."""


def trial_anchor(index: int) -> str:
    return f"trial-{index}"


def show_command(result: TrialResult, run: RunInfo) -> str:
    """What shows the whole case on a terminal."""
    return f"paraval show {run.id} --case {shlex.quote(one_line(result.case_id, LONGEST_NAME))}"


# ---- the columns of a case


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTrial:
    """A repeat in one line, and what unfolds below it, unless there is no room for it."""

    kind: str
    outcome: str
    repeat: int
    figures: str
    why: str
    anchor: str
    body: Markup | None


@dataclass(slots=True, kw_only=True)
class VariantColumn:
    """The repeats of a case with one variant."""

    label: str
    trials: list[ColumnTrial] = field(default_factory=list)

    @property
    def opened(self) -> int:
        """The first repeat that failed, else with an error, else the first."""
        kinds = [one.kind for one in self.trials]
        return next((kinds.index(kind) for kind in ("wrong", "error") if kind in kinds), 0)

    @property
    def tally(self) -> str:
        """`2 of 3 passed`; empty for a single trial."""
        passed = sum(one.kind == "pass" for one in self.trials)
        return f"{passed} of {len(self.trials)} passed" if len(self.trials) > 1 else ""


class CaseColumns:
    """The trials of one case, collected by variant as they arrive."""

    def __init__(self, case: Case | None, *, linked: bool = True) -> None:
        """`linked`: whether its trials have anchors."""
        self._linked = linked
        self._expect = case.expect if case is not None and isinstance(case.expect, str) else None
        self._columns: dict[str, VariantColumn] = {}
        self._reference, self._reference_name, self._marked_against = "", "", ""
        self._requests: dict[object, str] = {}
        self._texts: dict[str, str] = {}

    def asked(self, result: TrialResult, exchanges: Iterable[Exchange]) -> Markup:
        """What was asked and an agent's transcript, folded, each request once; for `body`."""
        talks = list(self._talks(conversations_of(exchanges, result.result), _column_of(result)))
        return rendered("asked_of_model.html", talks=talks) if talks else Markup()

    def body(
        self,
        result: TrialResult,
        run: RunInfo,
        attempts: Iterable[AttemptRecord] = (),
        asked: Markup | str = "",
        below: Markup | None = None,
    ) -> Markup:
        """What unfolds below a trial's line. Reads its files."""
        output = result.result.output
        shown = trial.excerpt("" if output is None else output.text or without_text(result.result))
        marks, note = self._marked(result, shown.text) if output and output.text else ((), "")
        return rendered(
            "trial.html",
            result=result,
            attempts=list(attempts),
            answer=shown,
            marks=marks,
            note=note,
            stop=stop_reason(result.result),
            steps=list(step_lines(result.result)),
            asked=asked,
            below=below,
            folder=run.folder,
            all_of_it=f"paraval logs {run.id} --trial {result.index}",
            of=trial,
        )

    def add(self, result: TrialResult, body: Markup | None, *, is_linked: bool = True) -> None:
        column = VariantColumn(label=_column_of(result))
        one = ColumnTrial(
            kind=trial.kind_of(result.outcome),
            outcome=trial.outcome_words(result),
            repeat=result.repeat,
            figures=trial.figures(result),
            why=trial.why(result),
            anchor=trial_anchor(result.index) if self._linked and (body or is_linked) else "",
            body=body,
        )
        self._columns.setdefault(variant_key(result.variant), column).trials.append(one)

    @property
    def every(self) -> list[VariantColumn]:
        return list(self._columns.values())

    @property
    def has_bodies(self) -> bool:
        return any(one.body is not None for column in self.every for one in column.trials)

    def html(self) -> Markup:
        columns = self.every
        against = self._marked_against
        return rendered("columns.html", columns=columns, marked_against=against, of=trial)

    def _marked(self, result: TrialResult, text: str) -> tuple[Sequence[trial.DiffPiece], str]:
        if not self._reference_name:
            self._choose_reference(result, text)
        marks = trial.marked_words(text, self._reference)
        if marks is None:
            return (), f"Too long to mark what differs: more than {trial.MOST_WORDS:,} words."
        if marks:
            self._marked_against = self._reference_name
        return marks, ""

    def _choose_reference(self, result: TrialResult, text: str) -> None:
        """The expected text, if answers repeat it; otherwise the first answer."""
        expect = self._expect
        if expect and len(text.split()) <= _LONGER_THAN_EXPECTED * len(expect.split()):
            self._reference, self._reference_name = expect, "the expected text"
        else:
            label = one_line(variant_label(result.variant), 80)
            name = f'the answer in "{label}"' if label else "the first answer"
            self._reference, self._reference_name = text, name

    def _talks(
        self, talks: Iterable[Conversation], column: str
    ) -> Iterator[tuple[Conversation, str]]:
        """Each as far as a page shows it, and where its request is shown already, or empty."""
        for talk in talks:
            request = (talk.by, talk.sent, talk.tools)
            is_new = request not in self._requests
            same_as = self._requests.setdefault(request, column)
            if not is_new and same_as == column and not talk.transcript:
                # A repeat asks the same.
                continue
            sent = self._turns(talk.sent, column) if is_new else ()
            shown = replace(talk, sent=sent, transcript=self._turns(talk.transcript, column))
            where = "above" if same_as == column else f'in "{same_as}"'
            yield shown, "" if is_new else where

    def _turns(self, turns: Sequence[Turn], column: str) -> tuple[Turn, ...]:
        shown = [self._turn(turn, column) for turn in turns[:_MOST_TURNS]]
        if len(turns) > _MOST_TURNS:
            shown.append(Turn(role=f"… and {len(turns) - _MOST_TURNS} more", text=""))
        return tuple(shown)

    def _turn(self, turn: Turn, column: str) -> Turn:
        """A long text is there once; later it is only said where."""
        if (before := self._texts.get(turn.text)) is not None:
            name = one_line(turn.note, LONGEST_NAME)
            note = f'{name} the same text as in "{before}"'.lstrip()
            return replace(turn, text="", note=note)
        if len(turn.text) >= _LONG_ENOUGH:
            self._texts[turn.text] = column
        text, left_out = trial.excerpt(turn.text, _LONGEST_TURN)
        more = f"\n… {left_out} (all: paraval show --full)" if left_out else ""
        return replace(turn, text=text + more)


def _column_of(result: TrialResult) -> str:
    return one_line(variant_label(result.variant) or WITHOUT_MATRIX, LONGEST_NAME)


def asked_html(case: Case | None) -> Markup:
    """A case's input and expectation."""
    return rendered("asked.html", case=case, of=trial)


def side_by_side(
    case: Case | None,
    trials: Iterable[TrialResult],
    run: RunInfo,
    *,
    attempts: Callable[[int], Iterable[AttemptRecord]] = lambda _: (),
    exchanges: Callable[[int], Iterable[Exchange]] = lambda _: (),
    below: Callable[[TrialResult], Markup] | None = None,
) -> Markup:
    """A case's input and expectation, then a column for each variant, as markup of our own.

    `trials`: all of the case, in plan order. `attempts`: those of a trial by its index, shown if
    there are several. `exchanges`: those of a trial by its index, as `RunReader.exchanges` reads
    them. `below`: markup to add to a trial, such as the viewer's buttons.
    """
    columns = CaseColumns(case)
    for result in trials:
        more = None if below is None else below(result)
        asked = columns.asked(result, exchanges(result.index))
        columns.add(result, columns.body(result, run, attempts(result.index), asked, more))
    return Markup("{}{}").format(asked_html(case), columns.html())


# ---- filters over cases; the style sheet does the filtering

FILTERS = {
    "wrong": "with failures",
    "error": "with errors",
    "skip": "with skipped trials",
    "flaky": "flaky",
    "pass": "all passed",
}
"""A CSS class of a case's section -> the filter's name."""


def filters_of(book: CaseBook) -> list[tuple[str, str, int]]:
    """All cases, plus every filter that would show some cases but not all: class, name, number."""
    numbers = Counter(kind for _, cells in book.rows() for kind in _shown_by(cells.values()))
    some = [(kind, name, numbers[kind]) for kind, name in FILTERS.items()]
    return [("all", "all", len(book)), *(one for one in some if 0 < one[2] < len(book))]


def _shown_by(cells: Iterable[Cell]) -> list[str]:
    """The filters that show a case with these cells."""
    known = list(cells)
    found = {
        "wrong": any(cell.failed for cell in known),
        "error": any(cell.errors for cell in known),
        "skip": any(cell.skipped for cell in known),
    }
    found["pass"] = not any(found.values())
    found["flaky"] = any(cell.is_flaky for cell in known)
    return [kind for kind, is_so in found.items() if is_so]


# ---- all cases of a run

LARGEST_PAGE = 4_000_000
"""Characters."""
_A_LINE = 200
"""What is kept for a trial in one line ..."""
_AN_UNPASSED_TRIAL = 3_000
"""... and for one that did not pass, so that it can be shown in full."""
_AROUND_A_TRIAL = 1_500


class CaseWriter:
    """Writes cases while there is room; what is linked is always there, at least in short."""

    def __init__(
        self,
        contents: Contents,
        file: TextIO,
        *,
        linked_cases: frozenset[str],
        linked_trials: frozenset[int],
        largest: int,
        used: int,
    ) -> None:
        """`linked_cases`: by their anchors; `used`: what was written to the page before."""
        self._contents, self._run, self._file = contents, contents.run, file
        self._linked_cases, self._linked_trials = linked_cases, linked_trials
        self._left = largest - used
        summary = contents.summary
        self._to_come, self._unpassed = summary.trials, summary.failed + summary.errors
        self._attempts = contents.source.attempts()
        self._next = next(self._attempts, None)
        self._in_short = self._left_out = 0

    def write(self) -> None:
        numbers = {case: number for number, (case, _) in enumerate(self._contents.book.rows())}
        seen: set[str] = set()
        every = self._contents.trials_with_cases()
        for case_id, group in groupby(every, key=lambda one: one[0].case_id):
            is_again = case_id in seen
            seen.add(case_id)
            # A run in progress may have more results by now than the book was made from.
            number = numbers.setdefault(case_id, len(numbers))
            self._write_case(case_id, number, group, is_again=is_again)

    def not_here(self) -> str:
        """What the page leaves out, and where to find it; empty if it shows everything."""
        parts = [
            f"{counted(number, 'trial')} {how}"
            for number, how in (
                (self._in_short, "in one line only"),
                (self._left_out, "not at all"),
            )
            if number
        ]
        if not parts:
            return ""
        return (
            f"To stay small enough for browsers, this page shows {listed(parts)}."
            f" Everything: paraval report {self._run.id} -o report.jsonl"
        )

    def _write_case(
        self,
        case_id: str,
        number: int,
        group: Iterator[tuple[TrialResult, Case | None]],
        *,
        is_again: bool,
    ) -> None:
        """A case without room for any of its trials has no section either."""
        columns, case, shown, left_out = None, None, 0, 0
        for result, asked in group:
            if columns is None:
                case = None if is_again else asked
                columns = CaseColumns(asked)
            added = self._add(result, columns)
            shown, left_out = shown + added, left_out + (not added)
        self._left_out += left_out
        anchor = "" if is_again else case_anchor(number)
        if columns is None or not (shown or anchor in self._linked_cases):
            return
        cells = self._contents.book.cells_of(case_id)
        counts = [sum(counts) for counts in list(zip(*cells.values(), strict=True))[:4]]
        about = asked_html(case)
        if self._left - len(about) < self._kept(passed=False):
            about = Markup()
        self._left -= len(about)
        self._file.write(
            rendered(
                "case.html" if columns.has_bodies else "case_line.html",
                title=one_line(case_id, LONGEST_NAME),
                asked=about,
                snippet=one_line(main_text(case.input), 120) if case and case.input else "",
                # The first part shows how the whole case went, so no filter hides a later one.
                kinds=list(FILTERS) if is_again else _shown_by(cells.values()),
                counts=[] if is_again else counts,
                is_again=is_again,
                anchor=anchor,
                columns=columns,
                left_out=f"… and {counted(left_out, 'more trial')}" if left_out else "",
                of=trial,
            )
        )

    def _kept(self, *, passed: bool) -> int:
        """What is kept for trials to come: a line for each, and more for those that did not
        pass."""
        return self._to_come * _A_LINE + self._unpassed * _AN_UNPASSED_TRIAL * passed

    def _add(self, result: TrialResult, columns: CaseColumns) -> bool:
        """In full, in short, or not at all."""
        attempts = list(self._attempts_of(result.index))
        passed, body = result.outcome is Outcome.PASSED, None
        self._to_come -= 1
        self._unpassed -= result.outcome is Outcome.FAILED or result.outcome.is_error
        room = self._left - self._kept(passed=passed)
        # Reading and rendering what will not be shown takes as long as showing it.
        if (expected := _expected_size(result)) <= room:
            asked = columns.asked(result, self._contents.source.exchanges(result.index))
            if expected + len(asked) > room:
                asked = rendered("not_asked.html", command=show_command(result, self._run))
            body = columns.body(result, self._run, attempts, asked)
            if len(body) > room:
                body = None
        is_linked = result.index in self._linked_trials
        if body is None:
            if not is_linked and self._left < _A_LINE * (1 + self._unpassed * passed):
                return False
            self._in_short += 1
        self._left -= len(body) + 2 * _A_LINE if body is not None else _A_LINE
        columns.add(result, body, is_linked=is_linked)
        return True

    def _attempts_of(self, index: int) -> Iterator[AttemptRecord]:
        """Attempts come in plan order, as results do."""
        while self._next is not None and self._next.index <= index:
            attempt, self._next = self._next, next(self._attempts, None)
            if attempt.index == index:
                yield attempt


def _expected_size(result: TrialResult) -> int:
    """A trial's approximate size on the page, without reading its files."""
    end = result.result
    answer = 0 if end.output is None else min(len(end.output.text), trial.LONGEST_TEXT)
    logs = sum(trial.LONGEST_LOG for name in end.artifacts if trial.is_log(name))
    patch = trial.LONGEST_TEXT if PATCH in end.artifacts else 0
    return _AROUND_A_TRIAL + answer + patch + logs * max(result.attempts, 1)
