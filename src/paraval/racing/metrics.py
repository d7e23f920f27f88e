"""What a benchmark process is worth: its seconds by the clock, of CPU, or as it tells them itself.

A file that tells them comes from code that nobody trusts: it is read as such, and only where this
very process wrote it. Whether two sides measured the same is told here too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paraval.processes.children import Ended
from paraval.racing.findings import Sample
from paraval.racing.request import TOTAL, BenchSpec, Metric
from paraval.strict_json import parse_strictly
from paraval.targets.answer import InvalidOutputError
from paraval.targets.plain_files import read_plain_file

LEAST_S, MOST_S = 1e-9, 1e9
"""Outside of these, no benchmark was measured: a counter that was never started, a time of day."""
MOST_CASES = 1000
LONGEST_NAME = 200
SHORT_S = 1e-3
"""A process that takes less shows little but how long a process takes to start."""
SHOWN_NAMES = 3


def sample_of(ended: Ended, spec: BenchSpec, file: MetricFile | None) -> Sample:
    """What one process that ended well measured; InvalidOutputError where that is nothing."""
    if spec.metric is Metric.WALL:
        return {TOTAL: _seconds("the time that it took", ended.wall_s)}
    if spec.metric is Metric.CPU:
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
    known = sorted(names)
    rest = len(known) - SHOWN_NAMES
    shown = ", ".join(f"'{name}'" for name in known[:SHOWN_NAMES])
    return f"{shown} and {rest} more" if rest > 0 else shown


def remarks(spec: BenchSpec, samples: Mapping[str, Iterable[Sample]]) -> tuple[str, ...]:
    """What a reader should know of measurements; `samples` by side."""
    if spec.metric is Metric.FILE:
        # It may time as short a thing as it likes: it knows how often it did it.
        return ()
    short = [side for side, all_of in samples.items() if min(s[TOTAL] for s in all_of) < SHORT_S]
    return tuple(
        f"{side}'s benchmark takes less than {SHORT_S * 1e3:g} ms: that is little more than the"
        " start of a process"
        for side in short
    )
