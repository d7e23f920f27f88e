"""What a user is told of a parallel run: how many tests run side by side, and why others don't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from paraval.pytest_plugin.floor import Floor
from paraval.pytest_plugin.running import ParallelRun
from paraval.report.wording import counted

MOST_REASONS = 3
MOST_NAMES = 3


def summary_of(alone: Mapping[str, str], count: int) -> str:
    """In one line; `alone`: by node id, why a test runs alone, of `count` tests in all."""
    beside = count - len(alone)
    told = f"{beside} side by side"
    if alone:
        told += f", {len(alone)} alone: {_reasons(Counter(alone.values()))}"
    return f"little is gained: {told}" if 2 * beside < count else told


def _reasons(reasons: Counter[str]) -> str:
    common = reasons.most_common(MOST_REASONS)
    told = [common[0][0]] if len(common) == 1 else [f"{times} {why}" for why, times in common]
    others = reasons.total() - sum(times for _, times in common)
    if others:
        told.append(f"{others} for other reasons (-v tells)")
    if common[0][0].startswith("fixture "):
        told.append('scope="session" would let them run side by side')
    return "; ".join(told)


def notes_on(run: ParallelRun, floor: Floor, *, is_checking: bool) -> Iterator[str]:
    """After a run: what was broken off, what was run again, and what was found out too late to
    keep it from others."""
    yield from run.still_running
    if run.failure is not None:
        yield run.failure
    if run.passed_alone:
        yield (
            f"parallel: {len(run.passed_alone)} passed alone (failed beside others): "
            f"{_some(run.passed_alone)}; from the next session on, they run alone"
        )
    if run.failed_callers and is_checking:
        yield (
            f"parallel: {counted(run.failed_callers, 'test')} that failed beside others may have "
            "asked a model, and so did not run again: --check-alone runs such tests once more, "
            "alone"
        )
    changed = {f"the fixture {name}": why for name, why in floor.by_shared_fixtures.items()}
    for who, why in (changed | floor.shared).items():
        yield (
            f"parallel: {who} changed the process beside other tests ({why}); from the next "
            "session on, what uses it runs alone"
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
