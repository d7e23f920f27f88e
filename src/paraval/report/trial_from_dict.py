"""A trial of the JSON report, read back: what `as_json.trial_as_dict` wrote of it.

The file may be anybody's. What must be there and is not, or is something else, is a ValueError that
names it; what this version doesn't know is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paraval.isolation import Activity, Change, FileChange, McpState, ToolUse
from paraval.records import (
    AttemptResult,
    Failure,
    Grade,
    Outcome,
    Output,
    Scalar,
    Spend,
    TrialResult,
)
from paraval.report.fields import NOTHING, Fields

_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


def trial_from_dict(data: object) -> TrialResult:
    fields = Fields(data, "a trial")
    spend = _spend(fields)
    total_s = fields.amount("duration_s") or 0.0
    judging = fields.fields("judging")
    retries = fields.mapping("retries")
    return TrialResult(
        index=fields.whole("index"),
        case_id=fields.text("case"),
        variant=_variant(fields),
        repeat=fields.whole("repeat"),
        result=_result(fields, total_s, usage={} if spend else _usage(fields)),
        attempts=fields.whole("attempts", default=1),
        queued_s=fields.number("queued_s"),
        total_s=total_s,
        spend=spend,
        judging=None if judging is None else _spend(judging) or Spend(cost_usd=None),
        retries={_outcome(kind): retries.whole(kind) for kind in retries.names()},
        retry_errors=tuple(_failure(error) for error in fields.each("retry_errors")),
        unended=fields.whole("unended", default=0),
    )


def _result(fields: Fields, total_s: float, usage: Mapping[str, float]) -> AttemptResult:
    answer, error = fields.maybe_text("output"), fields.fields("error")
    artifacts = fields.mapping("artifacts")
    activity, change = fields.fields("activity"), fields.fields("change")
    return AttemptResult(
        outcome=_verdict(fields),
        output=None if answer is None else Output(text=answer, usage=usage),
        grades=tuple(_grade(grade) for grade in fields.each("grades")),
        score=fields.share("score"),
        error=None if error is None else _failure(error),
        duration_s=total_s,
        exit_code=fields.maybe_whole("exit_code"),
        artifacts={name: artifacts.text(name) for name in artifacts.names()},
        notes=fields.texts("notes"),
        activity=None if activity is None else _activity(activity),
        change=None if change is None else _change(change),
        cpu_s=fields.number("cpu_s"),
        memory_bytes=fields.maybe_whole("memory_bytes"),
    )


def _spend(fields: Fields) -> Spend | None:
    """None where nothing was told, which is not the same as an unknown cost."""
    usd, is_unknown = fields.amount("cost_usd"), fields.flag("cost_unknown")
    if usd is None and not is_unknown:
        return None
    calls_unknown = "calls" in fields.names() and not fields.has("calls")
    return Spend(
        calls=fields.whole("calls", default=1 if calls_unknown else 0),
        calls_unknown=calls_unknown,
        cached=fields.whole("cached", default=0),
        cost_usd=None if is_unknown else usd,
        part_usd=(usd or 0.0) if is_unknown else 0.0,
        usage=_usage(fields),
    )


def _usage(fields: Fields) -> dict[str, float]:
    usage = fields.mapping("usage")
    if usage is NOTHING:
        return {}
    amounts = {name: usage.number(name) for name in usage.names()}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _variant(fields: Fields) -> dict[str, Scalar]:
    variant = fields.mapping("variant", is_needed=True)
    return {axis: variant.scalar(axis) for axis in variant.names()}


def _outcome(name: str) -> Outcome:
    found = _OUTCOMES.get(name)
    if found is None:
        raise ValueError(f"'{name[:40]}' is no outcome")
    return found


def _verdict(fields: Fields) -> Outcome:
    """The trial's outcome, where the file doesn't say another beside it."""
    outcome = _outcome(fields.text("outcome"))
    passed = fields.flag("passed")
    if fields.has("passed") and passed is not (outcome is Outcome.PASSED):
        said = "true" if passed else "false"
        raise ValueError(f"'passed' is {said}, but 'outcome' is '{outcome.value}'")
    return outcome


def _grade(fields: Fields) -> Grade:
    return Grade(
        score=fields.number("score") or 0.0,
        passed=fields.flag("passed"),
        reason=fields.maybe_text("reason") or "",
        grader=fields.maybe_text("grader") or "",
        agreement=fields.number("agreement"),
    )


def _failure(fields: Fields) -> Failure:
    message = fields.maybe_text("message") or ""
    lasting = fields.flag("lasting")
    return Failure(kind=_outcome(fields.text("kind")), message=message, lasting=lasting)


def _activity(fields: Fields) -> Activity:
    mcp = fields.mapping("mcp")
    return Activity(
        turns=fields.maybe_whole("turns"),
        tools=tuple(_tool(tool) for tool in fields.each("tools")),
        mcp={name: _state(mcp.text(name)) for name in mcp.names()},
        tells_tools=fields.flag("tells_tools"),
        session=fields.maybe_text("session"),
        version=fields.maybe_text("version"),
        model=fields.maybe_text("model"),
    )


def _tool(fields: Fields) -> ToolUse:
    return ToolUse(
        name=fields.text("name"),
        server=fields.maybe_text("server"),
        calls=fields.whole("calls", default=0),
        failed=fields.whole("failed", default=0),
    )


def _state(name: str) -> McpState:
    return McpState(name) if name in {state.value for state in McpState} else McpState.UNKNOWN


def _change(fields: Fields) -> Change:
    numbers: dict[str, Any] = {
        name: fields.whole(name, default=0)
        for name in (
            "files_added",
            "files_changed",
            "files_deleted",
            "binary_files",
            "lines_added",
            "lines_deleted",
        )
    }
    return Change(
        **numbers,
        files=tuple(_file(file) for file in fields.each("files")),
        tampering=fields.texts("tampering"),
        unknown=fields.maybe_text("unknown"),
    )


def _file(fields: Fields) -> FileChange:
    return FileChange(
        path=fields.text("path"),
        status=fields.text("status"),
        lines_added=fields.maybe_whole("lines_added"),
        lines_deleted=fields.maybe_whole("lines_deleted"),
        binary=fields.flag("binary"),
    )
