"""Traces for OpenTelemetry, and what was sent in the JSON report: `-o x.otlp.jsonl`, `--full`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf import json_format
from opentelemetry.proto.trace.v1 import trace_pb2

import paraval as api
from paraval.records import AttemptRecord, AttemptResult, Exchange, Failure, Outcome
from paraval.report.report import Report
from paraval.testing import loopback
from tests.conftest import Paraval, WriteSuite
from tests.test_agent_transcripts import suite_of
from tests.test_report import HOSTILE, Made, written
from tests.test_tool_calls import SCENARIO, TOOLS

NANOSECONDS = re.compile(r"\d{1,20}")


class Span(NamedTuple):
    name: str
    span_id: str
    parent: str
    start: int
    end: int
    status: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]


def values_of(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    values = {}
    for one in attributes:
        ((kind, value),) = one["value"].items()
        assert one["key"] not in values
        values[one["key"]] = int(value) if kind == "intValue" else value
        assert kind != "intValue" or isinstance(value, str), "64 bits are a string in JSON"
    return values


def traces(text: str) -> list[list[Span]]:
    """The spans of each line, after a check by the rules of OTLP/JSON and by protobuf."""
    found = []
    for line in text.removesuffix("\n").split("\n"):
        document = json.loads(line)
        spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
        assert {len(span["traceId"]) for span in spans} == {32}
        assert len({span["traceId"] for span in spans}) == 1, "a trace for each trial"
        ids = [span["spanId"] for span in spans]
        assert len(set(ids)) == len(ids)
        found.append([_span(span) for span in spans])
        assert all(span.parent in ids for span in found[-1][1:])
        assert not found[-1][0].parent
        # protobuf's own JSON has bytes in base64, where OTLP has digits.
        for span in spans:
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in span:
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        json_format.Parse(json.dumps(document), trace_pb2.TracesData())
    return found


def _span(span: dict[str, Any]) -> Span:
    for name in ("startTimeUnixNano", "endTimeUnixNano"):
        assert isinstance(span[name], str)
        assert NANOSECONDS.fullmatch(span[name])
    for name in ("traceId", "spanId"):
        assert re.fullmatch("[0-9a-f]{16,32}", span[name])
    assert span["kind"] in (1, 3)
    return Span(
        name=span["name"],
        span_id=span["spanId"],
        parent=span.get("parentSpanId", ""),
        start=int(span["startTimeUnixNano"]),
        end=int(span["endTimeUnixNano"]),
        status=span.get("status", {}).get("code", 0),
        attributes=values_of(span["attributes"]),
        events=[(one["name"], values_of(one["attributes"])) for one in span.get("events", ())],
    )


@pytest.fixture
def judged(write: WriteSuite, paraval: Paraval) -> Iterator[None]:
    with loopback(answers=[{"text": '{"reason": "kind", "score": 0.8}'}]) as judges:
        entry = {"provider": "openai", "base_url": judges.base_url, "model": "gpt-judge"}
        write(
            "suite.yaml",
            f"""
            models:
              sim: {{provider: loopback}}
              judge: {json.dumps({**entry, "api_key_env": "PATH"})}
            cases:
              - {{id: one, input: say one, expect: one}}
              - {{id: two, input: say two, expect: three}}
            matrix: {{style: [brief, long]}}
            target:
              chat: {{model: sim, system: "Be {{style}}.", prompt: "{{input}}", temperature: 0.5}}
            graders: [contains, {{judge: {{model: judge, rubric: Is it kind?}}}}]
            """,
        )
        paraval("run", "suite.yaml", "-o", "first.otlp.jsonl")
        yield


def test_each_trial_is_a_trace_of_its_attempts_calls_and_evaluations(
    judged: None, paraval: Paraval, folder: Path
) -> None:
    assert judged is None
    text = (folder / "first.otlp.jsonl").read_text()
    first, _, third, _ = traces(text)
    trial, attempt, chat, judge = first
    assert [one.name for one in first] == ["trial one", "attempt 1", "chat sim", "chat gpt-judge"]
    assert attempt.parent == trial.span_id
    assert chat.parent == judge.parent == attempt.span_id
    assert trial.start <= attempt.start <= chat.start < chat.end <= judge.start <= trial.end
    assert trial.attributes["paraval.variant.style"] == "brief"
    assert trial.attributes["paraval.outcome"] == "passed"
    told = chat.attributes
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.provider.name"] == "loopback"
    assert told["gen_ai.request.model"] == told["gen_ai.response.model"] == "sim"
    assert told["gen_ai.request.temperature"] == 0.5
    assert told["gen_ai.usage.input_tokens"] > 0
    assert told["gen_ai.usage.output_tokens"] > 0
    assert told["gen_ai.response.finish_reasons"] == {"values": [{"stringValue": "stop"}]}
    assert json.loads(told["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "say one"}]},
    ]
    assert json.loads(told["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "say one"}],
            "finish_reason": "stop",
        }
    ]
    assert [name for name, _ in chat.events] == ["gen_ai.evaluation.result"] * 2
    assert chat.events[1][1] == {
        "gen_ai.evaluation.name": "judge",
        "gen_ai.evaluation.score.value": 0.8,
        "gen_ai.evaluation.score.label": "pass",
        "gen_ai.evaluation.explanation": "kind",
    }
    assert "Is it kind?" in judge.attributes["gen_ai.input.messages"]
    assert "kind" in judge.attributes["gen_ai.output.messages"]
    assert (judge.attributes["paraval.grader"], judge.attributes["paraval.time_unknown"]) == (
        "judge",
        True,
    )
    wrong = third[2]
    assert wrong.events[0][1]["gen_ai.evaluation.score.label"] == "fail"
    assert {span.status for span in third} == {0}, "a wrong answer is no error"

    assert paraval("report", "last", "-o", "second.otlp.jsonl").returncode == 0
    assert (folder / "second.otlp.jsonl").read_text() == text, "the same ids"


def test_the_full_json_report_has_what_was_sent_and_replied(
    judged: None, paraval: Paraval, folder: Path
) -> None:
    assert judged is None
    paraval("report", "-o", "short.json", "-o", "short.jsonl")
    paraval("report", "--full", "-o", "full.json", "-o", "full.jsonl")
    short = json.loads((folder / "short.json").read_text())
    full = json.loads((folder / "full.json").read_text())
    assert {len(trial["exchanges"]) for trial in short["trials"]} == {0}
    target, judge = full["trials"][0]["exchanges"]
    assert target["request"]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (target["by"], target["reply"]) == ("", None)
    assert judge["by"] == "judge"
    assert json.loads(judge["reply"]) == {"reason": "kind", "score": 0.8}
    lines = (folder / "full.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == full["trials"]
    refused = paraval("report", "--full", "-o", "r.csv")
    assert "--full is for JSON only: add -o report.json, or --json" in refused.stderr
    printed = json.loads(paraval("report", "--full", "--json").stdout)
    assert printed["trials"] == full["trials"]
    report = api.load_report(store=folder / ".paraval")
    assert report.to_dict(full=True)["trials"] == full["trials"]
    assert report.to_dict() == short
    compared = paraval("compare", "full.json", "short.json")
    assert "after passed 2/4, before 2/4" in compared.stdout, compared.stderr


def test_tool_calls_are_spans_inside_the_call_that_made_them(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("scenario.yaml", SCENARIO)
    write("weather.py", TOOLS)
    write(
        "suite.yaml",
        """
        models: {sim: {provider: loopback, scenario: scenario.yaml}}
        cases: [{id: paris, input: What is the weather in Paris?}, {id: sea, input: in Atlantis}]
        target: {chat: {model: sim, tools: ['weather:get_weather']}}
        """,
    )
    paraval("run", "suite.yaml", "-o", "t.otlp.jsonl")
    (_, _, chat, tool), (*_, failed) = traces((folder / "t.otlp.jsonl").read_text())
    assert (tool.name, tool.parent) == ("execute_tool get_weather", chat.span_id)
    assert tool.attributes["gen_ai.operation.name"] == "execute_tool"
    assert tool.attributes["gen_ai.tool.call.result"] == "sunny in Paris for 2 days"
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"])["city"] == "Paris"
    assert chat.start <= tool.start == tool.end <= chat.end
    asked, returned, said = json.loads(chat.attributes["gen_ai.output.messages"])
    assert asked["parts"][0] == {"type": "text", "content": "Let me look."}
    assert asked["parts"][1]["name"] == "get_weather"
    assert returned["parts"][0]["response"] == "sunny in Paris for 2 days"
    assert said["parts"][0]["content"] == "It is sunny in Paris for 2 days."
    assert (failed.status, failed.attributes["error.type"]) == (2, "tool_error")


def test_agents_commands_and_errors_have_spans(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a, input: Read a.txt.}]
        matrix: {by: {fine: {command: [echo, "{input}"]}, crash: {command: [sh, -c, "exit 7"]}}}
        target: {command: [echo]}
        """,
    )
    paraval("run", "suite.yaml", "-o", "t.otlp.jsonl")
    ran, crashed = traces((folder / "t.otlp.jsonl").read_text())
    assert ran[2].name == "command echo"
    words = [one["stringValue"] for one in ran[2].attributes["process.command_args"]["values"]]
    assert words == ["echo", "Read a.txt."]
    assert crashed[0].status == 2
    assert crashed[1].attributes["error.type"] == "crashed"

    write("agents.json", suite_of({"a": "say looking call Read say done"}))
    paraval("run", "agents.json", "-o", "t.otlp.jsonl")
    ((_, _, agent, tool),) = traces((folder / "t.otlp.jsonl").read_text())
    assert agent.name == "invoke_agent claude-code"
    assert agent.attributes["gen_ai.agent.name"] == "claude-code"
    sent = json.loads(agent.attributes["gen_ai.input.messages"])
    assert sent[0]["parts"][0]["content"] == "Be brief."
    said = json.loads(agent.attributes["gen_ai.output.messages"])
    assert [one["role"] for one in said] == ["assistant", "assistant", "tool", "assistant"]
    assert tool.name == "execute_tool Read"


class WithAttempts(Made):
    """A retried attempt and one that never ended, with hostile texts."""

    def attempts(self) -> Iterator[AttemptRecord]:
        for index, text in enumerate(HOSTILE):
            failed = AttemptResult(
                outcome=Outcome.RATE_LIMITED,
                error=Failure(kind=Outcome.RATE_LIMITED, message=text),
                duration_s=0.5,
                score=float("nan"),
            )
            for number, result in ((1, failed), (2, None)):
                yield AttemptRecord(
                    index=index,
                    case_id=f"{index} {text}",
                    variant={"axis": text, "number": 2**70, "size": float("inf")},
                    repeat=1,
                    number=number,
                    started_at=1_700_000_000.25 + number,
                    folder="",
                    result=result,
                )

    def exchanges(self, index: int, number: int | None = None) -> tuple[Exchange, ...]:
        text = HOSTILE[index]
        content = [{"type": "text", "text": text}, {"a": text}, 5]
        odd: dict[str, Any] = {"model": text, "messages": [{"role": 7, "content": content}, text]}
        foreign: tuple[dict[str, Any], ...] = (
            {"command": []},
            {"command": text},
            {"messages": 5},
            {"agent": [text]},
        )
        requests = (odd, *foreign) if index == 0 else (odd,)
        judges = (Exchange(by="judge", request=one, reply=text) for one in requests[1:])
        return (Exchange(request=odd), *judges) if number == 1 else ()


def test_hostile_texts_odd_numbers_and_retries_make_valid_traces() -> None:
    found = traces(written(Report(WithAttempts(trials=[], info_with={})), ".otlp.jsonl"))
    assert len(found) == len(HOSTILE)
    for trial, refused, chat, *_, unended in found:
        assert chat.parent == refused.span_id
        assert (refused.attributes["error.type"], refused.status) == ("rate_limited", 2)
        assert unended.attributes["error.type"] == "unended"
        assert trial.start == refused.start == 1_700_000_001_250_000_000
        assert trial.end == unended.end == 1_700_000_002_250_000_000
