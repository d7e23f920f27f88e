"""Assertions that say nothing of their values: those in helpers, which pytest does not rewrite.

The line that failed is in the traceback, and what pytest shows beside it has values by name: the
arguments of the function, and all its variables with `--showlocals`.
"""

from __future__ import annotations

import ast
import re

from paraval.racing.claims import parts, sides
from paraval.racing.excerpts import LONGEST_VALUE, cut

_BARE = re.compile(r"[\w.]*")
_FRAME = re.compile(r"(?:_ )+_? *")
_ASSERT = re.compile(r"(?:> +| +)assert (?P<claim>.+)")
_NAMED = re.compile(r"(?P<name>[^\W\d]\w*) *= (?P<value>.*)", re.DOTALL)
_EXPECTED = ("expected", "expect", "want", "wanted", "desired", "reference", "correct", "should_be")
_ACTUAL = ("actual", "result", "got", "received", "observed", "output", "returned")
_LONGEST_SHOWN = 200
"""Of a value in a line."""


def told_of_values(message: str, details: str) -> str:
    """The failure in short, with what is claimed and of which values where it does not say so."""
    if not _BARE.fullmatch(message.strip()):
        return message
    claim, values = _claim(details), _values(details)
    if claim is None:
        return message
    named = [
        f"{name} = {cut(value, _LONGEST_SHOWN)}"
        for name, value in values.items()
        if _is_in(name, claim)
    ]
    of = f" ({', '.join(named)})" if named else ""
    return f"{message.strip() or 'AssertionError'}: assert {cut(claim, LONGEST_VALUE)}{of}"


def actual_and_expected(details: str) -> tuple[str, str] | None:
    """None: nobody can tell."""
    claim, values = _claim(details), _values(details)
    if claim is None:
        return None
    compared = sides(parts(claim, ", ")[0], " == ")
    if compared is None:
        return _by_their_names(claim, values)
    left, right = (side.strip() for side in compared)
    actual, expected = _value(left, values), _value(right, values)
    if actual is None or expected is None:
        return None
    is_turned = _is_expected(left) and not _is_expected(right)
    return (expected, actual) if is_turned else (actual, expected)


def _by_their_names(claim: str, values: dict[str, str]) -> tuple[str, str] | None:
    """Of a claim like `allclose(result, expected)`."""
    named = {name: value for name, value in values.items() if _is_in(name, claim)}
    expected = next((named[name] for name in _EXPECTED if name in named), None)
    actual = next((named[name] for name in _ACTUAL if name in named), None)
    return None if expected is None or actual is None else (actual, expected)


def _is_in(name: str, claim: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", claim) is not None


def _is_expected(side: str) -> bool:
    """`3` is, and so is `expected`; what is computed is what the test got."""
    return side in _EXPECTED or _is_literal(side)


def _value(side: str, values: dict[str, str]) -> str | None:
    return values.get(side, side if _is_literal(side) else None)


def _is_literal(side: str) -> bool:
    try:
        ast.literal_eval(side)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


# ---- what the traceback shows


def _claim(details: str) -> str | None:
    """Of the innermost line that asserts something."""
    for line in reversed(_innermost(details)):
        found = _ASSERT.fullmatch(line)
        if found is not None and len(line) <= LONGEST_VALUE:
            return found["claim"].strip()
    return None


def _values(details: str) -> dict[str, str]:
    """By name, of the innermost function: pytest writes them from the first column on."""
    values: dict[str, str] = {}
    for line in _innermost(details):
        if not _NAMED.match(line):
            continue
        name = ""
        for part in parts(line, ", "):
            if (found := _NAMED.fullmatch(part)) is not None:
                name = found["name"]
                values[name] = found["value"]
            else:
                values[name] += f", {part}"
    return {name: cut(value.strip(), LONGEST_VALUE) for name, value in values.items()}


def _innermost(details: str) -> list[str]:
    lines = details.splitlines()
    frames = [number for number, line in enumerate(lines) if _FRAME.fullmatch(line)]
    return lines[frames[-1] + 1 :] if frames else lines
