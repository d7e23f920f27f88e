"""Whether a candidate's benchmark did the work that is timed: by what it prints, and by the clock.

A candidate's code runs in the process that times it. It can end that early, and it can set the
clock that the benchmark reads. What a baseline prints in every process, a candidate prints too; and
what a process tells to have saved, it took less by the clock as well.
"""

from __future__ import annotations

import hashlib
import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from paraval.racing.correctness.outputs import WORKTREE, RunFolders
from paraval.racing.request import TOTAL, BenchMetric
from paraval.racing.speed.benchmark_process import BenchmarkTime
from paraval.targets.answer import InvalidOutputError, read_plain_file

MOST_BYTES = 1 << 20
FITS = 1.05
"""A told time of up to so many times that of its process was measured in it."""
LEAST_EXCESS_S = 0.02
LEAST_EXCESS = 0.1
"""Of the time that a process of the baseline takes: less may be chance."""
PRINTS_ELSE = "its benchmark prints something else than the baseline's"
_TIMES = re.compile(rb"\d+(?:[.,]\d+|(?=\s*(?:ns|us|\xc2\xb5s|ms|s|sec|secs|seconds?|min)\b))")
"""Numbers that may be times: rounded, they are the same in all processes of the baseline, and
others where a candidate is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedHashes:
    """What a process printed, as hashes."""

    exact: str
    without_times: str


def printed_by(timed: BenchmarkTime) -> PrintedHashes | None:
    """Blocks for a file; None: it printed more than is kept, or what it printed cannot be read."""
    if timed.ended.stdout_cut or timed.ended.log_error is not None:
        return None
    command, stand = timed.start.command, timed.start.stand
    names = {stand.top: WORKTREE, os.path.dirname(command.stdout): "{folder}"}  # noqa: PTH120 - text
    if stand.own is not None:
        names |= {stand.own.home: "{home}", stand.own.temp: "{temp}"}
    try:
        said = read_plain_file(command.stdout, MOST_BYTES) if timed.ended.stdout_bytes else b""
    except InvalidOutputError:
        return None
    said = RunFolders(names).hidden_in_bytes(said)
    return PrintedHashes(exact=_digest(said), without_times=_digest(_TIMES.sub(b"#", said)))


def always_printed(processes: Sequence[BenchmarkTime]) -> str | None:
    """What all of the baseline's print; None: nothing, or another in each: not compared."""
    if not processes[0].ended.stdout_bytes:
        # To print where nothing else does wins nobody anything.
        return None
    printed = [printed_by(one) for one in processes]
    if printed[0] is None or any(one != printed[0] for one in printed):
        return None
    return printed[0].without_times


def flags_of_printed(
    expected: str | None, baseline: Sequence[BenchmarkTime], candidate: Sequence[BenchmarkTime]
) -> tuple[str, ...]:
    """`expected`: what the baseline always printed when it was calibrated."""
    if expected is None or always_printed(baseline) != expected:
        return ()
    printed = [printed_by(one) for one in candidate if one.ended.log_error is None]
    same = all(one is not None and one.without_times == expected for one in printed)
    return () if same else (PRINTS_ELSE,)


def flags_of_told(
    baseline: Sequence[BenchmarkTime], candidate: Sequence[BenchmarkTime]
) -> tuple[str, ...]:
    """Of processes that tell their time themselves."""
    if baseline[0].start.spec.metric is not BenchMetric.FILE:
        return ()
    if any(_told(one) > FITS * one.ended.wall_s for one in baseline):
        # What it tells is no time that passed in it: a sum over threads, or a thousand calls.
        return ()
    took = statistics.mean(one.ended.wall_s for one in baseline)
    # What is told to be saved and is not, is time that is not told of. That of the least of the
    # one side and the most of the other: a machine that is busy for a moment forges nothing.
    excess = min(map(_untold, candidate)) - max(map(_untold, baseline))
    told = statistics.mean(map(_told, baseline)) - statistics.mean(map(_told, candidate))
    # A candidate that imports more takes longer where nobody times it, and gains nothing by that.
    if min(excess, told) <= max(LEAST_EXCESS_S, LEAST_EXCESS * took):
        return ()
    saved = took - statistics.mean(one.ended.wall_s for one in candidate)
    are = "are not" if saved < told / 10 else f"are only {_milliseconds(saved)} faster"
    return (f"it tells to be {_milliseconds(told)} faster, and its processes {are}",)


def _told(timed: BenchmarkTime) -> float:
    assert timed.sample is not None
    return timed.sample[TOTAL]


def _untold(timed: BenchmarkTime) -> float:
    return timed.ended.wall_s - _told(timed)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms"


def _digest(said: bytes) -> str:
    return hashlib.sha256(said).hexdigest()
