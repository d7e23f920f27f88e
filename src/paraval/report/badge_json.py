"""A badge as a JSON file: our figures, and the fields that shields.io asks of an endpoint.

shields.io takes its own fields and no other: a badge with more is drawn as "invalid properties". So
a file named `.shields.json` has those alone; any other `.json` has all, for programs, and for
badges that are drawn from one field of a file.
"""

from __future__ import annotations

import json
from typing import Any

from paraval.report.as_json import moment
from paraval.report.badge_figures import Figures
from paraval.report.costs import finite, seconds
from paraval.report.text import one_line, well_formed

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


def badge_json(figures: Figures, *, for_shields: bool) -> str:
    told = shields_fields(figures)
    if not for_shields:
        told |= _figures(figures)
    return json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def shields_fields(figures: Figures) -> dict[str, Any]:
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


def _figures(figures: Figures) -> dict[str, Any]:
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
