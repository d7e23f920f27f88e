"""A history for programs: `paraval history --json`, and `-o history.json`.

{"schema": 1, "suite", "choice": {axis: value}, "older" (runs that were not asked for),
 "unfitting" (runs without a trial of the choice), "unreadable": {run: why},
 "runs": [{"id", "started_at", "ended_at", "state": complete | running | held_back | interrupted,
           "partial" (true: the figures are not over all that was planned), "planned", "done",
           "wall_s", "suite_cases" (null: unknown), "cases_in_run",
           "chosen_variants" (null: all ran), "suite_variants" (null: unknown), ...figures...,
           "parts": {part: digest}, "changed": [part], "changes": [words],
           "compared_with" (a run | null),
           "shifts": [{"variant": {axis: value} | null, "since", "finding": better | worse,
                       "difference", "interval": [low, high], "confidence", "cases",
                       "at_any_time", "sentence"}],
           "variants": [{"variant": {axis: value}, ...figures...}]}]}

Figures: "trials", "passed", "failed", "errors", "skipped", "cases" (judged), "pass_rate" (null
where nothing was judged), "pass_rate_interval", "rate_if_errors_failed", "rate_if_errors_passed",
"score", "cost_usd" (judges included; null where nothing is known), "cost_unknown", "median_s",
"p95_s" (both of judged trials), "timeouts" (in neither). Runs are in the order in which they began,
the newest last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paraval.records import Variant
from paraval.report.as_json import moment
from paraval.report.costs import finite, seconds
from paraval.report.history.records import Entry, History, Shift
from paraval.report.history.words import shift_words
from paraval.report.summary import Tally
from paraval.report.text import well_formed

SCHEMA = 1


def history_as_dict(history: History) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "suite": well_formed(history.suite),
        "choice": _texts(history.choice),
        "older": history.older,
        "unfitting": history.unfitting,
        "unreadable": _texts(history.unreadable),
        "runs": [_run(entry) for entry in history.entries],
    }


def _run(entry: Entry) -> dict[str, Any]:
    run = entry.run
    return {
        "id": well_formed(run.id),
        "started_at": moment(run.started_at),
        "ended_at": moment(run.ended_at),
        "state": entry.standing.value,
        "partial": entry.is_partial,
        "planned": run.trials,
        "done": run.done,
        "wall_s": seconds(run.wall_s),
        "suite_cases": entry.suite_cases,
        "cases_in_run": entry.cases,
        "chosen_variants": well_formed(entry.chosen_variants) or None,
        "suite_variants": entry.suite_variants,
        **_figures(entry.summary),
        "parts": _texts(run.parts),
        "changed": [change.part for change in entry.changes],
        "changes": [change.words for change in entry.changes],
        "compared_with": entry.compared_with,
        "shifts": [_shift(shift) for shift in entry.shifts],
        "variants": [
            {"variant": variant_as_dict(one.variant), **_figures(one)}
            for one in entry.summary.variants
        ],
    }


def _figures(tally: Tally) -> dict[str, Any]:
    return {
        "trials": tally.trials,
        "passed": tally.passed,
        "failed": tally.failed,
        "errors": tally.errors,
        "skipped": tally.skipped,
        "cases": tally.cases,
        "pass_rate": tally.pass_rate,
        "pass_rate_interval": tally.pass_rate_interval,
        "rate_if_errors_failed": tally.rate_if_errors_failed,
        "rate_if_errors_passed": tally.rate_if_errors_passed,
        "score": finite(tally.score),
        "cost_usd": finite(tally.total_cost_usd),
        "cost_unknown": tally.target.is_partly_unknown or tally.judging.is_partly_unknown,
        "median_s": seconds(tally.median_s),
        "p95_s": seconds(tally.p95_s),
        "timeouts": tally.timeouts,
    }


def _shift(shift: Shift) -> dict[str, Any]:
    return {
        "variant": None if shift.variant is None else variant_as_dict(shift.variant),
        "since": shift.since,
        "finding": "better" if shift.difference > 0 else "worse",
        "difference": shift.difference,
        "interval": shift.interval,
        "confidence": shift.confidence,
        "cases": shift.cases,
        "at_any_time": shift.at_any_time,
        "sentence": shift_words(shift, well_formed),
    }


def variant_as_dict(variant: Variant) -> dict[str, Any]:
    """An axis value names a variant: what JSON cannot say as a number is said as text."""
    return {well_formed(axis): _value(value) for axis, value in variant.items()}


def _value(value: object) -> object:
    if isinstance(value, str):
        return well_formed(value)
    return str(value) if isinstance(value, float) and finite(value) is None else value


def _texts(told: Mapping[str, str]) -> dict[str, str]:
    return {well_formed(name): well_formed(text) for name, text in told.items()}
