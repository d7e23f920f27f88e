"""A comparison for Python users and programs, and how it is written to a file: JSON, Markdown or a
page, by its extension.

JSON of two sides: {"schema": 1, "metric", "seed", "comparison", "variants": [{"variant",
"comparison"}], "reference": {"name", "label", "choice", "run", "suite", "started_at", "ended_at",
"interrupted", "held_back", "running", and the keys of a report's summary}, "subject": the same,
"changed": {"regressed": [{"case", "variant", "reference": {"trial", "output", "reason"},
"subject"}], "fixed", "left_out": number beyond the first 2,000 of each}, "notices", "gate"}. Of one
run: {"schema": 1, "run": {"name", "id", "suite"}, "metric", "seed", "comparisons", "not_made"}.
Comparisons and the gate are as in a report. Differences are subject minus reference, in shares;
ratios are subject divided by reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paraval.codec import Style, shown, to_data
from paraval.records import TrialResult, Variant
from paraval.report.compare.comparison import Comparison
from paraval.report.compare.comparison_text import (
    ChangedCase,
    VariantComparisons,
    changed_cases,
    passing_reason,
    versus_text,
    within_text,
)
from paraval.report.compare.two_runs import ComparisonSide, SideComparison, notices_of
from paraval.report.files import check_endings, write_whole
from paraval.report.formats.json import comparison_as_dict, moment, to_json
from paraval.report.formats.json_schema import SCHEMA
from paraval.report.gate import DropVerdict
from paraval.report.reasons import reason
from paraval.text.document import Markdown
from paraval.text.tables import Page
from paraval.text.terminal import well_formed

_MOST_CHANGED = 2_000
_HINT = "comparison.html for people, comparison.json for programs, comparison.md for a pull request"


def versus_as_dict(versus: SideComparison, drop: DropVerdict | None) -> dict[str, Any]:
    found = {one.kind: one for one in changed_cases(versus, str, _MOST_CHANGED, _MOST_CHANGED)}
    kinds = {"regressed": "broke", "fixed": "mended"}
    changed: dict[str, Any] = {
        name: list(map(_changed_case, found[kind].cases)) if kind in found else []
        for name, kind in kinds.items()
    }
    left_out = sum(found[kind].more for kind in kinds.values() if kind in found)
    return {
        "schema": SCHEMA,
        "metric": versus.question.metric.value,
        "seed": versus.question.seed,
        "comparison": comparison_as_dict(versus.comparison),
        "variants": [
            {"variant": shown(dict(variant)), "comparison": comparison_as_dict(comparison)}
            for variant, comparison in versus.by_variant
        ],
        "reference": _side(versus.reference),
        "subject": _side(versus.subject),
        "changed": shown({**changed, "left_out": left_out}),
        "notices": list(notices_of(versus, well_formed)),
        "gate": None if drop is None else to_data(drop, Style.SHOWN),
    }


def _side(side: ComparisonSide) -> dict[str, Any]:
    run, known = side.run, side.tells_run
    summary = to_data(side.summary, Style.SHOWN)
    del summary["variants"]
    about = {
        "name": side.name,
        "label": side.label,
        "choice": dict(side.choice),
        "run": run.id if known else None,
        "suite": run.suite if known else None,
        "started_at": moment(run.started_at) if known else None,
        "ended_at": moment(run.ended_at) if known else None,
        "interrupted": run.interrupted,
        "held_back": run.held_back,
        "running": run.running,
    }
    return {**shown(about), **summary}


def _changed_case(case: ChangedCase) -> dict[str, Any]:
    one = case.subject or case.reference
    return {
        "case": case.name if one is None else one.case_id,
        "variant": {} if one is None else dict(one.variant),
        "reference": _answer(case.reference),
        "subject": _answer(case.subject),
    }


def _answer(result: TrialResult | None) -> dict[str, Any] | None:
    if result is None:
        return None
    output, why = result.result.output, passing_reason(result) or reason(result.result)
    text = None if output is None else output.text
    return {"trial": result.index, "output": text, "reason": why}


def within_as_dict(within: VariantComparisons) -> dict[str, Any]:
    run = {"name": within.name, "id": within.run.id, "suite": within.run.suite}
    return {
        "schema": SCHEMA,
        "run": shown(run),
        "metric": within.metric.value,
        "seed": within.seed,
        "comparisons": [comparison_as_dict(one) for one in within.comparisons],
        "not_made": within.not_made,
    }


def check_comparison_outputs(paths: Sequence[Path]) -> None:
    """Raise RequestError for a path that could not be written later; changes no file."""
    check_endings(paths, "a comparison", (".json", ".md", ".html"), _HINT)


def write_comparison(
    path: Path, found: SideComparison | VariantComparisons, drop: DropVerdict | None = None
) -> None:
    ending = path.suffix.lower()
    if ending == ".html":
        # Templates and charts take long to load, and few comparisons are written as a page.
        from paraval.report.compare.compare_html import comparison_page  # noqa: PLC0415 - see above

        text = comparison_page(found, drop)
    elif isinstance(found, SideComparison):
        is_json = ending == ".json"
        data = versus_as_dict(found, drop) if is_json else {}
        text = f"{to_json(data)}\n" if is_json else versus_text(found, Markdown(), drop)
    elif ending == ".json":
        text = f"{to_json(within_as_dict(found))}\n"
    else:
        text = within_text(found, Markdown())
    write_whole(path, text)


class ComparisonReport:
    """B compared with A, to read, print or write.

    `print(report)` shows what `paraval compare` shows. Differences are B minus A.
    """

    def __init__(self, versus: SideComparison) -> None:
        self._versus = versus

    @property
    def comparison(self) -> Comparison:
        """The comparison over all that both sides have."""
        return self._versus.comparison

    @property
    def by_variant(self) -> tuple[tuple[Variant, Comparison], ...]:
        """Each variant that both have by itself, adjusted for their number; empty if there is only
        one."""
        return self._versus.by_variant

    def write(self, path: str | Path) -> None:
        """Write a file in the format of its extension (.json, .md or .html), whole or not at
        all."""
        check_comparison_outputs([Path(path)])
        write_comparison(Path(path), self._versus)

    def to_dict(self) -> dict[str, Any]:
        """The same as `paraval compare --json` prints."""
        return versus_as_dict(self._versus, None)

    def __str__(self) -> str:
        return versus_text(self._versus, Page())

    def __repr__(self) -> str:
        comparison = self.comparison
        names = f"{self._versus.subject.name} vs {self._versus.reference.name}"
        return f"<ComparisonReport of {names}: {comparison.finding.value}>"
