"""What a badge tells of a run: the pass rate with its interval, what it rests on, what it cost; and
that as a JSON file, with the fields that shields.io asks of an endpoint.

Only complete runs are told, and an outage is none: whoever picks the run sees to that.
shields.io takes its own fields and no other: a badge with more is drawn as "invalid properties". So
a file named `.shields.json` has those alone; any other `.json` has all, for programs, and for
badges that are drawn from one field of a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from paraval.codec import finite
from paraval.records import RunInfo, value_text
from paraval.report.formats.json import moment
from paraval.report.summary.costs import seconds
from paraval.report.summary.summary import Summary
from paraval.text.terminal import one_line, well_formed
from paraval.text.words import percent, percent_range

MODEL_AXIS = "model"
SHIELDS_ENDING = ".shields.json"
_LONGEST_LABEL = 60
_COLOURS = (
    (0.95, "brightgreen"),
    (0.9, "green"),
    (0.85, "yellowgreen"),
    (0.7, "yellow"),
    (0.5, "orange"),
)
"""From which pass rate on; below all, red."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadgeFigures:
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


# ---- as a JSON file


def badge_json(figures: BadgeFigures, *, for_shields: bool) -> str:
    told = shields_fields(figures)
    if not for_shields:
        told |= _figures(figures)
    return json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def shields_fields(figures: BadgeFigures) -> dict[str, Any]:
    """As https://shields.io/badges/endpoint-badge has them."""
    colours = (colour for least, colour in _COLOURS if figures.rate >= least)
    return {
        "schemaVersion": 1,
        "label": one_line(figures.run.suite, _LONGEST_LABEL) or "pass rate",
        "message": figures.message,
        "color": next(colours, "red"),
    }


def is_badge(text: str) -> bool:
    """Whether a file is one that may be replaced by another."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("schemaVersion") == 1 and "message" in told


def _figures(figures: BadgeFigures) -> dict[str, Any]:
    summary = figures.summary
    return {
        "suite": well_formed(figures.run.suite),
        "run": well_formed(figures.run.id),
        "variant": {well_formed(axis): well_formed(v) for axis, v in figures.choice.items()},
        "last_tested": moment(figures.run.started_at),
        "pass_rate": figures.rate,
        "pass_rate_interval": figures.interval,
        "cases": summary.cases,
        "trials": summary.trials,
        "passed": summary.passed,
        "failed": summary.failed,
        "errors": summary.errors,
        "rate_if_errors_failed": summary.rate_if_errors_failed,
        "rate_if_errors_passed": summary.rate_if_errors_passed,
        "cost_usd": finite(figures.cost_usd),
        "median_s": seconds(summary.median_s),
        "model": None if figures.model is None else well_formed(figures.model),
    }
