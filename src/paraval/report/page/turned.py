"""The cases that broke, were mended or are flaky, as lists of a page: the first are read at once,
others are there to be opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paraval.report.page.cases import LONGEST_NAME
from paraval.report.text import one_line
from paraval.report.versus.story import CaseList

_IN_PLAIN_SIGHT = 20
_LONGEST_REASON = 300
_SIGNS = {"broke": ("wrong", "✗"), "mended": ("pass", "✓"), "flaky": ("skip", "±")}
"""The class of a line, and its sign: nothing is told by colour alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedCase:
    name: str
    why: str
    """Why it failed on the side where it did; empty where both are mixed."""
    anchor: str
    """Of its section on the page; empty where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedList:
    """Cases that changed in one way."""

    style: str
    sign: str
    heading: str
    cases: tuple[TurnedCase, ...]
    more: tuple[TurnedCase, ...]
    left_out: str
    """How many are not on the page, and where they are; or empty."""


def turned_lists(
    lists: Sequence[CaseList], anchors: Mapping[str, str], elsewhere: str
) -> Iterator[TurnedList]:
    """`anchors`: of the cases that have a section; `elsewhere`: the command that tells all."""
    for one in lists:
        style, sign = _SIGNS[one.kind]
        cases = tuple(
            TurnedCase(
                name=one_line(name, LONGEST_NAME),
                why=one_line(why, _LONGEST_REASON),
                anchor=anchors.get(name, ""),
            )
            for name, why in one.cases
        )
        yield TurnedList(
            style=style,
            sign=sign,
            heading=one.heading,
            cases=cases[:_IN_PLAIN_SIGHT],
            more=cases[_IN_PLAIN_SIGHT:],
            left_out=f"… and {one.more:,} more: {elsewhere}" if one.more else "",
        )
