"""The race as JSON, for other programs.

{"schema": 1,
 "baseline": {"commit", "tree", "uncommitted", "tests": {"passed", "failed", "errors", "skipped",
              "missing"} | null, "seconds": {case: median}, "failing": [...], "differences": [...],
              "reason", "unstable": [...], "noisy"},
 "winner": name | null,
 "candidates": [{"name", "status", "tests": {"passed", "failed", "errors", "skipped",
                 "missing"} | null, "differences": [{"scope", "name", "status", "baseline",
                 "message", "expected", "actual"}], "speedup": {"estimate", "low", "high"} | null,
                 "noisy", "reason",
                 "parent", "origin", "note", "duplicate_of", "more_differences", "flags": [...],
                 "notes": [...], "cautions": [...], "blocks", "patch", "tree",
                 "cases": {case: {"estimate", "low", "high"} | null}, "seconds": {case: median}}],
 "refs": {"base", "head", "keys": [{"key", "base_s", "head_s", "delta_s", "speedup"}]} | null,
 "run": {"id", "name", "source", "folder", "started_at", "ended_at", "wall_s", "resumed"},
 "accept": {"speedup", "confidence"},
 "profile": {"functions": [{"name", "file", "seconds", "lines": [{"line", "hits", "seconds",
             "text"}]}], "problem"} | null,
 "cluster": {"nodes": [...], "measured_on": [...]} | null,
 "cost": {"usd", "unknown_calls"}, "notes": [...], "over"}

Candidates are listed in order of arrival. `status` is won, accepted, slower, not_shown, failed,
invalid, duplicate, timeout, crashed, infra_error or skipped. `tests` is null if individual tests
are unknown; `missing` counts baseline tests that a candidate's run did not reach. `speedup` is null
if there is no interval; the result of a single block is in `notes`. `note` is the proposer's
comment on a candidate. `patch` is relative to the run's folder. `cost` is the total reported by
generate, repair and refine: `usd` is null if no call reported a cost, and `unknown_calls` counts
calls that reported none. `cluster` has the nodes that ran tests, and the machine that measured; it
is null if everything ran on one machine. The baseline's `reason` is why the race did not start.
`over` is false for an interrupted race. `refs` is null unless two refs were compared; its keys are
those of the benchmark's file, `__total__` last.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from paraval.codec import shown
from paraval.racing.findings import Speedup, TestCounts
from paraval.racing.report.race_words import is_bounded, key_rows, times
from paraval.racing.report.standings import BaselineStanding, CandidateStanding, Standings
from paraval.racing.request import Accept, Profile, RaceRequest
from paraval.records import RunInfo

SCHEMA = 1


def race_document(standings: Standings, run: RunInfo, request: RaceRequest) -> dict[str, Any]:
    document = {
        "schema": SCHEMA,
        "baseline": _baseline(standings.baseline),
        "winner": standings.winner,
        "candidates": [_candidate(one) for one in standings.candidates],
        "refs": _refs(standings, request),
        "run": _run(run),
        "accept": _accept(request.accept),
        "profile": _profile(standings, request),
        "cluster": _cluster(standings),
        "cost": _cost(standings),
        "notes": list(standings.notes),
        "over": standings.over,
    }
    plain: dict[str, Any] = shown(document)
    return plain


def _refs(standings: Standings, request: RaceRequest) -> dict[str, Any] | None:
    if request.head is None:
        return None
    keys = [{**asdict(row), "speedup": _speedup(row.speedup)} for row in key_rows(standings)]
    return {"base": request.ref, "head": request.head, "keys": keys}


def _cluster(standings: Standings) -> dict[str, Any] | None:
    if not standings.nodes:
        return None
    return {"nodes": list(standings.nodes), "measured_on": list(standings.measured_on)}


def _cost(standings: Standings) -> dict[str, Any]:
    known = standings.cost_usd > 0 or not standings.unpriced_calls
    return {
        "usd": standings.cost_usd if known else None,
        "unknown_calls": standings.unpriced_calls,
    }


def _baseline(baseline: BaselineStanding) -> dict[str, Any]:
    return {
        "commit": baseline.commit,
        "tree": baseline.tree,
        "uncommitted": baseline.uncommitted,
        "tests": _tests(baseline.tests),
        "seconds": dict(baseline.seconds),
        "failing": list(baseline.failing),
        "differences": [asdict(difference) for difference in baseline.differences],
        "reason": baseline.reason,
        "unstable": list(baseline.unstable),
        "noisy": baseline.noisy,
    }


def _candidate(one: CandidateStanding) -> dict[str, Any]:
    return {
        "name": one.name,
        "status": one.status.value,
        "tests": _tests(one.tests),
        "differences": [asdict(difference) for difference in one.differences],
        "speedup": _speedup(one.speedup),
        "noisy": one.noisy,
        "reason": one.reason,
        "parent": one.parent,
        "origin": one.origin.value,
        "note": one.note,
        "duplicate_of": one.duplicate_of,
        "more_differences": one.more_differences,
        "flags": list(one.flags),
        "notes": [*one.notes, *_unbounded(one.speedup)],
        "cautions": list(one.cautions),
        "cases": {name: _speedup(case) for name, case in one.cases.items()},
        "seconds": dict(one.seconds),
        "blocks": 0 if one.speedup is None else one.speedup.blocks,
        "patch": one.patch,
        "tree": one.tree,
    }


def _tests(counts: TestCounts | None) -> dict[str, int] | None:
    if counts is None:
        return None
    return {
        "passed": counts.passed,
        "failed": counts.failed,
        "errors": counts.errors,
        "skipped": counts.skipped,
        "missing": counts.missing,
    }


def _speedup(speedup: Speedup | None) -> dict[str, float] | None:
    if speedup is None or not is_bounded(speedup):
        return None
    return {"estimate": speedup.estimate, "low": speedup.low, "high": speedup.high}


def _unbounded(speedup: Speedup | None) -> list[str]:
    if speedup is None or is_bounded(speedup):
        return []
    blocks = "1 block" if speedup.blocks == 1 else f"{speedup.blocks} blocks"
    return [f"{times(speedup.estimate)} from {blocks}: too few for an interval"]


def _run(run: RunInfo) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.suite,
        "source": run.source,
        "folder": run.folder,
        "started_at": _iso(run.started_at),
        "ended_at": None if run.ended_at is None else _iso(run.ended_at),
        "wall_s": run.wall_s,
        "resumed": run.resumed,
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _accept(accept: Accept) -> dict[str, float]:
    return {"speedup": accept.speedup, "confidence": accept.confidence}


def _profile(standings: Standings, request: RaceRequest) -> dict[str, Any] | None:
    if request.profile.kind is Profile.NONE:
        return None
    return {
        "functions": [asdict(function) for function in standings.profile],
        "problem": standings.profile_problem,
    }
