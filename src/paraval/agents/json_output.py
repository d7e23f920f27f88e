"""Tolerant reading of an agent's JSON: anything but objects is skipped, nothing raises.

Warnings, progress and incomplete lines of killed agents come between the lines; keys come in any
order, and values have any type. A value of the wrong type counts as missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

LARGEST_AMOUNT = 1e15
"""Maximum of any count; more is a mistake."""
LONGEST_WORDS = 2000


def objects_in(text: str) -> list[dict[str, Any]]:
    """Return every object: the whole text, the items of a list, or one per line."""
    whole = text.strip()
    if whole.startswith(("{", "[")):
        value = _parsed(whole)
        if isinstance(value, dict):
            return [value]
        if isinstance(value, list):
            return [one for one in value if isinstance(one, dict)]
    # Not `splitlines`: JSON may contain some of its line separators unescaped.
    lines = (line.strip() for line in whole.split("\n"))
    found = (_parsed(line) for line in lines if line.startswith("{"))
    return [one for one in found if isinstance(one, dict)]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def text_in(data: Mapping[str, Any], *path: str) -> str:
    """Return the text at the path; empty if there is none."""
    found = value_in(data, *path)
    return clean(found) if isinstance(found, str) else ""


def amount_in(data: Mapping[str, Any], *path: str) -> float | None:
    """Return the number at the path, if it is a valid count."""
    return as_amount(value_in(data, *path))


def as_amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # NaN and infinity fail range checks; `isfinite` raises for huge integers.
    return value if 0 <= value <= LARGEST_AMOUNT else None


def amounts_in(
    data: Mapping[str, Any], paths: Mapping[str, tuple[str, ...]]
) -> dict[str, float] | None:
    """Return the numbers at the paths, by name, as far as they exist.

    None: one of them is invalid, so a sum of the others would be too small.
    """
    amounts = {}
    for name, path in paths.items():
        value = value_in(data, *path)
        if value is None:
            continue
        amount = as_amount(value)
        if amount is None:
            return None
        amounts[name] = amount
    return amounts


def count_in(data: Mapping[str, Any], *path: str) -> int | None:
    amount = amount_in(data, *path)
    return None if amount is None else int(amount)


def mapping_in(data: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    found = value_in(data, *path)
    return found if isinstance(found, Mapping) else {}


def mappings_in(data: Mapping[str, Any], *path: str) -> Iterator[Mapping[str, Any]]:
    """Return the mappings in the list at the path."""
    found = value_in(data, *path)
    if isinstance(found, list):
        yield from (one for one in found if isinstance(one, Mapping))


def value_in(data: Mapping[str, Any], *path: str) -> Any:
    found: Any = data
    for key in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    return found


def clean(text: str) -> str:
    """Return storable text: JSON may contain half surrogate pairs, which no file accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def as_text(value: Any) -> str:
    """Return text unchanged, anything else as JSON."""
    if isinstance(value, str):
        return clean(value)
    try:
        return clean(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return "nested too deeply"


def in_words(text: str) -> str:
    """Return an agent's text as a message: one line of printable characters, bounded."""
    start = clean(text[: 4 * LONGEST_WORDS])
    line = " ".join("".join(c if c.isprintable() else " " for c in start).split())
    return line if len(line) <= LONGEST_WORDS else f"{line[:LONGEST_WORDS]}…"


def last_lines(text: str, most: int = 3) -> str:
    """Return the last non-empty lines: a fatal error message is among them."""
    lines = [line for line in text[-64_000:].split("\n") if line.strip()]
    return "\n".join(line[:LONGEST_WORDS] for line in lines[-most:])


def last_line(text: str) -> str:
    """Return the last non-empty line as a message."""
    lines = (line.strip() for line in reversed(text[-64_000:].split("\n")))
    return in_words(next((line for line in lines if line), ""))
