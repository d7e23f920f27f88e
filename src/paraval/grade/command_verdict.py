"""What the end of a grader's program says: passed, failed, or that there is no verdict.

Exit code 0 means passed. Without a workspace 1 means failed and anything else that there is no
verdict, since the program is a judge of the user's. In a workspace it mostly is a test suite that
runs what the attempt left there: whatever code a broken edit makes it end with, the answer is
wrong, unless it could not be started at all. The suite may say otherwise.

The last line of its stdout that is not empty may give a score, or `{"score": …, "reason": …}`, or a
reason in words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paraval.grade.grader import CannotGrade, quoted
from paraval.processes.children import Command, Ended
from paraval.records import Grade

TAIL_BYTES = 64 << 10
"""The last line is looked for in so much of the end of a log."""
NOT_STARTED = frozenset({126, 127})
"""How shells tell that a program cannot be executed, or is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCodes:
    """What a suite says of a program's end."""

    failing: frozenset[int] | None = None
    """The codes that say "wrong"; None: all but 0. Only where they are told."""
    are_told: bool = False
    timeout_fails: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> ExitCodes:
        failing = options.get("failing")
        return cls(
            failing=frozenset(failing) if isinstance(failing, list | tuple) else None,
            are_told=failing is not None,
            timeout_fails=options.get("on_timeout") == "fail",
        )


def verdict_of(ended: Ended, command: Command, codes: ExitCodes, *, in_workspace: bool) -> Grade:
    """The grade that an end stands for; CannotGrade where it stands for none."""
    if ended.failure is not None:
        raise CannotGrade(f"it could not be started: {ended.failure.message}")
    if ended.timed_out:
        late = f"it did not end within {command.timeout:g} s, and was ended"
        if codes.timeout_fails:
            return Grade(score=0.0, passed=False, reason=late)
        raise CannotGrade(f"{late}{TIMEOUT_ADVICE if in_workspace else ''}")
    if ended.log_error:
        raise CannotGrade(f"what it said could not be kept: {ended.log_error}")
    if _signal_of(ended, command) is not None or not (
        ended.exit_code == 0 or _fails(ended.exit_code, command, codes, in_workspace)
    ):
        raise CannotGrade(_why_no_verdict(ended, command, codes, in_workspace))
    passed = ended.exit_code == 0
    score, reason = _read_last_line(last_line(command.stdout))
    if score is None:
        score = 1.0 if passed else 0.0
    if in_workspace and not passed and not reason:
        said = last_line(command.stderr)
        reason = f"exit code {ended.exit_code}" + (f": {said}" if said else "")
    return Grade(score=score, passed=passed, reason=reason)


TIMEOUT_ADVICE = "; if that is the fault of what it tests, say 'on_timeout: fail'"


def _fails(code: int | None, command: Command, codes: ExitCodes, in_workspace: bool) -> bool:
    """Whether this exit code, another than 0, says that the answer is wrong."""
    if command.sandbox is not None and last_line(command.stderr).startswith("bwrap: "):
        # The sandbox itself could not be made.
        return False
    if codes.are_told:
        return codes.failing is None or code in codes.failing
    if in_workspace:
        return code not in NOT_STARTED
    return code == 1 and not _crashed(command.stdout, command.stderr)


def _why_no_verdict(ended: Ended, command: Command, codes: ExitCodes, in_workspace: bool) -> str:
    signal = _signal_of(ended, command)
    if signal is not None:
        how = f"was ended by signal {signal}"
    elif in_workspace and not codes.are_told and ended.exit_code in NOT_STARTED:
        how = f"ended with exit code {ended.exit_code}: what it runs cannot be started"
    else:
        told = codes.failing if codes.are_told else frozenset({1})
        how = (
            f"ended with exit code {ended.exit_code}, where 0 is passed and {_listed(told)} failed"
        )
    said = last_line(command.stderr) or last_line(command.stdout)
    return f"it {how}" + (f"; it said {quoted(said)}" if said else "")


def _signal_of(ended: Ended, command: Command) -> int | None:
    """The signal that ended it, also where a sandbox tells of it as a shell does."""
    code = ended.exit_code
    if command.sandbox is not None and code is not None and 128 < code < 160:
        return code - 128
    return ended.signal


def _listed(codes: frozenset[int] | None) -> str:
    if codes is None:
        return "any other is"
    listed = ", ".join(str(code) for code in sorted(codes))
    return f"{listed} is" if len(codes) == 1 else f"{listed} are"


def _crashed(stdout: str, stderr: str) -> bool:
    """Whether 1 is no verdict but how Python itself ends a program that raised.

    Tests may end so too: what fails by an assertion, or is counted by unittest, was tested.
    """
    said = _tail(stderr)
    if _tail(stdout) or "Traceback (most recent call last):" not in said:
        return False
    return not said[-1].startswith(("AssertionError", "FAILED ("))


# ---- what it said


def last_line(path: str) -> str:
    """The last of the lines in a log; "" if there is none."""
    return next(reversed(_tail(path)), "")


def _tail(path: str) -> list[str]:
    """The lines at the end of a log, trimmed, without the empty ones."""
    try:
        with Path(path).open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - TAIL_BYTES))
            tail = log.read(TAIL_BYTES)
    except FileNotFoundError:
        return []
    lines = (line.strip() for line in tail.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line]


def _read_last_line(line: str) -> tuple[float | None, str]:
    """The score and the reason that a last line gives."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None, line
    if isinstance(said, dict) and ("score" in said or "reason" in said):
        return _score_in(said), str(said.get("reason") or "")
    if _is_number(said) and 0 <= said <= 1:
        return float(said), ""
    return None, line


def _score_in(said: Mapping[str, Any]) -> float | None:
    score = said.get("score")
    if score is None:
        return None
    if not _is_number(score) or not 0 <= score <= 1:
        raise CannotGrade(f"it gave the score {quoted(score)}, which is not between 0 and 1")
    return float(score)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
