"""The JSON report: one document, one line per trial, in plan order. `json_schema` defines its
keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

from paraval.codec import Style, picked, to_data
from paraval.records import Case, Outcome, RunInfo, Spend, TrialResult
from paraval.report.compare.claims import claim_of
from paraval.report.compare.comparison import Comparison
from paraval.report.contents import Contents
from paraval.report.formats.json_schema import (
    SCHEMA,
    ComparisonEntry,
    ErrorEntry,
    GradeEntry,
    RunEntry,
    SpendEntry,
    TrialEntry,
)
from paraval.report.reasons import reason
from paraval.report.summary.costs import is_known, spend_of, tokens_in, told_usd, usage_of
from paraval.report.transcript import exchanges_data
from paraval.text.terminal import well_formed


class AsJson:
    """Written trial by trial, so that only the disk limits its size."""

    def write(self, contents: Contents, file: TextIO) -> None:
        file.write("{")
        file.writelines(f'"{key}": {to_json(value)},\n ' for key, value in _head(contents).items())
        file.write('"trials": [')
        for number, trial in enumerate(_trials(contents)):
            file.write(",\n  " if number else "\n  ")
            file.write(to_json(trial))
        file.write("]}\n")


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def document(contents: Contents) -> dict[str, Any]:
    """The whole report in memory; for a run whose trials fit."""
    return {**_head(contents), "trials": list(_trials(contents))}


def _trials(contents: Contents) -> Iterator[dict[str, Any]]:
    for result, case in contents.trials_with_cases():
        entry = trial_as_dict(result, case)
        if contents.full:
            entry["exchanges"] = exchanges_data(contents.source.exchanges(result.index))
        yield entry


def trial_as_dict(result: TrialResult, case: Case | None = None) -> dict[str, Any]:
    end = result.result
    entry = TrialEntry(
        index=result.index,
        case=result.case_id,
        tags=() if case is None else case.tags,
        input=None if case is None else case.input,
        expect=None if case is None else case.expect,
        metadata={} if case is None else case.metadata,
        variant=result.variant,
        repeat=result.repeat,
        outcome=end.outcome,
        passed=end.outcome is Outcome.PASSED if end.outcome.is_judged else None,
        score=end.score,
        grades=tuple(picked(GradeEntry, grade) for grade in end.grades),
        reason="" if end.outcome is Outcome.PASSED else reason(end),
        attempts=result.attempts,
        total_s=result.total_s,
        target_s=result.target_s,
        queued_s=result.queued_s,
        tokens=tokens_in(usage_of(result)),
        **_spend(spend_of(result), usage=usage_of(result)),
        judging=None if result.judging is None else SpendEntry(**_spend(result.judging)),
        retries=result.retries,
        retry_errors=tuple(picked(ErrorEntry, error) for error in result.retry_errors),
        unended=result.unended,
        output=None if end.output is None else end.output.text,
        steps=() if end.output is None else end.output.steps,
        error=None if end.error is None else picked(ErrorEntry, end.error),
        artifacts=end.artifacts,
        exit_code=end.exit_code,
        notes=end.notes,
        activity=end.activity,
        change=end.change,
        cpu_s=end.cpu_s,
        memory_bytes=end.memory_bytes,
        node=end.node,
    )
    return to_data(entry, Style.SHOWN)


def comparison_as_dict(comparison: Comparison) -> dict[str, Any]:
    told = claim_of(comparison, well_formed).sentence
    return to_data(picked(ComparisonEntry, comparison, sentence=told), Style.SHOWN)


def moment(epoch_s: float | None) -> str | None:
    """`2026-01-31T12:00:00.000Z`."""
    if epoch_s is None:
        return None
    told = datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
    return told.removesuffix("+00:00") + "Z"


def _head(contents: Contents) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "run": to_data(_run(contents.run), Style.SHOWN),
        "summary": to_data(contents.summary, Style.SHOWN),
        "comparisons": [comparison_as_dict(one) for one in contents.comparisons],
        "best_variant": contents.best_variant and to_data(contents.best_variant, Style.SHOWN),
        "pairwise": [to_data(one, Style.SHOWN) for one in contents.pairwise],
        "judges": [to_data(one, Style.SHOWN) for one in contents.judges],
        "gate": to_data(contents.gate, Style.SHOWN),
    }


def _run(run: RunInfo) -> RunEntry:
    return picked(
        RunEntry,
        run,
        started_at=moment(run.started_at),
        ended_at=moment(run.ended_at),
        planned=run.trials,
        dropped_cost_usd=run.dropped_usd or (None if run.dropped_unknown else 0.0),
        dropped_cost_unknown=run.dropped_unknown,
    )


def _spend(spend: Spend | None, usage: Any = None) -> dict[str, Any]:
    """The fields of a SpendEntry."""
    if spend is None:
        return {"usage": usage}
    return {
        "usage": spend.original_usage,
        "cost_usd": told_usd(spend),
        "spent_usd": spend.known_usd,
        "cached_s": spend.cached_s,
        "calls": None if spend.calls_unknown else spend.calls,
        "cached": spend.cached,
        "cost_unknown": not is_known(spend),
    }


# JSON Lines: the trials of the JSON report, one per line, in plan order.


class AsJsonLines:
    def write(self, contents: Contents, file: TextIO) -> None:
        file.writelines(to_json(trial) + "\n" for trial in _trials(contents))
