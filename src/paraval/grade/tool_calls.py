"""The grader `tool_call`: which tools a model called, and with which arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from paraval.grade.grader import Subject, expected_of, filled, quoted
from paraval.grade.text import within_cpu_time
from paraval.records import Grade, GraderSpec, ToolCall
from paraval.settings import NO_TOOL
from paraval.text.words import call_text

MATCHERS = ("regex", "contains", "any")
PATTERN_CPU_S = 1.0
SHOWN_CALLS = 3


def _is_matcher(value: Any) -> bool:
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in MATCHERS


class ToolCallGrader:
    """Every expected call was made, in any order; each by a call of its own."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options

    async def grade(self, subject: Subject) -> Grade:
        problem = self._problem(subject)
        passed = problem is None
        return Grade(score=float(passed), passed=passed, reason=problem or "", grader=self.name)

    def _problem(self, subject: Subject) -> str | None:
        made = list(subject.output.tool_calls)
        wanted = self._wanted(subject)
        if wanted == [{"name": NO_TOOL}]:
            return f"no tool was expected, but {_calls_text(made)} was called" if made else None
        exact = bool(self._options.get("exact"))
        left = made
        for call in wanted:
            problems = [_call_problem(call, one, exact=exact) for one in left]
            if None not in problems:
                return _missing(call, made, left, problems)
            left = [one for place, one in enumerate(left) if place != problems.index(None)]
        if exact and left:
            return f"{_calls_text(left)} was called too"
        return None

    def _wanted(self, subject: Subject) -> list[Mapping[str, Any]]:
        """The expected calls: the grader's own, or those in the case's `expect`."""
        own = {key: self._options[key] for key in ("name", "arguments") if key in self._options}
        own = filled(own, subject)
        if "name" in own:
            return [own]
        expect = expected_of(subject, {})
        calls = expect if isinstance(expect, list | tuple) else [expect]
        return [
            {"name": call, **own} if isinstance(call, str) else {**call, **own} for call in calls
        ]


def _missing(
    call: Mapping[str, Any],
    made: Sequence[ToolCall],
    left: Sequence[ToolCall],
    problems: list[str | None],
) -> str:
    """The call that comes nearest: one of the right tool, if there is any `left` by the others."""
    if not made:
        return f"no tool was called; expected {_expected_text(call)}"
    for one, problem in zip(left, problems, strict=True):
        if one.name == call["name"] and problem is not None:
            return problem
    if not left:
        return f"{_expected_text(call)} was not called; called {_calls_text(made)}"
    return f"{_calls_text(left)} was called; expected {_expected_text(call)}"


def _call_problem(wanted: Mapping[str, Any], made: ToolCall, *, exact: bool) -> str | None:
    if made.name != wanted["name"]:
        return f"{made.name} was called, not {wanted['name']}"
    arguments = wanted.get("arguments")
    if arguments is None:
        return None
    problem = _difference(arguments, made.arguments, "", exact=exact)
    return None if problem is None else f"{made.name} was called with {problem}"


def _difference(wanted: Any, made: Any, path: str, *, exact: bool) -> str | None:
    """How a value differs from what is expected at this path; None if it fits."""
    where = f"{path} = " if path else ""
    if _is_matcher(wanted):
        return None if _fits(wanted, made) else f"{where}{quoted(made)}, not {quoted(wanted)}"
    if isinstance(wanted, Mapping) and isinstance(made, Mapping):
        return _mapping_difference(wanted, made, path, exact=exact)
    if isinstance(wanted, list) and isinstance(made, list) and len(wanted) == len(made):
        for place, (one, other) in enumerate(zip(wanted, made, strict=True)):
            if problem := _difference(one, other, f"{path}[{place}]", exact=exact):
                return problem
        return None
    return None if _is_equal(wanted, made) else f"{where}{quoted(made)}, not {quoted(wanted)}"


def _mapping_difference(
    wanted: Mapping[str, Any], made: Mapping[str, Any], path: str, *, exact: bool
) -> str | None:
    for key, value in wanted.items():
        step = f"{path}.{key}" if path else str(key)
        if key not in made:
            return f"no {step}"
        if problem := _difference(value, made[key], step, exact=exact):
            return problem
    more = [str(key) for key in made if key not in wanted]
    return f"the unexpected argument {more[0]}" if exact and more else None


def _is_equal(wanted: Any, made: Any) -> bool:
    """1 equals 1.0, but not true."""
    if isinstance(wanted, bool) or isinstance(made, bool):
        return wanted is made
    return bool(wanted == made)


def _fits(matcher: Mapping[str, Any], made: Any) -> bool:
    [(kind, wanted)] = matcher.items()
    if kind == "any":
        return True
    text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False, default=str)
    if kind == "contains":
        if isinstance(made, list):
            return any(_is_equal(wanted, one) for one in made)
        return str(wanted).casefold() in text.casefold()
    found = within_cpu_time(
        lambda: re.search(str(wanted), text), seconds=PATTERN_CPU_S, characters=len(text)
    )
    return found is not None


def _expected_text(call: Mapping[str, Any]) -> str:
    return call_text(str(call["name"]), call.get("arguments") or {})


def _calls_text(calls: Sequence[ToolCall]) -> str:
    texts = [call_text(call.name, call.arguments) for call in calls[:SHOWN_CALLS]]
    more = len(calls) - SHOWN_CALLS
    return ", ".join([*texts, f"{more} more"] if more > 0 else texts)
