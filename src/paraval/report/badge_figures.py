"""What a badge tells of a run: the pass rate with its interval, what it rests on, what it cost.

Only complete runs are told, and an outage is none: whoever picks the run sees to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import fmean

from paraval.records import RunInfo, value_text
from paraval.report.summary import Summary
from paraval.report.wording import percent, percent_range

MODEL_AXIS = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The latest figures of a suite, or of one of its variants."""

    run: RunInfo
    summary: Summary
    """Of trials that were judged, some at least."""
    choice: Mapping[str, str] = field(default_factory=dict)
    """Axis -> value, where a variant was chosen."""

    @property
    def rate(self) -> float:
        assert self.summary.pass_rate is not None, "something was judged"
        return self.summary.pass_rate

    @property
    def interval(self) -> tuple[float, float]:
        assert self.summary.pass_rate_interval is not None, "something was judged"
        return self.summary.pass_rate_interval

    @property
    def message(self) -> str:
        """`92 % (85-96 %)`."""
        return f"{percent(self.rate)} ({percent_range(*self.interval)})"

    @property
    def cost_usd(self) -> float | None:
        """Judges included; None where some of it is unknown: a part is not the cost."""
        summary = self.summary
        partly = summary.target.is_partly_unknown or summary.judging.is_partly_unknown
        return None if partly else summary.total_cost_usd

    @property
    def model(self) -> str | None:
        """Where there is but one."""
        chosen = self.choice.get(MODEL_AXIS)
        if chosen is not None:
            return chosen
        models = {
            value_text(one.variant[MODEL_AXIS]) if MODEL_AXIS in one.variant else None
            for one in self.summary.variants
        }
        return models.pop() if len(models) == 1 else None

    @property
    def day(self) -> str:
        """`2026-01-31`, in UTC."""
        return f"{datetime.fromtimestamp(self.run.started_at, UTC):%Y-%m-%d}"


def points(share: float) -> float:
    """In percent, to one digit; 0 and 100 only when it is exactly that."""
    value = round(share * 100, 1)
    return value if share in (0, 1) else min(max(value, 0.1), 99.9)


def mean_of(accuracies: Sequence[float]) -> float:
    """Of percentages, with the same rule."""
    return points(fmean(accuracies) / 100)
