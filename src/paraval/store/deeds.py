"""What an attempt did, as JSON: an agent's activity, and what changed in its workspace.

What is not there is left out, so that runs stored before there was such a thing read the same.
"""

from __future__ import annotations

from typing import Any

from paraval.isolation import Activity, Change, FileChange, McpState, ToolUse


def activity_content(activity: Activity) -> dict[str, Any]:
    content: dict[str, Any] = {
        name: told
        for name in ("turns", "session", "version", "model")
        if (told := getattr(activity, name)) is not None
    }
    if activity.tools:
        content["tools"] = [
            [tool.name, tool.server, tool.calls, tool.failed] for tool in activity.tools
        ]
    if activity.mcp:
        content["mcp"] = {server: state.value for server, state in activity.mcp.items()}
    if not activity.tells_tools:
        content["tells_tools"] = False
    return content


def activity_from(content: Any) -> Activity:
    # `dict` and the unpackings refuse what is damaged with the errors that a reader explains.
    told = dict(content)
    tools = [
        ToolUse(name=name, server=server, calls=calls, failed=failed)
        for name, server, calls, failed in told.pop("tools", ())
    ]
    mcp = {server: McpState(state) for server, state in dict(told.pop("mcp", {})).items()}
    return Activity(tools=tuple(tools), mcp=mcp, **told)


CHANGE_COUNTS = (
    "files_added",
    "files_changed",
    "files_deleted",
    "binary_files",
    "lines_added",
    "lines_deleted",
)


def change_content(change: Change) -> dict[str, Any]:
    content: dict[str, Any] = {
        name: number for name in CHANGE_COUNTS if (number := getattr(change, name))
    }
    if change.files:
        content["files"] = [_file_content(file) for file in change.files]
    if change.tampering:
        content["tampering"] = change.tampering
    if change.unknown is not None:
        content["unknown"] = change.unknown
    return content


def change_from(content: Any) -> Change:
    told = dict(content)
    files = [_file_from(*file) for file in told.pop("files", ())]
    return Change(files=tuple(files), tampering=tuple(told.pop("tampering", ())), **told)


def _file_content(file: FileChange) -> list[Any]:
    content = [file.path, file.status, file.lines_added, file.lines_deleted]
    return [*content, True] if file.binary else content


def _file_from(
    path: str, status: str, added: int | None, deleted: int | None, *binary: bool
) -> FileChange:
    return FileChange(
        path=path,
        status=status,
        lines_added=added,
        lines_deleted=deleted,
        binary=any(binary),
    )
