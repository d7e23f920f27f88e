"""A comparison for programs: `paraval compare --json`, and `-o comparison.json`.

For two sides:

{"schema": 1, "metric": pass | score, "seed",
 "comparison": {"sentence", "finding": better | worse | no difference shown, "cases",
                "confidence", "rate_subject", "rate_reference",
                "passing": {"mean", "interval": [low, high], "p", "adjusted_p", "method", "wins",
                            "losses"} | null,
                "score": the same | null, "detectable", "if_errors": [least, most] | null,
                "seconds": {"ratio", "interval": [low, high], "cases", "of_totals"} | null,
                "cost": the same | null, "timeouts_subject", "timeouts_reference",
                "pass_at": [{"k", "cases", "any_subject", "any_reference", "all_subject",
                             "all_reference"}],
                "left_out": {"only_subject": [case], "only_reference", "unjudged",
                             "unjudged_subject", "unjudged_reference"},
                "turned": {"broke": [case], "mended", "flaky"},
                "stopped": {"used", "planned", "decided", "futile"} | null,
                "subject": {"label", "choice": {axis: value}, "run"}, "reference": the same,
                "axis", "over": {axis: values}, "among"},
 "variants": [{"variant": {axis: value}, "comparison": the same, adjusted for their number}],
 "reference": {"name", "label", "choice": {axis: value}, "run", "suite", "started_at", "ended_at",
               "interrupted", "held_back", "running", "trials", "passed", "failed", "errors",
               "skipped", "cases", "pass_rate", "pass_rate_interval": [low, high],
               "rate_if_errors_failed", "rate_if_errors_passed", "score", "score_interval",
               "cost_usd", "trials_of_unknown_cost", "median_s", "p95_s",
               "timeouts" (not in either time)},
 "subject": the same,
 "changed": {"regressed": [{"case", "variant": {axis: value}, "reference": {"trial", "output",
                            "reason"} | null, "subject": the same}], "fixed": the same,
             "left_out": number beyond the first 2,000 of each},
 "notices": [sentence],
 "gate": {"verdict": met | missed | unknown, "sentence", ...figures...} | null}

For one run: {"schema": 1, "run": {"name", "id", "suite"}, "metric", "seed",
"comparisons": [...], "not_made"}.

Differences are subject minus reference, in shares (0.12: twelve points); ratios are subject divided
by reference. A number that JSON cannot express (an infinite bound) is null.
"""

from __future__ import annotations

from typing import Any

from paraval.records import TrialResult
from paraval.report.baseline_gate import drop_as_dict
from paraval.report.compare.outline import ChangedCase, changed_cases, passing_reason
from paraval.report.compare.two_runs import ComparisonSide, SideComparison, notices_of
from paraval.report.compare.within_run import VariantComparisons
from paraval.report.formats.json import comparison_as_dict, moment
from paraval.report.gate import DropVerdict
from paraval.report.reasons import reason
from paraval.report.summary.costs import seconds
from paraval.text.terminal import well_formed

SCHEMA = 1
_MOST_CHANGED = 2_000


def versus_as_dict(versus: SideComparison, drop: DropVerdict | None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "metric": versus.question.metric.value,
        "seed": versus.question.seed,
        "comparison": comparison_as_dict(versus.comparison),
        "variants": [
            {
                "variant": {well_formed(axis): value for axis, value in variant.items()},
                "comparison": comparison_as_dict(comparison),
            }
            for variant, comparison in versus.by_variant
        ],
        "reference": _side(versus.reference),
        "subject": _side(versus.subject),
        "changed": _changed(versus),
        "notices": list(notices_of(versus, well_formed)),
        "gate": None if drop is None else drop_as_dict(drop),
    }


def _changed(versus: SideComparison) -> dict[str, Any]:
    """Both answers and both reasons of the cases that regressed, and of those that were fixed."""
    found = {
        one.kind: one for one in changed_cases(versus, well_formed, _MOST_CHANGED, _MOST_CHANGED)
    }
    names = {"regressed": "broke", "fixed": "mended"}
    lists = {
        name: list(map(_changed_case, found[kind].cases)) if kind in found else []
        for name, kind in names.items()
    }
    return {**lists, "left_out": sum(found[kind].more for kind in names.values() if kind in found)}


def _changed_case(case: ChangedCase) -> dict[str, Any]:
    one = case.subject or case.reference
    variant = {} if one is None else one.variant
    return {
        "case": well_formed(case.name if one is None else one.case_id),
        "variant": {well_formed(axis): value for axis, value in variant.items()},
        "reference": _answer(case.reference),
        "subject": _answer(case.subject),
    }


def _answer(result: TrialResult | None) -> dict[str, Any] | None:
    if result is None:
        return None
    end = result.result
    return {
        "trial": result.index,
        "output": None if end.output is None else well_formed(end.output.text),
        "reason": well_formed(passing_reason(result) or reason(end)),
    }


def within_as_dict(within: VariantComparisons) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "run": {
            "name": well_formed(within.name),
            "id": well_formed(within.run.id),
            "suite": well_formed(within.run.suite),
        },
        "metric": within.metric.value,
        "seed": within.seed,
        "comparisons": [comparison_as_dict(one) for one in within.comparisons],
        "not_made": within.not_made,
    }


def _side(side: ComparisonSide) -> dict[str, Any]:
    run, summary = side.run, side.summary
    known = side.tells_run
    interval, scores = summary.pass_rate_interval, summary.score_interval
    return {
        "name": well_formed(side.name),
        "label": well_formed(side.label),
        "choice": {well_formed(axis): well_formed(text) for axis, text in side.choice.items()},
        "run": well_formed(run.id) if known else None,
        "suite": well_formed(run.suite) if known else None,
        "started_at": moment(run.started_at) if known else None,
        "ended_at": moment(run.ended_at) if known else None,
        "interrupted": run.interrupted,
        "held_back": run.held_back,
        "running": run.running,
        "trials": summary.trials,
        "passed": summary.passed,
        "failed": summary.failed,
        "errors": summary.errors,
        "skipped": summary.skipped,
        "cases": summary.cases,
        "pass_rate": summary.pass_rate,
        "pass_rate_interval": None if interval is None else list(interval),
        "rate_if_errors_failed": summary.rate_if_errors_failed,
        "rate_if_errors_passed": summary.rate_if_errors_passed,
        "score": summary.score,
        "score_interval": None if scores is None else list(scores),
        "cost_usd": summary.cost_usd,
        "trials_of_unknown_cost": summary.target.unpriced,
        "median_s": seconds(summary.median_s),
        "p95_s": seconds(summary.p95_s),
        "timeouts": summary.timeouts,
    }
