"""What trials did, for programs: the parts of the JSON report that tell it.

Text is others': it is made such that every encoding can carry it, and shown by whoever shows it.
"""

from __future__ import annotations

from typing import Any

from paraval.isolation import Activity, Change, ToolUse
from paraval.records import AttemptResult
from paraval.report.costs import seconds
from paraval.report.deeds import Changes, Deeds, ServerUse
from paraval.report.text import well_formed


def attempt_deeds(end: AttemptResult) -> dict[str, Any]:
    """Of one attempt."""
    return {
        "activity": None if end.activity is None else _activity(end.activity),
        "change": None if end.change is None else _change(end.change),
        "cpu_s": seconds(end.cpu_s),
        "memory_bytes": end.memory_bytes,
    }


def summed_deeds(deeds: Deeds) -> dict[str, Any]:
    """Of the trials of a variant, or of a run."""
    return {
        "agents": _agents(deeds) if deeds.agents else None,
        "changes": None if deeds.changes is None else _changes(deeds.changes),
        "cpu_s": seconds(deeds.cpu_s),
        "most_memory_bytes": deeds.most_memory_bytes,
    }


def _activity(activity: Activity) -> dict[str, Any]:
    return {
        "turns": activity.turns,
        "tells_tools": activity.tells_tools,
        "tools": [_tool(tool) for tool in activity.tools],
        "mcp": {well_formed(name): state.value for name, state in activity.mcp.items()},
        "session": _text(activity.session),
        "version": _text(activity.version),
        "model": _text(activity.model),
    }


def _tool(tool: ToolUse) -> dict[str, Any]:
    return {
        "name": well_formed(tool.name),
        "server": _text(tool.server),
        "calls": tool.calls,
        "failed": tool.failed,
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "files_added": change.files_added,
        "files_changed": change.files_changed,
        "files_deleted": change.files_deleted,
        "binary_files": change.binary_files,
        "lines_added": change.lines_added,
        "lines_deleted": change.lines_deleted,
        "files": [
            {
                "path": well_formed(file.path),
                "status": file.status,
                "lines_added": file.lines_added,
                "lines_deleted": file.lines_deleted,
                "binary": file.binary,
            }
            for file in change.files
        ],
        "tampering": [well_formed(words) for words in change.tampering],
        "unknown": _text(change.unknown),
    }


def _agents(deeds: Deeds) -> dict[str, Any]:
    return {
        "trials": deeds.agents,
        "trials_telling_tools": deeds.telling,
        "median_turns": deeds.median_turns,
        "other_calls": deeds.other_calls,
        "mcp": {well_formed(name): _server(use) for name, use in deeds.servers.items()},
    }


def _server(use: ServerUse) -> dict[str, Any]:
    return {
        "handed": use.handed,
        "telling": use.telling,
        "connected": use.connected,
        "failed": use.failed,
        "called": use.called,
        "calls": use.calls,
        "errors": use.errors,
        "never_called": use.is_never_called,
    }


def _changes(changes: Changes) -> dict[str, Any]:
    return {
        "trials": changes.trials,
        "changed": changes.changed,
        "unknown": changes.unknown,
        "median_files": changes.median_files,
        "median_lines_added": changes.median_lines_added,
        "median_lines_deleted": changes.median_lines_deleted,
        "tampered": changes.tampered,
        "tampering": {well_formed(words): number for words, number in changes.tampering.items()},
    }


def _text(text: str | None) -> str | None:
    return None if text is None else well_formed(text)
