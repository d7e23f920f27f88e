"""What a reader should know before trusting the numbers of a race, and what may mend it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from paraval.racing.course_baseline import FAILS_ITS_TESTS
from paraval.racing.pytest_command import AUTO, after_pytest
from paraval.racing.request import TOTAL, Metric, RaceRequest
from paraval.racing.shown import Safe, typed
from paraval.racing.standings import BaselineStanding, Standings
from paraval.records import RunInfo
from paraval.report.wording import counted, duration, listed

SHOWN_NAMES = 5
_NOT_FOUND = re.compile(r"(?i)no such file|not found|no module named|can't open|not there")
"""What a program says of a file that it does not see."""
SHORTEST_RUN_S = 0.010
"""Of a benchmark that is timed from outside: in less, the start of a process is most of it."""


def caution_sentences(standings: Standings, request: RaceRequest, safe: Safe) -> Iterator[str]:
    """In the order of their weight."""
    baseline = standings.baseline
    for one in standings.candidates:
        yield from (f"Caution: {safe(one.name)}: {safe(words)}." for words in one.cautions)
    noisy = [safe(one.name) for one in standings.candidates if one.noisy]
    if noisy or baseline.noisy:
        names = listed(_first(noisy)) or "the baseline"
        yield (
            f"Noisy (~): {names} {'was' if len(noisy) < 2 else 'were'} measured while the machine"
            " was busy with something else, so that speed-ups may be off. Run it again when it is"
            " quiet."
        )
    yield from _of_the_benchmark(baseline, request)
    yield from _of_the_tests(baseline, request, safe)
    for note in standings.notes:
        yield safe(note)


def _of_the_benchmark(baseline: BaselineStanding, request: RaceRequest) -> Iterator[str]:
    took = baseline.seconds.get(TOTAL)
    if took is not None and took < SHORTEST_RUN_S and request.bench.metric is not Metric.FILE:
        yield (
            f"A run of the benchmark takes {duration(took)}: under {duration(SHORTEST_RUN_S)} the"
            " start of a process is most of it, and speed-ups say little. Have it repeat its work,"
            " or write its own seconds to a file (`metric`)."
        )


def _of_the_tests(baseline: BaselineStanding, request: RaceRequest, safe: Safe) -> Iterator[str]:
    if baseline.unstable:
        names = listed(_first([safe(name) for name in baseline.unstable]))
        yield f"Not compared, since two runs of the baseline differ in it: {names}."
    test = request.test
    if baseline.tests is None and test.junit == AUTO and after_pytest(test.command) is None:
        yield (
            "The test command tells of no single tests: its exit code alone counts. If it can write"
            " a file in JUnit's form, name that as `junit`."
        )


def advice_sentences(
    baseline: BaselineStanding, run: RunInfo, request: RaceRequest
) -> Iterator[str]:
    """What to look at when the baseline does not pass."""
    yield f"What it printed: {typed('logs', run)} --case baseline"
    reason = baseline.reason or ""
    tests_failed = bool(baseline.failing) or reason.startswith(FAILS_ITS_TESTS)
    if not tests_failed and not _NOT_FOUND.search(reason):
        # A time limit, say: it has nothing to do with what commands see.
        return
    files = "the working tree without what git ignores"
    if not request.uncommitted:
        files = "committed files alone (`--uncommitted` takes the working tree as it is)"
    yield f"Commands see {files}, and of the environment little but what `pass_env` names."


def _first(names: list[str]) -> list[str]:
    more = len(names) - SHOWN_NAMES
    return [*names[:SHOWN_NAMES], counted(more, "other")] if more > 0 else names
