"""The cases of one comparison, each in a few numbers: what it came to on both sides.

Which cells stand against which is decided in `pairing`; what the numbers mean, in `compared`.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from paraval.report.comparing.cells import Cell
from paraval.report.comparing.comparison import LeftOut, Turned

DUST = 1e-12
"""What rounding leaves of thirds and tenths."""


class Setting(NamedTuple):
    """The same case in the same setting (the choices of all other axes), on both sides."""

    subject: Cell
    reference: Cell

    @property
    def is_judged(self) -> bool:
        return self.subject.judged > 0 and self.reference.judged > 0


Settings = Sequence[Setting]


class Repeats(NamedTuple):
    """Of a setting: how many repeats were judged, and how many of them passed, on each side."""

    subject: tuple[int, int]
    reference: tuple[int, int]

    @property
    def both(self) -> int:
        return min(self.subject[0], self.reference[0])


class Pairs:
    """A pair is a case. Its repeats and settings are a cluster: they come to one figure."""

    def __init__(self) -> None:
        self.rates_subject = array("d")
        self.rates_reference = array("d")
        self.differences = array("d")
        """Of those rates."""
        self.scores = array("d")
        """Differences of the mean scores."""
        self.log_seconds = array("d")
        """Logarithms of the ratios, here and below."""
        self.log_usd = array("d")
        self.worst = array("d")
        """The differences if errors had gone as badly for the subject as they can ..."""
        self.best = array("d")
        """... and as well; also of cases that have no verdict because of them."""
        self.has_errors = False
        self.has_more_scores = False
        """Whether some score says more than pass or fail."""
        self.is_single = True
        """Whether each case was judged once on each side."""
        self.repeats: Counter[tuple[Repeats, ...]] = Counter()
        """How many cases there are of each kind."""
        self._left_out: dict[str, list[str]] = {}
        self._turned: dict[str, list[str]] = {}

    def __len__(self) -> int:
        """Cases that are judged on both sides."""
        return len(self.differences)

    def add(self, case: str, settings: Settings) -> None:
        """A case with what both sides have of it; at least one setting."""
        judged = [setting for setting in settings if setting.is_judged]
        if judged:
            self._add_judged(case, judged)
        else:
            self._add_unjudged(case, settings)
        self._add_bounds(settings)
        self._add_ratios(settings)

    def add_only(self, case: str, *, on_subject: bool) -> None:
        """A case that the other side lacks."""
        self._leave_out(case, "only_subject" if on_subject else "only_reference")

    @property
    def mean(self) -> float | None:
        return fmean(self.differences) if self.differences else None

    @property
    def left_out(self) -> LeftOut:
        return LeftOut(**{why: tuple(cases) for why, cases in self._left_out.items()})

    @property
    def turned(self) -> Turned:
        return Turned(**{how: tuple(cases) for how, cases in self._turned.items()})

    def mirrored(self) -> Pairs:
        """The same with the sides exchanged."""
        other = Pairs()
        other.rates_subject, other.rates_reference = self.rates_reference, self.rates_subject
        other.differences = _negated(self.differences)
        other.scores = _negated(self.scores)
        other.log_seconds, other.log_usd = _negated(self.log_seconds), _negated(self.log_usd)
        other.worst, other.best = _negated(self.best), _negated(self.worst)
        other.has_errors, other.has_more_scores = self.has_errors, self.has_more_scores
        other.is_single = self.is_single
        for kinds, number in self.repeats.items():
            turned = sorted(Repeats(kind.reference, kind.subject) for kind in kinds)
            other.repeats[tuple(turned)] += number
        other._left_out = {
            _OTHER_SIDE.get(why, why): list(of) for why, of in self._left_out.items()
        }
        other._turned = {_OTHER_SIDE.get(how, how): list(of) for how, of in self._turned.items()}
        return other

    def _add_judged(self, case: str, judged: Settings) -> None:
        subject, reference = rates_of(judged)
        self.rates_subject.append(subject)
        self.rates_reference.append(reference)
        self.differences.append(difference_of(judged))
        kinds = [
            Repeats((one.judged, one.passed), (other.judged, other.passed)) for one, other in judged
        ]
        if len(kinds) > 1 or kinds[0].subject[0] > 1 or kinds[0].reference[0] > 1:
            self.is_single = False
            kinds.sort()
        self.repeats[tuple(kinds)] += 1
        self._add_scores(judged)
        if any(one.is_flaky or other.is_flaky for one, other in judged):
            self._turned.setdefault("flaky", []).append(case)
        elif subject == 0 and reference == 1:
            self._turned.setdefault("broke", []).append(case)
        elif subject == 1 and reference == 0:
            self._turned.setdefault("mended", []).append(case)

    def _add_scores(self, judged: Settings) -> None:
        scored = [(one, other) for one, other in judged if one.scored and other.scored]
        if not scored:
            return
        gaps = [
            one.sum_score / one.scored - other.sum_score / other.scored for one, other in scored
        ]
        self.scores.append(_settled(math.fsum(gaps) / len(gaps)))
        if not self.has_more_scores:
            self.has_more_scores = any(
                abs(cell.sum_score - cell.passed) > DUST for setting in scored for cell in setting
            )

    def _add_unjudged(self, case: str, settings: Settings) -> None:
        self._leave_out(case, "unjudged")
        if not any(setting.subject.judged for setting in settings):
            self._leave_out(case, "unjudged_subject")
        if not any(setting.reference.judged for setting in settings):
            self._leave_out(case, "unjudged_reference")

    def _add_bounds(self, settings: Settings) -> None:
        ended = [
            (one, other)
            for one, other in settings
            if one.judged + one.errors and other.judged + other.errors
        ]
        if not ended:
            return
        self.has_errors = self.has_errors or any(one.errors or other.errors for one, other in ended)
        number = len(ended)
        worst = math.fsum(_worst(one) - _best(other) for one, other in ended) / number
        best = math.fsum(_best(one) - _worst(other) for one, other in ended) / number
        self.worst.append(_settled(worst))
        self.best.append(_settled(best))

    def _add_ratios(self, settings: Settings) -> None:
        for logs, ratios in (
            (self.log_seconds, [_log_ratio(_seconds(a), _seconds(b)) for a, b in settings]),
            (self.log_usd, [_log_ratio(_usd(a), _usd(b)) for a, b in settings]),
        ):
            known = [ratio for ratio in ratios if ratio is not None]
            if known:
                logs.append(math.fsum(known) / len(known))

    def _leave_out(self, case: str, why: str) -> None:
        self._left_out.setdefault(why, []).append(case)


_OTHER_SIDE = {
    "only_subject": "only_reference",
    "only_reference": "only_subject",
    "unjudged_subject": "unjudged_reference",
    "unjudged_reference": "unjudged_subject",
    "broke": "mended",
    "mended": "broke",
}


def rates_of(judged: Settings) -> tuple[float, float]:
    """Of a case, on each side: the mean over its settings of the share that passed."""
    if len(judged) == 1:
        ((one, other),) = judged
        return (one.passed / one.judged, other.passed / other.judged)
    number = len(judged)
    return (
        math.fsum(one.passed / one.judged for one, _ in judged) / number,
        math.fsum(other.passed / other.judged for _, other in judged) / number,
    )


def difference_of(judged: Settings) -> float:
    """What the subject passes more of a case, as a share; every setting counts the same."""
    gaps = [one.passed / one.judged - other.passed / other.judged for one, other in judged]
    return _settled(math.fsum(gaps) / len(gaps))


def _settled(value: float) -> float:
    return 0.0 if abs(value) < DUST else value


def _negated(values: array[float]) -> array[float]:
    # 0.0 less the value, since -0.0 would be another way to say nothing.
    return array("d", (0.0 - value for value in values))


def _worst(cell: Cell) -> float:
    return cell.passed / (cell.judged + cell.errors)


def _best(cell: Cell) -> float:
    return (cell.passed + cell.errors) / (cell.judged + cell.errors)


def _seconds(cell: Cell) -> float:
    return cell.sum_s / cell.timed if cell.timed else 0.0


def _usd(cell: Cell) -> float:
    return cell.sum_usd / cell.priced if cell.priced else 0.0


def _log_ratio(one: float, other: float) -> float | None:
    """None where a side is not known, or nothing: there is no ratio to nothing."""
    if not (0 < one < math.inf and 0 < other < math.inf):
        return None
    return math.log(one) - math.log(other)
