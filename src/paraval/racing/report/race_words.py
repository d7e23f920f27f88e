"""The words and numbers of a race report, and the cautions that come with them."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.racing.baseline_check import FAILS_ITS_TESTS
from paraval.racing.correctness.differences import ITSELF, tests_run
from paraval.racing.findings import RunDifference, Speedup, TestCounts, TestStatus
from paraval.racing.request import TOTAL, BenchMetric, RaceRequest
from paraval.racing.standings import (
    BaselineStanding,
    CandidateStanding,
    Standings,
    Status,
    is_bounded,
)
from paraval.racing.verdicts import words_of
from paraval.records import RunInfo
from paraval.runner.resume import how_to_resume
from paraval.text.words import UNKNOWN, counted, duration, listed, money, percent, some

Safe = Callable[[str], str]
"""Makes untrusted text safe to show."""
_NODES_SHOWN = 5

_ORDER = (
    Status.WON,
    Status.ACCEPTED,
    Status.MEASURED,
    Status.NOT_SHOWN,
    Status.SLOWER,
    Status.FAILED,
    Status.TIMEOUT,
    Status.CRASHED,
    Status.INFRA_ERROR,
    Status.INVALID,
    Status.DUPLICATE,
    Status.SKIPPED,
)


def by_merit(candidates: tuple[CandidateStanding, ...]) -> list[CandidateStanding]:
    """Candidates by status, the winner first; then by speed, then by arrival."""
    return sorted(candidates, key=lambda one: (_ORDER.index(one.status), -_estimate(one)))


def _estimate(one: CandidateStanding) -> float:
    return 0.0 if one.speedup is None else one.speedup.estimate


# ---- cells


def status_word(status: Status) -> str:
    return status.value.replace("_", " ")


def tests_cell(counts: TestCounts | None) -> str:
    """`11/12`: tests passed, of those that ran or should have run."""
    if counts is None:
        return UNKNOWN
    passed, ran = counts.passed, tests_run(counts)
    if counts.missing:
        # New tests do not make up for missing ones: only the baseline's count.
        passed -= counts.new_passed
        ran += counts.missing - counts.new_passed - counts.new_failed
    return f"{passed:,}/{ran:,}"


def times(ratio: float) -> str:
    """`3.21×`, `32.1×`, `321×`, `33,280×`."""
    if not math.isfinite(ratio):
        return "?"
    return f"{_digits(ratio)}×"


def _digits(ratio: float) -> str:
    # Rounded first, so that 9.999 is 10.0 and not 10.00.
    if round(ratio, 2) < 0.1 or ratio >= _BEYOND_DIGITS:
        return f"{ratio:.1g}"
    if round(ratio, 2) < 10:
        return f"{ratio:.2f}"
    return f"{ratio:.1f}" if round(ratio, 1) < 100 else f"{ratio:,.0f}"


def speedup_cell(speedup: Speedup | None) -> str:
    """`3.21× (3.05–3.38)`."""
    if speedup is None:
        return UNKNOWN
    if not is_bounded(speedup):
        return f"{times(speedup.estimate)} (?)"
    return f"{times(speedup.estimate)} ({_digits(speedup.low)}–{_digits(speedup.high)})"


def difference_heading(difference: RunDifference, safe: Safe) -> str:
    """`tests/test_a.py::test_b failed`, `out.json is different`."""
    name = safe(difference.name)
    if difference.scope != "test":
        return name if difference.scope == "exit_code" else f"{name} is {safe(difference.status)}"
    if difference.baseline in (TestStatus.PASSED, ITSELF):
        return f"{name} {safe(difference.status)}"
    return f"{name} {safe(difference.status)} (was {safe(difference.baseline)})"


def amount(value: float, request: RaceRequest) -> str:
    """`120 ms`; with `metric: memory`, `12 MB`."""
    if request.bench.metric == BenchMetric.MEMORY:
        return f"{value / 1e6:,.1f} MB"
    if value < 0.001:
        return f"{value * 1e6:.0f} us"
    return f"{value * 1000:.2f} ms" if value < 0.1 else duration(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """A key of the benchmark's file in a comparison of two refs; medians in seconds."""

    key: str
    base_s: float
    head_s: float
    delta_s: float
    speedup: Speedup | None


def key_rows(standings: Standings) -> list[KeyRow]:
    """The rows of a comparison of two refs, the total last; empty if head was not measured."""
    base = standings.baseline.seconds
    return [
        KeyRow(
            key=key,
            base_s=base[key],
            head_s=one.seconds[key],
            delta_s=one.seconds[key] - base[key],
            speedup=one.speedup if key == TOTAL else one.cases[key],
        )
        for one in standings.candidates
        for key in (*one.cases, TOTAL)
        if key in base and key in one.seconds
    ]


# ---- sentences


def verdict_sentence(standings: Standings, request: RaceRequest, safe: Safe) -> str:
    winner = winner_of(standings)
    if standings.baseline.reason is not None:
        return f"The race did not start: {safe(standings.baseline.reason)}"
    if request.head is not None and standings.over:
        return _compared_sentence(standings.candidates[0], request, safe)
    if winner is not None:
        how = "" if winner.speedup is None else f": {_praise(winner.speedup, request)}"
        marks = ["noisy"] * winner.noisy + ["with cautions"] * bool(winner.cautions)
        return f"{safe(winner.name)} won{how}{f' ({listed(marks)})' if marks else ''}."
    if not standings.over:
        return "The race is not finished."
    required = times(request.accept.speedup)
    if not standings.candidates:
        return "There were no candidates."
    equal = words_of(request.bench).equal
    barred = [one for one in standings.candidates if _is_barred(one, request)]
    if barred and (best := max(barred, key=_estimate)).speedup is not None:
        ratio = f"{times(best.speedup.estimate)} {equal}"
        return f"No candidate may win: {safe(best.name)} is {ratio}, but {safe(best.reason)}."
    return f"No candidate passed and was shown to be over {required} {equal} as the baseline."


def _is_barred(one: CandidateStanding, request: RaceRequest) -> bool:
    """Whether it is fast enough, and may not win all the same."""
    is_fast = one.speedup is not None and one.speedup.low > request.accept.speedup
    return is_fast and one.status is Status.NOT_SHOWN


def _compared_sentence(one: CandidateStanding, request: RaceRequest, safe: Safe) -> str:
    base, head = safe(request.keys.repo.ref), safe(one.name)
    if one.status is Status.DUPLICATE:
        return f"{head} and {base} are equal: {safe(one.reason)}."
    if one.speedup is None:
        return f"{head} was not compared: {status_word(one.status)} ({safe(one.reason)})."
    level, low, high = percent(request.accept.confidence), one.speedup.low, one.speedup.high
    words = words_of(request.bench)
    speed = f"{times(one.speedup.estimate)} {words.equal} ({level}: {_digits(low)}–{_digits(high)})"
    noisy = ", noisy" * one.noisy
    if one.status is Status.WON:
        return f"{head} is {words.less} than {base}: {speed}{noisy}."
    if one.status is Status.SLOWER:
        return f"{head} is {words.more} than {base}: {speed}{noisy}."
    return f"No difference shown between {base} and {head}: {speed}{noisy}."


def _praise(speedup: Speedup, request: RaceRequest) -> str:
    level = percent(request.accept.confidence)
    low, high = _digits(speedup.low), _digits(speedup.high)
    equal = words_of(request.bench).equal
    return f"{times(speedup.estimate)} {equal} as the baseline ({level}: {low}–{high})"


def winner_of(standings: Standings) -> CandidateStanding | None:
    return next((one for one in standings.candidates if one.name == standings.winner), None)


def baseline_sentence(baseline: BaselineStanding, request: RaceRequest, safe: Safe) -> str:
    """`Baseline: commit 1a2b3c4d5e6f, 12 of 12 tests passed, 1.2 s per benchmark run.`"""
    what = "the working tree" if baseline.uncommitted else ""
    if baseline.commit is not None:
        at = f"commit {safe(baseline.commit[:12])}"
        what = f"{what} at {at}" if what else at
    parts = [what or "the working tree"]
    if baseline.tests is not None:
        passed, _, ran = tests_cell(baseline.tests).partition("/")
        which = " in the first of two runs" if baseline.unstable else ""
        parts.append(f"{passed} of {ran} tests passed{which}")
    if TOTAL in baseline.seconds:
        took = baseline.seconds[TOTAL]
        is_time = request.bench.metric != BenchMetric.MEMORY
        words = duration(took) if is_time else amount(took, request)
        parts.append(f"{words} per benchmark run")
    return f"Baseline: {', '.join(parts)}."


def measured_sentence(standings: Standings, request: RaceRequest) -> str | None:
    """How speed was measured; None if nothing was measured."""
    measured = [one.speedup for one in standings.candidates if one.speedup is not None]
    if not measured:
        return None
    most = max(one.blocks for one in measured)
    metrics = {"wall": "wall time", "cpu": "CPU time", "memory": "memory"}
    metric = metrics.get(request.bench.metric, "times that the benchmark reports")
    finals = ""
    if standings.finalists:
        who = counted(standings.finalists, "finalist")
        finals = f"; the {who.removeprefix('1 ')} on fresh blocks"
    together = ", jointly for all finalists" if standings.finalists > 1 else ""
    return (
        "Measured one at a time, in fresh processes, in ABBA blocks with the baseline"
        f" (up to {most:,} per candidate): {metric}{finals}."
        f" Intervals: {percent(request.accept.confidence)}{together}."
    )


def machines_sentence(standings: Standings, safe: Safe) -> str | None:
    """`Tests ran on 3 nodes (a, b, c); measured on desk.`; None without a cluster."""
    if not standings.nodes:
        return None
    names = safe(some(standings.nodes, _NODES_SHOWN))
    sentence = f"Tests ran on {counted(len(standings.nodes), 'node')} ({names})"
    if standings.measured_on:
        sentence = f"{sentence}; measured on {safe(listed(standings.measured_on))}"
    return f"{sentence}."


def cost_sentence(standings: Standings, request: RaceRequest) -> str | None:
    """What proposals cost; None if nothing was proposed, or it cost nothing."""
    usd, unknown = standings.cost_usd, standings.unpriced_calls
    if not usd and not unknown:
        return None
    names = [model.name for model in request.proposing_models()]
    who = listed(names) if names else "propose"
    if not usd:
        return f"Cost of {who}: unknown; {counted(unknown, 'call')} reported none (`cost_usd`)."
    cost = f"Cost of {who}: {money(usd)}"
    if unknown:
        cost = f"{cost}, plus {counted(unknown, 'call')} that reported none"
    return f"{cost}."


def resume_sentence(run: RunInfo, request: RaceRequest) -> str:
    """How to resume a race that was interrupted or that left candidates pending."""
    if request.propose is not None and request.propose.is_function:
        resume = f"options=paraval.Options(resume='{run.id}')"
        if run.held_back:
            return f"{_HELD_BACK} in Python: paraval.race(..., limits={{...}}, {resume})"
        return f"The race was interrupted. Resume it in Python: paraval.race(..., {resume})"
    if run.held_back:
        return f"{_HELD_BACK} with: {_typed_with_limits(run)}"
    again = f"{typed('race --resume', run)} (repeat --apply and -o)"
    return f"The race was interrupted. Resume it with: {again}"


_HELD_BACK = (
    "Candidates are pending for the reasons above. Fix the problem or raise the limit, then"
    " resume the race"
)


def _typed_with_limits(run: RunInfo) -> str:
    """A resume by run id alone keeps the old limits, so name the race file too."""
    if run.source is None:
        return f"{typed('race --resume', run)} plus the original arguments, with new limits"
    return typed(f"race {shlex.quote(run.source)} --resume", run)


def apply_sentence(run: RunInfo, winner: str) -> str:
    """How to save the winner's patch and apply it at the top of the repository."""
    file = f"{_FILE_NAME.sub('-', winner)[:64]}.patch"
    # A name that begins with a dash would be read as an option.
    patch = shlex.quote(f"./{file}" if file.startswith("-") else file)
    return f"The winning patch: {typed('report', run)} -o {patch} (then: git apply {patch})"


def typed(command: str, run: RunInfo) -> str:
    """A command on a run, as typed in the current folder: `paraval report 20260101-000000-abcd`."""
    return how_to_resume(run).replace("paraval resume", f"paraval {command}", 1)


_BEYOND_DIGITS = 1e9
"""A larger ratio is not a measurement; its digits would fill the page."""
_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


# What a reader should know before trusting the numbers of a race, and how to improve them.

SHOWN_NAMES = 5
_NO_MODULE = re.compile(r"No module named '([A-Za-z_]\w*)")
_NOT_FOUND = re.compile(
    r"(?i)no such file|not found|no module named|can't open|not there|does not exist"
)
"""Phrases in the errors of programs that do not find a file."""
SHORTEST_RUN_S = 0.010
"""For a benchmark timed from outside: in a shorter run, process startup dominates."""


def caution_sentences(standings: Standings, request: RaceRequest, safe: Safe) -> Iterator[str]:
    """The cautions of a race, the most important first."""
    baseline = standings.baseline
    for one in standings.candidates:
        yield from (f"Caution: {safe(one.name)}: {safe(words)}." for words in one.cautions)
    noisy = [safe(one.name) for one in standings.candidates if one.noisy]
    if noisy or baseline.noisy:
        names = listed(_first(noisy)) or "the baseline"
        measured = [one for one in standings.candidates if one.speedup is not None]
        mark = "" if all(one.noisy for one in measured) else " (~)"
        yield (
            f"Noisy{mark}: {names} {'was' if len(noisy) < 2 else 'were'} measured while the machine"
            " was busy with something else, so speedups may be off. Rerun the race when the"
            " machine is quiet."
        )
    if baseline.unseen:
        yield (
            "The benchmark prints nothing that is the same in each process, so nothing shows that a"
            " candidate does the same work: print its results."
            + " No candidate wins without that, unless you add --accept-unseen-results."
            * (not request.accept.unseen_results)
        )
    took = baseline.seconds.get(TOTAL)
    is_from_outside = request.bench.metric in (BenchMetric.WALL, BenchMetric.CPU)
    if took is not None and took < SHORTEST_RUN_S and is_from_outside:
        yield (
            f"A benchmark run takes {duration(took)}: under {duration(SHORTEST_RUN_S)}, process"
            " startup dominates and speedups mean little. Make it repeat its work, or write its"
            " own times to a file (`metric`)."
        )
    yield from _of_the_tests(baseline, request, safe)
    if standings.winner is not None and not (request.is_sandboxed or request.is_fenced):
        yield (
            "Without a sandbox, nothing shows whether the winner reads answers that it left outside"
            " its worktree, home and temporary folders, or changes files of yours."
        )
    for note in standings.notes:
        yield safe(note)


def _of_the_tests(baseline: BaselineStanding, request: RaceRequest, safe: Safe) -> Iterator[str]:
    if baseline.unstable:
        names = listed(_first([safe(name) for name in baseline.unstable]))
        yield f"Not compared, because it differs between two runs of the baseline: {names}."
    if baseline.tests is None and not request.test.is_none:
        yield (
            "The test command reports no individual tests: only its exit code counts. If it can"
            " write a JUnit XML file, put {junit}, its path, into the command."
        )


def advice_sentences(
    baseline: BaselineStanding, run: RunInfo, request: RaceRequest
) -> Iterator[str]:
    """What to look at when the baseline does not pass."""
    yield f"See the baseline's output: {typed('logs', run)} --case baseline"
    reason = baseline.reason or ""
    tests_failed = bool(baseline.failing) or reason.startswith(FAILS_ITS_TESTS)
    if not tests_failed and not _NOT_FOUND.search(reason):
        # A time limit, for example, has nothing to do with what commands see.
        return
    told = "\n".join((reason, *(one.message for one in baseline.differences)))
    if (found := _NO_MODULE.search(told)) and Path(request.repo, "src", found[1]).exists():
        yield f"The module '{found[1]}' is in src/: add --env PYTHONPATH=src (in a file: `env`)."
    if request.is_fenced:
        yield (
            "They write only to their worktree, home and temporary folders: --no-sandbox (in a"
            " file: `sandbox: false`) lets them write elsewhere."
        )
    files = "the working tree without ignored files"
    if not request.keys.repo.uncommitted:
        files = "only committed files (`--uncommitted` uses the working tree as it is)"
    yield f"Commands see {files}, and few environment variables besides those in `pass_env`."


def _first(names: list[str]) -> list[str]:
    more = len(names) - SHOWN_NAMES
    return [*names[:SHOWN_NAMES], counted(more, "other")] if more > 0 else names
