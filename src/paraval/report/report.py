"""The report of a run, and the files it can be written to, each whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TextIO

from paraval.errors import NotWrittenError, RequestError, why
from paraval.report.compare.sentences import short_row
from paraval.report.contents import Contents, Format, RunSource
from paraval.report.formats.csv import AsCsv
from paraval.report.formats.json import AsJson, AsJsonLines, document
from paraval.report.formats.junit import AsJUnit
from paraval.report.formats.otlp import AsOtlp
from paraval.report.formats.run_text import AsMarkdown, run_text
from paraval.report.formats.trial_rows import data_frame
from paraval.report.gate import SPOKEN
from paraval.report.summary.columns import summary_table
from paraval.text.tables import Page

# The page as a report format. What draws the page is loaded only when it is written.


class AsHtml:
    """A self-contained HTML page: no script, no network."""

    def write(self, contents: Contents, file: TextIO) -> None:
        # Templates and charts take long to load, and few runs are written as a page.
        from paraval.report.page.page import write_page  # noqa: PLC0415 - see above

        write_page(contents, file)


FORMATS: Mapping[str, Format] = {
    ".json": AsJson(),
    ".otlp.jsonl": AsOtlp(),
    ".jsonl": AsJsonLines(),
    ".csv": AsCsv(),
    ".md": AsMarkdown(),
    ".junit.xml": AsJUnit(),
    ".html": AsHtml(),
}

_MOST_IN_NOTEBOOK = 20
"""Of variants, and of comparisons."""
_NO_FAULT_OF_THE_PATH = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


def check_output_paths(paths: Sequence[str | Path]) -> None:
    """Raise RequestError for a path that could not be written later; changes no file."""
    for path in map(Path, paths):
        _format_for(path)
        check_place(path)


def check_endings(paths: Sequence[Path], what: str, endings: Collection[str], hint: str) -> None:
    """Raise RequestError for a path that could not be written later; changes no file."""
    known = ", ".join(endings)
    for path in paths:
        if path.suffix.lower() not in endings:
            ending = path.suffix or path.name
            message = f"unknown format '{ending}' for {what}; use one of {known}"
            raise RequestError(message, hint=hint)
        check_place(path)


def check_place(path: Path) -> None:
    """Raise RequestError if no file could be written there; changes no file."""
    try:
        _look_at_place(path)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        if isinstance(error, OSError) and error.errno in _NO_FAULT_OF_THE_PATH:
            raise not_written(path, error) from error
        raise RequestError(f"cannot write {path}: {why(error)}") from error


def not_written(path: Path, error: Exception) -> NotWrittenError:
    """The error for a path that failed although its check had passed."""
    return NotWrittenError(f"cannot write {path}: {why(error)}")


def write_files(contents: Contents, paths: Sequence[str | Path]) -> None:
    """Write each file whole. If one fails, the others are still written."""
    todo = [(path, _format_for(path)) for path in map(Path, paths)]
    failures = []
    for path, form in todo:
        try:
            with opened_whole(path, "x") as file:
                form.write(contents, file)
        except OSError as error:
            failures.append(not_written(path, error).message)
    if failures:
        hint = f"the results are kept; write them with: paraval report {contents.run.id} -o FILE"
        raise NotWrittenError("\n".join(failures), hint=hint)


def _format_for(path: Path) -> Format:
    name = path.name.lower()
    for ending, form in FORMATS.items():
        # Many call their only JUnit file `junit.xml`.
        if name.endswith(ending) or name == ending.removeprefix("."):
            return form
    known = ", ".join(FORMATS)
    if name.endswith(".xml"):
        hint = f"for JUnit XML, name it {path.stem}.junit.xml"
    else:
        hint = "the file extension selects the format"
    ending = path.suffix or path.name
    raise RequestError(f"unknown report format '{ending}'; use one of {known}", hint=hint)


def _look_at_place(path: Path) -> None:
    # Only this finds paths that are too long, have a NUL, or are a loop of links.
    with contextlib.suppress(FileNotFoundError):
        path.stat()
    if path.is_dir():
        raise RequestError(f"cannot write {path}: it is a folder")
    if path.exists() and not path.is_file():
        raise RequestError(f"cannot write {path}: it is not a regular file")
    if path.exists() and not os.access(path, os.W_OK):
        raise RequestError(f"cannot write {path}: the file is read-only")
    folder = _place(path).parent
    if not folder.is_dir():
        hint = f"create it first: mkdir -p {folder}"
        raise RequestError(f"cannot write {path}: there is no folder {folder}", hint=hint)
    # Permissions don't show a read-only file system; a temporary file does.
    with tempfile.TemporaryFile(dir=folder):
        pass


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file; on failure raise NotWrittenError and keep the old file."""
    try:
        with opened_whole(path, "x" if isinstance(data, str) else "xb") as file:
            file.write(data)
    except (OSError, ValueError, RuntimeError) as error:
        raise not_written(path, error) from error


@contextlib.contextmanager
def opened_whole(path: Path, mode: Literal["x", "xb"]) -> Iterator[Any]:
    """A file to write to; it replaces the old one when all is written, or leaves it as it was.

    A TextIO with `x`, a BinaryIO with `xb`.
    """
    place = _place(path)
    beside = place.with_name(f".paraval-{secrets.token_hex(8)}.tmp")
    try:
        with _opened(beside, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            beside.chmod(place.stat().st_mode & 0o777)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


def _opened(path: Path, mode: Literal["x", "xb"]) -> IO[Any]:
    return path.open("xb") if mode == "xb" else path.open("x", encoding="utf-8", newline="\n")


def _place(path: Path) -> Path:
    """The file itself: links are followed, not replaced."""
    return path.resolve()


# The report of a run, for Python and for the commands.

__all__ = ["Report", "RunSource"]


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
        # As above: slow to load.
        from paraval.report.page.rendering import HtmlPage, rendered  # noqa: PLC0415 - see above

        page = HtmlPage()
        table = summary_table(self.summary, page, in_full=False, running=self.run.running)
        rows, compared = table.rows[:_MOST_IN_NOTEBOOK], self.comparisons[:_MOST_IN_NOTEBOOK]
        return rendered(
            "notebook.html",
            gate=self.gate.sentence,
            table=table,
            rows=[*rows, *([] if table.total is None else [table.total])],
            comparisons=[short_row(one, page.name) for one in compared],
            unshown=len(table.rows) - len(rows) + len(self.comparisons) - len(compared),
            run=self.run,
        )

    def __repr__(self) -> str:
        summary = self.summary
        return (
            f"<Report of {self.run.id}: {summary.passed} passed, {summary.failed} failed,"
            f" {summary.errors} errors; gate {SPOKEN[self.gate.verdict]}>"
        )
