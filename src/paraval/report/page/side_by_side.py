"""A case side by side: a column for each variant, with the words that differ marked.

The page and the viewer show the same columns. The viewer calls `side_by_side`; the page fills
`CaseColumns` trial by trial, within its size limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from markupsafe import Markup

from paraval.records import AttemptRecord, Case, RunInfo, TrialResult
from paraval.report.compare.case_results import variant_key
from paraval.report.page.artifacts import Excerpt, beginning_of_value
from paraval.report.page.figures import trial_anchor
from paraval.report.page.rendering import rendered
from paraval.report.page.trials import DiffPiece, TrialLine, line_of, trial_view
from paraval.report.summary.columns import WITHOUT_MATRIX
from paraval.text.terminal import one_line
from paraval.text.words import variant_label

# Words that differ.

MOST_WORDS = 5_000
_LEAST_ALIKE = 0.2
"""Share of words in common; texts with less differ everywhere, and marks would only be noise."""
_LONGER_THAN_EXPECTED = 4
"""An answer with this many times the words of the expected text explains, it does not repeat it."""
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

    @property
    def snippet(self) -> str:
        """The beginning of the input, on one line."""
        return "" if self.input is None else one_line(self.input.text, 120)


def asked_of(case: Case | None) -> CaseInput:
    if case is None:
        return CaseInput()
    return CaseInput(
        tags=tuple(one_line(tag, LONGEST_NAME) for tag in case.tags[:_MOST_TAGS]),
        description=one_line(case.description or "", _LONGEST_DESCRIPTION),
        input=beginning_of_value(case.input),
        expect=beginning_of_value(case.expect),
    )


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

    def __init__(self, case: Case | None, run: RunInfo) -> None:
        self._run = run
        self._expect = case.expect if case is not None and isinstance(case.expect, str) else None
        self._columns: dict[str, VariantColumn] = {}
        self._reference = ""
        self.marked_against = ""
        """What marked words differ from, in words; empty if none are marked."""
        self._reference_name = ""

    def body(
        self,
        result: TrialResult,
        attempts: Iterable[AttemptRecord],
        below: Markup | None = None,
    ) -> Markup:
        """What unfolds below a trial's line. Reads its files."""
        view = trial_view(result, attempts, self._run.folder, self._marked)
        return rendered(
            "trial.html",
            trial=view,
            below=below,
            all_of_it=f"paraval logs {self._run.id} --trial {result.index}",
        )

    def add(self, result: TrialResult, body: Markup | None, column: str | None = None) -> None:
        """`column`: the name of its column, if not that of its variant."""
        label = variant_label(result.variant) or WITHOUT_MATRIX if column is None else column
        key = variant_key(result.variant) if column is None else column
        shown = VariantColumn(label=one_line(label, LONGEST_NAME))
        anchor = trial_anchor(result.index)
        trial = ColumnTrial(line=line_of(result), anchor=anchor, body=body)
        self._columns.setdefault(key, shown).trials.append(trial)

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
            name = f"the answer of {label}" if label else "the first answer"
            self._reference, self._reference_name = text, name


def side_by_side(
    case: Case | None,
    trials: Iterable[TrialResult],
    run: RunInfo,
    *,
    attempts: Callable[[int], Iterable[AttemptRecord]] = lambda _: (),
    below: Callable[[TrialResult], Markup] | None = None,
) -> Markup:
    """A case's input and expectation, then a column for each variant, as markup of our own.

    `trials`: all of the case, in plan order. `attempts`: those of a trial by its index, shown if
    there are several. `below`: markup to add to a trial, such as the viewer's buttons.
    """
    columns = CaseColumns(case, run)
    for result in trials:
        more = None if below is None else below(result)
        columns.add(result, columns.body(result, attempts(result.index), more))
    asked = rendered("asked.html", asked=asked_of(case))
    return Markup("{}{}").format(asked, columns.html())
