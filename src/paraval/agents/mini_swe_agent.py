"""mini-swe-agent: everything is in the trajectory, a file written after every step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paraval.agents.json_output import (
    amount_in,
    amounts_in,
    clean,
    count_in,
    in_words,
    last_line,
    last_lines,
    mapping_in,
    mappings_in,
    text_in,
)
from paraval.agents.program import AgentEnd, AgentJob, Launch, Login, Transcript, TranscriptReading
from paraval.agents.provider_errors import end_in, end_of_litellm, wait_in
from paraval.agents.steps import StepLog, content_text
from paraval.records import Activity, Provider

_USAGE = {
    "input_tokens": ("prompt_tokens",),
    "output_tokens": ("completion_tokens",),
    "cached_tokens": ("prompt_tokens_details", "cached_tokens"),
    "reasoning_tokens": ("completion_tokens_details", "reasoning_tokens"),
}
_OWN_LIMITS = {"TimeExceeded": "time", "RepeatedFormatError": "format_errors"}


RETRIES = 3
"""Its own retries, over a quarter of a minute; by default nine, over more than five minutes, even
for errors that never go away. It cannot resume a session."""


class MiniSweAgent:
    """`mini --yolo`."""

    name = "mini-swe-agent"
    programs: tuple[str, ...] = ("mini", "mini-swe-agent")
    version_arguments: tuple[str, ...] = ("--help",)
    login = Login(
        key_variables=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "MSWEA_API_KEY"),
        files=(".config/mini-swe-agent/.env",),
        command="mini-extra config setup",
    )
    speaks = frozenset({Provider.OPENAI, Provider.LOOPBACK})
    takes = frozenset({"max_turns", "retries", "before_first", "model"})
    takes_in_own_home: frozenset[str] = frozenset()
    # litellm imports mcp without requiring it; without mcp it fails in the middle of a run.
    install = "python -m pip install mini-swe-agent mcp"

    def launch(self, job: AgentJob) -> Launch:
        env = {
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            # An unknown price would be an error.
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": str(1 + job.all_retries(RETRIES)),
        }
        if job.home is not None:
            env["MSWEA_GLOBAL_CONFIG_DIR"] = f"{job.home}/.config/mini-swe-agent"
        model = job.model
        if job.endpoint is not None:
            model = f"openai/{job.endpoint.model}"
            env["OPENAI_API_BASE"] = job.endpoint.base_url
            env["OPENAI_API_KEY"] = job.endpoint.api_key
        options = ["-y", "--exit-immediately", "-o", _trajectory(job), "-t", job.prompt]
        if model:
            options += ["-m", model]
        if job.max_turns is not None:
            # Its default configuration must be named too, or it would have none.
            options += ["-c", "mini.yaml", "-c", f"agent.step_limit={job.max_turns}"]
        return Launch(argv=(*job.program, *options, *job.arguments), env=env)

    def result_files(self, job: AgentJob) -> tuple[str, ...]:
        return (_trajectory(job),)

    def read(
        self, job: AgentJob, transcript: Transcript, files: Mapping[str, str]
    ) -> TranscriptReading:
        trajectory = _parsed(files.get(_trajectory(job), ""))
        calls = count_in(trajectory, "info", "model_stats", "api_calls")
        log = _log(trajectory)
        return replace(
            _ended(job, trajectory, transcript),
            activity=Activity(
                turns=calls,
                tools=log.tools(),
                tells_tools=bool(trajectory),
                version=text_in(trajectory, "info", "mini_version") or None,
                model=text_in(trajectory, "info", "config", "model", "model_name") or None,
            ),
            steps=log.steps(),
            usage=_usage(trajectory),
            # It reports 0 for a model with an unknown price.
            cost_usd=amount_in(trajectory, "info", "model_stats", "instance_cost") or None,
            # It is written after every step, and with a status at the end.
            is_settled=bool(text_in(trajectory, "info", "exit_status")),
            has_worked=_has_worked(trajectory, calls),
            requests=calls,
        )


def _trajectory(job: AgentJob) -> str:
    return f"{job.temp}/mini-trajectory.json"


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _ended(
    job: AgentJob, trajectory: Mapping[str, Any], transcript: Transcript
) -> TranscriptReading:
    status = text_in(trajectory, "info", "exit_status")
    if status == "Submitted":
        submitted = text_in(trajectory, "info", "submission").strip()
        return TranscriptReading(answer=submitted or _last_words(trajectory))
    limit = _OWN_LIMITS.get(status)
    if status == "LimitsExceeded":
        calls = count_in(trajectory, "info", "model_stats", "api_calls") or 0
        by_turns = job.max_turns is not None and calls >= job.max_turns
        limit = "max_turns" if by_turns else "budget"
    if limit is not None:
        return TranscriptReading(answer=_last_words(trajectory), stopped_at=limit)
    # Other output does not count: a task about rate limits is not a rate limit.
    complaint = _exit_words(trajectory) or last_lines(transcript.stderr)
    message = in_words(_exit_words(trajectory)) or last_line(transcript.stderr)
    if not status and transcript.exit_code == 0:
        return TranscriptReading(
            end=AgentEnd.NO_RESULT, message=message or "it ended without reporting a result"
        )
    return TranscriptReading(
        end=end_of_litellm(status, complaint) or end_in(complaint) or AgentEnd.BROKEN,
        message=f"{status}: {message}" if status and message else status or message or "it failed",
        retry_after=wait_in(complaint),
    )


def _exit_words(trajectory: Mapping[str, Any]) -> str:
    """Return what it recorded when it ended with an error."""
    last = ""
    for message in mappings_in(trajectory, "messages"):
        if message.get("role") == "exit":
            last = text_in(message, "extra", "exception_str") or text_in(message, "content")
    return last


def _has_worked(trajectory: Mapping[str, Any], calls: int | None) -> bool:
    messages = mappings_in(trajectory, "messages")
    return bool(calls) or any(message.get("role") == "assistant" for message in messages)


def _last_words(trajectory: Mapping[str, Any]) -> str:
    """Return the model's last text; what it submits may well be empty."""
    text = ""
    for message in mappings_in(trajectory, "messages"):
        if message.get("role") == "assistant":
            text = text_in(message, "content").strip() or text
    return clean(text)


def _log(trajectory: Mapping[str, Any]) -> StepLog:
    """Log the messages. Its one tool is a shell: a command failed only if its output shows it. The
    command that submits the result has no output, but ends the agent."""
    log = StepLog()
    calls = results = 0
    for number, message in enumerate(mappings_in(trajectory, "messages"), start=1):
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            log.text(content_text(content), message=str(number))
            for action in mappings_in(message, "extra", "actions"):
                arguments = {"command": action.get("command")}
                log.call(str(calls), "bash", arguments, message=str(number))
                calls += 1
            usage = amounts_in(mapping_in(message, "extra", "response", "usage"), _USAGE)
            cost = amount_in(message, "extra", "cost")
            log.usage(usage or {}, cost or None, message=str(number))
        elif role == "tool" or "returncode" in mapping_in(message, "extra"):
            log.result(str(results), content)
            results += 1
        elif role == "exit":
            for left in range(results, calls):
                log.result(str(left), content)
    return log


def _usage(trajectory: Mapping[str, Any]) -> Mapping[str, float]:
    usage: dict[str, float] = {}
    for message in mappings_in(trajectory, "messages"):
        amounts = amounts_in(mapping_in(message, "extra", "response", "usage"), _USAGE)
        if amounts is None:
            return {}
        for name, amount in amounts.items():
            usage[name] = usage.get(name, 0) + amount
    return usage
