"""Whether a run is good enough: the gate, its exit code and the sentence that says so.

Here is the gate over the share of trials that passed, and what becomes of two gates; whether the
pass rate dropped against a baseline is judged in `baseline_gate`.

What has no verdict (errors, trials that were skipped or never ended) is not held against a run, nor
for it: where it could turn the answer, the answer is `unknown`. Nothing is asked of trials that
left themselves out, as tests do that skip themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from paraval.report.compare.comparison import Interval
from paraval.report.summary.summary import Summary
from paraval.text.words import counted, listed, percent

EXIT_MET = 0
EXIT_MISSED = 1
EXIT_UNKNOWN = 3
EXIT_INTERRUPTED = 130

# 9/10 must reach 0.9, and 3/10 the 0.30000000000000004 that somebody computed.
_DUST = 1e-9


class GateVerdict(StrEnum):
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

    verdict: GateVerdict
    finding: str
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

    @property
    def sentence(self) -> str:
        return sentence_of(self.verdict, self.finding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What was required of a run, answered."""

    verdict: GateVerdict
    exit_code: int
    finding: str
    baseline: DropVerdict | None = None
    """Where it is compared with one."""

    @property
    def sentence(self) -> str:
        return sentence_of(self.verdict, self.finding)


def sentence_of(verdict: GateVerdict, finding: str) -> str:
    """`Gate passed: 80% (48/60), required 75%`: first the verdict of all of it."""
    return f"Gate {_SPOKEN[verdict]}: {finding}"


def judge_gate(summary: Summary, fail_under: float | None, interrupted: bool) -> Gate:
    """Whether so many of the trials passed as `fail_under` asks for, whatever the missing verdicts
    would have been.

    Trials are counted, not cases as in a pass rate: what is asked for is that something works each
    time. None asks that every trial passes.
    """
    if interrupted:
        ended = f"{summary.ended:,} of {counted(summary.planned, 'trial')}"
        return Gate(
            verdict=GateVerdict.UNKNOWN,
            exit_code=EXIT_INTERRUPTED,
            finding=f"the run was interrupted after {ended}",
        )
    if not _asked_of(summary):
        return _gate(GateVerdict.UNKNOWN, "no trial ran")
    asked = 1.0 if fail_under is None else fail_under
    best = _most_passed(summary) / _asked_of(summary)
    required = f"required {tight_percent(asked)}"
    passed = _rate(summary.passed, summary)
    if summary.passed / _asked_of(summary) >= asked - _DUST:
        return _gate(GateVerdict.MET, f"{passed}, {required}")
    missing = _missing(summary)
    most = _rate(_most_passed(summary), summary)
    if best >= asked - _DUST:
        return _gate(GateVerdict.UNKNOWN, f"{passed} to {most} because of {missing}, {required}")
    if tight_percent(best) == tight_percent(asked):
        # Rounded, they are the same.
        needed = math.ceil(asked * _asked_of(summary) - _DUST)
        required = f"{required} ({needed:,}/{_asked_of(summary):,})"
    if missing:
        return _gate(GateVerdict.MISSED, f"at most {most}, even with {missing}, {required}")
    return _gate(GateVerdict.MISSED, f"{passed}, {required}")


def not_yet(summary: Summary) -> Gate:
    """Of a run that an engine still works on."""
    ended = f"{summary.ended:,} of {counted(summary.planned, 'trial')}"
    return _gate(GateVerdict.UNKNOWN, f"the run is still going, {ended} ended")


def against_baseline(drop: DropVerdict, rate: Gate | None) -> Gate:
    """The gate of a run with a baseline; `rate` where a pass rate is asked for, too.

    Of two verdicts the worse counts. Both are reported, the one that decides first.
    """
    parts: list[Gate | DropVerdict] = [drop] if rate is None else [rate, drop]
    parts.sort(key=lambda part: _WORST_FIRST.index(part.verdict))
    finding = "; ".join(part.finding for part in parts)
    return replace(_gate(parts[0].verdict, finding), baseline=drop)


def _gate(verdict: GateVerdict, finding: str) -> Gate:
    return Gate(verdict=verdict, exit_code=_EXIT_CODES[verdict], finding=finding)


_WORST_FIRST = (GateVerdict.MISSED, GateVerdict.UNKNOWN, GateVerdict.MET)
_SPOKEN = {
    GateVerdict.MET: "passed",
    GateVerdict.MISSED: "failed",
    GateVerdict.UNKNOWN: "undecided",
}
_EXIT_CODES = {
    GateVerdict.MET: EXIT_MET,
    GateVerdict.MISSED: EXIT_MISSED,
    GateVerdict.UNKNOWN: EXIT_UNKNOWN,
}


def has_trials(summary: Summary) -> bool:
    """Whether anything is asked of it."""
    return _asked_of(summary) > 0


def _asked_of(summary: Summary) -> int:
    return summary.planned - summary.left_out


def _most_passed(summary: Summary) -> int:
    """As many as can have passed, whatever the missing verdicts would have been."""
    return _asked_of(summary) - summary.failed


def _rate(passed: int, summary: Summary) -> str:
    """`80% (48/60)`."""
    trials = _asked_of(summary)
    return f"{tight_percent(passed / trials)} ({passed:,}/{trials:,})"


def tight_percent(share: float) -> str:
    """`80%`, as one word."""
    return percent(share).replace(" ", "")


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
