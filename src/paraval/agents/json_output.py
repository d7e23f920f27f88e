"""JSON that an agent printed, read tolerantly: what is no object is passed over, nothing raises.

Between an agent's lines stand warnings, progress and half lines of those that were killed; keys
come in any order, and values of any type. What a reader asks for by a wrong type is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

LARGEST_AMOUNT = 1e15
"""Of anything that is counted; what is more is a mistake."""
LONGEST_WORDS = 2000


def objects_in(text: str) -> list[dict[str, Any]]:
    """Every object in it: one that is the whole text, those of a list that is, or one a line."""
    whole = text.strip()
    if whole.startswith(("{", "[")):
        value = _parsed(whole)
        if isinstance(value, dict):
            return [value]
        if isinstance(value, list):
            return [one for one in value if isinstance(one, dict)]
    # Not `splitlines`: JSON holds some of what that takes for a line's end as it is.
    lines = (line.strip() for line in whole.split("\n"))
    found = (_parsed(line) for line in lines if line.startswith("{"))
    return [one for one in found if isinstance(one, dict)]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def text_in(told: Mapping[str, Any], *path: str) -> str:
    """The text at the end of the path; empty where there is none."""
    found = value_in(told, *path)
    return clean(found) if isinstance(found, str) else ""


def amount_in(told: Mapping[str, Any], *path: str) -> float | None:
    """The number at the end of the path, if it can be one that counts something."""
    return as_amount(value_in(told, *path))


def as_amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # NaN and infinity are in no range; `isfinite` fails with the largest of whole numbers.
    return value if 0 <= value <= LARGEST_AMOUNT else None


def amounts_in(
    told: Mapping[str, Any], paths: Mapping[str, tuple[str, ...]]
) -> dict[str, float] | None:
    """The numbers at the ends of the paths, by name, those that are there.

    None: one of them cannot be right, so that a sum of the others would be too small.
    """
    amounts = {}
    for name, path in paths.items():
        value = value_in(told, *path)
        if value is None:
            continue
        amount = as_amount(value)
        if amount is None:
            return None
        amounts[name] = amount
    return amounts


def count_in(told: Mapping[str, Any], *path: str) -> int | None:
    amount = amount_in(told, *path)
    return None if amount is None else int(amount)


def mapping_in(told: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    found = value_in(told, *path)
    return found if isinstance(found, Mapping) else {}


def mappings_in(told: Mapping[str, Any], *path: str) -> Iterator[Mapping[str, Any]]:
    """The mappings of the list at the end of the path."""
    found = value_in(told, *path)
    if isinstance(found, list):
        yield from (one for one in found if isinstance(one, Mapping))


def value_in(told: Mapping[str, Any], *path: str) -> Any:
    found: Any = told
    for key in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    return found


def clean(text: str) -> str:
    """As it can be stored: JSON may hold halves of characters, which no file takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def in_words(text: str) -> str:
    """An agent's own words as a message: one line of printable characters, not too long."""
    start = clean(text[: 4 * LONGEST_WORDS])
    line = " ".join("".join(c if c.isprintable() else " " for c in start).split())
    return line if len(line) <= LONGEST_WORDS else f"{line[:LONGEST_WORDS]}…"


def last_lines(text: str, most: int = 3) -> str:
    """The last lines that are not empty: a complaint that a program died of is among them."""
    lines = [line for line in text[-64_000:].split("\n") if line.strip()]
    return "\n".join(line[:LONGEST_WORDS] for line in lines[-most:])


def last_line(text: str) -> str:
    """The last line that is not empty, in words."""
    lines = (line.strip() for line in reversed(text[-64_000:].split("\n")))
    return in_words(next((line for line in lines if line), ""))
