"""Two runs as each report has them: the texts are in `golden/report_*`.

PARAVAL_GOLDEN=write writes them anew: read what changed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from paraval.models.response_reader import CUT
from paraval.records import (
    CUT_OFF,
    Activity,
    AttemptResult,
    Baseline,
    Case,
    CasesRun,
    Change,
    Failure,
    Grade,
    LabelKey,
    McpState,
    Outcome,
    Output,
    RunNotice,
    Spend,
    ToolUse,
    TrialResult,
    Variant,
    answer_digest,
)
from paraval.report.contents import Related, RunSource
from paraval.report.files import format_for
from paraval.report.formats.run_text import TextDetail, run_text
from paraval.report.pairwise import PairwiseReport, Preference
from paraval.report.report import Report
from paraval.text.tables import Page
from tests.golden_kit import assert_golden
from tests.page_kit import MadeRun, trial

ENDS = {
    "P": Outcome.PASSED,
    "F": Outcome.FAILED,
    "T": Outcome.TIMEOUT,
    "C": Outcome.CRASHED,
    "R": Outcome.RATE_LIMITED,
    "S": Outcome.SKIPPED,
    "Q": Outcome.SKIPPED,
}
WHY = {
    "F": "the total is missing",
    "T": "not done in time; ended",
    "C": "exit code 3: no such table",
    "R": "HTTP 429 after 5 attempts",
    "S": "budget of $5.00 reached",
    "Q": "account team-a: its quota is used up; add credit",
}


def ended(sign: str, seconds: float, grades: Sequence[Grade], **other: Any) -> AttemptResult:
    """An attempt that ended so; the first grader decides."""
    outcome = ENDS[sign]
    usual: dict[str, Any] = {"outcome": outcome, "duration_s": seconds}
    if outcome.is_judged:
        usual |= {"grades": grades, "score": sum(one.score for one in grades) / len(grades)}
    else:
        usual |= {"error": Failure(kind=outcome, message=WHY[sign])}
    return AttemptResult(**usual | other)


# ---- three models, twelve cases, two repeats, a judge

CASES = [
    Case(id=name, input=f"Sum up {name}.", expect="total", tags=(size, kind))
    for name, size, kind in (
        *(("rent", "short", "table"), ("food", "short", "table"), ("fuel", "short", "table")),
        *(("loans", "long", "table"), ("taxes", "long", "table"), ("stock", "long", "table")),
        *(("mail", "short", "text"), ("memo", "short", "text"), ("note", "short", "text")),
        *(("essay", "long", "text"), ("novel", "long", "text"), ("trial", "long", "text")),
    )
]
MODELS = {
    "large": "PP PP PP PP PP FF PP PP PP PF FP PP",
    "small": "PP PP FF PF FF TT PP PP PF FF FT PR",
    "local": "PP FF FF CF FF FF PP FF PP FF FF FF",
}
EARLIER = MODELS | {"large": "PP PP PP PP PP PP PP PP PP PP PP PP"}
PRICES = {"large": 0.0125, "small": 0.00125, "local": None}
SECONDS = {"large": 4.0, "small": 1.25, "local": 2.5}


def answer(model: str, case: Case, sign: str, repeat: int) -> AttemptResult:
    """The answer is right or not; the judge likes most of what is right, and some that is not."""
    passed, seconds = sign == "P", 30.0 if sign == "T" else SECONDS[model] + len(case.id) / 8
    likes = (0.9 if passed else 0.2) - (repeat - 1) / 10 + (case.id == "essay") / 2
    why, heard = "" if passed else WHY[sign], "it is clear" if likes > 0.5 else "it rambles"
    return ended(
        sign,
        seconds,
        (
            Grade(score=float(passed), passed=passed, reason=why, grader="contains"),
            Grade(score=likes, passed=likes > 0.5, reason=heard, grader="tone", judge="large"),
        ),
        output=Output(text=f"{model} on {case.id}, {repeat}") if ENDS[sign].is_judged else None,
        notes=(CUT,) if (model, case.id, sign) == ("local", "novel", "F") else (),
    )


def of_models(ends: Mapping[str, str]) -> Iterator[TrialResult]:
    judged = {"input_tokens": 900.0, "output_tokens": 60.0}
    usage = {"input_tokens": 1_200.0, "output_tokens": 310.0}
    usage |= {"cached_tokens": 200.0, "reasoning_tokens": 50.0}
    cached = Spend(cached=1, cached_usd=0.0125, cached_usage=usage, cached_s=4.0)
    refusals = {
        ("small", "rent"): Failure(kind=Outcome.RATE_LIMITED, message="HTTP 429"),
        ("large", "mail"): Failure(kind=Outcome.INFRA_ERROR, message="HTTP 502"),
    }
    told = (
        (case, model, repeat, sign)
        for row, case in enumerate(CASES)
        for model, signs in ends.items()
        for repeat, sign in enumerate(signs.split()[row], start=1)
    )
    for index, (case, model, repeat, sign) in enumerate(told):
        end, more = answer(model, case, sign, repeat), dict[str, Any]()
        if end.outcome.is_judged:
            paid = Spend(calls=1, cost_usd=PRICES[model], usage=usage)
            is_cached = (model, case.id) == ("large", "rent")
            judging = Spend(calls=1, cost_usd=0.002, usage=judged)
            more = {"spend": cached if is_cached else paid, "judging": judging}
        if (refused := refusals.get((model, case.id))) is not None:
            more |= {"attempts": 2, "retries": {refused.kind: 1}, "retry_errors": (refused,)}
        yield trial(index, case.id, {"model": model}, end, repeat=repeat, **more)


@dataclass(frozen=True)
class OfModels(Related):
    """An earlier run, labels of a person on the judge, and a judge's word on pairs."""

    def baseline(self, name: str) -> RunSource:
        return MadeRun(trials=list(of_models(EARLIER)), asked=CASES, info_with={"id": name})

    def labels(self) -> dict[LabelKey, bool]:
        texts = {case.id: f"large on {case.id}, 1" for case in CASES}
        return {
            ("tone", case.id, answer_digest(case, texts[case.id])): case.id not in ("stock", "mail")
            for case in CASES
        }

    def pairwise(self) -> tuple[PairwiseReport, ...]:
        preference = Preference(
            reference="small",
            subject="large",
            pairs=17,
            wins=9,
            losses=1,
            ties=7,
            inconsistent=3,
            left_out=4,
            unjudged=3,
            difference=0.45,
            interval=(0.12, 0.78),
            p=0.0215,
            confidence=0.95,
        )
        return (
            PairwiseReport(
                run="20260131-130000-abcd",
                judge="large",
                rubric="Clear, and no longer than it must be.",
                preferences=(preference,),
                tie_rate=7 / 17,
                first_preferred=0.6,
                first_preferred_interval=(0.42, 0.76),
                cost_usd=0.034,
            ),
        )


def models_report() -> Report:
    baseline = Baseline(name="20260124-090000-1234", max_drop=0.05, max_regressed=1)
    info = {
        "suite": "sums",
        "folder": "/runs/20260131-120000-abcd",
        "trials": 72,
        "parallel": 8,
        "wall_s": 31.5,
        "fail_under": 0.5,
        "baseline": baseline,
        "notices": (RunNotice(message="model small: 12 requests/s found (429)", waited_s=18.0),),
    }
    trials = list(of_models(MODELS))
    return Report(MadeRun(trials=trials, asked=CASES, info_with=info), OfModels())


# ---- two agents, with a server and without it

BUGS = [Case(id=f"bug-{number}", input=f"Fix bug {number}.") for number in range(1, 7)]
AGENTS: dict[tuple[str, str], str] = {
    ("claude", "with-search"): "PPPPFP",
    ("claude", "without"): "PFFPFS",
    ("codex", "with-search"): "PFTPFF",
    ("codex", "without"): "PFFFQS",
}


def activity(agent: str, mode: str, number: int) -> Activity:
    """Codex never calls the server that it is given; once, Claude calls one that it is not."""
    tools = [ToolUse(name="Bash", calls=3 + number)]
    if (agent, mode) == ("claude", "with-search") or (agent, mode, number) == (
        *("claude", "without"),
        1,
    ):
        tools.append(ToolUse(name="find", server="search", calls=2 + number, failed=number % 2))
    lost = (agent, number) == ("codex", 5)
    state = McpState.FAILED if lost else McpState.CONNECTED
    mcp = {"search": state} if mode == "with-search" else {}
    return Activity(turns=5 + number, tools=tuple(tools), mcp=mcp)


def change(agent: str, mode: str, number: int) -> Change:
    did = (agent, mode, number)
    return Change(
        files_changed=number % 3,
        lines_added=4 * (number % 3),
        lines_deleted=number % 3,
        tampering=("a hook was added",) if did == ("codex", "without", 2) else (),
        flagged=("changed test_bug.py",) if did == ("codex", "with-search", 2) else (),
        unknown="the workspace was moved away" if did == ("claude", "without", 4) else None,
    )


def of_agents() -> Iterator[TrialResult]:
    index = 0
    for number, case in enumerate(BUGS):
        for (agent, mode), signs in AGENTS.items():
            sign = signs[number]
            passed, has_run = sign == "P", sign not in "QS"
            variant: Variant = {"agent": agent, "mode": mode}
            seconds = (60.0 if sign == "T" else 20.0 + number + 5 * len(mode)) * has_run
            why = "" if passed else "2 of 9 tests failed"
            grade = Grade(score=float(passed), passed=passed, reason=why, grader="tests")
            end = ended(sign, seconds, (grade,), output=Output(text="Done.") if has_run else None)
            if has_run:
                end = replace(
                    end,
                    activity=activity(agent, mode, number),
                    change=change(agent, mode, number),
                    cpu_s=seconds / 4,
                    memory_bytes=300_000_000 + 10_000_000 * number,
                    notes=(f"{CUT_OFF}at max_turns (9)",)
                    if (agent, number) == ("codex", 4)
                    else (),
                )
            spend = Spend(calls=4, cost_usd=0.25, usage={"input_tokens": 9e4, "output_tokens": 2e3})
            yield trial(
                index, case.id, variant, end, spend=spend if has_run else None, attempts=has_run
            )
            index += 1


def agents_report() -> Report:
    info = {
        "suite": "bugs",
        "folder": "/runs/20260131-120000-abcd",
        "trials": 24,
        "wall_s": 200.0,
        "held_back": True,
        "resumed": 2,
        "dropped_usd": 0.5,
        "cases": CasesRun(selected=6, offered=40, by="--sample 6"),
    }
    return Report(MadeRun(trials=list(of_agents()), asked=BUGS, info_with=info))


REPORTS = {"models": models_report, "agents": agents_report}


@pytest.mark.parametrize(
    "name",
    [
        "report_models.txt",
        "report_models_verbose.txt",
        "report_models.md",
        "report_models.json",
        "report_models.csv",
        "report_models.junit.xml",
        "report_agents.txt",
        "report_agents.md",
        "report_agents.json",
    ],
)
def test_a_run_is_told_as_it_was(name: str) -> None:
    stem, _, ending = name.partition(".")
    _, run, *detail = stem.split("_")
    report = REPORTS[run]()
    if ending == "txt":
        page = Page(width=100, color=False, unicode=True)
        text = run_text(report, page, TextDetail(verbose=bool(detail))) + "\n"
    else:
        file = io.StringIO(newline="")
        format_for(Path(name)).write(report, file)
        text = file.getvalue()
    assert_golden(name, text)
