"""The result of an attempt: an output and its grades, or a failure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from paraval.dataclass import dataclass, quick_init


class Outcome(StrEnum):
    """How a trial ended. An error is never a wrong answer: only PASSED and FAILED are judged."""

    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    CRASHED = "crashed"
    INVALID_OUTPUT = "invalid_output"
    GRADER_ERROR = "grader_error"
    INFRA_ERROR = "infra_error"
    SKIPPED = "skipped"

    @property
    def is_judged(self) -> bool:
        return self is Outcome.PASSED or self is Outcome.FAILED

    @property
    def is_error(self) -> bool:
        return not self.is_judged and self is not Outcome.SKIPPED


# ---- what happened


@quick_init
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call that a model asked for."""

    name: str
    arguments: Any = None
    """Parsed; the text itself if it is not JSON."""
    id: str | None = None
    """The provider's id of the call."""
    result: str | None = None
    """What the tool returned; None: paraval did not run it, or the agent did not report it."""
    failed: bool = False
    """The tool raised an error, could not be called, or was cut off."""


@quick_init
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer of a model that called tools, or the final answer after such calls. For an agent,
    as far as it reports them."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)
    """Of a cached answer: as when it was given."""
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What was sent to a model, an agent or a command, and what came back: the evidence."""

    by: str = ""
    """Empty for the target; otherwise the name of the grader that asked."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """JSON data. For a model: model, provider, messages (role, content, ...) and the options that
    were set. For an agent: agent, model, system, prompt, mcp. For a command: command, stdin."""
    reply: str | None = None
    """What a judge answered; None for the target, whose answer is the attempt's output."""
    steps: tuple[Step, ...] = ()
    """An agent's transcript. A chat model's steps are in its output."""


@quick_init
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A target's answer."""

    text: str = ""
    usage: Mapping[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    """Empty unless tools were called."""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """All tool calls, in order."""
        return tuple(call for step in self.steps for call in step.tool_calls)

    @property
    def whole(self) -> Any:
        """The answer to compare or to label: its text, with its tool calls if there are any."""
        calls = [
            {"name": call.name, "arguments": call.arguments, "result": call.result}
            for call in self.tool_calls
        ]
        return {"text": self.text, "tool_calls": calls} if calls else self.text


@quick_init
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A grader's verdict."""

    score: float
    """From 0 to 1."""
    passed: bool
    reason: str = ""
    grader: str = ""
    agreement: float | None = None
    """For a judge with several votes: the share of votes that agree with the verdict."""
    judge: str | None = None
    """For a judge: the registry name of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedGrader:
    """A grader that does not apply to this answer: it counts neither for nor against it."""

    grader: str
    reason: str

    def __str__(self) -> str:
        return f"grader '{self.grader}' skipped: {self.reason}"

    @classmethod
    def from_note(cls, note: str) -> SkippedGrader | None:
        """The other way; None for other notes."""
        start, found, reason = note.partition("' skipped: ")
        if not found or not start.startswith("grader '"):
            return None
        return cls(grader=start.removeprefix("grader '"), reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial has no verdict."""

    kind: Outcome
    message: str
    retry_after: float | None = None
    account: str | None = None
    """The account it came from, as in a trial's needs."""
    lasting: bool = False
    """True: another attempt would end the same way."""
    stops: str | None = None
    """A need (`account:team-a`, `model:haiku`) that is unusable for the rest of the run: quota
    exhausted, key refused, no such model. The trial is skipped until a resume."""
    lost: bool = False
    """True: the node that it ran on was lost, so it does not count against the trial."""


SETUP_UNDONE = "setup changed files of the repository; undone: "
SETUP_REMOVED = "setup left files that git does not ignore; removed: "
"""How notes begin about what `setup` did in a workspace and attempts do not see."""
CUT_OFF = "cut off "
"""Prefix of every note on an agent that was cut off."""
STOPS = {
    "max_turns": "at max_turns",
    "budget": "at its own budget",
    "time": "at its own time limit",
    "format_errors": "after repeated answers in the wrong format",
    "loop": "in a loop",
}


def stop_note(stopped_at: str, max_turns: int | None) -> str:
    """`cut off at max_turns (20)`."""
    limit = f" ({max_turns})" if stopped_at == "max_turns" and max_turns is not None else ""
    return f"{CUT_OFF}{STOPS[stopped_at]}{limit}"
