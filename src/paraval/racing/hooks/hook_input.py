"""What a hook is asked: the same for a program, as JSON on stdin, and for a function, as an `Ask`.

Who is asked, and what becomes of the answer, is left to others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paraval.racing.course.steps import Step, StepEnd, StepKind
from paraval.racing.findings import Proposal
from paraval.racing.report.standings import CandidateStanding
from paraval.racing.step_performer import RaceContext
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
        **(step.told or {}),
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
