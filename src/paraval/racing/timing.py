"""One benchmark process: how it is started, and what it was worth.

Everything that takes time is done before, for all processes of a block: between two of them there
is no git, no commit and no search, only the removal of a metric file.
"""

from __future__ import annotations

import os
import random
import string
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from paraval.environment import child_environment
from paraval.isolation import Home
from paraval.processes.children import Command, Ended
from paraval.racing.findings import Sample
from paraval.racing.metrics import MetricFile, sample_of
from paraval.racing.request import BenchSpec, Metric, RaceRequest
from paraval.racing.stands import Stand
from paraval.records import Attempt, Failure, Outcome
from paraval.targets.answer import InvalidOutputError, seconds
from paraval.targets.command import attempt_marks
from paraval.targets.ends import artifacts_of, unexpected_end
from paraval.targets.surroundings import ProcessRoom, own_places

LOG_LIMIT_BYTES = 256 << 10
"""Of each stream of each process: a race has hundreds of them."""
PADDING_VARIABLE = "PARAVAL_PADDING"
MOST_PADDING = 4096
"""Where the environment ends decides where a program's stack begins, by up to a page: left alone,
it would make one side faster by luck, and the same side every time."""
HASH_SEEDS = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What chance decides about a process, so that it decides for no side."""

    hash_seed: int = 0
    padding: int = 0


def chances(seed: str, pairs: int) -> tuple[tuple[Chance, Chance], ...]:
    """For pairs of a process of each side: dicts and sets in the same order, each its own layout.

    The same for the same seed, so that a resume measures alike.
    """
    drawn = random.Random(seed)  # noqa: S311 - nothing secret
    found = []
    for _ in range(pairs):
        hash_seed = drawn.randrange(1, HASH_SEEDS)
        one, other = drawn.randrange(MOST_PADDING), drawn.randrange(MOST_PADDING)
        found.append(
            (
                Chance(hash_seed=hash_seed, padding=one),
                Chance(hash_seed=hash_seed, padding=other),
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A process that is ready to be started."""

    stand: Stand
    command: Command
    spec: BenchSpec
    file: MetricFile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A process that has ended: exactly one of `sample` and `failure` is there."""

    start: Start
    ended: Ended
    ended_at: float
    sample: Sample | None = None
    failure: Failure | None = None

    @property
    def logs(self) -> dict[str, str]:
        return artifacts_of(self.start.command, self.ended)


class Timing:
    """Starts the benchmark of a race, one process at a time."""

    def __init__(
        self,
        request: RaceRequest,
        processes: ProcessRoom,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request = request
        self._processes = processes
        self._clock = clock

    def ready(
        self, attempt: Attempt, stand: Stand, name: str, chance: Chance, cpus: tuple[int, ...]
    ) -> Start:
        """`name`: of its logs, unique in the attempt."""
        spec = self._request.bench
        here = replace(attempt, workspace=stand.path)
        command = Command(
            argv=spec.command,
            env=self._environment(here, stand, chance),
            cwd=stand.path,
            stdout=f"{attempt.folder}/{name}.stdout.log",
            stderr=f"{attempt.folder}/{name}.stderr.log",
            timeout=spec.timeout,
            log_limit=LOG_LIMIT_BYTES,
            # Not nice as tests are, nor tagged: what yields to others measures the others, and to
            # be counted meanwhile is to be disturbed.
            nice=0,
            cpus=cpus,
            sandbox=self._processes.sandbox_for(here, stand.own),
        )
        file = None
        if spec.metric is Metric.FILE:
            assert spec.file is not None
            file = MetricFile(spec.file, stand.path, stand.top)
        if self._processes.imports is not None:
            command = self._processes.imports.first(command, stand.path)
        return Start(stand=stand, command=command, spec=spec, file=file)

    async def time(self, start: Start) -> Timed:
        """Run it to its end; a cancel is heard when nothing of it is left."""
        try:
            if start.file is not None:
                start.file.clear()
        except InvalidOutputError as error:
            failure = Failure(kind=Outcome.INVALID_OUTPUT, message=str(error))
            return Timed(start=start, ended=Ended(), ended_at=self._clock(), failure=failure)
        ended = await self._processes.warden.run(start.command)
        ended_at = self._clock()
        failure_or_none = _failure_of(ended, start)
        sample = None
        if failure_or_none is None:
            try:
                sample = sample_of(ended, start.spec, start.file)
            except InvalidOutputError as error:
                failure_or_none = Failure(kind=Outcome.INVALID_OUTPUT, message=str(error))
        return Timed(
            start=start, ended=ended, ended_at=ended_at, sample=sample, failure=failure_or_none
        )

    def _environment(self, attempt: Attempt, stand: Stand, chance: Chance) -> dict[str, str]:
        by_chance = {
            "PYTHONHASHSEED": str(chance.hash_seed),
            PADDING_VARIABLE: string.ascii_lowercase[0] * chance.padding,
        }
        return child_environment(
            {**own_places(stand.own, Home.OWN), **by_chance, **self._request.env},
            self._request.pass_env,
            attempt_marks(self._processes.run_id, attempt),
        )


def _failure_of(ended: Ended, start: Start) -> Failure | None:
    if ended.failure is None and ended.timed_out:
        message = f"not done after {seconds(start.spec.timeout)}; ended"
        return Failure(kind=Outcome.TIMEOUT, message=message)
    if ended.failure is None and ended.cancelled:
        return Failure(kind=Outcome.INFRA_ERROR, message="ended before it was done")
    if ended.failure is None and ended.exit_code == 0:
        return None
    return unexpected_end(ended, start.command.stderr)


def own_cpus() -> tuple[int, ...]:
    """Those that this process may use, by number; empty where a system does not tell."""
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:
        return ()
