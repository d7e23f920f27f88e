"""Compares a candidate's test run with the baseline's.

A candidate must pass every test that the baseline passes: one that it skips or does not reach is a
difference, like one that fails. Anything that differs between two runs of the baseline itself is
ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from paraval.dataclass import dataclass
from paraval.racing.correctness.junit_results import SingleTest
from paraval.racing.correctness.outputs import compared, cut
from paraval.racing.correctness.test_results import CommandRunRecord
from paraval.racing.findings import MOST_DIFFERENCES, RunDifference, TestCounts, TestStatus
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
    baseline: CommandRunRecord,
    candidate: CommandRunRecord,
    unstable: Collection[str] = (),
    *,
    printed: str = "",
) -> DifferenceList:
    """The candidate's differences. `printed`: the end of its output."""
    tests = list(_of_tests(baseline, candidate, unstable))
    others = list(_of_looks(baseline, candidate, unstable))
    if _exit_code_differs(baseline, candidate, unstable) and not any(
        one.status in FAILS for one in tests
    ):
        others.insert(0, exit_difference(str(candidate.exit_code), printed))
        if not candidate.reports_tests:
            # It ended before any test: listing them all would add nothing.
            tests = []
    room = max(0, MOST_DIFFERENCES - len(others))
    kept = (*tests[:room], *others[:MOST_DIFFERENCES])
    return DifferenceList(differences=kept, more=len(tests) + len(others) - len(kept))


def exit_difference(how: str, printed: str) -> RunDifference:
    """The difference for a command that did not exit with code 0."""
    return RunDifference(
        scope=EXIT_CODE,
        name=EXIT_CODE,
        status="different",
        baseline="there",
        message=cut(printed),
        expected="0",
        actual=how,
    )


def _exit_code_differs(
    baseline: CommandRunRecord, candidate: CommandRunRecord, unstable: Collection[str]
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


# ---- tests


def failures_in(baseline: CommandRunRecord) -> Iterator[RunDifference]:
    """The baseline's own failures."""
    for test in baseline.tests:
        if test.status in FAILS:
            yield _difference(test, ITSELF)


def _of_tests(
    baseline: CommandRunRecord, candidate: CommandRunRecord, unstable: Collection[str]
) -> Iterator[RunDifference]:
    """Failing tests first, in the baseline's order; then missing and skipped ones."""
    now = {test.id: test for test in candidate.tests}
    before = {test.id: test.status for test in baseline.tests if test.id not in unstable}
    new = [name for name in now if name not in before and name not in unstable]
    for name in (*before, *new):
        test, status = now.get(name), before.get(name, TestStatus.MISSING)
        if test is not None and test.status in FAILS and status not in FAILS:
            yield _difference(test, status)
    problem = candidate.report.problem if candidate.report is not None else None
    for name, status in before.items():
        if status is TestStatus.PASSED:
            test = now.get(name)
            if test is None:
                if candidate.exit_code is not None and _is_whole(baseline):
                    yield _missing(name, problem)
                    # Same for all that follow.
                    problem = None
            elif test.status is TestStatus.SKIPPED:
                yield _difference(test, status)


def _is_whole(baseline: CommandRunRecord) -> bool:
    """Whether its report is complete: a truncated one may end at a different test each time."""
    return baseline.report is not None and baseline.report.problem is None


def _difference(test: SingleTest, baseline: str) -> RunDifference:
    is_repeated = not test.details or test.details in test.message
    message = test.message if is_repeated else f"{test.message}\n\n{test.details}".strip()
    return RunDifference(
        scope="test",
        name=test.id,
        status=test.status.value,
        baseline=str(baseline),
        message=cut(message),
    )


def _missing(name: str, problem: str | None) -> RunDifference:
    return RunDifference(
        scope="test",
        name=name,
        status=TestStatus.MISSING.value,
        baseline=TestStatus.PASSED.value,
        message="" if problem is None else f"its test report: {problem}",
    )


def counts_against(
    baseline: CommandRunRecord, candidate: CommandRunRecord, unstable: Collection[str] = ()
) -> TestCounts | None:
    """Counts of a candidate's tests, including missing and new ones."""
    counts = candidate.counts
    if counts is None:
        return None
    now = {test.id for test in candidate.tests}
    before = {test.id for test in baseline.tests}
    new = [test for test in candidate.tests if test.id not in before and test.id not in unstable]
    missing = 0
    if candidate.exit_code is not None and _is_whole(baseline):
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


# ---- compared outputs


def _of_looks(
    baseline: CommandRunRecord, candidate: CommandRunRecord, unstable: Collection[str]
) -> Iterator[RunDifference]:
    if candidate.exit_code is None:
        return
    for before, now in zip(baseline.looks, candidate.looks, strict=False):
        found = None if now.name in unstable else compared(before, now)
        if found is not None:
            yield found


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
            parts.append(f"exit code {one.actual}{_last_line(one.message)}")
        elif one.scope != "test":
            parts.append(_of_compared(one))
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


def _of_compared(one: RunDifference) -> str:
    if one.status == "missing":
        return f"{one.name} is missing" + (f" ({one.message})" if one.message else "")
    first = one.message.partition("\n")[0].strip("@ ")
    return f"{one.name} differs from the baseline's" + (f" ({first})" if first else "")


def _last_line(printed: str) -> str:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return f": {cut(lines[-1], 300)}" if lines else ""
