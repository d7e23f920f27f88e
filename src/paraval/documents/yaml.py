"""Strict YAML 1.2 (`no` is text), with the line of every key."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import yaml

from paraval.documents.problems import DEPTH_LIMIT, Document, LineMap, Location
from paraval.documents.scalars import read_scalar
from paraval.text.words import counted

_BARE_REFERENCE = re.compile(r"(?:[\[,]|:\s)\s*(\$\{[^}\n]*\})")
"""`{usd: ${MAX_USD}}`: its braces would be YAML's."""
_INDENT = re.compile(r"( *)(- +)?(?=[^\s#])")
"""Before a key, or before an item of a list."""


def read_yaml(text: str, spot: Location) -> Document | None:
    """Read YAML 1.2; anchors, aliases, tags and duplicate keys are errors."""
    found_before = len(spot.problems)
    builder = _YamlBuilder(spot)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
            if len(spot.problems) - found_before >= 20:
                break
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        replace(spot, line=line).report(f"not valid YAML: {_words_of(error, text)}")
    except (yaml.YAMLError, ValueError) as error:
        spot.report(f"not valid YAML: {str(error).splitlines()[0]}")
    if len(spot.problems) > found_before:
        return None
    return Document(data=builder.data, spot=replace(spot, root=builder.root))


def _words_of(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark
    found = f"{error.problem or error.context}"
    if mark is not None:
        # Lines as YAML counts them, with fewer line endings than Python's.
        lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", text)
        if mark.line < len(lines) and lines[mark.line][mark.column : mark.column + 1] == "\t":
            return "the line is indented with a tab; use spaces"
        if bare := _BARE_REFERENCE.search("\n".join(lines[: mark.line + 1][-2:])):
            return f'{found}; write "{bare[1]}" in quotes'
        is_flow = "," in found or "flow" in found or "flow" in str(error.context)
        if not is_flow and mark.line < len(lines) and (hint := _indent_hint(lines, mark.line)):
            return f"{found}; {hint}"
    return found


def _indent_hint(lines: list[str], at: int) -> str:
    """Which way the line should be moved; empty if it is where one above it begins."""
    here = _INDENT.match(lines[at])
    if here is None:
        return ""
    column, least = len(here[1]), math.inf
    fitting: dict[int, int] = {}
    """Where it could begin, and the last line that begins there."""
    for number in range(at, 0, -1):
        above = _INDENT.match(lines[number - 1])
        if above is not None and len(above[1]) < least:
            least = len(above[1])
            if above[2] or not here[2]:
                fitting.setdefault(least if here[2] else above.end(), number)
    if not fitting or column in fitting:
        return ""
    best = min(fitting, key=lambda one: (abs(one - column), -one))
    side = "right" if best > column else "left"
    indent = counted(best, "space")
    return f"it should be further {side}: indent it by {indent}, as line {fitting[best]}"


class _YamlBuilder:
    """Builds data and lines from YAML events, with an explicit stack instead of recursion."""

    def __init__(self, spot: Location) -> None:
        self.spot = spot
        self.data: Any = None
        self.root = LineMap(1)
        self._open: list[_Container] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._wrong(line, "a second document starts here; only one is allowed per file")
            case yaml.AliasEvent():
                self._wrong(line, f"aliases (*{event.anchor}) are not allowed; write it out")
                self._add(None, LineMap(line))
            case yaml.ScalarEvent():
                self._refuse_node_extras(event, line)
                self._add_scalar(event, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._refuse_node_extras(event, line)
                self._start(isinstance(event, yaml.MappingStartEvent), line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._open.pop()

    def _wrong(self, line: int, message: str) -> None:
        replace(self.spot, line=line).report(message)

    def _refuse_node_extras(self, event: Any, line: int) -> None:
        if event.anchor is not None:
            self._wrong(line, f"anchors (&{event.anchor}) are not allowed; write it out")
        if event.tag is not None:
            self._wrong(line, f"tags ({event.tag}) are not allowed")

    def _start(self, is_mapping: bool, line: int) -> None:
        container = _Container({} if is_mapping else [], LineMap(line))
        self._add(container.data, container.place)
        self._open.append(container)
        if len(self._open) > DEPTH_LIMIT:
            raise ValueError(f"nested more than {DEPTH_LIMIT} levels deep, at line {line}")

    def _add_scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        text: str = event.value
        parent = self._open[-1] if self._open else None
        if parent is not None and parent.awaits_key:
            # Keys are text as written, whatever they look like, as in all three formats.
            if text in parent.data:
                self._wrong(line, f"duplicate key '{text}'")
            parent.key, parent.key_line, parent.awaits_key = text, line, False
            return
        value: Any = text
        if event.implicit[0]:
            try:
                value = read_scalar(text)
            except ValueError as error:
                self._wrong(line, str(error))
        self._add(value, LineMap(line))

    def _add(self, value: Any, place: LineMap) -> None:
        if not self._open:
            self.data, self.root = value, place
            return
        parent = self._open[-1]
        if isinstance(parent.data, list):
            parent.place.inside[len(parent.data)] = place
            parent.data.append(value)
        elif parent.awaits_key:
            self._wrong(place.line, "a list or a mapping cannot be a key")
            parent.key, parent.key_line, parent.awaits_key = "", place.line, False
        else:
            place.line = parent.key_line
            parent.data[parent.key] = value
            parent.place.inside[parent.key] = place
            parent.awaits_key = True


class _Container:
    """A list or a mapping that is still open."""

    __slots__ = ("awaits_key", "data", "key", "key_line", "place")

    def __init__(self, data: Any, place: LineMap) -> None:
        self.data = data
        self.place = place
        self.awaits_key = isinstance(data, dict)
        self.key = ""
        self.key_line = place.line
