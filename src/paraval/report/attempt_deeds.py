"""What one attempt did, in lines: its calls of tools, and what it changed, file by file."""

from __future__ import annotations

from collections.abc import Iterator

from paraval.isolation import Activity, Change, FileChange
from paraval.report.text import columns, one_line
from paraval.report.wording import counted

_LONGEST_PATH = 100
_LONGEST_LINE = 300


def stat_lines(change: Change) -> Iterator[str]:
    """A line a file, and what they come to; nothing in a name acts."""
    paths = [one_line(file.path, _LONGEST_PATH) for file in change.files]
    width = max(map(columns, paths), default=0)
    for path, file in zip(paths, change.files, strict=True):
        yield f" {path}{' ' * (width - columns(path))}  {file.status:<7}  {_lines(file)}"
    if more := change.files_in_all - len(change.files):
        yield f" and {counted(more, 'more file')}"
    yield f" {change_in_words(change)}"
    if change.unknown is not None:
        yield f" {one_line(f'not all of it is known: {change.unknown}', _LONGEST_LINE)}"


def change_in_words(change: Change) -> str:
    """`3 files: 1 added, 2 changed; 12 lines added, 4 deleted`."""
    kinds = (
        (change.files_added, "added"),
        (change.files_changed, "changed"),
        (change.files_deleted, "deleted"),
    )
    files = ", ".join(f"{number:,} {kind}" for number, kind in kinds if number)
    if not files:
        return "nothing changed" if change.unknown is None else "unknown"
    binary = f" ({change.binary_files:,} binary)" if change.binary_files else ""
    lines = counted(change.lines_added, "line")
    bound = "" if change.unknown is None else "at least "
    return (
        f"{bound}{counted(change.files_in_all, 'file')}: {files}{binary}; {lines} added, "
        f"{change.lines_deleted:,} deleted"
    )


def deeds_in_lines(activity: Activity | None, change: Change | None) -> Iterator[str]:
    """What an attempt did; nothing in a name acts."""
    if activity is not None:
        yield from _activity_lines(activity)
    if change is not None:
        yield f"changes: {change_in_words(change)}"
        if change.unknown is not None:
            yield one_line(f"not all changes are known: {change.unknown}", _LONGEST_LINE)
        for words in change.tampering:
            yield one_line(f"tampering: {words}", _LONGEST_LINE)


def _activity_lines(activity: Activity) -> Iterator[str]:
    if activity.turns is not None:
        yield f"turns: {activity.turns:,}"
    for server, state in activity.mcp.items():
        yield one_line(f"MCP server {server}: {state}", _LONGEST_LINE)
    if not activity.tells_tools:
        yield "tools: not reported"
        return
    for tool in activity.tools:
        of = f" of {tool.server}" if tool.server is not None else ""
        failed = f", {tool.failed:,} with an error" if tool.failed else ""
        told = f"tool {tool.name}{of}: {counted(tool.calls, 'call')}{failed}"
        yield one_line(told, _LONGEST_LINE)


def _lines(file: FileChange) -> str:
    if file.binary:
        return "binary"
    if file.is_unknown:
        return "not looked into"
    return f"+{file.lines_added:,} -{file.lines_deleted or 0:,}"
