"""Why a candidate's tests failed, on a line: how many of those that ran, and the first by name."""

from __future__ import annotations

from collections.abc import Sequence

from paraval.racing.differences import tests_run
from paraval.racing.findings import Tested, TestStatus
from paraval.report.wording import counted, listed

SHOWN_TESTS = 3


def why_failed(tested: Tested) -> str:
    """`1 of 12 tests: test_cycle`, `stdout is different`; empty: nobody can tell."""
    if tested.flags:
        return "; ".join(tested.flags)
    tests = [one for one in tested.differences if one.scope == "test"]
    left_out = [one for one in tests if one.status in (TestStatus.SKIPPED, TestStatus.MISSING)]
    names = [_short(one.name) for one in tests if one not in left_out]
    names = names or [_short(name) for name in tested.failing]
    # Those that fail come first: where others are told, there is no more of them.
    number = len(names) + (0 if left_out else tested.more)
    parts = [_of_those_that_ran(number, names, tested)] if names else []
    if left_out:
        more = len(left_out) + tested.more
        which = _some(more, [_short(one.name) for one in left_out])
        parts.append(f"{counted(more, 'test')} did not run: {which}")
    others = [f"{one.name} is {one.status}" for one in tested.differences if one.scope != "test"]
    parts += others[:SHOWN_TESTS]
    return "; ".join(parts)


def _of_those_that_ran(number: int, names: Sequence[str], tested: Tested) -> str:
    ran = tests_run(tested.counts)
    all_of_them = f"{number:,} of {ran:,} tests" if ran >= number else counted(number, "test")
    return f"{all_of_them}: {_some(number, names)}"


def _some(number: int, names: Sequence[str]) -> str:
    more = [f"{number - SHOWN_TESTS:,} more"] if number > SHOWN_TESTS else []
    return listed((*names[:SHOWN_TESTS], *more))


def _short(name: str) -> str:
    """`test_cycle`, of its whole id."""
    return name.rpartition("::")[2]
