"""The TEST steps: run the tests of the baseline, twice, and of each candidate, each in a worktree.

A worktree is held only while its tests run and their output is read, here or on a node of a
cluster. The results are compared with the baseline's here, after it is released. `differences`
finds what differs.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import islice

from paraval.racing.correctness.differences import (
    FAILS,
    NAMES_SHOWN,
    DifferenceList,
    counts_against,
    differences_between,
    exit_difference,
    failures_in,
    in_words,
    tests_run,
)
from paraval.racing.correctness.junit_results import JunitReport
from paraval.racing.correctness.node_tests import run_tests_on_node
from paraval.racing.correctness.test_results import (
    ACCOUNT,
    CommandRunRecord,
    load_account,
    save_account,
    unstable_between,
)
from paraval.racing.correctness.test_run import AUTO, TestRun, run_tests
from paraval.racing.course.steps import BASELINE, Step, StepEnd, StepKind
from paraval.racing.findings import CorrectnessFinding, StepFinding, TestCounts
from paraval.racing.integrity.protection import first_flags, unusual
from paraval.racing.request import usual_timeout
from paraval.racing.step_performer import RaceContext, broke, found, within
from paraval.records import Attempt, AttemptResult, Failure, Outcome
from paraval.text.words import some

RUNS_OF_THE_BASELINE = (1, 2)
MOST_FAILING = 20
MOST_UNSTABLE = 1000


class Tester:
    """Performs TEST."""

    __test__ = False  # pytest takes it for a test otherwise

    def __init__(self, room: RaceContext) -> None:
        self._room = room
        self._accounts: dict[int, CommandRunRecord] = {}
        """The baseline's runs by number: from this engine, or loaded."""

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        try:
            ran = await self._run(attempt, step)
            if isinstance(ran, AttemptResult):
                return ran
            if step.candidate == BASELINE:
                return await self._of_the_baseline(attempt, step, ran)
            return await self._of_a_candidate(ran)
        except OSError as error:
            return broke(Outcome.INFRA_ERROR, f"the test results cannot be saved: {error}")

    async def close(self) -> None:
        """Do nothing: no resources are kept between steps."""

    async def _run(self, attempt: Attempt, step: Step) -> TestRun | AttemptResult:
        tree = None if step.candidate == BASELINE else step.tree
        if tree is not None and self._room.request.test.timeout is None:
            attempt = within(attempt, usual_timeout(self._room.baseline_test_s()))
        if attempt.node is None:
            return await run_tests(self._room, attempt, tree)
        return await run_tests_on_node(self._room, attempt, tree)

    # ---- the baseline

    async def _of_the_baseline(self, attempt: Attempt, step: Step, ran: TestRun) -> AttemptResult:
        if ran.failure is not None:
            return _no_end_of_its_own(ran, ran.failure, replace(ran.account, flags=()))
        account, artifacts = await asyncio.to_thread(save_account, ran.account, attempt.folder)
        self._accounts[step.number] = account
        others = [number for number in RUNS_OF_THE_BASELINE if number != step.number]
        # Either run may end first; the second compares both.
        unstable = [
            name
            for number in others
            if (other := await self._account(number)) is not None
            for name in await asyncio.to_thread(unstable_between, other, account)
        ]
        failing = [test.id for test in account.tests if test.status in FAILS]
        tested = CorrectnessFinding(
            counts=account.counts,
            differences=tuple(islice(failures_in(account), MOST_FAILING)),
            failing=tuple(failing[:MOST_FAILING]),
            unstable=tuple(unstable[:MOST_UNSTABLE]),
        )
        fields = ran.fields_with(artifacts)
        reason = self._why_it_fails(account, failing, unstable, ran)
        if reason is not None:
            return broke(Outcome.FAILED, reason, finding=StepFinding(tested=tested), **fields)
        if self._room.request.test.junit == AUTO and account.report is not None:
            fields["notes"] += _report_notes(account.report)
        return found(StepFinding(tested=tested), **fields)

    def _why_it_fails(
        self, account: CommandRunRecord, failing: list[str], unstable: list[str], ran: TestRun
    ) -> str | None:
        """Why nothing can be compared with the baseline; None if it can."""
        if account.exit_code != 0:
            if failing:
                of_all = f"of {tests_run(account.counts):,} tests"
                return f"{len(failing):,} {of_all} failed: {some(failing, NAMES_SHOWN)}"
            ended = exit_difference(str(account.exit_code), ran.printed)
            return in_words(DifferenceList(differences=(ended,)))
        missing = [look for look in account.looks if not look.is_there]
        if missing:
            return (
                f"the tests passed, but left no '{missing[0].name}' to compare:"
                f" {missing[0].problem}; remove it from `compare`, or make the tests write it"
            )
        report = account.report
        if report is not None and not report.tests and self._room.request.test.junit != AUTO:
            return (
                f"the tests passed, but reported no results: {report.problem or 'no tests'};"
                " set `test.junit` to the report that they write, or to `off`"
            )
        if len(unstable) > MOST_UNSTABLE:
            return (
                f"{len(unstable):,} tests are flaky on the baseline"
                f" (e.g. {some(unstable, NAMES_SHOWN)}): candidates cannot be compared"
            )
        return None

    async def _account(self, number: int) -> CommandRunRecord | None:
        """The record of a baseline run; None if it has not ended or left none."""
        if number not in self._accounts:
            end = self._end_of_the_baseline(number)
            path = None if end is None else self._room.artifact(end, ACCOUNT)
            if path is None:
                return None
            read = await asyncio.to_thread(load_account, path)
            if read is None:
                return None
            self._accounts[number] = read
        return self._accounts[number]

    def _end_of_the_baseline(self, number: int) -> StepEnd | None:
        return self._room.ends.get((StepKind.TEST, BASELINE, number))

    # ---- candidates

    async def _of_a_candidate(self, ran: TestRun) -> AttemptResult:
        baseline = await self._baseline()
        if baseline is None:
            return broke(
                Outcome.INFRA_ERROR,
                "the baseline's test results are gone from the run's folder; start a new race",
                lasting=True,
                **ran.fields,
            )
        flags = first_flags(unusual(ran.account.flags, await self._flags_of_the_baseline()))
        account = replace(ran.account, flags=flags)
        differing = await asyncio.to_thread(
            differences_between, baseline, account, self._unstable(), printed=ran.printed
        )
        if ran.failure is not None:
            return _no_end_of_its_own(ran, ran.failure, account, differing)
        counts = counts_against(baseline, account, self._unstable())
        finding = _finding(account, differing, counts)
        if not differing:
            return found(finding, **ran.fields)
        reason = in_words(differing, account.counts, baseline.counts)
        if baseline.reports_tests and not account.reports_tests and account.exit_code == 0:
            problem = "" if account.report is None else account.report.problem
            reason = f"it exited with code 0, but reported no test results ({problem}); {reason}"
        return broke(Outcome.FAILED, reason, finding=finding, **ran.fields)

    async def _flags_of_the_baseline(self) -> list[tuple[str, ...]]:
        """Forbidden changes that the baseline's own runs made."""
        accounts = [await self._account(number) for number in RUNS_OF_THE_BASELINE]
        return [account.flags for account in accounts if account is not None]

    async def _baseline(self) -> CommandRunRecord | None:
        """The baseline run that candidates are compared with: the first that passed."""
        known = [(number, await self._account(number)) for number in RUNS_OF_THE_BASELINE]
        accounts = [account for _, account in known if account is not None]
        passed = [account for account in accounts if account.exit_code == 0]
        return next(iter((*passed, *accounts)), None)

    def _unstable(self) -> frozenset[str]:
        ends = [self._end_of_the_baseline(number) for number in RUNS_OF_THE_BASELINE]
        tested = [end.finding.tested for end in ends if end is not None]
        return frozenset(name for one in tested if one is not None for name in one.unstable)


# ---- results


def _report_notes(report: JunitReport) -> tuple[str, ...]:
    if report.tests and report.problem is None:
        return ()
    if report.tests:
        return (f"its test report is incomplete: {report.problem}",)
    return (f"its individual tests are unknown, so only its exit code counts: {report.problem}",)


def _finding(
    account: CommandRunRecord, differing: DifferenceList, counts: TestCounts | None = None
) -> StepFinding:
    return StepFinding(
        tested=CorrectnessFinding(
            counts=counts or account.counts,
            differences=differing.differences,
            more=differing.more,
            flags=account.flags,
        )
    )


def _no_end_of_its_own(
    ran: TestRun,
    failure: Failure,
    account: CommandRunRecord,
    differing: DifferenceList | None = None,
) -> AttemptResult:
    """The result of a run that was killed, timed out or never started, with what is known."""
    differing = differing or DifferenceList()
    if failure.kind is not Outcome.INFRA_ERROR:
        ended = exit_difference(failure.message, ran.printed)
        differing = differing.with_first(ended)
    return broke(
        failure.kind,
        failure.message,
        finding=_finding(account, differing),
        lasting=failure.lasting,
        **ran.fields,
    )
