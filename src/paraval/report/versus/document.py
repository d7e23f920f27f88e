"""One side held against another: what users hold after a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paraval.records import Variant
from paraval.report.comparing.comparison import Comparison
from paraval.report.versus.as_dict import versus_as_dict
from paraval.report.versus.as_text import paper, story_text
from paraval.report.versus.files import check_comparison_outputs
from paraval.report.versus.held import Versus
from paraval.report.versus.story import MOST_CASES, story_of
from paraval.report.versus.writing import write_versus

_WIDTH = 80


class ComparisonReport:
    """B against A, to read, print or write.

    `print(report)` shows what `paraval compare` shows. Differences are B's less A's.
    """

    def __init__(self, versus: Versus) -> None:
        self._versus = versus

    @property
    def comparison(self) -> Comparison:
        """Over all that both sides have."""
        return self._versus.comparison

    @property
    def by_variant(self) -> tuple[tuple[Variant, Comparison], ...]:
        """Each variant that both have by itself, made up for their number; none where there is but
        one."""
        return self._versus.by_variant

    def write(self, path: str | Path) -> None:
        """Writes a file in the form that its ending names, .json, .md or .html; whole, or not at
        all."""
        check_comparison_outputs([Path(path)])
        write_versus(Path(path), self._versus, None)

    def to_dict(self) -> dict[str, Any]:
        """What `paraval compare --json` prints."""
        return versus_as_dict(self._versus, None)

    def __str__(self) -> str:
        page = paper(_WIDTH, unicode=True)
        return story_text(story_of(self._versus, page.safe, most=MOST_CASES, drop=None), page)

    def __repr__(self) -> str:
        comparison = self.comparison
        names = f"{self._versus.subject.name} against {self._versus.reference.name}"
        return f"<ComparisonReport of {names}: {comparison.finding.value}>"
