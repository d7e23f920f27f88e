"""Read YAML, JSON and TOML files into plain data, with the line of every key.

What the data means is up to the callers. A file that cannot be read is reported as a problem, and
the reader returns None.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.documents.json import read_json
from paraval.documents.problems import Document, LineMap, Location, shown
from paraval.text.suggest import nearest

# TOML, with the lines of its tables and keys where they can be found.

_TOML_LINE = re.compile(
    r"""\s*(?:\[\[(?P<item>[^\[\]]+)\]\]|\[(?P<table>[^\[\]]+)\]|(?P<key>[\w."'-]+(?:\s*\.\s*[\w"'-]+)*)\s*=)"""
)


def read_toml(text: str, spot: Location) -> Document | None:
    """Read TOML; dates and times become text, as in the other two formats."""
    try:
        data = _plain(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        at = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        line = int(at[1]) if at and at[1] else None
        message = str(error)[: at.start()] if at and at[1] else str(error)
        replace(spot, line=line).report(f"not valid TOML: {message}")
        return None
    except RecursionError:
        spot.report("not valid TOML: nested too deeply")
        return None
    except ValueError as error:
        spot.report(f"not valid TOML: {error}")
        return None
    return Document(data=data, spot=replace(spot, root=toml_places(text)))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case dt.date() | dt.time():
            return value.isoformat()
        case float() if not math.isfinite(value):
            raise ValueError(f"{value} is not a usable number")
    return value


def toml_places(text: str) -> LineMap:
    """Return the lines of tables and of keys at the start of a line; inline keys have none."""
    root = LineMap(1)
    table = root
    for line, words in enumerate(text.splitlines(), start=1):
        match = _TOML_LINE.match(words)
        if match is None:
            continue
        if match["key"]:
            _enter(table, match["key"], line)
        elif match["table"]:
            table = _enter(root, match["table"], line)
        else:
            items = _enter(root, match["item"], line)
            table = items.inside[len(items.inside)] = LineMap(line)
    return root


def _enter(place: LineMap, dotted: str, line: int) -> LineMap:
    """Return the place of a dotted key, creating it; for a list of tables, in its last table."""
    for part in dotted.split("."):
        last = len(place.inside) - 1
        if last in place.inside:
            place = place.inside[last]
        place = place.inside.setdefault(part.strip().strip("\"'"), LineMap(line))
    return place


SIZE_LIMIT_BYTES = 10 << 20


def read_document(path: Path, spot: Location) -> Document | None:
    """Read a .yaml, .yml, .json or .toml file; report problems and return None if it is invalid."""
    readers: dict[str, Callable[[str, Location], Document | None]] = {
        ".yaml": _read_yaml,
        ".yml": _read_yaml,
        ".json": read_json,
        ".toml": read_toml,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        spot.report(f"unknown file type '{path.suffix}'; use {', '.join(readers)}")
        return None
    text = read_text(path, spot)
    if text is None:
        return None
    if not text.strip():
        spot.report("the file is empty")
        return None
    return reader(text, spot)


def _read_yaml(text: str, spot: Location) -> Document | None:
    # Imported late: the library is slow to load, and a suite uses one format.
    from paraval.documents.yaml import read_yaml  # noqa: PLC0415 - see above

    return read_yaml(text, spot)


def read_beside(name: str, spot: Location, folder: Path) -> Document | None:
    """Read a file named at a location; report problems there and return None if it is invalid."""
    reason = why_unreadable(folder / name, name)
    if reason:
        spot.report(f"{shown(name)}: {reason}")
        return None
    return read_document(folder / name, beside(name, spot))


def beside(name: str, spot: Location) -> Location:
    """Return the location of a file named at another one, with a path relative to that file's."""
    folder = Path(spot.file).parent if spot.file else Path()
    return Location(problems=spot.problems, file=str(folder / name))


def read_text(path: Path, spot: Location) -> str | None:
    """Read a small text file; report the problem and return None if that fails."""
    reason = why_unreadable(path)
    if reason:
        spot.report(reason)
        return None
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_LIMIT_BYTES + 1)
    except OSError as error:
        spot.report(f"cannot be read: {error.strerror}")
        return None
    if len(raw) > SIZE_LIMIT_BYTES:
        spot.report(
            f"the file is larger than {SIZE_LIMIT_BYTES >> 20} MB; put large sets of cases in a"
            " .jsonl or .csv file, which is read line by line"
        )
        return None
    return _decoded(raw, spot)


def why_unreadable(path: Path, written: str = "") -> str | None:
    """Return why a path is not a readable file; None if it is. `written`: the path as its author
    wrote it, for a suggestion in the same form."""
    try:
        if path.is_dir():
            return "is a folder, not a file"
        if path.is_file():
            return None
        if path.exists():
            return "is not a regular file"
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"
    near = nearest(path.name, beside)
    meant = f", did you mean '{Path(written).parent / near[0]}'?" if near else ""
    return f"no such file{meant}"


def _decoded(raw: bytes, spot: Location) -> str | None:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        spot.report("the file is UTF-16; save it as UTF-8")
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        byte = raw[error.start]
        replace(spot, line=line).report(f"not UTF-8 text (byte 0x{byte:02x}); save it as UTF-8")
        return None
