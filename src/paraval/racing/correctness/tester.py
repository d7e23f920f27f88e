"""The TEST steps: run the tests of the baseline, twice, and of each candidate, each in a worktree.

A worktree is held only while its tests run and their output is read, here or on a node of a
cluster. The results are compared with the baseline's here, after it is released. `differences`
finds what differs.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import islice

from paraval.racing.context import RaceContext, failed, found, with_timeout
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
    unstable_between,
)
from paraval.racing.correctness.node_tests import run_tests_on_node
from paraval.racing.correctness.test_run import (
    RECORD,
    TestRecord,
    TestRun,
    load_record,
    run_tests,
)
from paraval.racing.findings import CorrectnessFinding, StepFinding, TestCounts
from paraval.racing.integrity.protection import first_flags, unusual
from paraval.racing.request import usual_timeout
from paraval.racing.steps import BASELINE, Step, StepEnd, StepKind
from paraval.records import Attempt, AttemptResult, Failure, Outcome
from paraval.text.words import some

RUNS_OF_THE_BASELINE = (1, 2)
CANARY = "canary"
"""What a run with deliberately broken code is called."""
MOST_FAILING = 20
MOST_UNSTABLE = 1000


class Tester:
    """Performs TEST."""

    __test__ = False  # pytest takes it for a test otherwise

    def __init__(self, context: RaceContext) -> None:
        self._context = context
        self._records: dict[int, TestRecord] = {}
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
            return failed(Outcome.INFRA_ERROR, f"the test results cannot be saved: {error}")

    async def close(self) -> None:
        """Do nothing: no resources are kept between steps."""

    async def _run(self, attempt: Attempt, step: Step) -> TestRun | AttemptResult:
        tree = None if step.candidate == BASELINE else step.tree
        is_candidate = step.candidate not in (BASELINE, CANARY)
        if is_candidate and self._context.request.test.timeout is None:
            attempt = with_timeout(attempt, usual_timeout(self._context.baseline_test_s()))
        if attempt.node is None:
            return await run_tests(self._context, attempt, tree)
        return await run_tests_on_node(self._context, attempt, tree)

    # ---- the baseline

    async def _of_the_baseline(self, attempt: Attempt, step: Step, ran: TestRun) -> AttemptResult:
        if ran.failure is not None:
            return _no_end_of_its_own(ran, ran.failure, replace(ran.record, flags=()))
        imports = self._context.processes.imports
        if step.number == 1 and imports is not None and imports.found_in_src:
            names = some(imports.found_in_src, NAMES_SHOWN)
            self._context.say(f"Not installed, so imported from src/: {names}.")
        record, failing = ran.record, [test.id for test in ran.record.tests if test.status in FAILS]
        artifacts = await asyncio.to_thread(record.save, attempt.folder)
        self._records[step.number] = record
        others = [number for number in RUNS_OF_THE_BASELINE if number != step.number]
        # Either run may end first; the second compares both.
        unstable = [
            name
            for number in others
            if (other := await self._record(number)) is not None
            for name in unstable_between(other, record)
        ]
        tested = CorrectnessFinding(
            counts=record.counts,
            differences=tuple(islice(failures_in(record), MOST_FAILING)),
            failing=tuple(failing[:MOST_FAILING]),
            unstable=tuple(unstable[:MOST_UNSTABLE]),
        )
        fields = ran.fields_with(artifacts)
        if (reason := _why_it_fails(record, failing, unstable)) is not None:
            return failed(Outcome.FAILED, reason, finding=StepFinding(tested=tested), **fields)
        if record.report is not None and record.report.problem is not None:
            fields["notes"] += (f"only its exit code counts: {record.report.problem}",)
        return found(StepFinding(tested=tested), **fields)

    async def _record(self, number: int) -> TestRecord | None:
        """The record of a baseline run; None if it has not ended or left none."""
        if number not in self._records:
            end = self._end_of_the_baseline(number)
            path = None if end is None else self._context.artifact(end, RECORD)
            if path is None:
                return None
            read = await asyncio.to_thread(load_record, path)
            if read is None:
                return None
            self._records[number] = read
        return self._records[number]

    def _end_of_the_baseline(self, number: int) -> StepEnd | None:
        return self._context.ends.get((StepKind.TEST, BASELINE, number))

    # ---- candidates

    async def _of_a_candidate(self, ran: TestRun) -> AttemptResult:
        baseline = await self._baseline()
        if baseline is None:
            return failed(
                Outcome.INFRA_ERROR,
                "the baseline's test results are gone from the run's folder; start a new race",
                lasting=True,
                **ran.fields,
            )
        flags = first_flags(unusual(ran.record.flags, await self._flags_of_the_baseline()))
        record = replace(ran.record, flags=flags)
        unstable = self._unstable()
        differing = await asyncio.to_thread(differences_between, baseline, record, unstable)
        if ran.failure is not None:
            return _no_end_of_its_own(ran, ran.failure, record, differing)
        counts = counts_against(baseline, record, unstable)
        finding = _finding(record, differing, counts)
        if not differing:
            return found(finding, **ran.fields)
        reason = in_words(differing, record.counts, baseline.counts)
        if baseline.tests and not record.tests and record.exit_code == 0:
            problem = record.report and record.report.problem
            why = f" ({problem})" if problem else ""
            reason = f"it exited with code 0, but reported no test results{why}; {reason}"
        return failed(Outcome.FAILED, reason, finding=finding, **ran.fields)

    async def _flags_of_the_baseline(self) -> list[tuple[str, ...]]:
        """Forbidden changes that the baseline's own runs made."""
        records = [await self._record(number) for number in RUNS_OF_THE_BASELINE]
        return [record.flags for record in records if record is not None]

    async def _baseline(self) -> TestRecord | None:
        """The baseline run that candidates are compared with: the first that passed."""
        known = [(number, await self._record(number)) for number in RUNS_OF_THE_BASELINE]
        records = [record for _, record in known if record is not None]
        passed = [record for record in records if record.exit_code == 0]
        return next(iter((*passed, *records)), None)

    def _unstable(self) -> frozenset[str]:
        ends = [self._end_of_the_baseline(number) for number in RUNS_OF_THE_BASELINE]
        tested = [end.finding.tested for end in ends if end is not None]
        return frozenset(name for one in tested if one is not None for name in one.unstable)


# ---- results


def _why_it_fails(record: TestRecord, failing: list[str], unstable: list[str]) -> str | None:
    """Why nothing can be compared with the baseline; None if it can."""
    if record.exit_code != 0:
        if failing:
            of_all = f"of {tests_run(record.counts):,} tests"
            return f"{len(failing):,} {of_all} failed: {some(failing, NAMES_SHOWN)}"
        ended = exit_difference(f"exit code {record.exit_code}", record.printed)
        return in_words(DifferenceList(differences=(ended,)))
    missing = [name for name, digest in record.outputs.items() if not digest]
    if missing:
        return (
            f"the tests passed, but left no '{missing[0]}' to compare; remove it from `compare`, or"
            " make the tests write it"
        )
    if len(unstable) > MOST_UNSTABLE:
        return (
            f"{len(unstable):,} tests are flaky on the baseline"
            f" (e.g. {some(unstable, NAMES_SHOWN)}): candidates cannot be compared"
        )
    return None


def _finding(
    record: TestRecord, differing: DifferenceList, counts: TestCounts | None = None
) -> StepFinding:
    return StepFinding(
        tested=CorrectnessFinding(
            counts=counts or record.counts,
            differences=differing.differences,
            more=differing.more,
            flags=record.flags,
        )
    )


def _no_end_of_its_own(
    ran: TestRun,
    failure: Failure,
    record: TestRecord,
    differing: DifferenceList | None = None,
) -> AttemptResult:
    """The result of a run that was killed, timed out or never started, with what is known."""
    differing = differing or DifferenceList()
    if failure.kind is not Outcome.INFRA_ERROR:
        ended = exit_difference(failure.message, ran.record.printed)
        differing = differing.with_first(ended)
    return failed(
        failure.kind,
        failure.message,
        finding=_finding(record, differing),
        lasting=failure.lasting,
        **ran.fields,
    )
