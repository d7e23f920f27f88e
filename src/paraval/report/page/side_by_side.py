"""A case side by side: a column for each variant, with the words that differ marked.

The page and the viewer show the same columns. The viewer calls `side_by_side`; the page fills
`CaseColumns` trial by trial, within its size limit.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from difflib import SequenceMatcher

from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.records import AttemptRecord, Case, Exchange, RunInfo, TrialResult
from paraval.report.compare.case_results import variant_key
from paraval.report.page.artifacts import Excerpt, beginning, beginning_of_value
from paraval.report.page.figures import trial_anchor
from paraval.report.page.rendering import rendered
from paraval.report.page.trials import DiffPiece, TrialLine, line_of, trial_view
from paraval.report.summary.columns import WITHOUT_MATRIX
from paraval.report.transcript import Conversation, Turn, conversations_of, main_text
from paraval.text.terminal import one_line
from paraval.text.words import variant_label

# Words that differ.

MOST_WORDS = 5_000
_LEAST_ALIKE = 0.5
"""Share of words in common; texts with less differ everywhere, and marks would only be noise."""
_LONGER_THAN_EXPECTED = 2
"""An answer with more than this many times the words of the expected text does not repeat it."""
_WORD = re.compile(r"\s*(?:\w+|[^\w\s])|\s+\Z")


def marked_words(text: str, reference: str) -> tuple[DiffPiece, ...] | None:
    """The text in pieces: `add` is not in the reference, `del` is only there, the rest is in both.

    Empty if they are the same or have too little in common; None if they are too long to compare.
    """
    if text == reference:
        return ()
    words, others = _WORD.findall(text), _WORD.findall(reference)
    if max(len(words), len(others)) > MOST_WORDS:
        return None
    matcher = SequenceMatcher(None, [word.strip() for word in others], [w.strip() for w in words])
    if matcher.ratio() < _LEAST_ALIKE:
        return ()
    return tuple(_pieces(matcher, others, words))


def _pieces(matcher: SequenceMatcher[str], old: list[str], new: list[str]) -> Iterator[DiffPiece]:
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag in ("delete", "replace"):
            yield from _apart("del", "".join(old[start:end]))
        if new_start < new_end:
            yield from _apart("" if tag == "equal" else "add", "".join(new[new_start:new_end]))


def _apart(kind: str, text: str) -> Iterator[DiffPiece]:
    """The space before words is not marked with them."""
    words = text.lstrip()
    if space := text[: len(text) - len(words)]:
        yield DiffPiece("", space)
    if words:
        yield DiffPiece(kind, words)


# What a case asks.

LONGEST_NAME = 200
_LONGEST_DESCRIPTION = 300
_MOST_TAGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseInput:
    """A case as in the suite."""

    tags: tuple[str, ...] = ()
    description: str = ""
    input: Excerpt | None = None
    expect: Excerpt | None = None
    snippet: str = ""
    """The beginning of the input, on one line."""


def asked_of(case: Case | None) -> CaseInput:
    if case is None:
        return CaseInput()
    return CaseInput(
        tags=tuple(one_line(tag, LONGEST_NAME) for tag in case.tags[:_MOST_TAGS]),
        description=one_line(case.description or "", _LONGEST_DESCRIPTION),
        input=beginning_of_value(case.input),
        expect=beginning_of_value(case.expect),
        snippet="" if case.input is None else one_line(main_text(case.input), 120),
    )


# What was asked, and transcripts: folded, and each request once for a case.

_MOST_TURNS = 60
_LONGEST_TURN = 10_000
_LONG_ENOUGH = 300
"""Texts from this length on are not shown a second time."""


class _Shown:
    """What the columns of a case show already."""

    def __init__(self) -> None:
        self._requests: dict[object, str] = {}
        self._texts: dict[str, str] = {}

    def of(self, talks: Iterable[Conversation], column: str) -> Iterator[tuple[Conversation, str]]:
        """Each as far as a page shows it, and where its request is shown already, or empty."""
        for talk in talks:
            request = (talk.by, talk.sent, talk.tools)
            is_new = request not in self._requests
            same_as = self._requests.setdefault(request, column)
            if not is_new and same_as == column and not talk.transcript:
                # A repeat asks the same.
                continue
            shown = Conversation(
                by=one_line(talk.by, LONGEST_NAME),
                to=one_line(talk.to, LONGEST_NAME),
                options=one_line(talk.options, _LONGEST_DESCRIPTION),
                sent=self._turns(talk.sent, column) if is_new else (),
                tools=tuple(one_line(tool, LONGEST_NAME) for tool in talk.tools[:_MOST_TURNS]),
                transcript=self._turns(talk.transcript, column),
            )
            where = "above" if same_as == column else f'in "{same_as}"'
            yield shown, "" if is_new else where

    def _turns(self, turns: Sequence[Turn], column: str) -> tuple[Turn, ...]:
        shown = [self._turn(turn, column) for turn in turns[:_MOST_TURNS]]
        if len(turns) > _MOST_TURNS:
            shown.append(Turn(role=f"… and {len(turns) - _MOST_TURNS} more", text=""))
        return tuple(shown)

    def _turn(self, turn: Turn, column: str) -> Turn:
        """A long text is there once; later it is only said where."""
        text, note = beginning(turn.text, _LONGEST_TURN), one_line(turn.note, LONGEST_NAME)
        before = self._texts.get(turn.text)
        if before is not None:
            return replace(turn, text="", note=f'{note} the same text as in "{before}"'.lstrip())
        if len(turn.text) >= _LONG_ENOUGH:
            self._texts[turn.text] = column
        cut = f"\n… {text.left_out} (all: paraval show --full)" if text.left_out else ""
        return replace(turn, text=text.text + cut, note=note)


# The columns of a case.


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTrial:
    """A repeat: its line, and what unfolds below it, unless there is no room for it."""

    line: TrialLine
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
        kinds = [trial.line.kind for trial in self.trials]
        return next((kinds.index(kind) for kind in ("wrong", "error") if kind in kinds), 0)

    @property
    def kind(self) -> str:
        return self.trials[self.opened].line.kind

    @property
    def tally(self) -> str:
        """`2 of 3 passed`; empty for a single trial."""
        passed = sum(trial.line.kind == "pass" for trial in self.trials)
        return f"{passed} of {len(self.trials)} passed" if len(self.trials) > 1 else ""


class CaseColumns:
    """The trials of one case, collected by variant as they arrive."""

    def __init__(self, case: Case | None, *, linked: bool = True) -> None:
        """`linked`: whether its trials have anchors."""
        self._linked = linked
        self._expect = case.expect if case is not None and isinstance(case.expect, str) else None
        self._columns: dict[str, VariantColumn] = {}
        self._reference = ""
        self.marked_against = ""
        """What marked words differ from, in words; empty if none are marked."""
        self._reference_name = ""
        self._shown = _Shown()

    def asked(self, result: TrialResult, exchanges: Iterable[Exchange]) -> Markup:
        """What was asked and an agent's transcript, folded; for `body`."""
        told = conversations_of(exchanges, result.result)
        talks = list(self._shown.of(told, _column_of(result)))
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
        view = trial_view(result, attempts, run.folder, self._marked)
        return rendered(
            "trial.html",
            trial=view,
            asked=asked,
            below=below,
            all_of_it=f"paraval logs {run.id} --trial {result.index}",
        )

    def add(self, result: TrialResult, body: Markup | None) -> None:
        column = VariantColumn(label=_column_of(result))
        anchor = trial_anchor(result.index) if self._linked else ""
        trial = ColumnTrial(line=line_of(result), anchor=anchor, body=body)
        self._columns.setdefault(variant_key(result.variant), column).trials.append(trial)

    def html(self) -> Markup:
        columns = list(self._columns.values())
        return rendered("columns.html", columns=columns, marked_against=self.marked_against)

    def _marked(self, result: TrialResult, text: str) -> tuple[tuple[DiffPiece, ...], str]:
        if not self._reference_name:
            self._choose_reference(result, text)
        pieces = marked_words(text, self._reference)
        if pieces is None:
            return (), f"Too long to mark what differs: more than {MOST_WORDS:,} words."
        if pieces:
            self.marked_against = self._reference_name
        return pieces, ""

    def _choose_reference(self, result: TrialResult, text: str) -> None:
        """The expected text, if answers repeat it; otherwise the first answer."""
        expect = self._expect
        if expect and len(text.split()) <= _LONGER_THAN_EXPECTED * len(expect.split()):
            self._reference, self._reference_name = expect, "the expected text"
        else:
            label = one_line(variant_label(result.variant), 80)
            name = f'the answer in "{label}"' if label else "the first answer"
            self._reference, self._reference_name = text, name


def _column_of(result: TrialResult) -> str:
    return one_line(variant_label(result.variant) or WITHOUT_MATRIX, LONGEST_NAME)


def show_command(result: TrialResult, run: RunInfo) -> str:
    """What shows the whole case on a terminal."""
    return f"paraval show {run.id} --case {shlex.quote(one_line(result.case_id, LONGEST_NAME))}"


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
    asked = rendered("asked.html", asked=asked_of(case))
    return Markup("{}{}").format(asked, columns.html())
