"""What a hook is asked: the same for a program, as JSON on stdin, and for a function, as an `Ask`.

Who is asked, and what becomes of the answer, is left to others.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paraval.errors import ParavalError
from paraval.racing.candidates.json_lines import (
    LONGEST_LINE,
    MOST_LINES,
    LineSource,
    ProposalLines,
    read_answer,
    read_items,
)
from paraval.racing.candidates.staging import content_hash
from paraval.racing.course.steps import Step, StepEnd, StepKind
from paraval.racing.findings import HookAnswer, Origin, Proposal, StepFinding
from paraval.racing.hooks.hook_program import Gap
from paraval.racing.report.standings import CandidateStanding
from paraval.racing.step_performer import RaceContext
from paraval.records import Spend
from paraval.targets.answer import InvalidOutputError, read_plain_file

LARGEST_PATCH_BYTES = 8 << 20
"""Of one that a hook is told as text; where a larger one is, it is told all the same."""

_OF_THE_RACE = ("base", "test", "bench", "accept", "limits", "baseline")
StandingsNow = Callable[[], tuple[CandidateStanding, ...]]


def nobody_stands() -> tuple[CandidateStanding, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a function for `generate`, `repair` or `refine` is called with.

    Its fields are what a program is told, by the same names; what lies within them is plain data.
    """

    kind: str
    """generate, repair or refine."""
    repo: str
    """Where the repository is. It is the user's own: to be read, and left as it is."""
    folder: str
    """A folder of this call's own, kept with the run: a place for folders that it proposes."""
    commit: str | None
    """What every candidate is a change to; None: no commit is, since the working tree is."""
    base: Mapping[str, Any] = field(default_factory=dict)
    """The same: `tree` and `commit`."""
    test: Mapping[str, Any] = field(default_factory=dict)
    """Of the race: `command`."""
    bench: Mapping[str, Any] = field(default_factory=dict)
    """`command` and `metric`."""
    accept: Mapping[str, Any] = field(default_factory=dict)
    """`speedup` and `confidence`."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """`candidates`, `seconds` and `usd`."""
    baseline: Mapping[str, Any] = field(default_factory=dict)
    """Its `commit`, `tree`, `tests` and `seconds`; empty for `generate`, which begins before."""
    candidate: str | None = None
    """Whom it is about, by name; None for `generate`."""
    patch: str = ""
    """That candidate's change, against the baseline."""
    patch_file: str | None = None
    """Where the same is, byte for byte; None: it never applied."""
    note: str = ""
    """What whoever proposed it said of it."""
    parent: str | None = None
    """Whose repair or refinement it is."""
    status: str | None = None
    """How it stands: failed, timeout, crashed, invalid ..."""
    reason: str = ""
    """... and why."""
    tests: Mapping[str, Any] | None = None
    """How many passed and failed; None: the command tells of no single tests."""
    differences: tuple[Mapping[str, Any], ...] = ()
    """What is another than with the baseline: the first hundred."""
    more_differences: int = 0
    """How many there are beyond them."""
    speedup: Mapping[str, Any] | None = None
    """So far: estimate, low, high."""
    measurements: tuple[Any, ...] = ()
    """Block by block."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """All of it, as a program is told it."""
    standings: StandingsNow = nobody_stands
    """How the candidates of the race stand at the moment of the call."""


def document_of(step: Step, room: RaceContext) -> dict[str, Any]:
    """What a program is told; plain JSON data."""
    request, base = room.request, room.base
    limits = request.limits
    document = {
        **(step.details or {}),
        "kind": step.kind.value,
        "repo": request.repo,
        "base": {"tree": base.tree, "commit": base.commit},
        "test": {"command": list(request.test.command)},
        "bench": {"command": list(request.bench.command), "metric": request.bench.metric.value},
        "accept": {"speedup": request.accept.speedup, "confidence": request.accept.confidence},
        "limits": {
            "candidates": limits.candidates,
            "seconds": limits.seconds,
            "usd": limits.usd,
        },
    }
    if step.kind is not StepKind.GENERATE:
        document["candidate"] = _candidate(step, room)
    return document


def stdin_of(document: Mapping[str, Any]) -> bytes:
    """Everything outside of ASCII is escaped, so that no locale of the program can spoil it."""
    return json.dumps(document, default=str).encode() + b"\n"


def ask_of(document: Mapping[str, Any], folder: str, standings: StandingsNow) -> Ask:
    """What a function is told."""
    candidate: Mapping[str, Any] = document.get("candidate") or {}
    return Ask(
        kind=document["kind"],
        repo=document["repo"],
        folder=folder,
        commit=document["base"]["commit"],
        **{name: document.get(name) or {} for name in _OF_THE_RACE},
        candidate=candidate.get("name"),
        patch=candidate.get("patch", ""),
        patch_file=candidate.get("patch_file"),
        note=candidate.get("note", ""),
        parent=candidate.get("parent"),
        status=document.get("status"),
        reason=document.get("reason") or "",
        tests=document.get("tests"),
        differences=tuple(document.get("differences") or ()),
        more_differences=document.get("more_differences") or 0,
        speedup=document.get("speedup"),
        measurements=tuple(document.get("measurements") or ()),
        told=document,
        standings=standings,
    )


def proposal_of(step: Step, room: RaceContext) -> Proposal | None:
    """How the candidate that a step is about was proposed."""
    end = _stage_of(step, room)
    return None if end is None else end.step.proposal


def _stage_of(step: Step, room: RaceContext) -> StepEnd | None:
    return room.ends.get((StepKind.STAGE, step.candidate, 1))


def _candidate(step: Step, room: RaceContext) -> dict[str, Any]:
    end, proposal = _stage_of(step, room), proposal_of(step, room)
    path = None if end is None else room.artifact(end, "patch")
    told: dict[str, Any] = {"name": step.candidate, "patch": _patch_text(path)}
    if path is not None:
        told["patch_file"] = str(path)
    if proposal is not None:
        told |= {"note": proposal.note, "parent": proposal.parent}
        if path is None:
            told |= _as_proposed(proposal)
    return told


def _as_proposed(proposal: Proposal) -> dict[str, Any]:
    """Of one that never applied: it has no patch but that which it came with, if any."""
    told: dict[str, Any] = {"patch": proposal.patch or ""}
    for name in ("files", "folder", "ref"):
        if (value := getattr(proposal, name)) is not None:
            told[name] = value
    return told


def _patch_text(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return read_plain_file(str(path), LARGEST_PATCH_BYTES).decode(errors="replace")
    except InvalidOutputError:
        # Too large, or gone: its path is told beside, and who needs it can say what is wrong.
        return ""


# What one call of a hook has said so far, over all its attempts: proposals, complaints, cost.

MOST_COMPLAINTS = 20
"""Of one call; how many more there are is told."""


class HookOutput:
    """Of one step."""

    def __init__(self, room: RaceContext, step: Step) -> None:
        self._room = room
        self._step = step
        self._parent = proposal_of(step, room)
        self._proposals: list[Proposal] = []
        self._complaints: list[str] = []
        self._remarks: list[str] = []
        self._unsaid_again: dict[str, list[Proposal]] = {}
        """Of attempts before this one, by content."""
        self._named = 0
        """How many names that go by their number are taken."""
        self._said = 0
        """Lines or items of this attempt."""
        self._before_gap: int | None = None
        """How many lines there were before some that are not kept; None: all are."""
        self._cost: float | None = None
        self._listens = False

    def begin_attempt(self) -> None:
        again = defaultdict(list)
        for proposal in self._proposals:
            again[proposal.content].append(proposal)
        self._unsaid_again = dict(again)
        self._named = len(self._proposals)
        self._complaints, self._remarks, self._said, self._cost = [], [], 0, None
        self._before_gap = None
        self._listens = True

    def end_attempt(self) -> None:
        """What a function that was left behind still says is not heard."""
        self._listens = False

    @property
    def finding(self) -> StepFinding:
        asked = HookAnswer(
            proposals=tuple(self._proposals),
            complaints=tuple(self._complaints[:MOST_COMPLAINTS]),
            more_complaints=max(0, len(self._complaints) - MOST_COMPLAINTS),
            remarks=tuple(self._remarks),
        )
        return StepFinding(asked=asked)

    @property
    def spend(self) -> Spend | None:
        """Of this attempt; None: it told nothing of a cost."""
        return None if self._cost is None else Spend(cost_usd=self._cost)

    async def take(self, lines: Sequence[str | Gap]) -> None:
        """Lines that came since; what they propose joins the race."""
        proposals: list[Proposal] = []
        for line in lines:
            if isinstance(line, Gap):
                self._leap(line)
            elif self._counts("lines") and line.strip():
                proposals += await self._new_in(read_answer(line, self._teller()), "line")
        if proposals:
            self._room.propose(self._step, tuple(proposals))

    async def take_item(self, item: Any) -> bool:
        """What a function gave; whether more of it counts."""
        if self._counts("items"):
            answer = read_items((as_line(item),), self._teller())
            if new := await self._new_in(answer, "item"):
                self._room.propose(self._step, tuple(new))
        return self._listens and self._said <= MOST_LINES

    def _leap(self, gap: Gap) -> None:
        if self._said < MOST_LINES and gap.begun_bytes > LONGEST_LINE:
            self._said += 1
            self._complaints.append(f"line {self._said}: has more than 1 MB and is left out")
        self._remarks.append(gap.words)
        self._before_gap = self._said

    def _place(self, what: str) -> str:
        if self._before_gap is None:
            return f"{what} {self._said}"
        # How many lines are not kept, nobody knows.
        return f"{what} {self._said - self._before_gap} after what was not kept"

    def _counts(self, what: str) -> bool:
        """Whether what comes now is still listened to."""
        self._said += 1
        if self._said == MOST_LINES + 1:
            self._remarks.append(f"{what} after the {MOST_LINES:,}th were not read")
        return self._listens and self._said <= MOST_LINES

    def _teller(self) -> LineSource:
        return LineSource(
            origin=Origin(self._step.kind.value),
            parent=self._parent,
            taken=self._named,
            folder=Path(self._room.request.folder),
        )

    async def _new_in(self, answer: ProposalLines, what: str) -> list[Proposal]:
        asked, place = answer.asked, self._place(what)
        self._named += len(asked.proposals)
        # Each was read by itself, and so as the first.
        self._complaints += [
            f"{place}: {words.removeprefix(f'{what} 1: ')}" for words in asked.complaints
        ]
        if answer.cost_usd is not None:
            self._cost = (self._cost or 0.0) + answer.cost_usd
        found = [await self._joining(proposal, place) for proposal in asked.proposals]
        return [proposal for proposal in found if proposal is not None]

    async def _joining(self, proposal: Proposal, place: str) -> Proposal | None:
        """The proposal as it joins the race; None: it did already, or cannot."""
        try:
            _refuse_half_characters(proposal)
            content = await asyncio.to_thread(content_hash, proposal, self._room.request.repo)
        except (ParavalError, OSError) as error:
            words = error.message if isinstance(error, ParavalError) else str(error)
            self._complaints.append(f"{place}: {words}")
            return None
        if said := self._unsaid_again.get(content):
            said.pop(0)
            return None
        proposal = replace(proposal, content=content, name=self._own_name(proposal.name))
        self._proposals.append(proposal)
        return proposal

    def _own_name(self, name: str) -> str:
        """Unlike all that this call proposed before: what joined the race is known by its name."""
        taken = {proposal.name for proposal in self._proposals}
        number, own = 1, name
        while own in taken:
            number += 1
            own = f"{name}-{number}"
        return own


def _refuse_half_characters(proposal: Proposal) -> None:
    """The store keeps text: what is none would not be the same candidate after a resume."""
    try:
        for text in (proposal.patch, *(proposal.files or {}).values()):
            (text or "").encode()
    except UnicodeEncodeError:
        raise ParavalError(
            "has bytes that are no UTF-8; propose a folder with the files instead"
        ) from None


def as_line(item: object) -> object:
    """An item of a function, in the words of a program's lines."""
    if isinstance(item, str):
        return {"patch": item}
    if isinstance(item, Proposal):
        names = ("name", "patch", "files", "folder", "ref", "note")
        return {name: value for name in names if (value := getattr(item, name))}
    return item
