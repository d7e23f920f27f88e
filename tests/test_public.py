"""The public names, and their types as a user's type checker sees them."""

from __future__ import annotations

from collections.abc import Mapping

import paraval


def test_the_public_names_are_these_and_all_of_them_load() -> None:
    assert sorted(paraval.__all__) == [
        "Case",
        "Grade",
        "Options",
        "Outcome",
        "Output",
        "ParavalError",
        "RateLimitedError",
        "Report",
        "Selection",
        "Suite",
        "SuiteError",
        "TransientError",
        "run",
        "run_async",
    ]
    for name in paraval.__all__:
        assert getattr(paraval, name) is not None
        assert name in dir(paraval)


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
        options=paraval.Options(seed=1, resume="last", retry_errors=True),
    )
    rate: float | None = report.summary.pass_rate
    assert rate is not None
    for trial in report.trials:
        assert trial.outcome is paraval.Outcome.PASSED
    report.write("report.json")
