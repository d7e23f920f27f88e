"""Progress for other programs: one JSON object per line, pure ASCII, flushed immediately.

Every line has `event`:

- `run_started`: run, suite, folder, total, already_done, parallel, budget_usd, spent_usd,
  spent_unknown
- `attempt_started`: index, case, variant, repeat, attempt, node
- `attempt_retried`: the same, and outcome, error, duration_s, target_s, cost_usd, retry_in_s: it
  will be retried
- `trial_ended`: index, case, variant, repeat, outcome, passed, score, attempts, duration_s,
  target_s, error, cost_usd, cached, node, done, total, eta_s: its result is on disk
- `trial_skipped`: index, case, variant, repeat, reason: it is left for a resume, unless the
  reason is `canceled` or begins with `early stop`: then it is left out for good
- `notice`: message, for display
- `held_back`: waits, a list of name, why, trials, waited_s, next_s: what holds trials back, every
  second while something has for 5 s or nothing runs, and once, empty, when it is over
- `capacity`: at_once, wanted, held_by, node: how many the machine lets run in parallel has changed
- `node_changed`: node, slots: a node of the cluster joined, or left (0 slots)
- `run_changed`: parallel, auto, budget_usd: a user changed them
- `run_ended`: run, total, done, wall_s, interrupted, held_back

`passed` is null if there is no verdict, `error` is null or has kind and message, `eta_s` is null if
it is unknown, `budget_usd` is null if there is none. `duration_s` is the time of the attempt that
ended, `target_s` the target's part of it, without graders. `cost_usd` is the attempt's cost, judges
included, and null if any part of it is unknown. `spent_usd` is what the run had spent before it was
resumed: only the known part, if `spent_unknown`. `cached` is true if all of the target's answers
came from the cache. `node` is a node of the cluster, null for this machine.

Keys and events may be added: readers should skip those they don't know.
"""

from __future__ import annotations

import json
import math
from typing import Any, TextIO

from paraval.codec import shown
from paraval.records import (
    Attempt,
    AttemptEnded,
    AttemptResult,
    AttemptStarted,
    Capacity,
    Failure,
    Happening,
    HeldBack,
    NodeChanged,
    Notice,
    RunChanged,
    RunEnded,
    RunStarted,
    Trial,
    TrialEnded,
    TrialSkipped,
)
from paraval.text.progress import SafeStream


class JsonEvents:
    """Writes each event as a line of JSON."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = SafeStream(stream)

    def __call__(self, event: Happening) -> None:
        content = as_mapping(event)
        try:
            line = json.dumps(content, allow_nan=False)
        except ValueError:
            line = json.dumps(shown(content))
        self._stream.write(f"{line}\n")

    def tick(self, now: float) -> None:
        """Do nothing: there is no event."""

    def close(self) -> None:
        """Every line is flushed already."""


def as_mapping(event: Happening) -> dict[str, Any]:
    """An event as the object of its line."""
    match event:
        case TrialEnded():
            return {"event": "trial_ended", **_trial_ended(event)}
        case AttemptStarted():
            return {"event": "attempt_started", **_attempt(event.attempt)}
        case AttemptEnded():
            ended = _attempt(event.attempt) | _ended(event.result)
            return {"event": "attempt_retried", **ended, "retry_in_s": event.retry_in_s}
        case TrialSkipped():
            cost = None if event.last is None else _whole_cost(event.last)
            skipped = _trial(event.trial) | {"reason": event.reason, "cost_usd": cost}
            return {"event": "trial_skipped", **skipped}
        case Notice():
            return {"event": "notice", "message": event.message}
        case HeldBack():
            names = ("name", "why", "trials", "waited_s", "next_s")
            return {"event": "held_back", "waits": [_some(one, *names) for one in event.waits]}
        case Capacity():
            return {"event": "capacity", **_some(event, "at_once", "wanted", "held_by", "node")}
        case NodeChanged():
            return {"event": "node_changed", **_some(event, "node", "slots")}
        case RunChanged():
            return {"event": "run_changed", **_some(event, "parallel", "auto", "budget_usd")}
        case RunStarted():
            run = {"run": event.run.id, **_some(event.run, "suite", "folder", "parallel")}
            counts = _some(event, "total", "already_done")
            money = _some(event, "budget_usd", "spent_usd", "spent_unknown")
            return {"event": "run_started", **run, **counts, **money}
        case RunEnded(run=info):
            run = {"run": info.id, "total": info.trials}
            ended = _some(info, "done", "wall_s", "interrupted", "held_back")
            return {"event": "run_ended", **run, **ended}


def _trial_ended(event: TrialEnded) -> dict[str, Any]:
    result = event.result.result
    return {
        **_trial(event.trial),
        **_ended(result),
        "passed": result.outcome == "passed" if result.outcome.is_judged else None,
        "score": result.score,
        "attempts": event.result.attempts,
        "cached": result.spend is not None and result.spend.cached > 0 and not result.spend.calls,
        "node": result.node,
        **_some(event, "done", "total", "eta_s"),
    }


def _some(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _trial(trial: Trial) -> dict[str, Any]:
    variant = dict(trial.variant)
    return {"index": trial.index, "case": trial.case.id, "variant": variant, "repeat": trial.repeat}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {**_trial(attempt.trial), "attempt": attempt.number, "node": attempt.node}


def _ended(result: AttemptResult) -> dict[str, Any]:
    return {
        **_some(result, "outcome", "duration_s", "target_s"),
        "error": _error(result.error),
        "cost_usd": _whole_cost(result),
    }


def _error(error: Failure | None) -> dict[str, str] | None:
    return None if error is None else {"kind": error.kind, "message": error.message}


def _whole_cost(result: AttemptResult) -> float | None:
    """What an attempt cost, judges included; None if any of it is unknown."""
    spends = [spend for spend in (result.spend, result.judging) if spend is not None]
    known = [spend.cost_usd for spend in spends if spend.cost_usd is not None]
    is_known = spends and len(known) == len(spends) and all(map(math.isfinite, known))
    return math.fsum(known) if is_known else None
