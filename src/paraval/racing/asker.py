"""Asks the hooks of a race: generate, repair and refine, each a program or a function of Python.

What they propose joins the race while they still run. Which candidates they are asked about, and
how often, is the course's to decide.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paraval.errors import ParavalError
from paraval.processes.children import Command, Ended
from paraval.racing.hook_ask import (
    ask_of,
    document_of,
    nobody_stands,
    stdin_of,
)
from paraval.racing.hook_function import call_hook, within
from paraval.racing.hook_heard import Heard
from paraval.racing.hook_program import failure_of_hook, hook_command, run_listening
from paraval.racing.performing import RaceRoom, broke, found
from paraval.racing.standings import Standings
from paraval.racing.steps import Step
from paraval.records import Attempt, AttemptResult, CommandTarget, Failure, Outcome
from paraval.targets.answer import seconds
from paraval.targets.capture import Logs, captured, routed_streams
from paraval.targets.ends import artifacts_of, notes_of
from paraval.targets.function import failure_of
from paraval.threads import FunctionExit, Threads


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """How a call ended, beside what it proposed."""

    failure: Failure | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the attempt's result."""


class Asker:
    """Performs generate, repair and refine; a StepPerformer."""

    def __init__(self, room: RaceRoom, standings: Callable[[], Standings] | None = None) -> None:
        """`standings`: how the race stands at any moment, for functions that ask."""
        self._room = room
        self._standings = nobody_stands
        if standings is not None:
            self._standings = lambda: standings().candidates
        self._threads = Threads()
        self._heard: dict[int, Heard] = {}
        """By the index of the trial: another attempt must not propose the same again."""

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        began = time.perf_counter()
        index = attempt.trial.index
        heard = self._heard.setdefault(index, Heard(self._room, step))
        heard.begin_attempt()
        try:
            said = await self._ask(attempt, step, heard)
        finally:
            heard.end_attempt()
        more = {**said.more, "duration_s": time.perf_counter() - began, "spend": heard.spend}
        if said.failure is None:
            del self._heard[index]
            return found(heard.finding, **more)
        failure = said.failure
        result = broke(failure.kind, failure.message, finding=heard.finding, **more)
        return replace(result, error=failure)

    async def close(self) -> None:
        self._threads.close()

    async def _ask(self, attempt: Attempt, step: Step, heard: Heard) -> _Said:
        target = attempt.trial.target
        assert isinstance(target, CommandTarget)
        os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
        document = document_of(step, self._room)
        if target.command:
            return await self._ask_program(attempt, stdin_of(document), heard)
        kind = step.kind.value
        function = self._room.functions.get(kind)
        if function is None:
            return _Said(failure=_no_function(kind))
        ask = ask_of(document, attempt.own_folder, self._standings)
        logs = Logs(attempt.folder)
        with routed_streams(), captured(logs):
            work = call_hook(function, ask, heard.take_item, self._threads)
            failure = await self._failure_of(work, target, logs)
        return _Said(failure=failure, more={"artifacts": logs.close()})

    # ---- programs

    async def _ask_program(self, attempt: Attempt, stdin: bytes, heard: Heard) -> _Said:
        processes = self._room.processes
        if processes.homes is None:
            command = hook_command(attempt, processes, None, stdin)
            return _end_of(command, await run_listening(processes.warden, command, heard.take))
        async with processes.homes.lease() as own:
            command = hook_command(attempt, processes, own, stdin)
            return _end_of(command, await run_listening(processes.warden, command, heard.take))

    # ---- functions

    async def _failure_of(self, work: Any, target: CommandTarget, logs: Logs) -> Failure | None:
        """What a function's call came to; None: to a good end."""
        try:
            in_time = await within(work, target.timeout)
        except (Exception, GeneratorExit) as error:  # noqa: BLE001 - whatever it raised is its result
            if not isinstance(error, ParavalError | FunctionExit):
                logs.write_traceback(error)
            return failure_of(error)
        if in_time:
            return None
        assert target.timeout is not None
        return Failure(
            kind=Outcome.TIMEOUT, message=f"not done after {seconds(target.timeout)}; left behind"
        )


def _end_of(command: Command, ended: Ended) -> _Said:
    more = {
        "exit_code": ended.exit_code,
        "artifacts": artifacts_of(command, ended),
        "notes": notes_of(ended),
        "cpu_s": ended.cpu_s,
        "memory_bytes": ended.memory_bytes,
    }
    return _Said(failure=failure_of_hook(ended, command), more=more)


def _no_function(kind: str) -> Failure:
    return Failure(
        kind=Outcome.CRASHED,
        message=f"the race's `{kind}` is a function of Python, and is not here;"
        " go on with the race from the program that began it",
        lasting=True,
    )
