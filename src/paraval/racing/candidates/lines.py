"""Reads candidates as JSON lines, from a program that proposes them and from .jsonl files, and as
the items of a function.

Each is one candidate, or just a cost. Any other becomes a complaint with its number, and the rest
still counts. Staging decides whether a candidate applies.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.json import parse_strictly
from paraval.documents.problems import shown
from paraval.errors import ParavalError
from paraval.racing.candidates.names import why_no_name
from paraval.racing.candidates.staging import content_hash
from paraval.racing.findings import Proposal, Proposed
from paraval.text.suggest import suggestion

MOST_LINES = 1000
LONGEST_LINE = 1 << 20
"""Most characters per line."""
MOST_COMPLAINTS = 20
"""Complaints listed per answer; the rest are counted."""
CHANGES = ("patch", "ref", "folder")
KEYS = (*CHANGES, "name", "parent", "note", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalReader:
    """Reads proposals; `repo` and `folder` are what refs and relative paths belong to."""

    repo: str
    folder: Path
    called: str
    """Name of unnamed candidates, before the number."""

    def lines(self, text: str) -> tuple[Proposed, float | None]:
        """The proposals in JSON lines, and what they cost, if that is known."""
        # Not splitlines: JSON strings may contain other line separators.
        numbered = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        return self._gathered(((n, _parsed(line)) for n, line in numbered), "line")

    def items(self, items: Iterable[Any]) -> tuple[Proposed, float | None]:
        """The same of what a function returned or yielded."""
        return self._gathered(enumerate(map(as_line, items), start=1), "item")

    def _gathered(
        self, items: Iterator[tuple[int, Any]], what: str
    ) -> tuple[Proposed, float | None]:
        proposals: dict[str, Proposal] = {}
        complaints: list[str] = []
        costs: list[float] = []
        for number, item in islice(items, MOST_LINES):
            try:
                if (cost := _cost_in(item)) is not None:
                    costs.append(cost)
                if set(item) == {"cost_usd"}:
                    continue
                proposal = self._proposal(item, f"{self.called}-{len(proposals) + 1}")
            except (_WrongLineError, ParavalError, OSError) as error:
                words = error.message if isinstance(error, ParavalError) else str(error)
                complaints.append(f"{what} {number}: {words}")
                continue
            if proposals.setdefault(proposal.name, proposal) is not proposal:
                complaints.append(f"{what} {number}: duplicate name '{proposal.name}'")
        if (more := sum(1 for _ in items)) > 0:
            complaints.append(f"{more:,} more were skipped: at most {MOST_LINES:,} are read")
        found = Proposed(
            proposals=tuple(proposals.values()),
            complaints=tuple(complaints[:MOST_COMPLAINTS]),
            more_complaints=max(0, len(complaints) - MOST_COMPLAINTS),
        )
        return found, math.fsum(costs) if costs else None

    def _proposal(self, item: Mapping[str, Any], unnamed: str) -> Proposal:
        for key in item:
            if key not in KEYS:
                raise _WrongLineError(f"unknown key '{key}'{suggestion(str(key), KEYS)}")
        given = [key for key in CHANGES if item.get(key) is not None]
        if len(given) != 1:
            has = f"both {' and '.join(given)}" if given else f"none of {', '.join(CHANGES)}"
            raise _WrongLineError(f"has {has}; a candidate needs exactly one")
        name = _text(item, "name") or unnamed
        if (why := why_no_name(name)) is not None:
            raise _WrongLineError(why)
        proposal = Proposal(
            name=name,
            parent=_text(item, "parent") or None,
            note=_text(item, "note"),
            patch=_text(item, "patch") if given[0] == "patch" else None,
            ref=_text(item, "ref") or None,
            folder=os.path.normpath(self.folder / folder)
            if (folder := _text(item, "folder"))
            else None,
        )
        return replace(proposal, content=content_hash(proposal, self.repo))


def as_line(item: object) -> object:
    """A function's item, in the form of a program's line."""
    if isinstance(item, str):
        return {"patch": item}
    if isinstance(item, Mapping):
        return {key: os.fspath(v) if isinstance(v, Path) else v for key, v in item.items()}
    return item


class _WrongLineError(ValueError):
    """Why a line is not a candidate."""


def _parsed(line: str) -> Any:
    if len(line) > LONGEST_LINE:
        return _WrongLineError(f"has {len(line):,} characters; at most {LONGEST_LINE:,} are read")
    try:
        return parse_strictly(line.strip().removeprefix("\ufeff"))
    except ValueError as error:
        return _WrongLineError(f"is not JSON: {error}")


def _cost_in(item: Any) -> float | None:
    if isinstance(item, _WrongLineError):
        raise item
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


def _text(item: Mapping[str, Any], key: str) -> str:
    text = item.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise _WrongLineError(f"{key} must be text, not {shown(text)}")
    if not text or "\0" in text:
        raise _WrongLineError(f"{key} must be text without NUL characters, not {shown(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        # The store keeps text: other bytes would make a different candidate after a resume.
        words = f"{key} contains bytes that are not UTF-8; propose a folder with the files"
        raise _WrongLineError(words) from None
    return text
