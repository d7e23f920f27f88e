"""A history in Markdown that fits a comment on a pull request."""

from __future__ import annotations

from paraval.report.as_markdown import code
from paraval.report.history.records import Entry, History
from paraval.report.history.table import Column, cell_of, columns_of, rows_of
from paraval.report.history.words import PARTIAL_LEGEND, heading, left_out, notes
from paraval.report.wording import counted

_MOST_BYTES = 55_000
"""GitHub takes 65,536 characters in a comment."""


def history_markdown(history: History) -> str:
    shown = columns_of(history)
    runs = [_run(entry, shown) for entry in history.entries]
    fitting = _newest_within(_MOST_BYTES, runs)
    more = len(runs) - len(fitting)
    closing = [f"{counted(more, 'older run')} not shown."] if more else []
    if any(entry.is_partial for entry in history.entries):
        closing.append(PARTIAL_LEGEND)
    closing += left_out(history)
    parts = [f"## paraval: {heading(history, code)}", _table(shown, fitting), *closing]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(shown: list[Column], runs: list[str]) -> str:
    if not runs:
        return ""
    head = f"| run | {' | '.join(column.heading for column in shown)} | |\n"
    return f"{head}| --- |{' ---: |' * len(shown)} --- |\n{''.join(runs)}".rstrip("\n")


def _run(entry: Entry, shown: list[Column]) -> str:
    beside = "<br>".join(notes(entry, code))
    lines = []
    for row in rows_of(entry):
        label = code(row.label) if row.is_run else f"· {code(row.label)}"
        cells = " | ".join(cell_of(column, row) for column in shown)
        lines.append(f"| {label} | {cells} | {beside if row.is_run else ''} |\n")
    return "".join(lines)


def _newest_within(most_bytes: int, runs: list[str]) -> list[str]:
    fitting: list[str] = []
    for run in reversed(runs):
        most_bytes -= len(run.encode())
        if most_bytes < 0:
            break
        fitting.insert(0, run)
    return fitting
