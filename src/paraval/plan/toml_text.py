"""Reading TOML, with the lines of its tables and keys as far as they can be told."""

from __future__ import annotations

import datetime as dt
import math
import re
import tomllib
from dataclasses import replace
from typing import Any

from paraval.plan.places import Document, Place, Spot

_TOML_LINE = re.compile(
    r"""\s*(?:\[\[(?P<item>[^\[\]]+)\]\]|\[(?P<table>[^\[\]]+)\]|(?P<key>[\w."'-]+(?:\s*\.\s*[\w"'-]+)*)\s*=)"""
)


def read_toml(text: str, spot: Spot) -> Document | None:
    """TOML; dates and times become text, as they would in the other two."""
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
            raise ValueError(f"{value} is no number that can be used")
    return value


def toml_places(text: str) -> Place:
    """The places of tables and of keys at the start of a line; what is inline stays unknown."""
    root = Place(1)
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
            table = items.inside[len(items.inside)] = Place(line)
    return root


def _enter(place: Place, dotted: str, line: int) -> Place:
    """The place of a key, made on the way; a list of tables on the way means its last one."""
    for part in dotted.split("."):
        last = len(place.inside) - 1
        if last in place.inside:
            place = place.inside[last]
        place = place.inside.setdefault(part.strip().strip("\"'"), Place(line))
    return place
