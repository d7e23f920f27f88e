"""What a gate against a baseline says, without its first words, which are the verdict of all.

They are shown as they are in every form, so names that Markdown, HTML or a terminal would act on
are not in them; what the names are stands in the figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from paraval.records import Baseline
from paraval.report.comparing.comparison import Interval
from paraval.report.comparing.points import signed_points, signed_range
from paraval.report.drop_pairs import DropPairs
from paraval.report.gate import RateChange, tight_percent
from paraval.report.text import to_ascii
from paraval.report.wording import counted, listed

NO_VARIANT = "it has no variant in common with the baseline"
NO_ORDER = (
    "one of them may stop early, and they have no known order of cases in common, as runs with the"
    " same seed have"
)
_MOST_NAMED = 3
# Letters, and signs between them that act nowhere: `gpt_4`, `claude@2025`, `small - with-tool`.
_HARMLESS = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9 ,=+/-]|(?<=[A-Za-z0-9])[_@.:](?=[A-Za-z0-9])){0,79}"
)


def points(share: float) -> str:
    """`5 points`, `2.5 points`, `1 point`: what was asked for, so as exactly as that was."""
    number = f"{round(share * 100, 2):g}"
    return f"{number} {'point' if number == '1' else 'points'}"


def name_of(baseline: Baseline) -> str:
    """A run's id, the name of a file, or just what it is."""
    name = to_ascii(Path(baseline.name).name)
    return name if _is_harmless(name) else "the baseline"


def cannot_tell(baseline: Baseline, why: str) -> str:
    return f"{_cannot_tell(baseline)}: {why}"


def nothing_shared(pairs: DropPairs) -> str:
    if pairs.planned:
        return "no case has a verdict in both runs"
    return "it has no case in common with the baseline"


def left_out(pairs: DropPairs) -> Iterator[str]:
    parts = []
    if pairs.only_now:
        parts.append(f"{pairs.only_now:,} only in this run")
    if pairs.only_baseline:
        parts.append(f"{pairs.only_baseline:,} only in the baseline")
    if pairs.unjudged:
        parts.append(f"{pairs.unjudged:,} without a verdict in one of them")
    if parts:
        number = pairs.only_now + pairs.only_baseline + pairs.unjudged
        yield f"{counted(number, 'case')} left out: {listed(parts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the figures are told with."""

    baseline: Baseline
    planned: int | None = None
    """Cases that both runs have, where one of them may stop early: what is claimed holds at any
    time, and not all of them may count."""
    exchanged: tuple[str, str] | None = None
    """Variants, now and before, that are compared though they are not the same."""

    def met(self, change: RateChange) -> str:
        return (
            f"a drop of more than {points(self.baseline.max_drop)} is ruled out"
            f" ({self._figures(change)})"
        )

    def missed(self, change: RateChange) -> str:
        return (
            f"the pass rate dropped by more than {points(self.baseline.max_drop)}"
            f" ({self._figures(change)})"
        )

    def missed_by(self, dropped: Mapping[str, RateChange]) -> str:
        parts = [f"{_variant(label)} ({self._figures(one)})" for label, one in dropped.items()]
        if (more := len(parts) - _MOST_NAMED) > 0:
            parts[_MOST_NAMED:] = [f"{more:,} more"]
        return (
            f"the pass rate dropped by more than {points(self.baseline.max_drop)}"
            f" with {listed(parts)}"
        )

    def unknown(self, change: RateChange, more: int | None) -> str:
        cannot = f"{_cannot_tell(self.baseline)} ({self._figures(change)})"
        if self.planned is not None:
            return cannot
        if more is None:
            return f"{cannot}; more cases like these could not"
        return f"{cannot}; {counted(more, 'more case', 'more cases')} could"

    def hidden(self, change: RateChange, if_errors: Interval | None) -> str:
        hidden = signed_range(if_errors or (-1.0, 1.0), bound=-self.baseline.max_drop)
        return (
            f"{_cannot_tell(self.baseline)} ({self._figures(change)}): with what errors and skipped"
            f" trials hide, it could be anything from {hidden} points"
        )

    def _figures(self, change: RateChange) -> str:
        sure = tight_percent(change.confidence)
        cases = counted(change.cases, "case")
        if self.planned is not None:
            sure = f"{sure} at any time"
            if self.planned > change.cases:
                cases = f"{change.cases:,} of {counted(self.planned, 'case')}"
        bounds = signed_range(change.interval, bound=-self.baseline.max_drop)
        against = f"{signed_points(change.mean)} against {name_of(self.baseline)}"
        if self.exchanged is not None:
            now, before = self.exchanged
            against += f", {_variant(now)} against {_variant(before, 'another variant')}"
        return f"{against}, {sure}: {bounds}, {cases}"


def _cannot_tell(baseline: Baseline) -> str:
    return f"cannot tell whether the pass rate dropped by more than {points(baseline.max_drop)}"


def _variant(label: str, otherwise: str = "one variant") -> str:
    name = to_ascii(label)
    if not name:
        return "no variant"
    return name if _is_harmless(name) else otherwise


def _is_harmless(name: str) -> bool:
    return _HARMLESS.fullmatch(name) is not None and not name.startswith("www.")
