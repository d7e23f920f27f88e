"""Where things stand in the files of a suite, and the problems found there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paraval.errors import Problem

DEPTH_LIMIT = 100
"""Levels of nesting in a file; nobody writes more, and Python's own stack is not endless."""

Step = str | int
Path = tuple[Step, ...]


class LineMap:
    """The line of a value in its file, and the places of the values inside it."""

    __slots__ = ("inside", "line")

    def __init__(self, line: int) -> None:
        self.line = line
        self.inside: dict[Step, LineMap] = {}

    def line_of(self, path: Path) -> int:
        """The line of the value at a path, or of the innermost value around it."""
        place = self
        for step in path:
            if step not in place.inside:
                break
            place = place.inside[step]
        return place.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A value's address: file, line and key. What is wrong there is told to it."""

    problems: dict[Problem, None] = field(repr=False)
    """All that was found in this suite so far, each once, in order; shared by its spots."""
    file: str | None = None
    root: LineMap | None = None
    path: Path = ()
    line: int | None = None
    """Where it is known without a place: in files that are read line by line."""

    def at(self, *steps: Step) -> Location:
        return replace(self, path=self.path + steps)

    def report(self, message: str) -> None:
        line = self.line
        if line is None and self.root is not None:
            line = self.root.line_of(self.path)
        key = key_of(self.path) or None
        # Exceptions of users' modules may have texts of several lines.
        message = " ".join(message.splitlines())
        problem = Problem(message=message, file=self.file, line=line, key=key)
        self.problems[problem] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's data, and where it stands."""

    data: Any
    spot: Location


def key_of(path: Path) -> str:
    """`cases[2].id`."""
    key = ""
    for step in path:
        if isinstance(step, int):
            key += f"[{step}]"
        else:
            key += f".{step}" if key else step
    return key


def shown(value: Any, limit: int = 60) -> str:
    """A value in a message: short, and on one line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(getattr(value, "written", value))
        case Mapping():
            return f"the mapping {_cut(_as_json(dict(value)), limit)}"
        case list() | tuple():
            return f"the list {_cut(_as_json(value), limit)}"
    return _cut(repr(value), limit)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 4]}...{text[-1]}"
