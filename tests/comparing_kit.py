"""Books of results in a line each: `P` passed, `F` failed, `E` an error, `S` skipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from paraval.records import (
    AttemptResult,
    Failure,
    Grade,
    Outcome,
    Output,
    RunInfo,
    Spend,
    TrialResult,
    Variant,
)
from paraval.report.compare.case_results import CaseBook
from paraval.report.contents import RunSource

ENDS = {"P": Outcome.PASSED, "F": Outcome.FAILED, "E": Outcome.TIMEOUT, "S": Outcome.SKIPPED}


def trial(
    case: str,
    variant: Variant,
    end: str,
    *,
    score: float | None = None,
    seconds: float = 1.0,
    usd: float | None = None,
    repeat: int = 1,
    text: str | None = None,
    why: str = "",
) -> TrialResult:
    """`why`: what a grader says of it."""
    outcome = ENDS[end]
    if score is None and outcome.is_judged:
        score = float(outcome is Outcome.PASSED)
    is_passed, score = outcome is Outcome.PASSED, score if outcome.is_judged else None
    grade = Grade(score=score or 0.0, passed=is_passed, reason=why, grader="contains")
    return TrialResult(
        index=0,
        case_id=case,
        variant=variant,
        repeat=repeat,
        result=AttemptResult(
            outcome=outcome,
            score=score,
            output=None if text is None else Output(text=text),
            grades=(grade,) if why and outcome.is_judged else (),
            error=None if outcome.is_judged else Failure(kind=outcome, message="no answer"),
        ),
        attempts=1,
        total_s=seconds,
        spend=None if usd is None else Spend(cost_usd=usd, calls=1),
    )


def book_of(trials: Iterable[TrialResult]) -> CaseBook:
    book = CaseBook()
    for one in trials:
        book.add(one)
    return book


def trials_of(axis: str, ends: Mapping[Any, Iterable[str]]) -> list[TrialResult]:
    """By value: what each case came to, a letter a repeat; case by case, as a plan has them."""
    return [
        trial(f"c{number}", {axis: value}, end, repeat=repeat)
        for number, row in enumerate(zip(*ends.values(), strict=True))
        for value, repeats in zip(ends, row, strict=True)
        for repeat, end in enumerate(repeats, 1)
    ]


def by_mode(**ends: Iterable[str]) -> CaseBook:
    return book_of(trials_of("mode", ends))


def run_info(**other: Any) -> RunInfo:
    usual: dict[str, Any] = {
        "id": "20260131-120000-abcd",
        "suite": "greetings",
        "source": None,
        "folder": "/runs/20260131-120000-abcd",
        "trials": 0,
        "parallel": 8,
        "seed": 1,
        "started_at": 1_769_860_800.25,
        "ended_at": 1_769_860_802.25,
        "wall_s": 2.0,
        "resumed": 0,
        "interrupted": False,
        "fail_under": None,
    }
    return RunInfo(**(usual | other))


class Kept(RunSource):
    """A source of results."""

    def __init__(self, trials: list[TrialResult], **info: Any) -> None:
        self._trials = [replace(one, index=index) for index, one in enumerate(trials)]
        self._info = run_info(**{"trials": len(trials), "done": len(trials)} | info)

    def info(self) -> RunInfo:
        return self._info

    def results(self) -> Iterator[TrialResult]:
        return iter(self._trials)
