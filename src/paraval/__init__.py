"""Run evals of models, prompts, agents and code in parallel, and know which differences are real.

import paraval

async def greet(case: paraval.Case) -> str:
    return f"hello, {case.input}"

suite = paraval.Suite(
    cases=[paraval.Case(id="world", input="world", expect="hello")],
    target=greet,
    graders=["contains"],
)
report = paraval.run(suite, parallel=8)
print(report)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paraval.errors import ParavalError, RateLimitedError, SuiteError, TransientError
    from paraval.plan.suite import Suite
    from paraval.pytest_plugin.model_fixture import ModelUnderTest, NoAnswerError
    from paraval.pytest_plugin.usage import Usage
    from paraval.racing.api import race, race_async
    from paraval.racing.candidates.propose import Ask
    from paraval.racing.report.race_report import RaceReport
    from paraval.records import Case, Grade, Outcome, Output
    from paraval.report.compare.compare_report import ComparisonReport
    from paraval.report.report import Report
    from paraval.runner.comparisons import compare
    from paraval.runner.run import run, run_async
    from paraval.runner.stored_runs import load_report
    from paraval.settings import Options, Selection

__version__ = "0.1.0"

__all__ = [
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

_HOMES = {
    "Ask": "racing.candidates.propose",
    "Case": "records",
    "ComparisonReport": "report.compare.compare_report",
    "Grade": "records",
    "ModelUnderTest": "pytest_plugin.model_fixture",
    "NoAnswerError": "pytest_plugin.model_fixture",
    "Options": "settings",
    "Outcome": "records",
    "Output": "records",
    "ParavalError": "errors",
    "RaceReport": "racing.report.race_report",
    "RateLimitedError": "errors",
    "Report": "report.report",
    "Selection": "settings",
    "Suite": "plan.suite",
    "SuiteError": "errors",
    "TransientError": "errors",
    "Usage": "pytest_plugin.usage",
    "compare": "runner.comparisons",
    "load_report": "runner.stored_runs",
    "race": "racing.api",
    "race_async": "racing.api",
    "run": "runner.run",
    "run_async": "runner.run",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that `import paraval` stays quick.

    `dir` doesn't list these names: freezegun gets every name that it lists of every module.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'paraval' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"paraval.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
