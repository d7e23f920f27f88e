"""`paraval.compare`: what `paraval compare` tells, for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import paraval
from paraval.cli.commands.compare import compare_command
from paraval.report.compare.comparison import Finding
from tests.test_report import written


def suite(wrong: int) -> paraval.Suite:
    """Twelve cases, two models; the small one answers so many of them wrongly."""

    def answer(case: paraval.Case, variant: dict[str, object]) -> str:
        return "no" if variant["model"] == "small" and int(case.id) < wrong else "yes"

    return paraval.Suite(
        name="letters",
        cases=[paraval.Case(id=str(number), input="?", expect="yes") for number in range(12)],
        target=answer,
        matrix={"model": ["small", "large"]},
        graders=["equals"],
    )


@pytest.fixture
def runs(folder: Path) -> tuple[paraval.Report, paraval.Report]:
    """One that passes, and a worse one, in the default store."""
    return paraval.run(suite(wrong=0)), paraval.run(suite(wrong=10))


Side = Callable[[paraval.Report, Path], "paraval.Report | str | Path"]


def as_file(report: paraval.Report, folder: Path) -> Path:
    path = folder / f"{report.run.id}.json"
    report.write(path)
    return path


@pytest.mark.parametrize(
    "side",
    [
        lambda report, _: report,
        lambda report, _: report.run.id,
        lambda report, _: Path(report.run.folder),
        as_file,
        lambda report, folder: str(as_file(report, folder)),
    ],
    ids=["reports", "ids", "folders", "paths of files", "names of files"],
)
def test_reports_runs_and_files_can_be_compared(
    side: Side, runs: tuple[paraval.Report, paraval.Report], folder: Path
) -> None:
    good, bad = (side(report, folder) for report in runs)
    compared = paraval.compare(good, bad)
    assert compared.comparison.finding is Finding.WORSE
    assert compared.comparison.cases == 12
    assert [variant["model"] for variant, _ in compared.by_variant] == ["small", "large"]
    assert str(compared).startswith("after passes 42 points less than before (95% CI ")
    assert repr(compared).endswith(": worse>")


def test_parts_and_the_words_of_the_command_will_do(
    runs: tuple[paraval.Report, paraval.Report], folder: Path
) -> None:
    inside = paraval.compare("last:model=small", "model=large")
    assert inside.comparison.finding is Finding.BETTER
    assert inside.by_variant == ()
    assert paraval.compare("last~1", runs[1]).comparison.finding is Finding.WORSE
    other = folder / "elsewhere"
    paraval.run(suite(wrong=3), options=paraval.Options(store=other))
    assert paraval.compare("model=large", "model=small", store=other).comparison.cases == 12


def test_it_tells_programs_and_files_what_the_command_tells(
    runs: tuple[paraval.Report, paraval.Report], folder: Path
) -> None:
    compared = paraval.compare(*runs, confidence=0.9, seed=3)
    names = [report.run.id for report in runs]
    asked = [*names, "--confidence", "0.9", "--seed", "3", "--json"]
    assert compared.to_dict() == json.loads(CliRunner().invoke(compare_command, asked).output)
    compared.write("c.json")
    compared.write(folder / "c.md")
    assert json.loads(Path("c.json").read_text()) == compared.to_dict()
    assert Path("c.md").read_text().startswith("## paraval: comparison")
    # Reports are not changed by it.
    assert json.loads(written(runs[1], ".json"))["summary"]["failed"] == 10


def test_a_wrong_request_is_refused(runs: tuple[paraval.Report, paraval.Report]) -> None:
    sides: list[tuple[paraval.Report | str, str]] = [
        (runs[0], "both sides contain the same trials of"),
        ("nope", "no run 'nope'"),
        ("nope.json", "No such file"),
        ("last:model=mini", "has no value 'mini'"),
    ]
    for side, message in sides:
        with pytest.raises(paraval.ParavalError, match=message):
            paraval.compare(side, runs[0])
    with pytest.raises(paraval.ParavalError, match="must be between"):
        paraval.compare(*runs, confidence=1.0)
    with pytest.raises(paraval.ParavalError, match=r"unknown format .* for a comparison"):
        paraval.compare(*runs).write("c.csv")
