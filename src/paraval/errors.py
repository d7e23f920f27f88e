"""Errors caused by misuse. Failures of a target, a grader or a machine are records.

ParavalError                     anything a user can fix; its message names the problem and the fix
├── SuiteError                   a suite is invalid: every problem with file, line and key
├── ScenarioError                a scenario of the model server is invalid: every problem
├── RequestError                 invalid flags, paths or names of runs
│   └── NotWrittenError          a valid file that could not be written: disk full
├── StoreError                   unusable store: foreign, damaged, newer, read-only, full
│   ├── RunBusyError             another engine is working on this run
│   └── RunBrokenOffError        the store, or the cluster, failed during a run
├── TransientError               raised BY a Python target: the service failed, try again
└── RateLimitedError             raised BY a Python target: refused for now, or for a time
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from paraval.dataclass import dataclass


class ParavalError(Exception):
    """An error with an optional hint about what to do next."""

    def __init__(self, message: object, *, hint: str | None = None) -> None:
        """`message` may be any printable object: users wrap exceptions of their own."""
        super().__init__(message)
        self.message = str(message)
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem in a suite, and where it is."""

    message: str
    file: str | None = None
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return ": ".join(part for part in (place, self.key, self.message) if part)


class SuiteError(ParavalError):
    """A suite that cannot be run, with all its problems."""

    def __init__(self, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(problem) for problem in problems), hint=hint)
        self.problems = tuple(problems)


class ScenarioError(ParavalError):
    """A scenario that the model server cannot play, with all its problems."""

    def __init__(self, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(problem) for problem in problems), hint=hint)
        self.problems = tuple(problems)


class RequestError(ParavalError):
    """An invalid request."""


class NotWrittenError(RequestError):
    """A file that could not be written, although the request was valid."""


class StoreError(ParavalError):
    """A store, or a run in it, that cannot be used."""


class RunBusyError(StoreError):
    """A run that another live engine is working on."""

    def __init__(self, message: str, *, pid: int | None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pid = pid


class TransientError(ParavalError):
    """For Python targets to raise: the service failed, not the answer; the attempt is retried."""


class RateLimitedError(ParavalError):
    """For Python targets to raise: refused for now; `retry_after` in seconds if known."""

    def __init__(
        self,
        message: object = "rate limited",
        *,
        retry_after: float | str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = _seconds(retry_after)


def _seconds(told: object) -> float | None:
    """A service's value, often text from a header; None if it is invalid."""
    try:
        seconds = float(told)  # type: ignore[arg-type]  # anything else is what the except is for
    except (TypeError, ValueError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


class RunBrokenOffError(StoreError):
    """The store failed during a run; earlier records are safe."""


def why(error: Exception) -> str:
    """The OS error's message, without the path, which is already shown."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
