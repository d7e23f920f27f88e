"""The race as JSON, for other programs.

{"schema": 1,
 "baseline": {"commit", "tree", "uncommitted", "tests": {"passed", "failed", "errors", "skipped",
              "missing", "new_passed", "new_failed"} | null, "seconds": {case: median},
              "failing": [...], "differences": [...], "reason", "unstable": [...], "noisy",
              "unseen", "profile": {"functions": [{"name", "file", "seconds", "lines": [{"line",
              "hits", "seconds", "text"}]}], "problem"}},
 "winner": name | null,
 "candidates": [{"name", "status", "reason", "tests" as above,
                 "differences": [{"scope", "name", "status", "baseline", "message"}],
                 "more_differences", "speedup": {"estimate", "low", "high"} | null,
                 "cases": {case: {"estimate", "low", "high"} | null}, "seconds": {case: median},
                 "noisy", "round", "parent", "note", "duplicate_of", "flags": [...], "notes": [...],
                 "cautions": [...], "blocks", "patch", "tree"}],
 "refs": {"base", "head", "keys": [{"key", "base_s", "head_s", "delta_s", "speedup"}]} | null,
 "run": {"id", "name", "source", "folder", "started_at", "ended_at", "wall_s", "resumed"},
 "metric", "accept": {"speedup", "confidence", "each", "caches", "unseen_results"},
 "profile": as of the baseline, "rounds", "finalists",
 "cluster": {"nodes": [...], "measured_on": [...]} | null,
 "cost": {"usd", "unknown_calls"}, "notes": [...], "over"}

Candidates are listed in order of arrival. `status` is won, accepted, slower, not_shown, failed,
invalid, duplicate, timeout, crashed, infra_error or skipped. `tests` is null if individual tests
are unknown; `missing` counts baseline tests that a candidate's run did not reach. `speedup` is null
if there is no interval. `seconds` are bytes with `metric: memory`. `round` counts from 1; it is
null for candidates that were given. `patch` is relative to the run's folder. `cost.usd` is null if
no call reported a cost. `cluster` is null if everything ran on one machine. The baseline's `reason`
is why the race did not start. `over` is false for an interrupted race. `refs` is null unless two
refs were compared; its keys are those of the benchmark's file, `__total__` last.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from paraval.codec import shown
from paraval.racing.report.race_words import key_rows
from paraval.racing.request import RaceRequest
from paraval.racing.standings import Standings, baseline_data, candidate_data, speedup_data
from paraval.records import RunInfo

SCHEMA = 1


def race_document(standings: Standings, run: RunInfo, request: RaceRequest) -> dict[str, Any]:
    document = {
        "schema": SCHEMA,
        "baseline": baseline_data(standings.baseline),
        "winner": standings.winner,
        "candidates": [candidate_data(one) for one in standings.candidates],
        "refs": _refs(standings, request),
        "run": _run(run),
        "accept": request.accept.model_dump(),
        "metric": request.bench.metric,
        "profile": {
            "functions": [asdict(one) for one in standings.profile],
            "problem": standings.profile_problem,
        },
        "rounds": standings.rounds,
        "finalists": standings.finalists,
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
    keys = [{**asdict(row), "speedup": speedup_data(row.speedup)} for row in key_rows(standings)]
    return {"base": request.keys.repo.ref, "head": request.head, "keys": keys}


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
