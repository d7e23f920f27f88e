"""The input and output of a hook: a program gets JSON on stdin, a function gets an `Ask`.

Other modules decide which hook is called, and what happens with its proposals.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

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
"""Largest patch that a hook gets as text; of a larger one it only gets the path."""

_OF_THE_RACE = ("base", "test", "bench", "accept", "limits", "baseline")
StandingsNow = Callable[[], tuple[CandidateStanding, ...]]


def no_standings() -> tuple[CandidateStanding, ...]:
    return ()


class CallModel(Protocol):
    def __call__(self, name: str, prompt: str, *, repeat: int = 1) -> Awaitable[str]: ...


async def no_models(name: str, prompt: str, *, repeat: int = 1) -> str:  # noqa: ARG001 - a CallModel
    raise ParavalError(f"unknown model '{name}': the race has no models; add models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The argument of a function for `generate`, `repair` or `refine`.

    Its fields are the same as in a program's JSON input, as plain data.
    """

    kind: str
    """generate, repair or refine."""
    repo: str
    """The path of the repository. It is the user's own: read it, but do not change it."""
    folder: str
    """A folder for this call, kept with the run, for folders that it proposes."""
    commit: str | None
    """The commit that every candidate changes; None if that is the working tree."""
    base: Mapping[str, Any] = field(default_factory=dict)
    """The start of the race: `tree` and `commit`."""
    test: Mapping[str, Any] = field(default_factory=dict)
    """The race's `command`."""
    bench: Mapping[str, Any] = field(default_factory=dict)
    """`command` and `metric`."""
    accept: Mapping[str, Any] = field(default_factory=dict)
    """`speedup` and `confidence`."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """`candidates`, `seconds` and `usd`."""
    baseline: Mapping[str, Any] = field(default_factory=dict)
    """Its `commit`, `tree`, `tests` and `seconds`; empty for `generate`, which starts earlier."""
    candidate: str | None = None
    """The name of the candidate; None for `generate`."""
    patch: str = ""
    """The candidate's diff against the baseline."""
    patch_file: str | None = None
    """The path of its exact patch; None if it never applied."""
    note: str = ""
    """The proposer's comment."""
    parent: str | None = None
    """The candidate that it repairs or refines."""
    status: str | None = None
    """Its status: passed, failed, timeout, crashed, invalid ..."""
    reason: str = ""
    """... and why."""
    tests: Mapping[str, Any] | None = None
    """How many passed and failed; None if the command reports no individual tests."""
    differences: tuple[Mapping[str, Any], ...] = ()
    """The first hundred differences from the baseline."""
    more_differences: int = 0
    """How many more differences there are."""
    speedup: Mapping[str, Any] | None = None
    """Its speedup so far: estimate, low, high."""
    measurements: tuple[Any, ...] = ()
    """Samples by block."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """Everything, as a program's JSON input."""
    standings: StandingsNow = no_standings
    """Returns the current standings of the race."""
    model: CallModel = no_models
    """`await ask.model("haiku", prompt)` returns the answer of a model in `models`: cached, and its
    cost counts as the hook's. `repeat=2` asks for another answer to the same prompt. For async
    functions."""


def document_of(step: Step, room: RaceContext) -> dict[str, Any]:
    """A program's input, as plain JSON data."""
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
    """The input as bytes. Non-ASCII is escaped, so that the program's locale does not matter."""
    return json.dumps(document, default=str).encode() + b"\n"


def ask_of(document: Mapping[str, Any], folder: str, standings: StandingsNow) -> Ask:
    """A function's argument."""
    candidate: Mapping[str, Any] = document.get("candidate") or {}
    of_the_race: dict[str, Any] = {name: document.get(name) or {} for name in _OF_THE_RACE}
    return Ask(
        kind=document["kind"],
        repo=document["repo"],
        folder=folder,
        commit=document["base"]["commit"],
        **of_the_race,
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
    """The proposal of the step's candidate."""
    end = _stage_of(step, room)
    return None if end is None else end.step.proposal


def _stage_of(step: Step, room: RaceContext) -> StepEnd | None:
    return room.ends.get((StepKind.STAGE, step.candidate, 1))


def _candidate(step: Step, room: RaceContext) -> dict[str, Any]:
    end, proposal = _stage_of(step, room), proposal_of(step, room)
    path = None if end is None else room.artifact(end, "patch")
    data: dict[str, Any] = {"name": step.candidate, "patch": _patch_text(path)}
    if path is not None:
        data["patch_file"] = str(path)
    if proposal is not None:
        data |= {"note": proposal.note, "parent": proposal.parent}
        if path is None:
            data |= _as_proposed(proposal)
    return data


def _as_proposed(proposal: Proposal) -> dict[str, Any]:
    """The proposed content of a candidate that never applied."""
    data: dict[str, Any] = {"patch": proposal.patch or ""}
    for name in ("files", "folder", "ref"):
        if (value := getattr(proposal, name)) is not None:
            data[name] = value
    return data


def _patch_text(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return read_plain_file(str(path), LARGEST_PATCH_BYTES).decode(errors="replace")
    except InvalidOutputError:
        # Too large, or gone: the hook also gets its path.
        return ""


# The output of one hook call over all its attempts: proposals, complaints, cost.

MOST_COMPLAINTS = 20
"""Complaints listed per call; the rest are counted."""


class HookOutput:
    """The output of one step."""

    def __init__(self, room: RaceContext, step: Step) -> None:
        self._room = room
        self._step = step
        self._parent = proposal_of(step, room)
        self._proposals: list[Proposal] = []
        self._complaints: list[str] = []
        self._remarks: list[str] = []
        self._earlier: dict[str, list[Proposal]] = {}
        """Proposals of earlier attempts that this one has not repeated, by content."""
        self._named = 0
        """How many numbered names are taken."""
        self._count = 0
        """Lines or items in this attempt."""
        self._before_gap: int | None = None
        """How many lines came before a gap in the log; None if there is none."""
        self._cost: float | None = None
        self._listens = False

    def begin_attempt(self) -> None:
        again = defaultdict(list)
        for proposal in self._proposals:
            again[proposal.content].append(proposal)
        self._earlier = dict(again)
        self._named = len(self._proposals)
        self._complaints, self._remarks, self._count, self._cost = [], [], 0, None
        self._before_gap = None
        self._listens = True

    def end_attempt(self) -> None:
        """Ignore further output of an abandoned function."""
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
        """The cost of this attempt; None if it reported none."""
        return None if self._cost is None else Spend(cost_usd=self._cost)

    async def take(self, lines: Sequence[str | Gap]) -> None:
        """Take new lines; their proposals join the race."""
        proposals: list[Proposal] = []
        for line in lines:
            if isinstance(line, Gap):
                self._leap(line)
            elif self._counts("lines") and line.strip():
                proposals += await self._new_in(read_answer(line, self._source()), "line")
        if proposals:
            self._room.propose(self._step, tuple(proposals))

    async def take_item(self, item: Any) -> bool:
        """Take an item of a function; False if no more are read."""
        if self._counts("items"):
            answer = read_items((as_line(item),), self._source())
            if new := await self._new_in(answer, "item"):
                self._room.propose(self._step, tuple(new))
        return self._listens and self._count <= MOST_LINES

    def pay(self, spend: Spend) -> None:
        """Count the cost of a model that a function called."""
        if spend.cost_usd is not None:
            self._cost = (self._cost or 0.0) + spend.cost_usd

    async def take_proposal(self, proposal: Proposal) -> None:
        """Take a candidate that a model wrote."""
        if (new := await self._joining(proposal, "reply")) is not None:
            self._room.propose(self._step, (new,))

    def _leap(self, gap: Gap) -> None:
        if self._count < MOST_LINES and gap.begun_bytes > LONGEST_LINE:
            self._count += 1
            self._complaints.append(f"line {self._count}: is longer than 1 MB and was skipped")
        self._remarks.append(gap.words)
        self._before_gap = self._count

    def _place(self, what: str) -> str:
        if self._before_gap is None:
            return f"{what} {self._count}"
        # The number of lines in the gap is unknown.
        return f"{what} {self._count - self._before_gap} after the gap"

    def _counts(self, what: str) -> bool:
        """Count a line or item; whether it is still read."""
        self._count += 1
        if self._count == MOST_LINES + 1:
            self._remarks.append(f"{what} after the {MOST_LINES:,}th were not read")
        return self._listens and self._count <= MOST_LINES

    def _source(self) -> LineSource:
        return LineSource(
            origin=Origin(self._step.kind.value),
            parent=self._parent,
            taken=self._named,
            folder=Path(self._room.request.folder),
        )

    async def _new_in(self, answer: ProposalLines, what: str) -> list[Proposal]:
        asked, place = answer.asked, self._place(what)
        self._named += len(asked.proposals)
        # Each was parsed separately, so as number 1.
        self._complaints += [
            f"{place}: {words.removeprefix(f'{what} 1: ')}" for words in asked.complaints
        ]
        if answer.cost_usd is not None:
            self._cost = (self._cost or 0.0) + answer.cost_usd
        found = [await self._joining(proposal, place) for proposal in asked.proposals]
        return [proposal for proposal in found if proposal is not None]

    async def _joining(self, proposal: Proposal, place: str) -> Proposal | None:
        """The proposal as it joins the race; None if it is a repeat or invalid."""
        try:
            _refuse_undecodable(proposal)
            content = await asyncio.to_thread(content_hash, proposal, self._room.request.repo)
        except (ParavalError, OSError) as error:
            words = error.message if isinstance(error, ParavalError) else str(error)
            self._complaints.append(f"{place}: {words}")
            return None
        if repeated := self._earlier.get(content):
            repeated.pop(0)
            return None
        proposal = replace(proposal, content=content, name=self._own_name(proposal.name))
        self._proposals.append(proposal)
        return proposal

    def _own_name(self, name: str) -> str:
        """A name that is unique in this call, because names identify candidates in the race."""
        taken = {proposal.name for proposal in self._proposals}
        number, own = 1, name
        while own in taken:
            number += 1
            own = f"{name}-{number}"
        return own


def _refuse_undecodable(proposal: Proposal) -> None:
    """The store keeps text: other bytes would make a different candidate after a resume."""
    try:
        for text in (proposal.patch, *(proposal.files or {}).values()):
            (text or "").encode()
    except UnicodeEncodeError:
        raise ParavalError(
            "contains bytes that are not UTF-8; propose a folder with the files instead"
        ) from None


def as_line(item: object) -> object:
    """A function's item, in the form of a program's line."""
    if isinstance(item, str):
        return {"patch": item}
    if isinstance(item, Proposal):
        names = ("name", "patch", "files", "folder", "ref", "note")
        return {name: value for name in names if (value := getattr(item, name))}
    return item
