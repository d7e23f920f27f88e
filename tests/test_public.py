"""The public names, and their types as a user's type checker sees them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

import paraval
from paraval.dataclass import dataclass as our_dataclass, quick_init


def test_the_public_names_are_these_and_all_of_them_load() -> None:
    assert sorted(paraval.__all__) == [
        "Ask",
        "Case",
        "ComparisonReport",
        "Grade",
        "ModelUnderTest",
        "NoAnswerError",
        "Options",
        "Outcome",
        "Output",
        "ParavalError",
        "RaceReport",
        "RateLimitedError",
        "Report",
        "Selection",
        "Suite",
        "SuiteError",
        "TransientError",
        "Usage",
        "compare",
        "load_report",
        "race",
        "race_async",
        "run",
        "run_async",
    ]
    for name in paraval.__all__:
        assert getattr(paraval, name) is not None
        assert hasattr(paraval, name)


def typed_use() -> None:
    """Never called: mypy reads it as it would read a user's program."""

    async def target(case: paraval.Case, variant: Mapping[str, object]) -> paraval.Output:
        return paraval.Output(text=case.id, usage={"tokens": 1.0}, cost_usd=0.1)

    def grader(output: paraval.Output, case: paraval.Case) -> paraval.Grade:
        return paraval.Grade(score=1.0, passed=output.text == case.expect)

    suite = paraval.Suite(
        cases=[paraval.Case(id="a", input={"question": "?"}, expect="a", tags=("smoke",))],
        target=target,
        matrix={"model": ["small", "large"]},
        graders=["contains", grader],
        repeats=2,
    )
    report: paraval.Report = paraval.run(
        suite,
        parallel=8,
        selection=paraval.Selection(cases=("a*",)),
        options=paraval.Options(seed=1, resume="last", rerun="errors"),
    )
    rate: float | None = report.summary.pass_rate
    assert rate is not None
    for trial in report.trials:
        assert trial.outcome is paraval.Outcome.PASSED
    report.write("report.json")
    compared: paraval.ComparisonReport = paraval.compare("last~1", report, confidence=0.9, seed=1)
    difference = compared.comparison.passing
    assert difference is not None
    low, high = difference.interval
    assert low <= difference.mean <= high
    for variant, comparison in compared.by_variant:
        assert comparison.cases, variant["model"]
    compared.write("comparison.md")


def typed_race() -> None:
    """Never called either: a function that proposes, and the keys of a race file as arguments."""

    async def propose(ask: paraval.Ask) -> AsyncIterator[Mapping[str, object]]:
        answer = await ask.model("haiku", f"Round {ask.round} of {ask.rounds}")
        parent = ask.candidates[-1]["name"] if ask.candidates else None
        yield {"patch": answer, "parent": parent, "note": "by haiku", "cost_usd": 0.01}

    def replacement(ask: paraval.Ask) -> list[Mapping[str, object]]:
        return [{"folder": ask.folder}]

    report: paraval.RaceReport = paraval.race(
        "race.yaml",
        candidates=["candidates/*.patch", {"name": "mine", "patch": "..."}],
        models={"haiku": {"provider": "loopback"}},
        propose=propose,
        limits={"parallel": 4, "seconds": 600},
        options=paraval.Options(resume="last"),
    )
    paraval.race("race.yaml", propose={"function": replacement, "rounds": 3})
    patch: str | None = report.patch
    assert patch is not None
    assert report["mine"].speedup is not None
    report.write("race.json")


def test_users_code_cannot_change_a_case_that_other_trials_share() -> None:
    case = paraval.Case(id="a", input="b")
    with pytest.raises(dataclasses.FrozenInstanceError):
        case.input = "c"  # type: ignore[misc]  # what the test is about


def test_our_dataclasses_equal_those_of_the_standard_library() -> None:
    def made(dataclass: Any) -> Any:
        class Record:
            """Has every kind of field that ours have."""

            name: str
            values: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
            secret: str = dataclasses.field(default="", repr=False)

        return dataclass(frozen=True, slots=True, kw_only=True)(Record)

    def facts(record: Any) -> Any:
        one, same, other = record(name="a", values={"b": 1}), record(name="a"), record(name="b")
        assert dataclasses.replace(other, name="a") == same
        with pytest.raises(TypeError):
            record("a")
        return repr(one), one == same, one == other, one != 1, len({one, same, other})

    usual = made(dataclasses.dataclass)
    assert facts(made(our_dataclass)) == facts(usual)
    quick = quick_init(made(dataclasses.dataclass))
    assert facts(quick) == facts(usual)
    assert quick(name="a").values is not quick(name="b").values
    assert inspect.signature(quick) == inspect.signature(usual)
    changing: Any = our_dataclass(slots=True)(type("Changing", (), {"__annotations__": {"n": int}}))
    with pytest.raises(TypeError, match="unhashable"):
        hash(changing(1))


@pytest.mark.usefixtures("folder")
def test_tags_of_a_case_may_be_a_list() -> None:
    case = paraval.Case(id="t", input="x", tags=["billing"])  # type: ignore[arg-type]  # users do
    suite = paraval.Suite(cases=[case], target=lambda given: given.id)
    (trial,) = paraval.run(suite).trials
    assert trial.result.output is not None
    (case,) = suite.cases
    assert case.tags == ("billing",)
