"""One benchmark process: how it is started, and what it was worth by the clock, the CPU or its own
figures.

Everything that takes time is done before, for all processes of a block: between two of them there
is no git, no commit and no search, only the removal of a metric file.
"""

from __future__ import annotations

import math
import os
import random
import string
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paraval.documents.json import parse_strictly
from paraval.environment import child_environment
from paraval.processes.children import Command, ProcessEnd
from paraval.racing.correctness.outputs import FOLDER, WORKTREE, RunFolders
from paraval.racing.findings import Sample
from paraval.racing.request import TOTAL, BenchMetric, BenchSpec, RaceRequest
from paraval.racing.speed.measurement_worktrees import MeasurementWorktree
from paraval.records import Attempt, Failure, Home, Outcome
from paraval.targets.answer import InvalidOutputError, read_plain_file, seconds
from paraval.targets.command import ProcessRoom, attempt_marks, own_places
from paraval.targets.process_ends import artifacts_of, unexpected_end
from paraval.text.words import some

# What a benchmark process is worth: its seconds by the clock, of CPU, or as it tells them itself.

LEAST_S, MOST_S = 1e-9, 1e9
"""Outside of these, no benchmark was measured: a counter that was never started, a time of day."""
MOST_CASES = 1000
LONGEST_NAME = 200
SHORT_S = 1e-3
"""A process that takes less shows little but how long a process takes to start."""
SHOWN_NAMES = 3


def sample_of(ended: ProcessEnd, spec: BenchSpec, file: MetricFile | None) -> Sample:
    """What one process that ended well measured; InvalidOutputError where that is nothing."""
    if spec.metric is BenchMetric.WALL:
        return {TOTAL: _seconds("the time that it took", ended.wall_s)}
    if spec.metric is BenchMetric.CPU:
        return {TOTAL: _seconds("the CPU time that it took", ended.cpu_s)}
    assert file is not None
    return file.read()


class MetricFile:
    """The JSON file that a benchmark writes: seconds by the name of a case."""

    def __init__(self, name: str, folder: str, top: str) -> None:
        """`folder`: where the benchmark runs; `top`: the worktree, which the file is in."""
        self._name = name
        self._path = os.path.join(folder, name)  # noqa: PTH118 - text, and quick
        self._top = os.path.realpath(top)

    def clear(self) -> None:
        """Take away what an earlier process wrote, so that what is there later is this one's."""
        # A folder on the way may have become a link to one that is not the candidate's to empty.
        real = os.path.realpath(os.path.dirname(self._path))  # noqa: PTH120 - text, and quick
        if real != self._top and not real.startswith(f"{self._top}/"):
            raise InvalidOutputError(f"'{self._name}' lies outside of its worktree")
        try:
            os.unlink(self._path)  # noqa: PTH108 - quick
        except FileNotFoundError:
            return
        except OSError as error:
            reason = f"'{self._name}' cannot be written anew: {error.strerror}"
            raise InvalidOutputError(reason) from error

    def read(self) -> Sample:
        if not os.path.lexists(self._path):
            raise InvalidOutputError(f"it did not write '{self._name}'")
        try:
            told = parse_strictly(read_plain_file(self._path).decode())
        except UnicodeDecodeError:
            raise InvalidOutputError(f"'{self._name}' is not valid UTF-8") from None
        except InvalidOutputError:
            raise
        except ValueError as error:
            raise InvalidOutputError(f"'{self._name}' is not JSON: {error}") from None
        return _checked(told, self._name)


def _checked(told: Any, name: str) -> Sample:
    if not isinstance(told, dict) or not told:
        raise InvalidOutputError(f"'{name}' must hold an object of seconds by name")
    if len(told) > MOST_CASES:
        raise InvalidOutputError(f"'{name}' tells of {len(told):,} cases; {MOST_CASES:,} at most")
    long = next((case for case in told if len(case) > LONGEST_NAME), None)
    if long is not None:
        reason = f"'{name}' has a name of {len(long):,} characters; {LONGEST_NAME} at most"
        raise InvalidOutputError(reason)
    sample = {case: _seconds(f"'{case}' in '{name}'", value) for case, value in told.items()}
    if TOTAL not in sample:
        sample[TOTAL] = _seconds(f"the sum of '{name}'", math.fsum(sample.values()))
    return sample


def _seconds(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOutputError(f"{what} is {str(value)[:40]!r}, which is no number of seconds")
    # Compared before it is made a float: an integer may be too large to become one.
    if not LEAST_S <= value <= MOST_S:
        raise InvalidOutputError(f"{what} is {str(value)[:40]} s, which no benchmark takes")
    return float(value)


def difference_in_cases(baseline: Sequence[Sample], candidate: Sequence[Sample]) -> str | None:
    """Why two sides cannot be compared; None: they measured the same cases in every process."""
    names = {case for sample in (*baseline, *candidate) for case in sample}
    missing = {case for case in names if not all(case in sample for sample in candidate)}
    more = {case for case in names if not all(case in sample for sample in baseline)}
    told = [f"it lacks {_names(missing)}"] if missing else []
    told += [f"the baseline's lacks {_names(more)}"] if more else []
    return " and ".join(told) or None


def _names(names: Iterable[str]) -> str:
    return some([f"'{name}'" for name in sorted(names)], SHOWN_NAMES)


def remarks(spec: BenchSpec, samples: Mapping[str, Iterable[Sample]]) -> tuple[str, ...]:
    """What a reader should know of measurements; `samples` by side."""
    if spec.metric is BenchMetric.FILE:
        # It may time as short a thing as it likes: it knows how often it did it.
        return ()
    short = [side for side, all_of in samples.items() if min(s[TOTAL] for s in all_of) < SHORT_S]
    return tuple(
        f"{side}'s benchmark takes less than {SHORT_S * 1e3:g} ms: that is little more than the"
        " start of a process"
        for side in short
    )


LOG_LIMIT_BYTES = 256 << 10
"""Of each stream of each process: a race has hundreds of them."""
PADDING_VARIABLE = "PARAVAL_PADDING"
MOST_PADDING = 4096
"""Where the environment ends decides where a program's stack begins, by up to a page: left alone,
it would make one side faster by luck, and the same side every time."""
HASH_SEEDS = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomLayout:
    """What chance decides about a process, so that it decides for no side."""

    hash_seed: int = 0
    padding: int = 0


def chances(seed: str, pairs: int) -> tuple[tuple[RandomLayout, RandomLayout], ...]:
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
                RandomLayout(hash_seed=hash_seed, padding=one),
                RandomLayout(hash_seed=hash_seed, padding=other),
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkStart:
    """A process that is ready to be started."""

    stand: MeasurementWorktree
    command: Command
    spec: BenchSpec
    file: MetricFile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkTime:
    """A process that has ended: exactly one of `sample` and `failure` is there."""

    start: BenchmarkStart
    ended: ProcessEnd
    ended_at: float
    sample: Sample | None = None
    failure: Failure | None = None

    @property
    def logs(self) -> dict[str, str]:
        return artifacts_of(self.start.command, self.ended)

    def printed(self) -> bytes | None:
        """The same wherever it ran; None: more than is kept, or unreadable. Blocks for a file."""
        if self.ended.stdout_cut or self.ended.log_error is not None:
            return None
        stdout, stand = self.start.command.stdout, self.start.stand
        names = {stand.top: WORKTREE, os.path.dirname(stdout): FOLDER}  # noqa: PTH120 - text
        if stand.own is not None:
            names |= {stand.own.home: "{home}", stand.own.temp: "{temp}"}
        try:
            said = read_plain_file(stdout, 2 * LOG_LIMIT_BYTES) if self.ended.stdout_bytes else b""
        except InvalidOutputError:
            return None
        return RunFolders(names).hidden_in_bytes(said)


class BenchmarkRunner:
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
        self,
        attempt: Attempt,
        stand: MeasurementWorktree,
        name: str,
        chance: RandomLayout,
        cpus: tuple[int, ...],
    ) -> BenchmarkStart:
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
        if spec.metric is BenchMetric.FILE:
            assert spec.file is not None
            file = MetricFile(spec.file, stand.path, stand.top)
        if self._processes.imports is not None:
            command = self._processes.imports.first(command, stand.path)
        return BenchmarkStart(stand=stand, command=command, spec=spec, file=file)

    async def time(self, start: BenchmarkStart) -> BenchmarkTime:
        """Run it to its end; a cancel is heard when nothing of it is left."""
        try:
            if start.file is not None:
                start.file.clear()
        except InvalidOutputError as error:
            failure = Failure(kind=Outcome.INVALID_OUTPUT, message=str(error))
            return BenchmarkTime(
                start=start, ended=ProcessEnd(), ended_at=self._clock(), failure=failure
            )
        ended = await self._processes.warden.run(start.command)
        ended_at = self._clock()
        failure_or_none = _failure_of(ended, start)
        sample = None
        if failure_or_none is None:
            try:
                sample = sample_of(ended, start.spec, start.file)
            except InvalidOutputError as error:
                failure_or_none = Failure(kind=Outcome.INVALID_OUTPUT, message=str(error))
        return BenchmarkTime(
            start=start, ended=ended, ended_at=ended_at, sample=sample, failure=failure_or_none
        )

    def _environment(
        self, attempt: Attempt, stand: MeasurementWorktree, chance: RandomLayout
    ) -> dict[str, str]:
        by_chance = {
            "PYTHONHASHSEED": str(chance.hash_seed),
            PADDING_VARIABLE: string.ascii_lowercase[0] * chance.padding,
        }
        return child_environment(
            {**own_places(stand.own, Home.OWN), **by_chance, **self._request.env},
            self._request.pass_env,
            attempt_marks(self._processes.run_id, attempt),
        )


def _failure_of(ended: ProcessEnd, start: BenchmarkStart) -> Failure | None:
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
