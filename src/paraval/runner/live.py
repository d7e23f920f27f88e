"""A run seen and changed from outside while it lasts: its status in `live.json`, and the commands
that other processes put into `commands/`, both in the run's folder.

The engine's side is `LiveRun`, an observer. Other processes use `read_live` and `send_command`.
Neither file outlives the run: after a `kill -9`, the run's lock shows that `live.json` is stale,
and a resume removes it along with commands that nobody took.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.codec import shown
from paraval.errors import RequestError
from paraval.execute.driver import Driver
from paraval.execute.listeners import waits_of
from paraval.plain_files import PlainFileError, read_plain_file
from paraval.records import (
    CANCELED,
    Attempt,
    AttemptEnded,
    AttemptResult,
    AttemptStarted,
    Capacity,
    Happening,
    Notice,
    RunChanged,
    RunStarted,
    TrialEnded,
    TrialSkipped,
)
from paraval.runner.resources import at_once_with_files
from paraval.schedule.messages import MACHINE, SLOT, LimitUse, Standing
from paraval.settings import AUTO_MOST, Parallel
from paraval.store.ledger import Ledger
from paraval.store.locks import is_worked_on, read_owner
from paraval.text.terminal import one_line
from paraval.text.words import money, rough_time

LIVE_FILE = "live.json"
COMMANDS = "commands"
EVERY_S = 0.5
"""How often, at most, the status is written and commands are taken."""
SHORTEST_TIMED_S = 5.0
"""The end of a shorter wait is not shown."""
MOST_RUNNING = 200
"""Of more running attempts, those that started first are listed."""
LARGEST_LIVE = 4_000_000
LARGEST_COMMAND = 10_000
LONGEST_NAME = 40
LONGEST_LABEL = 60
ANOTHER = "another process"


class Spending:
    """Dollars spent so far, also before the run was resumed."""

    def __init__(self) -> None:
        self.usd = 0.0
        self.budget_usd: float | None = None
        self._has_cost = False
        self._is_partly_unknown = False

    def watch(self, event: Happening) -> None:
        match event:
            case TrialEnded():
                # Only the deciding attempt: those before it were counted as they ended.
                self._add(event.result.result)
            case AttemptEnded():
                self._add(event.result)
            case TrialSkipped(last=AttemptResult() as last):
                self._add(last)
            case RunChanged():
                self.budget_usd = event.budget_usd
                self._has_cost = self._has_cost or event.budget_usd is not None
            case RunStarted():
                self.budget_usd = event.budget_usd
                self.usd = event.spent_usd
                self._is_partly_unknown = event.spent_unknown
                self._has_cost = (
                    event.spent_usd > 0 or event.spent_unknown or event.budget_usd is not None
                )

    def _add(self, result: AttemptResult) -> None:
        for spend in (result.spend, result.judging):
            if spend is None:
                continue
            self._has_cost = True
            if spend.cost_usd is None or not math.isfinite(spend.cost_usd):
                self._is_partly_unknown = True
            if math.isfinite(spend.known_usd):
                self.usd += spend.known_usd

    def __str__(self) -> str:
        """`$0.12`, `$0.12 of $5.00`, `at least $0.12`; empty if nothing has a cost."""
        if not self._has_cost:
            return ""
        if self._is_partly_unknown and not self.usd:
            return "cost unknown"
        spent = f"at least {money(self.usd)}" if self._is_partly_unknown else money(self.usd)
        return spent if self.budget_usd is None else f"{spent} of {money(self.budget_usd)}"


# ---- the engine's side


class Commands:
    """Carries out the commands of other processes."""

    def __init__(
        self,
        ledger: Ledger,
        driver: Driver,
        tell: Callable[[Happening], None],
        widen: Callable[[int], None],
        spending: Spending,
    ) -> None:
        """`widen` makes room for so many attempts at a time."""
        self.ledger = ledger
        self.driver = driver
        self._tell = tell
        self._widen = widen
        self._spending = spending
        self._folder = ledger.folder / COMMANDS
        self._met: set[str] = set()
        """Files that could not be removed: each counts once."""

    def take(self) -> None:
        """Take those that have come, in the order in which they were sent."""
        try:
            names = sorted(path.name for path in self._folder.glob("*.json"))
        except OSError:
            return
        for name in names:
            if name in self._met:
                continue
            self._met.add(name)
            command: Any = None
            with contextlib.suppress(PlainFileError, OSError, ValueError, RecursionError):
                text = read_plain_file(name, LARGEST_COMMAND, within=str(self._folder))
                command = json.loads(text)
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()
                self._met.discard(name)
            by = command.get("by") if isinstance(command, dict) else None
            whose = one_line(by, LONGEST_NAME) if isinstance(by, str) and by else ANOTHER
            if (words := self._do(command, whose)) is not None:
                self._tell(Notice(message=f"{words}."))

    def _do(self, command: Any, whose: str) -> str | None:
        """Do it, and return in words what was done; None: the driver has reported it."""
        match command:
            case {"do": "stop"}:
                if not self.driver.is_stopping:
                    self.driver.stop(f"Stopped by {whose}")
                return None
            case {"do": str()} if not self.ledger.plan.trials:
                return f"Ignored a command by {whose}: a race can only be stopped"
            case {"do": "cancel", "index": int(index)}:
                return self._cancel(index, whose)
            case {"do": "parallel", "value": "auto" | int() as value} if (
                value == "auto" or value > 0
            ):
                return self._change_parallel(value, whose)
            case {"do": "budget", "value": int() | float() as usd} if 0.0 <= usd < math.inf:
                return self._change_budget(float(usd), whose)
        return f"Ignored a command by {whose} that this version of paraval does not know"

    def _cancel(self, index: int, whose: str) -> str:
        trials = self.ledger.plan.trials
        if not 0 <= index < len(trials):
            return f"Ignored a command by {whose}: there is no trial {index}"
        trial = trials[index]
        if not self.driver.cancel(index, CANCELED):
            return f"Cannot cancel {trial.label}: it is over"
        return f"Canceled by {whose}: {trial.label}"

    def _change_parallel(self, value: Parallel, whose: str) -> str:
        auto, plan = value == "auto", self.ledger.plan
        parallel = AUTO_MOST if value == "auto" else value
        limits = replace(plan.limits, auto=auto, parallel=min(parallel, len(plan.trials)))
        at_once = at_once_with_files(replace(plan, limits=limits))
        self._widen(at_once)
        self.ledger.change(limits, parallel=value)
        self.driver.change_parallel(at_once, auto=auto)
        self._tell_changes(self._spending.budget_usd)
        return f"Parallel set to {value} by {whose}"

    def _change_budget(self, usd: float, whose: str) -> str:
        self.ledger.change(self.ledger.plan.limits, budget_usd=usd)
        self.driver.change_budget(usd, self._spending.usd)
        self._tell_changes(usd)
        return f"Budget set to {money(usd)} by {whose}"

    def _tell_changes(self, budget_usd: float | None) -> None:
        limits = self.ledger.plan.limits
        changed = RunChanged(parallel=limits.parallel, auto=limits.auto, budget_usd=budget_usd)
        self._tell(changed)


class LiveRun:
    """Keeps the status of a run up to date. Never raises for what is on disk: a run goes on without
    a status."""

    def __init__(self) -> None:
        self.spending = Spending()
        self._running: dict[int, tuple[Attempt, float]] = {}
        self._held_by: str | None = None
        self._done = 0
        self._total = 0
        self._message = ""
        self._written: dict[str, Any] = {}
        self._next_at = -math.inf
        self._commands: Commands | None = None

    def __call__(self, event: Happening) -> None:
        self.spending.watch(event)
        match event:
            case AttemptStarted(attempt=attempt):
                self._running[attempt.trial.index] = (attempt, time.time())
            case AttemptEnded(attempt=attempt):
                self._running.pop(attempt.trial.index, None)
            case TrialEnded():
                self._done, self._total = event.done, event.total
                self._running.pop(event.trial.index, None)
            case TrialSkipped():
                self._running.pop(event.trial.index, None)
            case Capacity(node=None):
                self._held_by = event.held_by
            case Notice():
                self._message = event.message
            case RunStarted():
                self._done, self._total = event.already_done, event.total

    @contextlib.contextmanager
    def of(self, commands: Commands) -> Iterator[None]:
        """Write the status of this run, and take its commands, as long as this lasts."""
        folder = commands.ledger.folder
        self._commands = commands
        _remove(folder)
        try:
            yield
        finally:
            self._commands = None
            _remove(folder)

    def tick(self, now: float) -> None:
        """Call this several times a second, with the value of time.monotonic()."""
        commands = self._commands
        if commands is None or now < self._next_at:
            return
        self._next_at = now + EVERY_S
        commands.take()
        status = self._status(commands.ledger, commands.driver)
        if status != self._written:
            self._written = status
            as_of_now = {"at": time.time(), "eta_s": commands.driver.eta_s(), **status}
            with contextlib.suppress(OSError):
                _write(commands.ledger.folder / LIVE_FILE, as_of_now)

    def _status(self, ledger: Ledger, driver: Driver) -> dict[str, Any]:
        """All but what changes by itself as time passes."""
        limits, standing = ledger.plan.limits, driver.standing()
        running = list(self._running.values())[:MOST_RUNNING]
        return {
            "pid": os.getpid(),
            "parallel": "auto" if limits.auto else limits.parallel,
            "allowed": standing.allowed,
            "in_flight": len(self._running),
            "running": [_running(attempt, since) for attempt, since in running],
            "waiting": list(_waiting(standing, self._held_by)),
            "limits": [_limit(use) for use in standing.limits],
            "done": self._done,
            "total": self._total,
            "spent_usd": self.spending.usd,
            "budget_usd": self.spending.budget_usd,
            "stopping": driver.is_stopping,
            "message": self._message,
        }


def _running(attempt: Attempt, since: float) -> dict[str, Any]:
    trial = attempt.trial
    return {
        "index": trial.index,
        "label": trial.label,
        "case": trial.case.id,
        "variant": dict(trial.variant),
        "repeat": trial.repeat,
        "attempt": attempt.number,
        "started_at": since,
        "node": attempt.node,
    }


def _limit(use: LimitUse) -> dict[str, Any]:
    return {
        "name": use.name,
        "in_flight": use.in_flight,
        "limit": use.limit,
        "rate_per_minute": use.requests_per_minute,
        "tokens_per_minute": use.tokens_per_minute,
        "held_until": _held_until(use),
    }


def _held_until(use: LimitUse) -> int | None:
    """In seconds since the epoch; whole ones, since the clocks drift apart."""
    if use.held_until is None:
        return None
    return round(time.time() + use.held_until - time.monotonic())


def _waiting(standing: Standing, held_by: str | None) -> Iterator[dict[str, Any]]:
    """What trials wait for, and why."""
    for name in (MACHINE, SLOT):
        if trials := standing.waiting.get(name):
            is_machine = name == MACHINE or held_by is not None
            why = f"{standing.allowed} may run in parallel"
            if is_machine:
                why = f"limited by {held_by or 'memory or cores'}"
            yield {"for": MACHINE if is_machine else name, "trials": trials, "why": why}
    for wait in waits_of(standing, time.monotonic()):
        why = wait.why
        if wait.next_s is not None and wait.next_s >= SHORTEST_TIMED_S:
            # A time of day, which does not change from one status to the next.
            at = time.localtime(round(time.time() + wait.next_s))
            why = f"{why}, until {time.strftime('%H:%M:%S', at)}"
        yield {"for": wait.name, "trials": wait.trials, "why": why}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """By rename, so that a reader sees all of it or none."""
    try:
        text = json.dumps(content, allow_nan=False)
    except ValueError:
        text = json.dumps(shown(content))
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(text)
    unfinished.replace(path)


def _remove(folder: Path) -> None:
    for name in (LIVE_FILE, f"{LIVE_FILE}.tmp"):
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    shutil.rmtree(folder / COMMANDS, ignore_errors=True)


# ---- the side of other processes


def live_lines(live: Mapping[str, Any]) -> Iterator[str]:
    """A status in words, for a terminal."""
    now, left_s, budget_usd = time.time(), time_left_s(live), live["budget_usd"]
    parts = [
        f"{live['done']:,} of {live['total']:,} done",
        f"{live['in_flight']:,} running (at most {live['allowed']:,})",
        "" if left_s is None else f"ETA {rough_time(left_s)}",
        f"{money(live['spent_usd'])} spent" if live["spent_usd"] else "",
        "" if budget_usd is None else f"budget {money(budget_usd)}",
        "stopping" if live["stopping"] else "",
    ]
    yield ", ".join(filter(None, parts))
    for one in live["running"]:
        since = rough_time(max(0.0, now - one["started_at"]))
        where = "" if one["node"] is None else f" on {one['node']}"
        yield f"  {one_line(one['label'], LONGEST_LABEL)}  running for {since}{where}"
    for one in live["waiting"]:
        yield f"{one['trials']:,} waiting for {one['for']}: {one['why']}"


def time_left_s(live: Mapping[str, Any]) -> float | None:
    """From now to the end; None if unknown, as after a refusal or if the budget is used up."""
    eta_s, budget_usd = live.get("eta_s"), live.get("budget_usd")
    if eta_s is None or (budget_usd is not None and live["spent_usd"] >= budget_usd):
        return None
    left_s: float = live["at"] + eta_s - time.time()
    is_held = any(one.get("held_until") for one in live["limits"])
    # The estimate of a run in which everything waits is too low.
    is_stuck = not live["in_flight"] and live["waiting"] and (is_held or left_s < 1)
    return None if is_stuck else max(0.0, left_s)


def read_live(folder: Path) -> dict[str, Any] | None:
    """The status of a run that an engine works on; None: no engine does, or it has written none.

    `at` is when it was written (seconds since the epoch), which may be long ago: it is written only
    when something has changed, and `eta_s` counts from then.
    """
    if not is_worked_on(folder):
        return None
    try:
        live = json.loads(read_plain_file(LIVE_FILE, LARGEST_LIVE, within=str(folder)))
    except (PlainFileError, OSError, ValueError, RecursionError):
        return None
    # An engine that was killed leaves its own behind, for the one that resumes the run.
    is_current = isinstance(live, dict) and live.get("pid") == read_owner(folder).get("pid")
    return live if is_current else None


def require_live(folder: Path) -> dict[str, Any]:
    """As `read_live`; raises RequestError where that returns None."""
    live = read_live(folder)
    if live is None and is_worked_on(folder):
        why = "it has only just started, or it is a pytest session"
        raise RequestError(f"run {folder.name} cannot be controlled: {why}")
    if live is None:
        raise RequestError(f"run {folder.name} is not running", hint="list runs: paraval runs")
    return live


def send_command(folder: Path, command: Mapping[str, Any]) -> None:
    """Ask the engine that works on a run to change it, within a second: `{"do": "stop"}`, `{"do":
    "cancel", "index": 7}`, `{"do": "parallel", "value": 8}` or `"auto"`, `{"do": "budget", "value":
    5.0}`. With `by`, the notice in its terminal names the sender. Raises RequestError if there is
    no engine that takes commands."""
    require_live(folder)
    commands = folder / COMMANDS
    try:
        commands.mkdir(exist_ok=True)
        # In the order in which they were sent.
        _write(commands / f"{time.time_ns()}-{secrets.token_hex(4)}.json", command)
    except OSError as error:
        # The run may have just ended, and its folder for commands with it.
        raise RequestError(f"run {folder.name} cannot be controlled: {error.strerror}") from error
