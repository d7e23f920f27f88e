"""Progress for other programs: one JSON object a line, pure ASCII, flushed at once.

Every line has `event`:

- `run_started`: run, suite, folder, total, already_done, parallel, budget_usd, spent_usd,
  spent_unknown
- `attempt_started`: index, case, variant, repeat, attempt
- `attempt_retried`: the same, and outcome, error, duration_s, cost_usd, retry_in_s: it is tried
  again
- `trial_ended`: index, case, variant, repeat, outcome, passed, score, attempts, duration_s, error,
  cost_usd, cached, done, total, eta_s: its result is on disk
- `trial_skipped`: index, case, variant, repeat, reason: it is left for later, and can be resumed;
  unless an early stop left it out for good: then the reason begins with `early stop`
- `notice`: message, for a person to read
- `capacity`: at_once, wanted, held_by: what the machine lets run at once has changed
- `run_ended`: run, total, done, wall_s, interrupted, held_back

`passed` is null where there is no verdict, `error` is null or has kind and message, `eta_s` and
`cost_usd` are null where nothing is known, `budget_usd` is null where there is none. `cost_usd` is
of the attempt that ended, judges included, and null where a part of it is unknown; `spent_usd` is
what is known of what engines before this one spent, and all of it unless `spent_unknown`; `cached`
is true where the target's answers all came from the cache.

More keys and more events may come: a reader skips what it doesn't know.
"""

from __future__ import annotations

import json
from typing import Any

from paraval.cli.progress.counts import whole_cost
from paraval.cli.progress.lines import Pen
from paraval.codec import shown
from paraval.records import (
    Attempt,
    AttemptEnded,
    AttemptStarted,
    Capacity,
    Failure,
    Happening,
    Notice,
    RunEnded,
    RunStarted,
    Trial,
    TrialEnded,
    TrialSkipped,
)


class JsonEvents:
    """Writes each event as a line of JSON."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen

    def __call__(self, event: Happening) -> None:
        told = as_mapping(event)
        try:
            line = json.dumps(told, allow_nan=False)
        except ValueError:
            line = json.dumps(shown(told))
        self._pen.write(f"{line}\n")

    def tick(self, now: float) -> None:
        """Nothing happened: nothing is said."""

    def close(self) -> None:
        """Every line is flushed already."""


def as_mapping(event: Happening) -> dict[str, Any]:
    """An event as the line that tells of it."""
    match event:
        case TrialEnded():
            return _trial_ended(event)
        case AttemptStarted():
            return {"event": "attempt_started", **_attempt(event.attempt)}
        case AttemptEnded():
            return {
                "event": "attempt_retried",
                **_attempt(event.attempt),
                "outcome": event.result.outcome,
                "error": _error(event.result.error),
                "duration_s": event.result.duration_s,
                "cost_usd": whole_cost(event.result),
                "retry_in_s": event.retry_in_s,
            }
        case TrialSkipped():
            return {
                "event": "trial_skipped",
                **_trial(event.trial),
                "reason": event.reason,
                "cost_usd": None if event.last is None else whole_cost(event.last),
            }
        case Notice():
            return {"event": "notice", "message": event.message}
        case Capacity():
            return {
                "event": "capacity",
                "at_once": event.at_once,
                "wanted": event.wanted,
                "held_by": event.held_by,
            }
        case RunStarted():
            return _run_started(event)
        case RunEnded():
            return _run_ended(event)


def _run_started(event: RunStarted) -> dict[str, Any]:
    return {
        "event": "run_started",
        "run": event.run.id,
        "suite": event.run.suite,
        "folder": event.run.folder,
        "total": event.total,
        "already_done": event.already_done,
        "parallel": event.run.parallel,
        "budget_usd": event.budget_usd,
        "spent_usd": event.spent_usd,
        "spent_unknown": event.spent_unknown,
    }


def _run_ended(event: RunEnded) -> dict[str, Any]:
    return {
        "event": "run_ended",
        "run": event.run.id,
        "total": event.run.trials,
        "done": event.run.done,
        "wall_s": event.run.wall_s,
        "interrupted": event.run.interrupted,
        "held_back": event.run.held_back,
    }


def _trial_ended(event: TrialEnded) -> dict[str, Any]:
    result = event.result.result
    return {
        "event": "trial_ended",
        **_trial(event.trial),
        "outcome": result.outcome,
        "passed": result.outcome == "passed" if result.outcome.is_judged else None,
        "score": result.score,
        "attempts": event.result.attempts,
        "duration_s": result.duration_s,
        "error": _error(result.error),
        "cost_usd": whole_cost(result),
        "cached": result.spend is not None and result.spend.cached > 0 and not result.spend.calls,
        "done": event.done,
        "total": event.total,
        "eta_s": event.eta_s,
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "index": trial.index,
        "case": trial.case.id,
        "variant": dict(trial.variant),
        "repeat": trial.repeat,
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {**_trial(attempt.trial), "attempt": attempt.number}


def _error(error: Failure | None) -> dict[str, str] | None:
    return None if error is None else {"kind": error.kind, "message": error.message}
