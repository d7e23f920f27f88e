"""Lines that claim something of values, taken apart: an operator counts only where it stands in no
quotes, and in no brackets.
"""

from __future__ import annotations

from collections.abc import Iterator

_OPENING, _CLOSING = "([{", ")]}"


def sides(claim: str, operator: str) -> tuple[str, str] | None:
    """What stands before and after an operator that is in no brackets and no quotes."""
    places = list(outside_quotes(claim, operator))
    # pytest leaves out the middle of long values, and with it brackets: one alone is the one.
    at = [place for place, depth in places if depth == 0] or [place for place, _ in places]
    if len(at) != 1:
        return None
    return claim[: at[0]], claim[at[0] + len(operator) :]


def parts(text: str, separator: str) -> list[str]:
    """The text, taken apart at each separator that is in no brackets and no quotes."""
    found, begin = [], 0
    for place, depth in outside_quotes(text, separator):
        if depth == 0:
            found.append(text[begin:place])
            begin = place + len(separator)
    return [*found, text[begin:]]


def outside_quotes(claim: str, operator: str) -> Iterator[tuple[int, int]]:
    """Where the operator stands, and in how many brackets."""
    quote, depth, skip = "", 0, False
    for place, character in enumerate(claim):
        if skip:
            skip = False
        elif quote:
            skip = character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif claim.startswith(operator, place):
            yield place, depth
