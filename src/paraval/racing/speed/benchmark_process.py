"""Runs one benchmark process, and reads its wall time, CPU time or own times.

Everything slow is done beforehand for all processes of a block: between two of them there is no git
and no search, only the removal of a metric file.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import string
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.json import parse_strictly
from paraval.environment import child_environment
from paraval.processes.children import Command, ProcessEnd
from paraval.processes.sandbox import Sandbox
from paraval.racing.findings import Sample
from paraval.racing.integrity.benchmark_checks import PRIVATE
from paraval.racing.request import (
    BASELINE_TIMEOUT_S,
    TOTAL,
    BenchMetric,
    BenchSpec,
    RaceRequest,
)
from paraval.racing.speed.measurement_worktrees import MeasurementWorktree
from paraval.records import Attempt, Failure, Home, Outcome
from paraval.targets.answer import InvalidOutputError, read_plain_file, seconds
from paraval.targets.command import ProcessRoom, attempt_marks, own_places
from paraval.targets.process_ends import artifacts_of, unexpected_end
from paraval.text.words import some

# The seconds of a benchmark process: wall time, CPU time, or as it reports them.

LEAST, MOST = 1e-9, 1e15
"""Other values are no measurements: a counter that never started."""
MOST_CASES = 1000
LONGEST_NAME = 200
SHORT_S = 1e-3
"""A shorter process shows little more than process startup."""
SHOWN_NAMES = 3


def sample_of(ended: ProcessEnd, spec: BenchSpec, file: MetricFile | None) -> Sample:
    """The times of a successful process. Raises InvalidOutputError if there are none."""
    if spec.metric == BenchMetric.WALL:
        return {TOTAL: _seconds("its wall time", ended.wall_s)}
    if spec.metric == BenchMetric.CPU:
        return {TOTAL: _seconds("its CPU time", ended.cpu_s)}
    if spec.metric == BenchMetric.MEMORY:
        return {TOTAL: _seconds("its memory", ended.memory_bytes)}
    assert file is not None
    return file.read()


class MetricFile:
    """The JSON file that a benchmark writes: seconds by case name."""

    def __init__(self, name: str, folder: str, top: str) -> None:
        """`folder`: where the benchmark runs; `top`: the worktree that contains the file."""
        self._name = name
        self._path = os.path.join(folder, name)  # noqa: PTH118 - text, and quick
        self._top = os.path.realpath(top)

    def clear(self) -> None:
        """Remove an earlier process's file, so that a later one is this process's."""
        # A folder on the path may have become a link to somewhere else.
        real = os.path.realpath(os.path.dirname(self._path))  # noqa: PTH120 - text, and quick
        if real != self._top and not real.startswith(f"{self._top}/"):
            raise InvalidOutputError(f"'{self._name}' is outside its worktree")
        try:
            os.unlink(self._path)  # noqa: PTH108 - quick
        except FileNotFoundError:
            return
        except OSError as error:
            reason = f"'{self._name}' cannot be removed: {error.strerror}"
            raise InvalidOutputError(reason) from error

    def read(self) -> Sample:
        if not os.path.lexists(self._path):
            raise InvalidOutputError(f"it did not write '{self._name}'")
        try:
            data = parse_strictly(read_plain_file(self._path).decode())
        except UnicodeDecodeError:
            raise InvalidOutputError(f"'{self._name}' is not valid UTF-8") from None
        except InvalidOutputError:
            raise
        except ValueError as error:
            raise InvalidOutputError(f"'{self._name}' is not JSON: {error}") from None
        try:
            return _checked(_by_case(data), self._name)
        except (AttributeError, LookupError, TypeError, statistics.StatisticsError) as error:
            words = f"'{self._name}' is not as its program writes it: {error!r}"
            raise InvalidOutputError(words[:300]) from None


def _by_case(data: Any) -> Any:
    """Seconds by case from the files of pytest-benchmark, hyperfine, pyperf and asv, whose rounds
    in one process are no measurements of their own: their median. Other data as they are."""
    match data:
        case {"benchmarks": [{"fullname": _, "stats": {"median": _}}, *_]}:
            return {one["fullname"]: one["stats"]["median"] for one in data["benchmarks"]}
        case {"results": [{"command": _, "median": _}, *_]}:
            return {one["command"]: one["median"] for one in data["results"]}
        case {"benchmarks": [{"runs": [_, *_]}, *_], "version": _}:
            common = data.get("metadata", {})
            return {
                (common | one.get("metadata", {})).get("name", "benchmark"): _median_of_pyperf(one)
                for one in data["benchmarks"]
            }
        case {"version": _, "result_columns": ["result", *_], "results": dict(rows)}:
            return {
                name if len(values) == 1 else f"{name}[{place}]": value
                for name, row in rows.items()
                # Those of memory and of other things are no seconds.
                if row and row[0] and "time" in name.rpartition(".")[2].partition("_")[0]
                for values in [row[0] if isinstance(row[0], list) else [row[0]]]
                for place, value in enumerate(values)
                if value is not None
            }
        case _:
            return data


def _median_of_pyperf(benchmark: Any) -> Any:
    values = [value for run in benchmark["runs"] for value in run.get("values", ())]
    return statistics.median(values) if values else None


def _checked(data: Any, name: str) -> Sample:
    if not isinstance(data, dict) or not data:
        raise InvalidOutputError(f"'{name}' must be a JSON object of seconds by case name")
    if len(data) > MOST_CASES:
        raise InvalidOutputError(f"'{name}' has {len(data):,} cases; at most {MOST_CASES:,}")
    long = next((case for case in data if len(case) > LONGEST_NAME), None)
    if long is not None:
        reason = f"'{name}' has a name of {len(long):,} characters; at most {LONGEST_NAME}"
        raise InvalidOutputError(reason)
    sample = {case: _seconds(f"'{case}' in '{name}'", value) for case, value in data.items()}
    if TOTAL not in sample:
        sample[TOTAL] = _seconds(f"the sum of '{name}'", math.fsum(sample.values()))
    return sample


def _seconds(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOutputError(f"{what} is {str(value)[:40]!r}, which is not a number of seconds")
    # Compared before the conversion: an integer may be too large for a float.
    if not LEAST <= value <= MOST:
        raise InvalidOutputError(f"{what} is {str(value)[:40]}, which is not plausible")
    return float(value)


def difference_in_cases(baseline: Sequence[Sample], candidate: Sequence[Sample]) -> str | None:
    """Why two sides cannot be compared; None if all processes measured the same cases."""
    names = {case for sample in (*baseline, *candidate) for case in sample}
    missing = {case for case in names if not all(case in sample for sample in candidate)}
    more = {case for case in names if not all(case in sample for sample in baseline)}
    parts = [f"it lacks {_names(missing)}"] if missing else []
    parts += [f"the baseline's lacks {_names(more)}"] if more else []
    return " and ".join(parts) or None


def _names(names: Iterable[str]) -> str:
    return some([f"'{name}'" for name in sorted(names)], SHOWN_NAMES)


def remarks(spec: BenchSpec, samples: Mapping[str, Iterable[Sample]]) -> tuple[str, ...]:
    """Notes on the measurements; `samples` by side."""
    if spec.file is not None or spec.metric == BenchMetric.MEMORY:
        # It may time short things, because it knows how often it repeats them.
        return ()
    short = [side for side, all_of in samples.items() if min(s[TOTAL] for s in all_of) < SHORT_S]
    return tuple(
        f"{side}'s benchmark takes less than {SHORT_S * 1e3:g} ms, which is mostly process startup"
        for side in short
    )


LOG_LIMIT_BYTES = 256 << 10
"""Limit for each stream of each process: a race has hundreds of them."""
PADDING_VARIABLE = "PARAVAL_PADDING"
MOST_PADDING = 4096
"""The size of the environment shifts a program's stack by up to a page. Without random padding,
that could make the same side faster every time by luck."""
HASH_SEEDS = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomLayout:
    """Random settings of a process, so that they favor no side."""

    hash_seed: int = 0
    padding: int = 0


def chances(seed: str, pairs: int) -> tuple[tuple[RandomLayout, RandomLayout], ...]:
    """Settings for pairs of processes, one per side: the same hash seed, different padding.

    The same for the same seed, so that a resume measures the same way.
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
    """A process that is ready to start."""

    worktree: MeasurementWorktree
    command: Command
    spec: BenchSpec
    file: MetricFile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkTime:
    """A process that has ended: exactly one of `sample` and `failure` is set."""

    start: BenchmarkStart
    ended: ProcessEnd
    ended_at: float
    sample: Sample | None = None
    failure: Failure | None = None

    @property
    def logs(self) -> dict[str, str]:
        return artifacts_of(self.start.command, self.ended)

    def printed(self) -> bytes | None:
        """Its output, independent of folders; None if it is truncated or unreadable. Blocks."""
        if self.ended.stdout_cut or self.ended.log_error is not None:
            return None
        stdout, worktree = self.start.command.stdout, self.start.worktree
        names = {worktree.top: "{worktree}", os.path.dirname(stdout): "{folder}"}  # noqa: PTH120
        if worktree.own is not None:
            names |= {worktree.own.home: "{home}", worktree.own.temp: "{temp}"}
        try:
            output = (
                read_plain_file(stdout, 2 * LOG_LIMIT_BYTES) if self.ended.stdout_bytes else b""
            )
        except InvalidOutputError:
            return None
        for folder, shown in names.items():
            output = output.replace(os.fsencode(folder), shown.encode())
        return output


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
        worktree: MeasurementWorktree,
        name: str,
        chance: RandomLayout,
        cpus: tuple[int, ...],
        *,
        timeout: float = BASELINE_TIMEOUT_S,
    ) -> BenchmarkStart:
        """Prepare a process; `name`: of its logs, unique in the attempt."""
        spec = self._request.bench
        here = replace(attempt, workspace=worktree.path)
        command = Command(
            argv=spec.command,
            env=self._environment(here, worktree, chance),
            cwd=worktree.path,
            stdout=f"{attempt.folder}/{name}.stdout.log",
            stderr=f"{attempt.folder}/{name}.stderr.log",
            timeout=timeout if spec.timeout is None else spec.timeout,
            log_limit=LOG_LIMIT_BYTES,
            # Not nice like tests, because yielding would measure other processes; not tagged,
            # because being watched would disturb it.
            nice=0,
            cpus=cpus,
            sandbox=self._sandbox(here, worktree, name),
        )
        file = None
        if spec.file is not None:
            file = MetricFile(spec.file, worktree.path, worktree.top)
        if self._processes.imports is not None:
            command = self._processes.imports.first(command, worktree.path)
        return BenchmarkStart(worktree=worktree, command=command, spec=spec, file=file)

    async def time(self, start: BenchmarkStart) -> BenchmarkTime:
        """Run it to the end. Cancelling takes effect when all its processes are gone."""
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

    def _sandbox(
        self, attempt: Attempt, worktree: MeasurementWorktree, name: str
    ) -> Sandbox | None:
        """That of tests, but for what could keep answers: the attempt's folder, which is the same
        for all its processes, and temporary folders that nobody sees."""
        sandbox = self._processes.sandbox_for(attempt, worktree.own)
        if sandbox is None:
            return None
        writable = tuple(path for path in sandbox.writable if path != attempt.own_folder)
        kept = None
        if worktree.own is not None and not sandbox.hides:
            kept = f"{worktree.own.temp}/{PRIVATE}/{name.partition('-')[0]}"
        return replace(sandbox, writable=writable, renamed={}, kept=kept)

    def _environment(
        self, attempt: Attempt, worktree: MeasurementWorktree, chance: RandomLayout
    ) -> dict[str, str]:
        by_chance = {
            "PYTHONHASHSEED": str(chance.hash_seed),
            PADDING_VARIABLE: string.ascii_lowercase[0] * chance.padding,
        }
        return child_environment(
            {
                **own_places(worktree.own, Home.OWN),
                **by_chance,
                # A compiled module could hold anything, so a new one is a leftover.
                "PYTHONDONTWRITEBYTECODE": "1",
                **self._request.keys.env,
            },
            self._request.keys.pass_env,
            attempt_marks(self._processes.run_id, attempt),
        )


def _failure_of(ended: ProcessEnd, start: BenchmarkStart) -> Failure | None:
    if ended.failure is None and ended.timed_out:
        message = f"timed out after {seconds(start.command.timeout or 0.0)}"
        return Failure(kind=Outcome.TIMEOUT, message=message)
    if ended.failure is None and ended.cancelled:
        return Failure(kind=Outcome.INFRA_ERROR, message="stopped before it finished")
    if ended.failure is None and ended.exit_code == 0:
        return None
    return unexpected_end(ended, start.command.stderr)


def own_cpus() -> tuple[int, ...]:
    """The CPUs that this process may use, by number; empty if unknown."""
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:
        return ()
