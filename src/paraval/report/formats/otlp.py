"""Traces as an OpenTelemetry collector reads them from files: OTLP/JSON, one line per trial.

A trial is a span with its attempts as children. In an attempt are the call of its target, with its
tool calls, and those of its judges, by the semantic conventions for generative AI. The store has
the times of attempts and targets. Tool calls and judges have none: their spans are of no duration,
in order, and have `paraval.time_unknown`. Ids are hashes, so that a second export has the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from importlib.metadata import version
from itertools import groupby
from typing import Any, TextIO

from paraval.codec import finite, shown
from paraval.dataclass import dataclass
from paraval.records import AttemptRecord, AttemptResult, Exchange, Grade, Step, ToolCall
from paraval.report.contents import Contents
from paraval.report.formats.json import to_json
from paraval.text.terminal import well_formed

_INTERNAL, _CLIENT = 1, 3
_ERROR = 2
_UNENDED = "unended"
"""`error.type` of an attempt whose engine was stopped."""
_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_OPTIONS = ("temperature", "max_tokens", "top_p", "top_k", "seed")

Attributes = Mapping[str, Any]


class AsOtlp:
    """Written trial by trial."""

    def write(self, contents: Contents, file: TextIO) -> None:
        run, own = contents.run, version("paraval")
        resource = {"service.name": "paraval", "service.version": own}
        resource |= {"paraval.run.id": run.id, "paraval.suite": run.suite}
        scope = {"name": "paraval", "version": own}
        for _, attempts in groupby(contents.attempts(), key=lambda one: one.index):
            line = {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [
                    {"scope": scope, "spans": [*_trial_spans(list(attempts), contents)]}
                ],
            }
            file.write(to_json({"resourceSpans": [line]}) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a span is: its trace, its parent, and its time in seconds since the epoch."""

    path: tuple[str, ...]
    """The trial, then the names of the spans down to this one: hashed, the id."""
    start: float
    end: float
    time_unknown: bool = False

    def inside(self, name: str, start: float, end: float) -> _Place:
        return replace(self, path=(*self.path, name), start=start, end=end)

    def without_time(self, name: str, position: int) -> _Place:
        """Of no duration, but in order."""
        at = self.start + position * 1e-6
        place = self.inside(name, at, at)
        return replace(place, time_unknown=True)

    def span(
        self,
        name: str,
        kind: int,
        attributes: Attributes,
        events: Sequence[Mapping[str, Any]] = (),
        error: str = "",
    ) -> dict[str, Any]:
        unknown = {"paraval.time_unknown": True} if self.time_unknown else {}
        made: dict[str, Any] = {
            "traceId": _hash(self.path[:1], 16),
            "spanId": _hash(self.path, 8),
            "name": well_formed(name),
            "kind": kind,
            "startTimeUnixNano": _nanoseconds(self.start),
            "endTimeUnixNano": _nanoseconds(self.end),
            "attributes": _attributes({**attributes, **unknown}),
        }
        if len(self.path) > 1:
            made["parentSpanId"] = _hash(self.path[:-1], 8)
        if events:
            made["events"] = list(events)
        if error:
            made["status"] = {"code": _ERROR, "message": well_formed(error)}
        return made


# ---- trials and attempts


def _trial_spans(attempts: Sequence[AttemptRecord], contents: Contents) -> Iterator[dict[str, Any]]:
    first, last = attempts[0], attempts[-1]
    name = to_json(shown([contents.run.id, first.case_id, dict(first.variant), first.repeat]))
    ends = [
        one.started_at + (finite(one.result.duration_s) or 0 if one.result else 0)
        for one in attempts
    ]
    place = _Place(path=(name,), start=first.started_at, end=max(ends))
    attributes = {
        "paraval.case.id": first.case_id,
        "paraval.repeat": first.repeat,
        **{f"paraval.variant.{axis}": value for axis, value in first.variant.items()},
        **_ended(last.result),
    }
    yield place.span(f"trial {first.case_id}", _INTERNAL, attributes, error=_error(last.result))
    for attempt, end in zip(attempts, ends, strict=True):
        inside = place.inside(f"attempt {attempt.number}", attempt.started_at, end)
        exchanges = contents.exchanges(attempt.index, attempt.number)
        yield from _attempt_spans(attempt, exchanges, inside)


def _attempt_spans(
    attempt: AttemptRecord, exchanges: Sequence[Exchange], place: _Place
) -> Iterator[dict[str, Any]]:
    result = attempt.result
    target = next((one for one in exchanges if not one.by), None)
    grades = () if result is None else result.grades
    events = [_evaluation(grade, place.end) for grade in grades]
    attributes = {"paraval.attempt": attempt.number, **_ended(result)}
    if result is not None and result.node is not None:
        attributes["host.name"] = result.node
    on_attempt = () if target else events
    yield place.span(
        f"attempt {attempt.number}", _INTERNAL, attributes, on_attempt, error=_error(result)
    )
    target_s = finite(result.target_s) if result else None
    answered = place.end if target_s is None else min(place.start + target_s, place.end)
    if target is not None:
        inside = place.inside("target", place.start, answered)
        yield from _call_spans(target, result, inside, events)
    judging = replace(place, start=answered)
    for number, one in enumerate(one for one in exchanges if one.by):
        yield from _call_spans(one, None, judging.without_time(f"judge {number}", number), ())


def _ended(result: AttemptResult | None) -> Attributes:
    if result is None:
        return {"paraval.outcome": _UNENDED, "error.type": _UNENDED}
    spend = result.told_spend
    known = {
        "paraval.outcome": result.outcome.value,
        "paraval.score": result.score,
        "paraval.cost_usd": None if spend is None else spend.original_usd,
        "error.type": result.outcome.value if result.outcome.is_error else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _error(result: AttemptResult | None) -> str:
    if result is None:
        return "it never ended"
    if not result.outcome.is_error:
        return ""
    return result.outcome.value if result.error is None else result.error.message


def _evaluation(grade: Grade, at: float) -> dict[str, Any]:
    attributes = {
        "gen_ai.evaluation.name": grade.grader,
        "gen_ai.evaluation.score.value": float(grade.score),
        "gen_ai.evaluation.score.label": "pass" if grade.passed else "fail",
        "gen_ai.evaluation.explanation": grade.reason or None,
    }
    return {
        "name": "gen_ai.evaluation.result",
        "timeUnixNano": _nanoseconds(at),
        "attributes": _attributes(attributes),
    }


# ---- calls of models, agents, commands and tools


def _call_spans(
    exchange: Exchange,
    result: AttemptResult | None,
    place: _Place,
    events: Sequence[Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """The call of a target (with its result) or of a judge, and its tool calls."""
    request, output = exchange.request, result.output if result else None
    steps = exchange.steps or (output.steps if output else ())
    text = exchange.reply if exchange.by else output.text if output else None
    # With an output, the call itself did not fail: a grader did, or the output is not valid.
    error = _error(result) if result and output is None else ""
    known: dict[str, Any] = {"paraval.grader": exchange.by or None}
    if result and error:
        known["error.type"] = result.outcome.value
    if "command" in request:
        command = [str(word) for word in _list(request["command"])]
        known["process.command_args"] = command
        yield place.span(f"command {' '.join(command[:1])}", _INTERNAL, known, events, error)
        return
    operation, name = "chat", request.get("model")
    if "agent" in request:
        operation, name = "invoke_agent", request["agent"]
        known["gen_ai.agent.name"] = name
    if output is not None:
        reason = output.metadata.get("finish_reason")
        known["gen_ai.response.model"] = output.metadata.get("model")
        known["gen_ai.response.finish_reasons"] = None if reason is None else [str(reason)]
        spend = result.told_spend if result else None
        known["paraval.cached"] = True if spend and spend.cached else None
        usage = output.usage if spend is None else spend.original_usage
        known |= {_USAGE[key]: int(n) for key, n in usage.items() if key in _USAGE and finite(n)}
    known |= {f"gen_ai.request.{option}": request.get(option) for option in _OPTIONS}
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": request.get("provider"),
        "gen_ai.request.model": request.get("model"),
        "gen_ai.input.messages": to_json(shown([*_sent(request)])),
        "gen_ai.output.messages": to_json(shown([*_answered(steps, text, known)])),
        **known,
    }
    yield place.span(f"{operation} {name}", _CLIENT, attributes, events, error)
    calls = [call for step in steps for call in step.tool_calls]
    for number, call in enumerate(calls):
        yield _tool_span(call, place.without_time(f"tool {number}", number))


def _tool_span(call: ToolCall, place: _Place) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.call.arguments": _text(call.arguments),
        "gen_ai.tool.call.result": call.result,
        "error.type": "tool_error" if call.failed else None,
    }
    error = (call.result or "it failed") if call.failed else ""
    return place.span(f"execute_tool {call.name}", _INTERNAL, attributes, error=error)


def _sent(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Messages by the conventions: a role and parts."""
    if "messages" not in request:  # an agent
        for role, key in (("system", "system"), ("user", "prompt")):
            if request.get(key):
                yield {"role": role, "parts": [_text_part(request[key])]}
    for message in _list(request.get("messages")):
        role, content = (
            (message.get("role", "user"), message.get("content"))
            if isinstance(message, dict)
            else ("user", message)
        )
        parts = [
            part if isinstance(part, dict) and "text" not in part else _text_part(part)
            for part in _list(content)
        ]
        yield {"role": role, "parts": parts}


def _answered(
    steps: Sequence[Step], text: str | None, known: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    if steps and not steps[-1].tool_calls and steps[-1].text == text:
        steps = steps[:-1]  # The answer itself.
    for step in steps:
        said = [_text_part(step.text)] if step.text else []
        calls = [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
            for call in step.tool_calls
        ]
        why = "tool_call" if calls else "stop"
        yield {"role": "assistant", "parts": [*said, *calls], "finish_reason": why}
        results = [
            {"type": "tool_call_response", "id": call.id, "response": call.result}
            for call in step.tool_calls
            if call.result is not None
        ]
        if results:
            yield {"role": "tool", "parts": results}
    if text is not None:
        reasons = known.get("gen_ai.response.finish_reasons") or ["stop"]
        yield {"role": "assistant", "parts": [_text_part(text)], "finish_reason": reasons[0]}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _text_part(part: Any) -> dict[str, Any]:
    text = part["text"] if isinstance(part, Mapping) else part
    return {"type": "text", "content": _text(text)}


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(shown(value))


# ---- OTLP/JSON


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    return [
        {"key": well_formed(key), "value": made}
        for key, value in values.items()
        if (made := _value(value)) is not None
    ]


def _value(value: Any) -> dict[str, Any] | None:
    match value:
        case bool():
            return {"boolValue": value}
        case int() if abs(value) < 2**63:
            return {"intValue": str(value)}
        case float() if finite(value) is not None:
            return {"doubleValue": value}
        case str():
            return {"stringValue": well_formed(value)}
        case list():
            return {"arrayValue": {"values": [_value(one) for one in value]}}
    return None


def _hash(path: tuple[str, ...], size: int) -> str:
    return blake2b("\0".join(path).encode("utf-8", "replace"), digest_size=size).hexdigest()


def _nanoseconds(epoch_s: float) -> str:
    """Rounded to microseconds: a float has no more digits."""
    return str(max(0, round(epoch_s * 1e6)) * 1000)
