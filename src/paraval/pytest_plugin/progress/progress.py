"""What is seen of a parallel run while it goes on, beside or in the place of pytest's dots.

Whoever shows it is told by the main thread only, and decides nothing. What tests came to is said by
pytest's own reporter, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from paraval.pytest_plugin.running.protocol import ItemResult
    from paraval.records import Failure

LONGEST_NAME = 60


class Progress(Protocol):
    """Someone who is told how far the tests are."""

    def started(self, nodeid: str) -> None: ...

    def waits(self, nodeid: str, failure: Failure, seconds: float) -> None:
        """It decided nothing, and is started again after these seconds."""

    def ended(self, end: ItemResult, eta_s: float | None) -> None:
        """`eta_s`: until the last test ends; None: nobody can tell."""

    def put_off(self, nodeid: str) -> None:
        """It failed beside others, and is run once more at the end."""

    def tick(self) -> None:
        """Called several times a second."""

    def close(self) -> None:
        """Leave the terminal as it was found. May be called again."""


class Silence:
    """Shows nothing."""

    def started(self, nodeid: str) -> None:
        """Nothing is said."""

    def waits(self, nodeid: str, failure: Failure, seconds: float) -> None:
        """Nothing is said."""

    def ended(self, end: ItemResult, eta_s: float | None) -> None:
        """Nothing is said."""

    def put_off(self, nodeid: str) -> None:
        """Nothing is said."""

    def tick(self) -> None:
        """Nothing is said."""

    def close(self) -> None:
        """Nothing was changed."""


def names_of(nodeids: Sequence[str]) -> dict[str, str]:
    """`test_basic` for `tests/test_x.py::test_basic`, unless that could be another test, too."""
    short = {nodeid: nodeid.partition("::")[2] or nodeid for nodeid in nodeids}
    seen: set[str] = set()
    twice = {name for name in short.values() if name in seen or seen.add(name)}  # type: ignore[func-returns-value]  # it adds, and is None
    return {nodeid: nodeid if name in twice else name for nodeid, name in short.items()}


def refuser_in(failure: Failure) -> str:
    """Whom a test waits for; empty: nobody can tell."""
    return (failure.account or "").partition(":")[2]


def letter_of(end: ItemResult) -> str:
    """As pytest marks a test: `.`, F, E, s, x or X."""
    letter = "."
    for phase in end.phases:
        report = phase.report
        if report.failed:
            return "F" if report.when == "call" else "E"
        was_xfail = hasattr(report, "wasxfail")
        if report.skipped:
            letter = "x" if was_xfail else "s"
        elif was_xfail and report.when == "call":
            letter = "X"
    return letter
