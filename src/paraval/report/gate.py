"""Whether a run is good enough: the gate, its exit code and its sentence.

There is a gate only if one is required: a least pass rate, or a baseline. This module judges the
share of trials that passed, and combines two verdicts; `baseline_gate` judges whether the pass rate
dropped against a baseline.

Trials without a verdict (errors, skipped, never ended) count neither for a run nor against it: if
they could change the verdict, it is `unknown`. Trials that skipped themselves, as tests can, are
not counted at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import NamedTuple

from paraval.dataclass import dataclass
from paraval.report.compare.comparison import Interval
from paraval.report.summary.tally import NOT_REPORTED, Count, Summary
from paraval.text.words import counted, listed, percent, percent_range

EXIT_MET = 0
EXIT_MISSED = 1
EXIT_UNKNOWN = 3
EXIT_INTERRUPTED = 130

# 9/10 must reach 0.9, and 3/10 a computed 0.30000000000000004.
_DUST = 1e-9


class GateVerdict(StrEnum):
    """The gate's verdict: passed, failed or undecided; or that there is none."""

    NONE = "none"

    MET = "met"
    MISSED = "missed"
    UNKNOWN = "unknown"


SPOKEN = {
    GateVerdict.NONE: "none",
    GateVerdict.MET: "passed",
    GateVerdict.MISSED: "failed",
    GateVerdict.UNKNOWN: "undecided",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict with its sentence."""

    verdict: GateVerdict
    finding: str = field(metadata=NOT_REPORTED)
    """The sentence without its first words, safe in Markdown and on a terminal."""
    sentence: str = field(init=False, default="")

    def __post_init__(self) -> None:
        """`Gate passed: 80% (48/60), required 75%`: the overall verdict comes first. Without a
        gate, it is what kept the run from being judged, or empty."""
        words = f"Gate {SPOKEN[self.verdict]}: {self.finding}"
        if self.verdict is GateVerdict.NONE:
            words = self.finding[:1].upper() + self.finding[1:]
        object.__setattr__(self, "sentence", words)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantDrop:
    """A variant whose pass rate dropped; intervals are widened by Holm's method."""

    variant: str
    difference: float
    interval: Interval
    confidence: float
    cases: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class DropVerdict(Judged):
    """Whether the pass rate dropped below a baseline's by more than allowed."""

    difference: float | None = None
    """Pass rate now minus the baseline's, over the cases that both have, as a share; null if
    nothing could be compared."""
    interval: Interval | None = None
    confidence: float | None = None
    cases: Count = 0
    name: str
    """A run's id, or a path."""
    max_drop: float
    if_errors: Interval | None = None
    """The smallest and largest difference possible, whatever missing verdicts hide; null if none
    is missing."""
    more_cases: Count | None = None
    """For an unknown verdict: about how many more cases like these would probably decide it; null
    if that cannot be said."""
    dropped_variants: tuple[VariantDrop, ...] = ()
    only_now: Count = 0
    """Cases that the baseline does not have ..."""
    only_baseline: Count = 0
    """... that only the baseline has ..."""
    unjudged: Count = 0
    """... and that both have, but one of them without a verdict."""


class Tries(NamedTuple):
    """How often a case and variant ran again before they count."""

    done: int = 0
    """With or without a verdict."""
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionVerdict(Judged):
    """Whether more cases than allowed passed in a baseline and fail now."""

    baseline: str
    """A run's id, or a path."""
    max_regressed: Count
    regressed: tuple[str, ...] = ()
    """Ids of cases; with several variants `case · variant`."""
    flaky: tuple[str, ...] = ()
    """Not counted: they fail some repeats, or did so in the baseline."""
    unknown: tuple[str, ...] = ()
    """They may have regressed: verdicts are missing."""
    tries: Count = 0
    """How often at least each that failed again before it counted did so."""
    cells: Mapping[tuple[str, str], Tries] = field(default_factory=dict, metadata=NOT_REPORTED)
    """Those that regressed, by id of the case and key of the variant."""
    is_beyond_chance: bool = field(default=False, metadata=NOT_REPORTED)
    """So many got worse, and so few better, that it cannot be chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Judged):
    """Whether the run is good enough."""

    exit_code: int
    baseline: DropVerdict | None = None
    """The part that compares the pass rate with a baseline's, if required."""
    regressions: RegressionVerdict | None = None
    """The part that compares case by case, if required."""


def unjudged_gate(summary: Summary, interrupted: bool, *, is_required: bool) -> Gate | None:
    """The gate of a run that says nothing, whether or not something is required of it."""
    if interrupted:
        ended = f"{summary.ended:,} of {counted(summary.planned, 'trial')}"
        finding, exit_code = f"the run was interrupted after {ended}", EXIT_INTERRUPTED
    elif not _counted_trials(summary):
        finding, exit_code = "no trial ran", EXIT_UNKNOWN
    elif not summary.passed + summary.failed:
        finding, exit_code = f"no trial was judged, because of {_missing(summary)}", EXIT_UNKNOWN
    else:
        return None
    verdict = GateVerdict.UNKNOWN if is_required else GateVerdict.NONE
    return Gate(verdict=verdict, exit_code=exit_code, finding=finding)


def judge_gate(summary: Summary, least: float) -> Gate:
    """Whether the share of passed trials reaches `least`, whatever the missing verdicts would have
    been.

    This counts trials, not cases as a pass rate does: something must work each time.
    """
    best = _most_passed(summary) / _counted_trials(summary)
    required = f"required {percent(least)}"
    passed = _rate(summary.passed, summary)
    missing = _missing(summary)
    if summary.passed / _counted_trials(summary) >= least - _DUST:
        if missing:
            passed += f" even if {missing} {_were_failures(summary)}"
        return _gate(GateVerdict.MET, f"{passed}, {required}{_noise(summary, least)}")
    most = _rate(_most_passed(summary), summary)
    if best >= least - _DUST:
        return _gate(GateVerdict.UNKNOWN, f"{passed} to {most} because of {missing}, {required}")
    if percent(best) == percent(least):
        # Rounded, they look the same.
        needed = math.ceil(least * _counted_trials(summary) - _DUST)
        required = f"{required} ({needed:,}/{_counted_trials(summary):,})"
    if missing:
        return _gate(GateVerdict.MISSED, f"at most {most}, even with {missing}, {required}")
    return _gate(GateVerdict.MISSED, f"{passed}, {required}")


def _noise(summary: Summary, least: float) -> str:
    """`, within noise (interval 77–96%)`, where cases like these could as well have failed."""
    interval = summary.pass_rate_interval
    if interval is None or least >= 1 - _DUST or interval[0] >= least - _DUST:
        return ""
    return f", within noise (interval {percent_range(*interval)})"


def not_yet(summary: Summary, *, is_required: bool) -> Gate:
    """The gate of a run that is still going."""
    ended = f"{summary.ended:,} of {counted(summary.planned, 'trial')}"
    return Gate(
        verdict=GateVerdict.UNKNOWN if is_required else GateVerdict.NONE,
        exit_code=EXIT_UNKNOWN,
        finding=f"the run is still going, {ended} ended",
    )


def against_baseline(
    drop: DropVerdict | None, regressions: RegressionVerdict | None, rate: Gate | None
) -> Gate:
    """The gate of a run with a baseline; `rate` if a pass rate is required, too.

    The worst verdict counts. All are in the sentence, after the overall verdict.
    """
    parts = [part for part in (drop, regressions) if part is not None]
    findings = [part.finding for part in parts]
    verdicts = [part.verdict for part in parts]
    if rate is not None:
        findings.insert(0, f"pass rate {rate.finding}")
        verdicts.append(rate.verdict)
    worst = min(verdicts, key=_WORST_FIRST.index)
    gate = _gate(worst, "; ".join(findings))
    return replace(gate, baseline=drop, regressions=regressions)


NO_GATE = Gate(verdict=GateVerdict.NONE, exit_code=EXIT_MET, finding="")


def _gate(verdict: GateVerdict, finding: str) -> Gate:
    return Gate(verdict=verdict, exit_code=_EXIT_CODES[verdict], finding=finding)


_WORST_FIRST = (GateVerdict.MISSED, GateVerdict.UNKNOWN, GateVerdict.MET)
_EXIT_CODES = {
    GateVerdict.MET: EXIT_MET,
    GateVerdict.MISSED: EXIT_MISSED,
    GateVerdict.UNKNOWN: EXIT_UNKNOWN,
}


def _counted_trials(summary: Summary) -> int:
    return summary.planned - summary.left_out


def _most_passed(summary: Summary) -> int:
    """How many trials could have passed at most, with verdicts for all."""
    return _counted_trials(summary) - summary.failed


def _rate(passed: int, summary: Summary) -> str:
    """`80% (48/60)`."""
    trials = _counted_trials(summary)
    return f"{percent(passed / trials)} ({passed:,}/{trials:,})"


def _were_failures(summary: Summary) -> str:
    missing = _most_passed(summary) - summary.passed
    return "was a failure" if missing == 1 else "were failures"


def _missing(summary: Summary) -> str:
    """`2 errors and 1 skipped trial`; empty if every trial has a verdict."""
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
