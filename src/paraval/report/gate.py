"""Whether a run is good enough: the gate, its exit code and the sentence that says so.

Here is the gate over the share of trials that passed, and what becomes of two gates; whether the
pass rate dropped against a baseline is judged in `dropping`.

What has no verdict (errors, trials that were skipped or never ended) is not held against a run, nor
for it: where it could turn the answer, the answer is `unknown`. Nothing is asked of trials that
left themselves out, as tests do that skip themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from paraval.report.comparing.comparison import Interval
from paraval.report.summary import Summary
from paraval.report.wording import counted, listed, percent

EXIT_MET = 0
EXIT_MISSED = 1
EXIT_UNKNOWN = 3
EXIT_INTERRUPTED = 130

# 9/10 must reach 0.9, and 3/10 the 0.30000000000000004 that somebody computed.
_DUST = 1e-9


class Verdict(StrEnum):
    """What the gate says."""

    MET = "met"
    MISSED = "missed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateChange:
    """Pass rate now less that of the baseline, over the cases that have both; in shares."""

    mean: float
    interval: Interval
    confidence: float
    """Of the interval."""
    cases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropVerdict:
    """Whether the pass rate dropped against a baseline by more than it may, answered."""

    verdict: Verdict
    sentence: str
    """In words that neither Markdown nor a terminal acts on, and in ASCII."""
    baseline: str
    """As `Baseline.name`: a run's id, or a path."""
    max_drop: float
    change: RateChange | None = None
    """None: nothing could be compared."""
    if_errors: Interval | None = None
    """The least and the most that the mean could be, whatever missing verdicts hide; None where
    none is missing."""
    more_cases: int | None = None
    """Of an unknown verdict: so many more cases like these could tell; None: nobody knows."""
    dropped: Mapping[str, RateChange] = field(default_factory=dict)
    """Variants, by their labels, of which such a drop is shown; intervals are wider by Holm."""
    only_now: int = 0
    """Cases that the baseline does not have ..."""
    only_baseline: int = 0
    """... that it alone has ..."""
    unjudged: int = 0
    """... and that both have, but one of them without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What was asked of a run, answered."""

    verdict: Verdict
    exit_code: int
    sentence: str
    baseline: DropVerdict | None = None
    """Where it is held against one."""


def judge_gate(summary: Summary, fail_under: float | None, interrupted: bool) -> Gate:
    """Whether so many of the trials passed as `fail_under` asks for, whatever the missing verdicts
    would have been.

    Trials are counted, not cases as in a pass rate: what is asked for is that something works each
    time. None asks that every trial passes.
    """
    if interrupted:
        ended = f"{summary.ended:,} of {counted(summary.planned, 'trial')}"
        sentence = f"The run was interrupted after {ended}: the gate is not judged."
        return Gate(verdict=Verdict.UNKNOWN, exit_code=EXIT_INTERRUPTED, sentence=sentence)
    if not _asked_of(summary):
        sentence = "No trial ran: the gate cannot be judged."
        return Gate(verdict=Verdict.UNKNOWN, exit_code=EXIT_UNKNOWN, sentence=sentence)
    asked = 1.0 if fail_under is None else fail_under
    best = _most_passed(summary) / _asked_of(summary)
    if summary.passed / _asked_of(summary) >= asked - _DUST:
        return Gate(verdict=Verdict.MET, exit_code=EXIT_MET, sentence=_met(summary, asked))
    if best < asked - _DUST:
        return Gate(verdict=Verdict.MISSED, exit_code=EXIT_MISSED, sentence=_missed(summary, asked))
    return Gate(verdict=Verdict.UNKNOWN, exit_code=EXIT_UNKNOWN, sentence=_unknown(summary, asked))


def not_yet(summary: Summary) -> Gate:
    """Of a run that an engine still works on."""
    ended = f"{summary.ended:,} of {counted(summary.planned, 'trial')}"
    sentence = f"The run still goes on, {ended} ended: the gate is not judged yet."
    return Gate(verdict=Verdict.UNKNOWN, exit_code=EXIT_UNKNOWN, sentence=sentence)


def against_baseline(drop: DropVerdict, rate: Gate | None) -> Gate:
    """The gate of a run with a baseline; `rate` where a pass rate is asked for, too.

    Of two verdicts the worse counts, and both are said.
    """
    if rate is None:
        verdict, sentence = drop.verdict, drop.sentence
    else:
        verdict = min(drop.verdict, rate.verdict, key=_WORST_FIRST.index)
        sentence = f"{rate.sentence} {drop.sentence}"
    return Gate(verdict=verdict, exit_code=_EXIT_CODES[verdict], sentence=sentence, baseline=drop)


_WORST_FIRST = (Verdict.MISSED, Verdict.UNKNOWN, Verdict.MET)
_EXIT_CODES = {
    Verdict.MET: EXIT_MET,
    Verdict.MISSED: EXIT_MISSED,
    Verdict.UNKNOWN: EXIT_UNKNOWN,
}


def has_trials(summary: Summary) -> bool:
    """Whether anything is asked of it."""
    return _asked_of(summary) > 0


def _asked_of(summary: Summary) -> int:
    return summary.planned - summary.left_out


def _most_passed(summary: Summary) -> int:
    """As many as can have passed, whatever the missing verdicts would have been."""
    return _asked_of(summary) - summary.failed


def _met(summary: Summary, asked: float) -> str:
    if summary.passed == summary.planned:
        return "The gate is met: every trial passed."
    if summary.passed == _asked_of(summary):
        return "The gate is met: every trial that was not skipped passed."
    return f"The gate is met: {_passed(summary)}; asked for: {percent(asked)}."


def _missed(summary: Summary, asked: float) -> str:
    if asked >= 1:
        wrong = counted(summary.failed, "wrong answer")
        return f"The gate is missed: {wrong}, and every trial must pass."
    if _missing(summary):
        best, trials = _most_passed(summary), _asked_of(summary)
        return (
            f"The gate is missed: even with {_missing(summary)}, at most {best:,} of"
            f" {counted(trials, 'trial')} ({percent(best / trials)}) can have"
            f" passed; asked for: {percent(asked)}."
        )
    return f"The gate is missed: {_passed(summary)}; asked for: {percent(asked)}."


def _unknown(summary: Summary, asked: float) -> str:
    hidden = _asked_of(summary) - summary.judged
    hide = "hides" if hidden == 1 else "hide"
    if asked >= 1:
        why = "no trial gave a wrong answer, but every trial must pass"
    else:
        low = percent(summary.passed / _asked_of(summary))
        high = percent(_most_passed(summary) / _asked_of(summary))
        why = f"between {low} and {high} of the trials passed; asked for: {percent(asked)}"
    return f"{_missing(summary)} {hide} whether the gate is met: {why}."


def _passed(summary: Summary) -> str:
    rate = percent(summary.passed / _asked_of(summary))
    return f"{summary.passed:,} of {counted(_asked_of(summary), 'trial')} passed ({rate})"


def _missing(summary: Summary) -> str:
    """`2 errors and 1 skipped trial`; empty where every trial has a verdict."""
    unended = summary.planned - summary.trials
    return listed(
        counted(number, noun, plural)
        for number, noun, plural in (
            (summary.errors, "error", "errors"),
            (summary.skipped - summary.left_out, "skipped trial", "skipped trials"),
            (unended, "trial without a result", "trials without a result"),
        )
        if number
    )
