"""The best of several variants owes part of its rate to chance: how much, and what shows it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from statistics import fmean

import pytest

from paraval.records import Outcome, Variant
from paraval.report.compare.best_variant import expected_excess
from tests.conftest import Paraval, WriteSuite
from tests.test_report import ended, report_of, written


@pytest.mark.parametrize(
    "truths", [[0.8] * 5, [0.5, 0.9, 0.6], [0.7, 0.72, 0.74, 0.76], [0.6] * 20]
)
def test_the_excess_is_that_of_the_highest_of_noisy_rates(truths: list[float]) -> None:
    """Simulated, of 100 cases: what is told is near what the best is too high by, on average."""
    rng, told, true = random.Random(5), [], []
    for _ in range(60):
        seen = [sum(rng.random() < truth for _ in range(100)) / 100 for truth in truths]
        errors = [(rate * (1 - rate) / 100 + 1e-4) ** 0.5 for rate in seen]
        told.append(expected_excess(seen, errors))
        best = max(range(len(seen)), key=seen.__getitem__)
        true.append(seen[best] - truths[best])
    assert fmean(told) == pytest.approx(fmean(true), abs=0.02)


def variants(*rates: float, cases: int = 40) -> list[tuple[Variant, int, bool]]:
    return [
        ({"model": f"m{number}"}, case, case < rate * cases)
        for number, rate in enumerate(rates)
        for case in range(cases)
    ]


def report(*rates: float, cases: int = 40) -> str:
    return written(
        report_of(
            *(
                ended(Outcome.PASSED if good else Outcome.FAILED, case=f"c{case}", variant=variant)
                for variant, case, good in variants(*rates, cases=cases)
            )
        ),
        ".md",
    )


def test_it_is_told_for_three_variants_with_ten_cases() -> None:
    assert "is the best of 3 variants partly by chance" in report(0.7, 0.75, 0.8)
    assert "partly by chance" not in report(0.7, 0.8), "a comparison says it all"
    assert "partly by chance" not in report(0.2, 0.5, 0.9, cases=9)
    assert "partly by chance" not in report(0.1, 0.1, 1.0, cases=400), "it is clear"


def test_cases_that_are_held_out_measure_the_best(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    names = ", ".join(f"{{id: c{number}, input: {number}}}" for number in range(40))
    write("answer.sh", "test $1 -lt $2 && echo good || echo bad\n")
    write(
        "suite.yaml",
        f"""
        cases: [{names}]
        matrix: {{limit: [10, 20, 30]}}
        target: {{command: [sh, answer.sh, "{{input}}", "{{limit}}"]}}
        graders: [{{contains: good}}]
        holdout: 0.25
        """,
    )
    gone = paraval("run", "suite.yaml", "-o", "report.json")
    assert gone.returncode == 0, gone.stderr
    best = json.loads((folder / "report.json").read_text())["best_variant"]
    assert best["variant"] == {"limit": 30}
    assert (best["of"], best["chosen_by"], best["held_out"]) == (3, 30, 10)
    assert best["expected_excess"] is None
    assert "Held out: limit=30, the best of 3 variants on 30 cases, passes" in gone.stdout
    write("suite.yaml", "cases: [{id: a}]\ntarget: {command: [cat]}\nholdout: 1\n")
    wrong = paraval("run", "suite.yaml").stderr
    assert "holdout: must be a number between 0 and 1" in wrong
