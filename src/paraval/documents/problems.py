"""Locations in the files of a suite, and the problems found there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import Problem

DEPTH_LIMIT = 100
"""Maximum nesting in a file; no one writes more, and Python's stack is finite."""

Step = str | int
Path = tuple[Step, ...]


class LineMap:
    """The line of a value in its file, and the lines of the values inside it."""

    __slots__ = ("inside", "line")

    def __init__(self, line: int) -> None:
        self.line = line
        self.inside: dict[Step, LineMap] = {}

    def line_of(self, path: Path) -> int:
        """Return the line of the value at a path, or of the innermost value around it."""
        place = self
        for step in path:
            if step not in place.inside:
                break
            place = place.inside[step]
        return place.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A value's file, line and key; problems with the value are reported to it."""

    problems: dict[Problem, None] = field(repr=False)
    """All problems of this suite so far, without duplicates, in order; shared by its locations."""
    file: str | None = None
    root: LineMap | None = None
    path: Path = ()
    line: int | None = None
    """The line, if known without a LineMap: in files that are read line by line."""

    def at(self, *steps: Step) -> Location:
        return replace(self, path=self.path + steps)

    def report(self, message: str) -> None:
        line = self.line
        if line is None and self.root is not None:
            line = self.root.line_of(self.path)
        key = key_of(self.path) or None
        # Exceptions in users' modules may have messages of several lines.
        message = " ".join(message.splitlines())
        problem = Problem(message=message, file=self.file, line=line, key=key)
        self.problems[problem] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's data and its location."""

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
    """Return a value for a message: short, and on one line."""
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
