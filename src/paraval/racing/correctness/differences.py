"""What is different with a candidate: its run of the tests held against the baseline's, with
expected and actual values.

A candidate has to pass every test that the baseline passes: one that it skips, or does not come to,
is as different as one that fails. What differs between two runs of the baseline itself says nothing
of a candidate, and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from paraval.racing.correctness.junit_results import SingleTest
from paraval.racing.correctness.outputs import LONGEST_VALUE, compared, cut
from paraval.racing.correctness.test_results import CommandRunRecord
from paraval.racing.findings import MOST_DIFFERENCES, RunDifference, TestCounts, TestStatus
from paraval.text.words import some

# What a test expected and what it got, from the words in which it failed.

_LONGEST_READ = 20_000
_PYTEST = re.compile(r"(?:AssertionError: )?assert (?!not )(?P<claim>.+)")
_COMPUTED = re.compile(r" \+ +(?:where|and) +(?P<value>.+?) = ")
_UNITTEST = re.compile(r"(?:AssertionError: )?(?:\w+ differ: )?(?P<claim>.+ != .+)")
_AFTER_VALUES = re.compile(r" : | within \S+ (?:places|delta) ")
"""What unittest adds to the two values: a message, or how close they had to be."""
_QUOTED = re.compile(r"'(?:\\.|[^'\\])*(?:'|\\?$)|\"(?:\\.|[^\"\\])*(?:\"|\\?$)")
_SEVERAL_CLAIMS = re.compile(r" (?:and|or) | is not ")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedValues:
    """None: nobody can tell."""

    expected: str | None = None
    actual: str | None = None


NOTHING = AssertedValues()


def asserted_in(message: str, details: str = "") -> AssertedValues:
    """`message`: the failure in short; `details`: its traceback, as far as there is one."""
    shown = details[:_LONGEST_READ].splitlines()
    # A traceback shows lines of programs, too, which compare names and not values.
    marked = [line[1:].strip() for line in shown if line.startswith("E ")]
    raised = [line for line in shown if line.startswith("AssertionError: ")]
    for lines in (message[:_LONGEST_READ].splitlines(), marked, raised):
        found = _by_pytest(lines) or _by_unittest(lines)
        if found is not None:
            actual, expected = (cut(side.strip(), LONGEST_VALUE) for side in found)
            # Of values that were shortened to the same text, the message tells more.
            return (
                NOTHING if actual == expected else AssertedValues(expected=expected, actual=actual)
            )
    return NOTHING


def _by_pytest(lines: list[str]) -> tuple[str, str] | None:
    """What the test got, and what it expected."""
    claim = next((found["claim"] for found in map(_PYTEST.fullmatch, lines) if found), None)
    if claim is None or _SEVERAL_CLAIMS.search(_without_quoted(claim)):
        return None
    compared = _sides(claim, " == ") or _sides(claim, " is ")
    if compared is None:
        return None
    computed = {found["value"] for line in lines if (found := _COMPUTED.match(f" {line.strip()}"))}
    left, right = compared
    # `assert 3 == add(1, 1)`: what was computed is what the test got.
    return (right, left) if right in computed and left not in computed else (left, right)


def _by_unittest(lines: list[str]) -> tuple[str, str] | None:
    """The first is what the test got, as in the examples of unittest's own documentation."""
    claim = next((found["claim"] for found in map(_UNITTEST.fullmatch, lines) if found), None)
    if claim is None:
        return None
    after = _AFTER_VALUES.search(_without_quoted(claim))
    return _sides(claim if after is None else claim[: after.start()], " != ")


def _sides(claim: str, operator: str) -> tuple[str, str] | None:
    """What stands before and after an operator that occurs once outside of quotes."""
    plain = _without_quoted(claim)
    if plain.count(operator) != 1:
        return None
    at = plain.index(operator)
    return claim[:at], claim[at + len(operator) :]


def _without_quoted(claim: str) -> str:
    return _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), claim)


FAILS = (TestStatus.FAILED, TestStatus.ERROR)
NAMES_TOLD = 3
EXIT_CODE = "exit_code"
FAILED = "failed"
ITSELF = "-"
"""What failures of the baseline's own have in the place of a baseline's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceList:
    """All that differs: the first of it, and how much more there is."""

    differences: tuple[RunDifference, ...] = ()
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.differences)

    def with_first(self, one: RunDifference) -> DifferenceList:
        """One more, before all others."""
        kept = (one, *self.differences)[:MOST_DIFFERENCES]
        return DifferenceList(
            differences=kept, more=self.more + len(self.differences) + 1 - len(kept)
        )


def differences_between(
    baseline: CommandRunRecord,
    candidate: CommandRunRecord,
    unstable: Collection[str] = (),
    *,
    said: str = "",
) -> DifferenceList:
    """`said`: the last that the candidate's run printed."""
    tests = list(_of_tests(baseline, candidate, unstable))
    others = list(_of_looks(baseline, candidate, unstable))
    if _exit_code_differs(baseline, candidate, unstable) and not any(
        one.status in FAILS for one in tests
    ):
        others.insert(0, exit_difference(str(candidate.exit_code), said))
        if not candidate.tells_of_tests:
            # It ended before it came to any: to list them all would say no more.
            tests = []
    room = max(0, MOST_DIFFERENCES - len(others))
    kept = (*tests[:room], *others[:MOST_DIFFERENCES])
    return DifferenceList(differences=kept, more=len(tests) + len(others) - len(kept))


def exit_difference(how: str, said: str) -> RunDifference:
    """A command that ended in another way than with the exit code 0."""
    return RunDifference(
        scope=EXIT_CODE,
        name=EXIT_CODE,
        status="different",
        baseline="there",
        message=cut(said),
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
    # 1 is what test programs say of tests that fail: where the baseline's fail too, at least at
    # times, it says nothing else.
    known = {test.id for test in baseline.tests if test.status in FAILS}
    return not all(name in unstable or name in known for name in failing)


# ---- tests


def failures_in(baseline: CommandRunRecord) -> Iterator[RunDifference]:
    """What fails with the baseline itself, and how."""
    for test in baseline.tests:
        if test.status in FAILS:
            yield _difference(test, ITSELF)


def _of_tests(
    baseline: CommandRunRecord, candidate: CommandRunRecord, unstable: Collection[str]
) -> Iterator[RunDifference]:
    """Those that fail first, by the baseline's order; then those that were left out."""
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
                    # It is the same for all that follow.
                    problem = None
            elif test.status is TestStatus.SKIPPED:
                yield _difference(test, status)


def _is_whole(baseline: CommandRunRecord) -> bool:
    """A report that is too large to be read to its end ends elsewhere for each."""
    return baseline.report is not None and baseline.report.problem is None


def _difference(test: SingleTest, baseline: str) -> RunDifference:
    asserted = asserted_in(test.message, test.details)
    is_repeated = not test.details or test.details in test.message
    message = test.message if is_repeated else f"{test.message}\n\n{test.details}".strip()
    return RunDifference(
        scope="test",
        name=test.id,
        status=test.status.value,
        baseline=str(baseline),
        message=cut(message),
        expected=asserted.expected if test.status in FAILS else None,
        actual=asserted.actual if test.status in FAILS else None,
    )


def _missing(name: str, problem: str | None) -> RunDifference:
    return RunDifference(
        scope="test",
        name=name,
        status=TestStatus.MISSING.value,
        baseline=TestStatus.PASSED.value,
        message="" if problem is None else f"of the report of its tests: {problem}",
    )


def counts_against(
    baseline: CommandRunRecord, candidate: CommandRunRecord, unstable: Collection[str] = ()
) -> TestCounts | None:
    """Of a candidate's tests, with those that it did not come to and those that are new."""
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


# ---- what is compared


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
    """How many there are to fail: those that are skipped say nothing of a candidate."""
    return 0 if counts is None else counts.passed + counts.failed + counts.errors


def in_words(
    found: DifferenceList, counts: TestCounts | None = None, baseline: TestCounts | None = None
) -> str:
    """Why a candidate is not right, in one line; `counts`: of its own tests, and the baseline's."""
    by_status: dict[str, list[str]] = {}
    for one in found.differences:
        if one.scope == "test":
            by_status.setdefault(_verb(one.status), []).append(one.name)
    more = found.more
    parts = []
    for verb, names in by_status.items():
        # What fails is of those that ran; what did not run is of those that do with the baseline.
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
    return f"{number:,} {of_all} {verb}: {some(names, NAMES_TOLD, number)}"


def _of_compared(one: RunDifference) -> str:
    if one.status == "missing":
        return f"{one.name} is missing" + (f" ({one.message})" if one.message else "")
    first = one.message.partition("\n")[0].strip("@ ")
    return f"{one.name} is not the baseline's" + (f" ({first})" if first else "")


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f": {cut(lines[-1], 300)}" if lines else ""
