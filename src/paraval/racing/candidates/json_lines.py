"""Reads candidates as JSON lines, from hooks and .jsonl files.

Each line is one candidate, or just a cost. Any other line becomes a complaint with its line number,
and the rest still counts. Staging decides whether a candidate applies.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.json import parse_strictly
from paraval.documents.problems import shown
from paraval.racing.candidates.names import why_no_name
from paraval.racing.findings import HookAnswer, Origin, Proposal
from paraval.text.suggest import suggestion

MOST_LINES = 1000
LONGEST_LINE = 1 << 20
"""Most characters per line."""
MOST_COMPLAINTS = 20
"""Complaints listed per answer; the rest are counted."""
CHANGES = ("patch", "files", "ref", "folder")
KEYS = (*CHANGES, "name", "note", "description", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalLines:
    """The content of the lines: candidates, and the cost of producing them."""

    asked: HookAnswer
    cost_usd: float | None = None
    """None if not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSource:
    """Where the lines come from."""

    origin: Origin
    parent: Proposal | None = None
    """The candidate to repair or refine."""
    taken: int = 0
    """How many of its candidates are known; the next unnamed one gets the next number."""
    folder: Path = field(default_factory=Path.cwd)
    """The base of relative folder paths."""
    called: str | None = None
    """Name of unnamed candidates, before the number; None: by origin and parent."""

    def name(self, number: int) -> str:
        """The name of an unnamed candidate: `generate-2`, `quick-repair-1`, and for the repair of
        that `quick-repair-1.1`. Short, and unique whatever was proposed before."""
        if self.called is not None:
            return f"{self.called}-{number}"
        if self.parent is None:
            return f"{self.origin.value}-{number}"
        parent = self.parent.name
        is_of_its_kind = re.search(rf"-{self.origin.value}-[0-9.]*[0-9]$", parent)
        return f"{parent}.{number}" if is_of_its_kind else f"{parent}-{self.origin.value}-{number}"


def read_answer(text: str, source: LineSource) -> ProposalLines:
    """Read JSON lines."""
    return _gathered(_lines(text), source, where="line")


def read_items(items: Iterable[Any], source: LineSource) -> ProposalLines:
    """Read items that a function returned or yielded."""
    return _gathered(enumerate(items, start=1), source, where="item")


class _WrongLineError(ValueError):
    """Why a line is not a candidate."""


def _lines(text: str) -> Iterator[tuple[int, Any]]:
    """Each line with its number, parsed, or an error in its place."""
    # Not splitlines: JSON strings may contain other line separators.
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
            yield number, _WrongLineError(f"is not JSON: {error}")
    if len(lines) > MOST_LINES:
        left = len(lines) - MOST_LINES
        yield (
            lines[MOST_LINES][0],
            _WrongLineError(f"and {left - 1:,} more were skipped: at most {MOST_LINES:,} are read"),
        )


def _gathered(items: Iterable[tuple[int, Any]], source: LineSource, *, where: str) -> ProposalLines:
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
            proposal = _proposal(item, source, unnamed=_next_name(source, proposals))
            if proposals.setdefault(proposal.name, proposal) is not proposal:
                complaints.append(f"{where} {number}: duplicate name '{proposal.name}'")
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


def _next_name(source: LineSource, known: Mapping[str, Proposal]) -> str:
    """The name of the next unnamed candidate, skipping names that are taken."""
    number = source.taken + len(known) + 1
    while source.name(number) in known:
        number += 1
    return source.name(number)


def _proposal(item: Mapping[str, Any], source: LineSource, *, unnamed: str) -> Proposal:
    for key in item:
        if key not in KEYS:
            raise _WrongLineError(f"unknown key '{key}'{suggestion(str(key), KEYS)}")
    given = [key for key in CHANGES if item.get(key) is not None]
    if len(given) != 1:
        has = f"both {' and '.join(given)}" if given else f"none of {', '.join(CHANGES)}"
        raise _WrongLineError(f"has {has}; a candidate needs exactly one")
    change = item[given[0]]
    parent = source.parent
    proposal = Proposal(
        name=_name(item.get("name"), unnamed),
        origin=source.origin,
        parent=None if parent is None else parent.name,
        depth=0 if parent is None else parent.depth + 1,
        note=_text(item, "note") or _text(item, "description"),
    )
    match given[0]:
        case "files":
            return replace(proposal, files=_files(change))
        case "folder":
            path = _text(item, "folder")
            return replace(proposal, folder=os.path.normpath(source.folder / path))
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
        _refuse_surrogates(path, "a path")
        _refuse_surrogates(text or "", f"files: '{path}'")
    return dict(written)


def _text(item: Mapping[str, Any], key: str) -> str:
    text = item.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise _WrongLineError(f"{key} must be text, not {shown(text)}")
    if key in ("ref", "folder") and ("\0" in text or not text):
        raise _WrongLineError(
            f"{key} must be non-empty text without NUL characters, not {shown(text)}"
        )
    _refuse_surrogates(text, key)
    return text


def _refuse_surrogates(text: str, what: str) -> None:
    """Raise for lone surrogates, except those that stand for undecodable bytes."""
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise _WrongLineError(f"{what} contains a lone surrogate (half a character)") from None
