"""What a step of a race found, in a line or two: for `paraval logs`, where it printed nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from paraval.errors import StoreError
from paraval.racing.findings import Asked, Block, Calibration, Profiled, Sample, Staged, Tested
from paraval.racing.request import TOTAL
from paraval.racing.shown import difference_heading, tests_cell, times
from paraval.racing.steps import finding_of
from paraval.records import AttemptResult
from paraval.report.text import one_line
from paraval.report.wording import counted, duration, listed

LONGEST = 500
SHOWN = 10
"""Files, candidates, differences."""


def finding_lines(result: AttemptResult) -> Iterator[str]:
    try:
        finding = finding_of(result)
    except StoreError:
        yield "what it found was written by another version of paraval"
        return
    told: list[str] = []
    if finding.staged is not None:
        told += _staged(finding.staged)
    if finding.tested is not None:
        told += _tested(finding.tested)
    if finding.calibration is not None:
        told += _calibrated(finding.calibration)
    if finding.block is not None:
        told += _block(finding.block)
    if finding.asked is not None:
        told += _asked(finding.asked)
    if finding.profiled is not None:
        told += _profiled(finding.profiled)
    told += finding.outside
    yield from (one_line(line, LONGEST) for line in told)


def _staged(staged: Staged) -> Iterator[str]:
    changed = [f"{file.path} ({file.status})" for file in staged.files]
    yield f"tree {staged.tree}"
    yield f"{counted(len(changed), 'file')}: {_some(changed)}" if changed else "changes nothing"
    yield from staged.flags


def _tested(tested: Tested) -> Iterator[str]:
    if tested.counts is not None:
        yield f"tests passed: {tests_cell(tested.counts)}"
    for difference in tested.differences[:SHOWN]:
        yield difference_heading(difference, str)
    if (more := len(tested.differences) - SHOWN + tested.more) > 0:
        yield f"and {counted(more, 'more difference')}"
    yield from tested.flags
    if tested.unstable:
        yield f"other than in the other run: {_some(tested.unstable)}"


def _calibrated(found: Calibration) -> Iterator[str]:
    yield f"baseline: {_all(found.samples)}"
    took, busy = duration(found.process_s), f"{found.busy_cpus:.1f}"
    yield f"a process takes {took} and keeps {busy} CPUs busy{_noisy(is_so=found.noisy)}"


def _block(block: Block) -> Iterator[str]:
    yield f"baseline: {_all(block.baseline)}"
    yield f"candidate: {_all(block.candidate)}"
    before, after = (_total(side) for side in (block.baseline, block.candidate))
    ratio = times(before / after) if after > 0 else "?"
    on = f", on CPU {', '.join(map(str, block.pinned))}" if block.pinned else ""
    yield f"{ratio} as fast{on}{_noisy(is_so=block.noisy)}"
    yield from block.flags


def _asked(asked: Asked) -> Iterator[str]:
    names = [proposal.name for proposal in asked.proposals]
    yield f"proposes {counted(len(names), 'candidate')}" + (f": {_some(names)}" if names else "")
    yield from (f"left out: {complaint}" for complaint in asked.complaints)
    if asked.more_complaints:
        yield f"left out: {asked.more_complaints:,} more like these"
    yield from asked.remarks


def _profiled(profiled: Profiled) -> Iterator[str]:
    for function in profiled.functions[:SHOWN]:
        yield f"{function.name}  {function.file}  {duration(function.seconds)}"
    if profiled.problem is not None:
        yield profiled.problem


def _all(samples: Iterable[Sample]) -> str:
    return ", ".join(_exact(sample[TOTAL]) for sample in samples)


def _total(side: tuple[Sample, ...]) -> float:
    return median(sample[TOTAL] for sample in side)


def _exact(seconds: float) -> str:
    """`0.2114 s`, `0.0002081 s`: the same unit for both sides, and digits to compare."""
    return f"{seconds:.4g} s"


def _noisy(*, is_so: bool) -> str:
    return "; noisy: the machine was busy with something else" if is_so else ""


def _some(names: Iterable[str]) -> str:
    known = list(names)
    more = len(known) - SHOWN
    return listed([*known[:SHOWN], f"{more:,} more"] if more > 0 else known)
