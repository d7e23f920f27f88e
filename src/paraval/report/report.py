"""The report of a run, for Python and for the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from paraval.report.compare.claims import claim_of
from paraval.report.contents import Contents, RunSource
from paraval.report.files import check_output_paths, write_files
from paraval.report.formats.json import document
from paraval.report.formats.run_text import run_text
from paraval.report.formats.trial_rows import data_frame
from paraval.report.gate import SPOKEN
from paraval.report.summary.figures import summary_table
from paraval.text.tables import Page

__all__ = ["Report", "RunSource"]

_MOST_IN_NOTEBOOK = 20
"""Of variants, and of comparisons."""


class Report(Contents):
    """A run, its summary, its gate and its trials, to read, print or write.

    `print(report)` shows what `paraval run` shows. `report.trials` reads the results in plan
    order, from disk, each time it is looped over.
    """

    @property
    def exit_code(self) -> int:
        """The exit code of `paraval run`."""
        return self.gate.exit_code

    def write(self, path: str | Path, *, full: bool = False) -> None:
        """Write a file in the format of its extension; whole, or not at all. `full`: with what was
        sent to models, agents and commands, in JSON."""
        check_output_paths([path])
        self.full = full
        write_files(self, [path])

    def to_dict(self, *, full: bool = False) -> dict[str, Any]:
        """The JSON report as a mapping, with every trial; `full` as in `write`."""
        self.full = full
        return document(self)

    def to_dataframe(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """One row per trial, with the columns of the CSV report, as a DataFrame of pandas, or of
        polars if only that is installed."""
        return data_frame(self, library)

    def __str__(self) -> str:
        return run_text(self, Page())

    def _repr_html_(self) -> str:
        """For notebooks: the gate, a row for each variant, and the comparisons."""
        # Slow to load.
        from paraval.report.page.rendering import HtmlPage, rendered  # noqa: PLC0415 - see above

        page = HtmlPage()
        table = summary_table(self.summary, page, in_full=False, running=self.run.running)
        rows, compared = table.rows[:_MOST_IN_NOTEBOOK], self.comparisons[:_MOST_IN_NOTEBOOK]
        return rendered(
            "notebook.html",
            gate=self.gate.sentence,
            table=table,
            rows=rows,
            comparisons=[claim_of(one, page.name) for one in compared],
            unshown=len(table.rows) - len(rows) + len(self.comparisons) - len(compared),
            run=self.run,
        )

    def __repr__(self) -> str:
        summary = self.summary
        return (
            f"<Report of {self.run.id}: {summary.passed} passed, {summary.failed} failed,"
            f" {summary.errors} errors; gate {SPOKEN[self.gate.verdict]}>"
        )
