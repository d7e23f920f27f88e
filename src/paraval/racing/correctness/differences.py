"""Compares a candidate's test run with the baseline's.

A candidate must pass every test that the baseline passes: one that it skips or does not reach is a
difference, like one that fails. Anything that differs between two runs of the baseline itself is
ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from paraval.dataclass import dataclass
from paraval.racing.correctness.junit import SingleTest
from paraval.racing.correctness.test_run import TestRecord
from paraval.racing.findings import MOST_DIFFERENCES, RunDifference, TestCounts, TestStatus
from paraval.racing.request import STDOUT
from paraval.text.terminal import one_line
from paraval.text.words import some

FAILS = (TestStatus.FAILED, TestStatus.ERROR)
NAMES_SHOWN = 3
EXIT_CODE = "exit_code"
FAILED = "failed"
ITSELF = "-"
"""The baseline status in differences that are the baseline's own failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceList:
    """The first differences, and how many more there are."""

    differences: tuple[RunDifference, ...] = ()
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.differences)

    def with_first(self, one: RunDifference) -> DifferenceList:
        """Add one at the front."""
        kept = (one, *self.differences)[:MOST_DIFFERENCES]
        return DifferenceList(
            differences=kept, more=self.more + len(self.differences) + 1 - len(kept)
        )


def differences_between(
    baseline: TestRecord, candidate: TestRecord, unstable: Collection[str] = ()
) -> DifferenceList:
    """The candidate's differences."""
    tests = list(_of_tests(baseline, candidate, unstable))
    others = list(_of_outputs(baseline, candidate, unstable))
    if _exit_code_differs(baseline, candidate, unstable) and not any(
        one.status in FAILS for one in tests
    ):
        others.insert(0, exit_difference(f"exit code {candidate.exit_code}", candidate.printed))
        if not candidate.tests:
            # It ended before any test: listing them all would add nothing.
            tests = []
    kept = (*tests[: MOST_DIFFERENCES - len(others)], *others)
    return DifferenceList(differences=kept, more=len(tests) + len(others) - len(kept))


def exit_difference(how: str, printed: str) -> RunDifference:
    """The difference for a command that did not exit with code 0."""
    return RunDifference(
        scope=EXIT_CODE, name=how, status="different", baseline="0", message=printed
    )


def _exit_code_differs(
    baseline: TestRecord, candidate: TestRecord, unstable: Collection[str]
) -> bool:
    if candidate.exit_code in (0, None):
        return False
    failing = [test.id for test in candidate.tests if test.status in FAILS]
    if not failing or candidate.exit_code != 1:
        return True
    # Exit code 1 means that tests failed. If only tests fail that also fail with the baseline, at
    # least sometimes, that is no difference.
    known = {test.id for test in baseline.tests if test.status in FAILS}
    return not all(name in unstable or name in known for name in failing)


def unstable_between(one: TestRecord, other: TestRecord) -> tuple[str, ...]:
    """What differs between two runs of the same code, by difference name."""

    def verdicts(record: TestRecord) -> dict[str, TestStatus | str]:
        alike = {TestStatus.ERROR: TestStatus.FAILED}
        tests = {test.id: alike.get(test.status, test.status) for test in record.tests}
        return {**tests, **record.outputs}

    before, after = verdicts(one), verdicts(other)
    names = dict.fromkeys((*before, *after))
    return tuple(name for name in names if before.get(name) != after.get(name))


# ---- tests


def failures_in(baseline: TestRecord) -> Iterator[RunDifference]:
    """The baseline's own failures."""
    for test in baseline.tests:
        if test.status in FAILS:
            yield _difference(test, ITSELF)


def _of_tests(
    baseline: TestRecord, candidate: TestRecord, unstable: Collection[str]
) -> Iterator[RunDifference]:
    """Failing tests first, in the baseline's order; then missing and skipped ones."""
    now = {test.id: test for test in candidate.tests}
    before = {test.id: test.status for test in baseline.tests if test.id not in unstable}
    new = [name for name in now if name not in before and name not in unstable]
    for name in (*before, *new):
        test, status = now.get(name), before.get(name, TestStatus.MISSING)
        if test is not None and test.status in FAILS and status not in FAILS:
            yield _difference(test, status)
    if candidate.exit_code is None and not candidate.tests:
        return
    for name, status in before.items():
        if status is TestStatus.PASSED:
            found = now.get(name)
            if found is None and candidate.exit_code is not None:
                yield RunDifference(
                    scope="test", name=name, status=TestStatus.MISSING, baseline=status
                )
            elif found is not None and found.status is TestStatus.SKIPPED:
                yield _difference(found, status)


def _difference(test: SingleTest, baseline: str) -> RunDifference:
    return RunDifference(
        scope="test",
        name=test.id,
        status=test.status.value,
        baseline=str(baseline),
        message=test.message,
    )


def counts_against(
    baseline: TestRecord, candidate: TestRecord, unstable: Collection[str] = ()
) -> TestCounts | None:
    """Counts of a candidate's tests, including missing and new ones."""
    counts = candidate.counts
    if counts is None:
        return None
    now = {test.id for test in candidate.tests}
    before = {test.id for test in baseline.tests}
    new = [test for test in candidate.tests if test.id not in before and test.id not in unstable]
    missing = 0
    if candidate.exit_code is not None:
        missing = sum(
            test.status is TestStatus.PASSED and test.id not in now and test.id not in unstable
            for test in baseline.tests
        )
    return replace(
        counts,
        missing=missing,
        new_passed=sum(test.status is TestStatus.PASSED for test in new),
        new_failed=sum(test.status in FAILS for test in new),
    )


def _of_outputs(
    baseline: TestRecord, candidate: TestRecord, unstable: Collection[str]
) -> Iterator[RunDifference]:
    if candidate.exit_code is None:
        return
    for name, digest in baseline.outputs.items():
        now = candidate.outputs.get(name, "")
        if name not in unstable and now != digest:
            yield RunDifference(
                scope=STDOUT if name == STDOUT else "file",
                name=name,
                status="different" if now else "missing",
                baseline="there",
            )


# ---- in words


def tests_run(counts: TestCounts | None) -> int:
    """How many tests ran, without skipped ones."""
    return 0 if counts is None else counts.passed + counts.failed + counts.errors


def in_words(
    found: DifferenceList, counts: TestCounts | None = None, baseline: TestCounts | None = None
) -> str:
    """Why a candidate failed, in one line; `counts` are its own, `baseline` the baseline's."""
    by_status: dict[str, list[str]] = {}
    for one in found.differences:
        if one.scope == "test":
            by_status.setdefault(_verb(one.status), []).append(one.name)
    more = found.more
    parts = []
    for verb, names in by_status.items():
        # Failed: out of those that ran. Did not run: out of those that run with the baseline.
        ran, number = tests_run(counts if verb == FAILED else baseline), len(names)
        if verb == FAILED and counts is not None:
            number = max(number, min(number + more, counts.failed + counts.errors))
        more -= number - len(names)
        parts.append(_of_some(number, verb, names, ran))
    for one in found.differences:
        if one.scope == EXIT_CODE:
            last = one.message.strip().splitlines()[-1:]
            parts.append(": ".join([one.name, *(one_line(line, 300) for line in last)]))
        elif one.scope != "test":
            how = "is missing" if one.status == "missing" else "differs from the baseline's"
            parts.append(f"{one.name} {how}")
    return "; ".join(parts) + (f"; {more:,} more differences" if more else "")


def _verb(status: str) -> str:
    match status:
        case TestStatus.MISSING:
            return "did not run"
        case TestStatus.SKIPPED:
            return "skipped"
        case _:
            return FAILED


def _of_some(number: int, verb: str, names: list[str], ran: int) -> str:
    of_all = f"of {ran:,} tests" if ran >= number else "tests"
    return f"{number:,} {of_all} {verb}: {some(names, NAMES_SHOWN, number)}"
