"""A comparison for Python users, and how it is written to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paraval.records import Variant
from paraval.report.compare.compare_json import versus_as_dict, within_as_dict
from paraval.report.compare.comparison import Comparison
from paraval.report.compare.outline import versus_text
from paraval.report.compare.two_runs import SideComparison
from paraval.report.compare.within_run import VariantComparisons, within_text
from paraval.report.files import check_endings, write_whole
from paraval.report.formats.json import to_json
from paraval.report.gate import DropVerdict
from paraval.text.document import Markdown
from paraval.text.tables import Page

# A comparison as a file: JSON, Markdown or a page, by its extension.

_HINT = "comparison.html for people, comparison.json for programs, comparison.md for a pull request"


def check_comparison_outputs(paths: Sequence[Path]) -> None:
    """Raise RequestError for a path that could not be written later; changes no file."""
    check_endings(paths, "a comparison", (".json", ".md", ".html"), _HINT)


def write_versus(path: Path, versus: SideComparison, drop: DropVerdict | None) -> None:
    match path.suffix.lower():
        case ".json":
            text = f"{to_json(versus_as_dict(versus, drop))}\n"
        case ".html":
            # Templates and charts take long to load, and few comparisons are written as a page.
            from paraval.report.compare.compare_html import versus_page  # noqa: PLC0415 - see above

            text = versus_page(versus, drop)
        case _:
            text = versus_text(versus, Markdown(), drop)
    write_whole(path, text)


def write_within(path: Path, within: VariantComparisons) -> None:
    match path.suffix.lower():
        case ".json":
            text = f"{to_json(within_as_dict(within))}\n"
        case ".html":
            from paraval.report.compare.compare_html import within_page  # noqa: PLC0415 - as above

            text = within_page(within)
        case _:
            text = within_text(within, Markdown())
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
        write_versus(Path(path), self._versus, None)

    def to_dict(self) -> dict[str, Any]:
        """The same as `paraval compare --json` prints."""
        return versus_as_dict(self._versus, None)

    def __str__(self) -> str:
        return versus_text(self._versus, Page())

    def __repr__(self) -> str:
        comparison = self.comparison
        names = f"{self._versus.subject.name} vs {self._versus.reference.name}"
        return f"<ComparisonReport of {names}: {comparison.finding.value}>"
