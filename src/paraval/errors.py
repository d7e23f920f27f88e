"""What can go wrong through misuse. Failures of a target, a grader or a machine are records.

ParavalError                     anything a user can mend; its message says what, where and how
├── SuiteError                   a suite is wrong: every problem in it, each with file, line and key
├── ScenarioError                a scenario of the model server is wrong: every problem in it
├── RequestError                 flags, paths or names of runs that don't fit
│   └── NotWrittenError          a file that should do, and yet could not be written: disk full
├── StoreError                   the store can't be used: foreign, damaged, newer, read-only, full
│   ├── RunBusyError             another engine works on this run
│   └── RunBrokenOffError        the store failed in the middle of a run
├── TransientError               raised BY a Python target: the service failed, try again
└── RateLimitedError             raised BY a Python target: refused for now, or for a time
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


class ParavalError(Exception):
    """An error with, where there is one, a hint what to do next."""

    def __init__(self, message: object, *, hint: str | None = None) -> None:
        """A message may be anything that can be shown: users wrap exceptions of their own."""
        super().__init__(message)
        self.message = str(message)
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong in a suite, and where."""

    message: str
    file: str | None = None
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return ": ".join(part for part in (place, self.key, self.message) if part)


class SuiteError(ParavalError):
    """A suite that cannot be run, with everything that is wrong in it."""

    def __init__(self, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(problem) for problem in problems), hint=hint)
        self.problems = tuple(problems)


class ScenarioError(ParavalError):
    """A scenario that the model server cannot play, with everything that is wrong in it."""

    def __init__(self, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(problem) for problem in problems), hint=hint)
        self.problems = tuple(problems)


class RequestError(ParavalError):
    """A request that cannot be carried out as it stands."""


class NotWrittenError(RequestError):
    """A file that could not be written, though nothing is wrong with what was asked for."""


class StoreError(ParavalError):
    """A store or a run in it that cannot be used."""


class RunBusyError(StoreError):
    """A run that another engine, still alive, is working on."""

    def __init__(self, message: str, *, pid: int | None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pid = pid


class TransientError(ParavalError):
    """For Python targets to raise: a fault of the service, not of the answer; worth another try."""


class RateLimitedError(ParavalError):
    """For Python targets to raise: refused for now; `retry_after` in seconds where it is known."""

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
    """What a service said, often as text out of a header; None where it makes no sense."""
    try:
        seconds = float(told)  # type: ignore[arg-type]  # anything else is what the except is for
    except (TypeError, ValueError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


class RunBrokenOffError(StoreError):
    """The store failed in the middle of a run; what was recorded before is safe."""


def why(error: Exception) -> str:
    """In the system's words, without the path, which is told already."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
