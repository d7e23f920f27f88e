"""Candidates as JSON lines: what hooks print, and what a .jsonl file of candidates holds.

One line is one candidate, or a cost alone. What is neither is a complaint, with the number of its
line, and the others count all the same. Whether a candidate applies is for staging to say.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paraval.documents.json import parse_strictly
from paraval.documents.problems import shown
from paraval.racing.candidates.names import why_no_name
from paraval.racing.findings import HookAnswer, Origin, Proposal
from paraval.text.suggest import suggestion

MOST_LINES = 1000
LONGEST_LINE = 1 << 20
"""Characters."""
MOST_COMPLAINTS = 20
"""Of one answer; how many more there are is told."""
CHANGES = ("patch", "files", "ref", "folder")
KEYS = (*CHANGES, "name", "note", "description", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalLines:
    """What lines say: candidates, and what it cost to think of them."""

    asked: HookAnswer
    cost_usd: float | None = None
    """None: it is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSource:
    """Who says the lines."""

    origin: Origin
    parent: Proposal | None = None
    """Whose repair or refinement is asked for."""
    taken: int = 0
    """How many of its candidates are known already: the next without a name has the next number."""
    folder: Path = field(default_factory=Path.cwd)
    """What paths of folders are relative to."""
    called: str | None = None
    """What candidates without a name are called, before their number; None: as they come about."""

    def name(self, number: int) -> str:
        """Of a candidate without one: `generate-2`, `quick-repair-1`, and the repair of that is
        `quick-repair-1.1`: short, and like no other whatever was proposed before."""
        if self.called is not None:
            return f"{self.called}-{number}"
        if self.parent is None:
            return f"{self.origin.value}-{number}"
        parent = self.parent.name
        is_of_its_kind = re.search(rf"-{self.origin.value}-[0-9.]*[0-9]$", parent)
        return f"{parent}.{number}" if is_of_its_kind else f"{parent}-{self.origin.value}-{number}"


def read_answer(text: str, teller: LineSource) -> ProposalLines:
    """All that a text of JSON lines says."""
    return _gathered(_lines(text), teller, where="line")


def read_items(items: Iterable[Any], teller: LineSource) -> ProposalLines:
    """The same from data that was never text: what functions give."""
    return _gathered(enumerate(items, start=1), teller, where="item")


class _WrongLineError(ValueError):
    """A line that is no candidate, and why."""


def _lines(text: str) -> Iterator[tuple[int, Any]]:
    """Each line with its number; what cannot be read is the complaint in its place."""
    # Not splitlines: JSON may hold other ends of lines than these within its texts.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines[:MOST_LINES]:
        if len(line) > LONGEST_LINE:
            yield (
                number,
                _WrongLineError(f"has {len(line):,} characters; at most {LONGEST_LINE:,} are read"),
            )
            continue
        try:
            yield number, parse_strictly(line.strip().removeprefix("\ufeff"))
        except ValueError as error:
            yield number, _WrongLineError(f"is no JSON: {error}")
    if len(lines) > MOST_LINES:
        left = len(lines) - MOST_LINES
        yield (
            lines[MOST_LINES][0],
            _WrongLineError(f"and {left - 1:,} after it: only {MOST_LINES:,} count"),
        )


def _gathered(items: Iterable[tuple[int, Any]], teller: LineSource, *, where: str) -> ProposalLines:
    proposals: dict[str, Proposal] = {}
    complaints: list[str] = []
    costs: list[float] = []
    for number, item in items:
        try:
            if isinstance(item, _WrongLineError):
                raise item
            cost = _cost(item)
            if cost is not None:
                costs.append(cost)
            if set(item) == {"cost_usd"}:
                continue
            proposal = _proposal(item, teller, unnamed=_next_name(teller, proposals))
            if proposals.setdefault(proposal.name, proposal) is not proposal:
                complaints.append(f"{where} {number}: the name '{proposal.name}' is there twice")
        except _WrongLineError as wrong:
            complaints.append(f"{where} {number}: {wrong}")
    if len(complaints) > MOST_COMPLAINTS:
        more = len(complaints) - MOST_COMPLAINTS
        complaints = [*complaints[:MOST_COMPLAINTS], f"and {more:,} more like these"]
    return ProposalLines(
        asked=HookAnswer(proposals=tuple(proposals.values()), complaints=tuple(complaints)),
        cost_usd=math.fsum(costs) if costs else None,
    )


def _cost(item: Any) -> float | None:
    if not isinstance(item, Mapping):
        raise _WrongLineError(
            f"must be a mapping with one of {', '.join(CHANGES)}, not {shown(item)}"
        )
    cost = item.get("cost_usd")
    if cost is None:
        return None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < math.inf:
        raise _WrongLineError(f"cost_usd must be a number, 0 or more, not {shown(cost)}")
    return float(cost)


def _next_name(teller: LineSource, known: Mapping[str, Proposal]) -> str:
    """Of a candidate without a name: its number among them, past what others chose as a name."""
    number = teller.taken + len(known) + 1
    while teller.name(number) in known:
        number += 1
    return teller.name(number)


def _proposal(item: Mapping[str, Any], teller: LineSource, *, unnamed: str) -> Proposal:
    for key in item:
        if key not in KEYS:
            raise _WrongLineError(f"unknown key '{key}'{suggestion(str(key), KEYS)}")
    given = [key for key in CHANGES if item.get(key) is not None]
    if len(given) != 1:
        has = f"both {' and '.join(given)}" if given else f"none of {', '.join(CHANGES)}"
        raise _WrongLineError(f"has {has}; a candidate has exactly one")
    change = item[given[0]]
    parent = teller.parent
    proposal = Proposal(
        name=_name(item.get("name"), unnamed),
        origin=teller.origin,
        parent=None if parent is None else parent.name,
        depth=0 if parent is None else parent.depth + 1,
        note=_text(item, "note") or _text(item, "description"),
    )
    match given[0]:
        case "files":
            return replace(proposal, files=_files(change))
        case "folder":
            path = _text(item, "folder")
            return replace(proposal, folder=os.path.normpath(teller.folder / path))
        case "ref":
            return replace(proposal, ref=_text(item, "ref"))
    return replace(proposal, patch=_text(item, "patch"))


def _name(written: Any, unnamed: str) -> str:
    if written is None:
        return unnamed
    if not isinstance(written, str):
        raise _WrongLineError(f"name must be text, not {shown(written)}")
    if (why := why_no_name(written)) is not None:
        raise _WrongLineError(why)
    return written


def _files(written: Any) -> dict[str, str | None]:
    if not isinstance(written, Mapping) or not written:
        raise _WrongLineError(f"files must be a mapping of paths to texts, not {shown(written)}")
    for path, text in written.items():
        if not isinstance(path, str) or not (text is None or isinstance(text, str)):
            raise _WrongLineError(f"files: {shown(path)} must have a text, or null to delete it")
        _refuse_halves(path, "a path")
        _refuse_halves(text or "", f"files: '{path}'")
    return dict(written)


def _text(item: Mapping[str, Any], key: str) -> str:
    text = item.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise _WrongLineError(f"{key} must be text, not {shown(text)}")
    if key in ("ref", "folder") and ("\0" in text or not text):
        raise _WrongLineError(
            f"{key} must be a text of which something can be found, not {shown(text)}"
        )
    _refuse_halves(text, key)
    return text


def _refuse_halves(text: str, what: str) -> None:
    """Bytes that are no characters may be there as surrogates; halves of characters mean none."""
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise _WrongLineError(f"{what} holds half of a character (a lone surrogate)") from None
