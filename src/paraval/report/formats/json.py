"""The JSON report: one document, a line a trial, in plan order.

{"schema": 1,
 "run": {"id", "suite", "started_at", "ended_at", "wall_s", "parallel", "resumed", "interrupted",
         "held_back", "running", "planned", "seed", "fail_under", "dropped_cost_usd",
         "dropped_cost_unknown", "stop": {"confidence"} | null, "baseline": {"name" (a run's id,
         or a path), "max_drop"} | null, "parts": {part of the suite: digest}},
 "summary": {"trials", "passed", "failed", "errors", "skipped", "pass_rate",
             "pass_rate_interval": [low, high], "serial_s", "speedup", "cost_usd",
             "cases" (what the interval is over), "errors_by_kind", "rate_if_errors_failed",
             "rate_if_errors_passed", "score", "score_interval": [low, high] | null, "median_s",
             "p95_s", "timeouts", "timeout_s", "answers_cut", "trials_without_cost", "usage",
             "tokens", "tool_calls",
             "trials_of_unknown_cost", "calls", "cached", "judging": {"cost_usd",
             "trials_of_unknown_cost", "calls", "cached", "usage"}, "total_cost_usd",
             "skipped_by_reason": {reason: trials}, "retries_by_kind": {outcome: attempts},
             "agents": {"trials", "trials_telling_tools", "median_turns", "other_calls",
             "mcp": {server: {"handed", "telling", "connected", "failed", "called", "calls",
             "errors", "never_called"}}} | null, "changes": {"trials", "changed", "unknown",
             "median_files", "median_lines_added", "median_lines_deleted", "tampered",
             "tampering": {what: trials}} | null, "cpu_s", "most_memory_bytes",
             "variants": [{"variant": {axis: value}, ...the same but for "speedup"...}]},
 "comparisons": [{"subject": {"label", "choice": {axis: value}, "run"}, "reference": {...},
                  "axis", "over": {other axis: values}, "among", "cases", "confidence",
                  "rate_subject", "rate_reference", "passing": {"mean", "interval": [low, high],
                  "p", "adjusted_p", "method", "wins", "losses"} | null, "score": {...} | null,
                  "finding": better | worse | no difference shown, "detectable",
                  "if_errors": [least, most] | null, "seconds": {"ratio", "interval", "cases"} |
                  null, "cost": {...} | null, "timeouts_subject", "timeouts_reference",
                  "pass_at": [{"k", "cases", "any_subject", "any_reference", "all_subject",
                  "all_reference"}], "left_out":
                  {"only_subject": [case], "only_reference", "unjudged", "unjudged_subject",
                  "unjudged_reference"}, "turned": {"broke": [case], "mended", "flaky"},
                  "stopped": {"used", "planned", "decided", "futile"} | null, "sentence"}],
 "gate": {"verdict": met | missed | unknown, "exit_code", "sentence", "baseline": {"name" (a run's
          id, or a path), "verdict", "sentence", "max_drop", "difference" (now less then),
          "interval", "confidence", "cases", "if_errors": [least, most] | null, "more_cases",
          "dropped_variants": [{"variant", "difference", "interval", "confidence", "cases"}],
          "only_now", "only_baseline", "unjudged"} | null},
 "trials": [{"index", "case", "variant": {axis: value}, "repeat", "outcome", "passed", "score",
             "grades": [{"grader", "score", "passed", "reason", "agreement"}], "attempts",
             "duration_s", "queued_s", "usage": {...}, "cost_usd", "calls", "cached",
             "cost_unknown", "judging": {"usage", "cost_usd", "calls", "cached", "cost_unknown"} |
             null, "retries": {outcome: attempts}, "retry_errors": [{"kind", "message",
             "lasting"}], "unended", "output", "error": {"kind", "message", "lasting" (another try
             would end the same way)} | null, "artifacts": {...}, "exit_code", "notes": [...],
             "activity": {"turns", "tells_tools", "tools": [{"name", "server", "calls",
             "failed"}], "mcp": {server: connected | failed | unknown},
             "session", "version", "model"} | null, "change": {"files_added", "files_changed",
             "files_deleted", "binary_files", "lines_added", "lines_deleted", "files": [{"path",
             "status", "lines_added", "lines_deleted", "binary"}], "tampering": [...], "unknown"} |
             null, "cpu_s", "memory_bytes"}]}

`running`: an engine worked on it when this was written, so that a gate is not judged yet. With
`stop` a run may end before its plan, and only what holds at any time is claimed of it. `parts` tell
what changed between two runs of a suite.

`passed` is null for a trial without a verdict; its `score` is the mean over all graders, of which
one that was not asked, since the answer had failed already, counts as 0. A trial's
`duration_s` is that of all its attempts, so that they add up to `serial_s`; a number that JSON
cannot say (NaN, infinity) is null. `retries` decided nothing; `unended` are attempts whose engine
was stopped.

In the summary, `pass_rate` is that of a case over its judged repeats, and the mean of those over
cases and variants: `passed` of the judged where all have as many judged repeats. The rates if
errors failed or passed are the same mean, with errors as verdicts. The interval takes the case as
unit, at 95 %: repeats of a case make it narrower only as far as they differ. `score` is the mean of
the cases' mean scores, with Student's interval over the cases; null where nothing has a score, and
the interval where the cases don't tell how much they vary. `median_s` and `p95_s` are of judged
trials, all attempts of each together: `timeouts`, of which the first ended after `timeout_s`, would
have taken longer and are not in them. `tokens` are the target's, input and output; `tool_calls`
those of agents that tell them (over `trials_telling_tools` it is calls a trial); both are null
where nobody told.

Costs are of all attempts, in US dollars. `cost_usd` is the target's; judges stand apart. It is what
is known, and null where nothing is: with `cost_unknown`, or `trials_of_unknown_cost` above 0, it is
a lower bound, since some call was of a model without a price, told no tokens, or never ended.
`cached` answers were free, and no `calls`; `calls` are null where an agent does not report them.
`dropped_cost_usd` was spent, judges included, on trials that changed or left the suite since: a
budget counts it, the summary does not.

`comparisons` are those of the run's own variants: value against value of an axis, the others held
equal, subject less reference, in shares (0.12: twelve points), over cases that are judged on both
sides. `passing` is of pass rates, `score` of scores where they say more than pass and fail;
`adjusted_p` makes up for `among` comparisons of the same axis. `detectable` is the smallest
difference that so many cases show 80 % of the time, `if_errors` what the mean could be whatever
errors hide, `seconds` and `cost` ratios over judged trials (`timeouts_subject` and
`timeouts_reference` are in no time), `pass_at` how likely any and all of k repeats pass. Of a run
that may stop early they are from the cases that count by then (`stopped`), and hold however often
one looked.

`activity` is of agents, `change` of attempts with a workspace; both are of the attempt that
decided. In `agents`, `handed` are trials that were handed a server and told what they did, `called`
those that called a tool of it without an error, and `calls` such calls; a server that was `handed`
to no trial was called all the same. Where `telling` is 0, the agent does not tell its tools. Where
a change's `unknown` says why not all of it is known, its numbers are lower bounds, and in no median
of `changes`, which are null where nothing else is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from paraval.records import (
    AttemptResult,
    Failure,
    Grade,
    Outcome,
    RunInfo,
    Spend,
    TrialResult,
)
from paraval.report.baseline_gate import drop_as_dict
from paraval.report.compare.sentences import as_json, comparison_as_dict
from paraval.report.contents import Contents
from paraval.report.gate import Gate
from paraval.report.summary.costs import (
    Costs,
    finite,
    is_known,
    seconds,
    spend_of,
    told_usd,
    usage_of,
)
from paraval.report.summary.summary import Summary, Tally
from paraval.report.summary.tool_activity import ServerUse, ToolActivity
from paraval.text.terminal import well_formed

# What trials did, for programs: the parts of the JSON report that tell it.


def attempt_deeds(end: AttemptResult) -> dict[str, Any]:
    """Of one attempt."""
    return {
        "activity": as_json(end.activity),
        "change": as_json(end.change),
        "cpu_s": seconds(end.cpu_s),
        "memory_bytes": end.memory_bytes,
    }


def summed_deeds(deeds: ToolActivity) -> dict[str, Any]:
    """Of the trials of a variant, or of a run."""
    return {
        "agents": _agents(deeds) if deeds.agents else None,
        "changes": as_json(deeds.changes),
        "cpu_s": seconds(deeds.cpu_s),
        "most_memory_bytes": deeds.most_memory_bytes,
    }


def _agents(deeds: ToolActivity) -> dict[str, Any]:
    return {
        "trials": deeds.agents,
        "trials_telling_tools": deeds.telling,
        "median_turns": deeds.median_turns,
        "other_calls": deeds.other_calls,
        "mcp": {well_formed(name): _server(use) for name, use in deeds.servers.items()},
    }


def _server(use: ServerUse) -> dict[str, Any]:
    return {**as_json(use), "never_called": use.is_never_called}


SCHEMA = 1


class AsJson:
    """Written trial by trial, so that its size is bounded by the disk alone."""

    def write(self, contents: Contents, file: TextIO) -> None:
        file.write("{")
        file.writelines(f'"{key}": {to_json(value)},\n ' for key, value in _head(contents).items())
        file.write('"trials": [')
        for number, result in enumerate(contents.trials):
            file.write(",\n  " if number else "\n  ")
            file.write(to_json(trial_as_dict(result)))
        file.write("]}\n")


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def document(contents: Contents) -> dict[str, Any]:
    """The whole report at once; for a run whose trials fit in memory."""
    return {**_head(contents), "trials": [trial_as_dict(result) for result in contents.trials]}


def trial_as_dict(result: TrialResult) -> dict[str, Any]:
    end = result.result
    return {
        "index": result.index,
        "case": well_formed(result.case_id),
        "variant": as_json(result.variant),
        "repeat": result.repeat,
        "outcome": end.outcome.value,
        "passed": end.outcome is Outcome.PASSED if end.outcome.is_judged else None,
        "score": finite(end.score),
        "grades": [_grade_as_dict(grade) for grade in end.grades],
        "attempts": result.attempts,
        "duration_s": seconds(result.total_s),
        "queued_s": seconds(result.queued_s),
        **_spend_as_dict(spend_of(result), usage_of(result)),
        "judging": None
        if result.judging is None
        else _spend_as_dict(result.judging, result.judging.usage),
        "retries": {kind.value: number for kind, number in result.retries.items()},
        "retry_errors": [_error_as_dict(error) for error in result.retry_errors],
        "unended": result.unended,
        "output": None if end.output is None else well_formed(end.output.text),
        "error": None if end.error is None else _error_as_dict(end.error),
        "artifacts": as_json(end.artifacts),
        "exit_code": end.exit_code,
        "notes": [well_formed(note) for note in end.notes],
        **attempt_deeds(end),
    }


def moment(epoch_s: float | None) -> str | None:
    """`2026-01-31T12:00:00.000Z`."""
    if epoch_s is None:
        return None
    told = datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
    return told.removesuffix("+00:00") + "Z"


def _head(contents: Contents) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "run": _run_as_dict(contents.run),
        "summary": _summary_as_dict(contents.summary),
        "comparisons": [comparison_as_dict(one) for one in contents.comparisons],
        "gate": _gate_as_dict(contents.gate),
    }


def _run_as_dict(run: RunInfo) -> dict[str, Any]:
    return {
        "id": run.id,
        "suite": well_formed(run.suite),
        "started_at": moment(run.started_at),
        "ended_at": moment(run.ended_at),
        "wall_s": seconds(run.wall_s),
        "parallel": run.parallel,
        "resumed": run.resumed,
        "interrupted": run.interrupted,
        "held_back": run.held_back,
        "running": run.running,
        "planned": run.trials,
        "seed": run.seed,
        "fail_under": finite(run.fail_under),
        "dropped_cost_usd": _dollars(run.dropped_usd or (None if run.dropped_unknown else 0.0)),
        "dropped_cost_unknown": run.dropped_unknown,
        "stop": as_json(run.stop),
        "baseline": as_json(run.baseline),
        "parts": as_json(run.parts),
    }


def _summary_as_dict(summary: Summary) -> dict[str, Any]:
    figures = _tally_as_dict(summary)
    speedup = finite(summary.speedup)
    figures["speedup"] = None if speedup is None else round(speedup, 6)
    figures["variants"] = [
        {"variant": as_json(one.variant), **_tally_as_dict(one)} for one in summary.variants
    ]
    return figures


def _tally_as_dict(tally: Tally) -> dict[str, Any]:
    return {
        **rates_as_dict(tally),
        "errors_by_kind": dict(tally.errors_by_kind),
        "serial_s": seconds(tally.serial_s),
        "timeout_s": seconds(tally.timeout_s),
        "answers_cut": tally.answers_cut,
        "trials_without_cost": tally.trials_without_cost,
        **_costs_as_dict(tally.target),
        "tokens": tally.tokens,
        "tool_calls": tally.tool_calls,
        "judging": _costs_as_dict(tally.judging),
        "total_cost_usd": _dollars(tally.total_cost_usd),
        "skipped_by_reason": as_json(tally.skipped_by_reason),
        "retries_by_kind": dict(tally.retries_by_kind),
        **summed_deeds(tally.deeds),
    }


def rates_as_dict(tally: Tally) -> dict[str, Any]:
    """What reports, comparisons and histories tell alike."""
    interval, scores = tally.pass_rate_interval, tally.score_interval
    return {
        "trials": tally.trials,
        "passed": tally.passed,
        "failed": tally.failed,
        "errors": tally.errors,
        "skipped": tally.skipped,
        "cases": tally.cases,
        "pass_rate": tally.pass_rate,
        "pass_rate_interval": None if interval is None else list(interval),
        "rate_if_errors_failed": tally.rate_if_errors_failed,
        "rate_if_errors_passed": tally.rate_if_errors_passed,
        "score": finite(tally.score),
        "score_interval": None if scores is None else list(scores),
        "median_s": seconds(tally.median_s),
        "p95_s": seconds(tally.p95_s),
        "timeouts": tally.timeouts,
    }


def _costs_as_dict(costs: Costs) -> dict[str, Any]:
    return {
        "cost_usd": _dollars(costs.usd),
        "trials_of_unknown_cost": costs.unpriced,
        "calls": None if costs.calls_unknown else costs.calls,
        "cached": costs.cached,
        "usage": _usage_as_dict(costs.usage),
    }


def _usage_as_dict(usage: Mapping[str, float]) -> dict[str, float | None]:
    return {well_formed(name): finite(amount) for name, amount in usage.items()}


def _gate_as_dict(gate: Gate) -> dict[str, Any]:
    return {
        "verdict": gate.verdict.value,
        "exit_code": gate.exit_code,
        "sentence": gate.sentence,
        "baseline": None if gate.baseline is None else drop_as_dict(gate.baseline),
    }


def _spend_as_dict(spend: Spend | None, usage: Mapping[str, float]) -> dict[str, Any]:
    return {
        "usage": _usage_as_dict(usage),
        "cost_usd": _dollars(told_usd(spend)),
        "calls": _calls(spend),
        "cached": 0 if spend is None else spend.cached,
        "cost_unknown": spend is not None and not is_known(spend),
    }


def _calls(spend: Spend | None) -> int | None:
    if spend is None:
        return 0
    return None if spend.calls_unknown else spend.calls


def _grade_as_dict(grade: Grade) -> dict[str, Any]:
    return {
        "grader": well_formed(grade.grader),
        "score": finite(grade.score),
        "passed": grade.passed,
        "reason": well_formed(grade.reason),
        "agreement": finite(grade.agreement),
    }


def _error_as_dict(error: Failure) -> dict[str, Any]:
    message = well_formed(error.message)
    return {"kind": error.kind.value, "message": message, "lasting": error.lasting}


def _dollars(value: float | None) -> float | None:
    """To a thousand-millionth: a sum without the dust of its additions."""
    number = finite(value)
    return None if number is None else round(number, 9)


# JSON Lines: the trials of the JSON report, one a line, in plan order, and nothing else.


class AsJsonLines:
    def write(self, contents: Contents, file: TextIO) -> None:
        file.writelines(to_json(trial_as_dict(result)) + "\n" for result in contents.trials)
