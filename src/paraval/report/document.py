"""The report of a run: what users hold after one, and what the commands show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paraval.report.as_json import document
from paraval.report.contents import Contents, Source
from paraval.report.files import check_output_paths, write_files
from paraval.report.terminal import summary_text

__all__ = ["Report", "Source"]


class Report(Contents):
    """A run, its summary, its gate and its trials, to read, print or write.

    `print(report)` shows what `paraval run` shows. `report.trials` reads the results in plan
    order, from disk, each time it is looped over.
    """

    @property
    def exit_code(self) -> int:
        """What `paraval run` would end with."""
        return self.gate.exit_code

    def write(self, path: str | Path) -> None:
        """Writes a file in the form that its ending names; whole, or not at all."""
        check_output_paths([path])
        write_files(self, [path])

    def to_dict(self) -> dict[str, Any]:
        """The JSON report as a mapping, with every trial."""
        return document(self)

    def __str__(self) -> str:
        return summary_text(self, width=80, colour=False, unicode=True)

    def __repr__(self) -> str:
        summary = self.summary
        return (
            f"<Report of {self.run.id}: {summary.passed} passed, {summary.failed} failed,"
            f" {summary.errors} errors; gate {self.gate.verdict.value}>"
        )
