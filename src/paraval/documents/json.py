"""Strict JSON, without duplicate keys, and with the line of every key on request."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NoReturn

from paraval.documents.problems import DEPTH_LIMIT, Document, LineMap, Location, Step

# Strict JSON for all input from outside: suites, answers, verdicts.

SHOWN_CHARACTERS = 20


class DuplicateKeyError(ValueError):
    """A JSON object with a duplicate key."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:SHOWN_CHARACTERS]} is too large")
    return number


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(f"duplicate key '{key[:SHOWN_CHARACTERS]}'")
            seen.add(key)
    return made


DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_without_duplicates
)


def parse_strictly(text: str) -> Any:
    """Parse JSON; ValueError has the reason and the position."""
    try:
        return DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        near = _shown(text[error.pos :]) if error.pos < len(text) else "the end"
        raise ValueError(
            f"{error.msg} at line {error.lineno}, column {error.colno}, near {near}"
        ) from None


def _shown(text: str) -> str:
    return json.dumps(text[:SHOWN_CHARACTERS], ensure_ascii=False)


_scan_once: Callable[[str, int], tuple[Any, int]] = DECODER.scan_once  # type: ignore[attr-defined]  # typeshed leaves it out


def decode_json(text: str) -> Any:
    """Parse strict JSON: no NaN, no duplicate keys, bounded nesting; ValueError has the reason."""
    try:
        data, end = _scan_once(text, 0)
        if end == len(text):
            return data
    except StopIteration:
        pass
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Whitespace around it, or an error: the slower path handles both.
    return DECODER.decode(text)


def read_json(text: str, spot: Location) -> Document | None:
    """Parse a JSON text into data with the lines of its keys."""
    try:
        data = decode_json(text)
    except json.JSONDecodeError as error:
        replace(spot, line=error.lineno).report(f"not valid JSON: {error.msg}")
        return None
    except DuplicateKeyError:
        for line, key in json_places(text)[1]:
            replace(spot, line=line).report(f"duplicate key '{key}'")
        return None
    except ValueError as error:
        replace(spot, line=_line_of_constant(text)).report(f"not valid JSON: {error}")
        return None
    too_deep_at = _too_deep_at(text)
    if too_deep_at is not None:
        replace(spot, line=too_deep_at).report(f"nested more than {DEPTH_LIMIT} levels deep")
        return None
    return Document(data=data, spot=replace(spot, root=json_places(text)[0]))


_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|\n|[^\s{}\[\],:"]+')


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """The tokens of a JSON text, with their lines."""
    line = 1
    for match in _JSON_TOKEN.finditer(text):
        if match[0] == "\n":
            line += 1
        else:
            yield match[0], line


def _too_deep_at(text: str) -> int | None:
    depth = 0
    for token, line in _tokens(text):
        depth += (token in _OPENING) - (token in _CLOSING)
        if depth > DEPTH_LIMIT:
            return line
    return None


def _line_of_constant(text: str) -> int | None:
    constants = ("NaN", "Infinity", "-Infinity")
    return next((line for token, line in _tokens(text) if token in constants), None)


_OPENING = frozenset("[{")
_CLOSING = frozenset("]}")


def json_places(text: str) -> tuple[LineMap, list[tuple[int, str]]]:
    """Return the lines in a valid JSON text, and its duplicate keys with their lines."""
    top = LineMap(1)
    twice: list[tuple[int, str]] = []
    open_levels = [_JsonLevel(top, is_object=False)]
    for token, line in _tokens(text):
        level = open_levels[-1]
        if token in _CLOSING:
            open_levels.pop()
        elif token in _SEPARATORS:
            level.pass_by(token)
        elif level.awaits_key:
            if level.name(json.loads(token), line):
                twice.append((line, str(level.step)))
        else:
            place = level.value_at(line)
            if token in _OPENING:
                open_levels.append(_JsonLevel(place, is_object=token == "{"))  # noqa: S105 - no secret
    return top.inside.get(0, top), twice


_SEPARATORS = frozenset(",:")


class _JsonLevel:
    """An object or a list that is still open during the scan."""

    __slots__ = ("awaits_key", "is_object", "key_line", "place", "step")

    def __init__(self, place: LineMap, *, is_object: bool) -> None:
        self.place = place
        self.is_object = is_object
        self.awaits_key = is_object
        self.key_line = place.line
        self.step: Step = "" if is_object else 0

    def name(self, key: str, line: int) -> bool:
        """Add a key; True if it is a duplicate."""
        self.step, self.key_line = key, line
        return key in self.place.inside

    def value_at(self, line: int) -> LineMap:
        place = LineMap(self.key_line if self.is_object else line)
        self.place.inside[self.step] = place
        return place

    def pass_by(self, separator: str) -> None:
        self.awaits_key = self.is_object and separator == ","
        if isinstance(self.step, int):
            self.step += 1
