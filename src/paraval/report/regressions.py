"""Whether cases that passed in the baseline fail now: the gate for suites of any size.

A case with a variant has regressed if all its judged repeats passed in the baseline, and most of
its repeats fail now, and each time that it ran again. One that fails some repeats, or that passed
and failed in the baseline, is flaky: it is named, and not counted. Missing verdicts are not
failures: if they could hide too many regressions, the verdict is undecided. What has no verdict in
the baseline did not pass there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto

from paraval.records import Baseline
from paraval.report.baseline_gate import NO_VARIANT, harmless, name_of
from paraval.report.compare.case_pairs import shared_variants
from paraval.report.compare.case_results import CaseBook, Cell
from paraval.report.gate import GateVerdict, RegressionVerdict, Tries
from paraval.statistics.pairs import mcnemar_mid_p
from paraval.text.words import counted, listed, variant_label

_MOST_NAMED = 5
BEYOND_CHANCE = 0.001
"""The p-value from which on as many that got worse, and so few better, need not run again."""
_ALL = " (all: paraval report -v)"


class _Kind(Enum):
    REGRESSED = auto()
    FLAKY = auto()
    FIXED = auto()
    """It failed each time in the baseline, and passes now."""
    UNKNOWN = auto()
    """Verdicts are missing that could make it a regression."""


def judge_regressions(
    now: CaseBook, before: CaseBook | None, baseline: Baseline, again: CaseBook | None = None
) -> RegressionVerdict:
    """`before`: None if the baseline can no longer be read. `again`: what ran again."""
    assert baseline.max_regressed is not None
    if before is None:
        return _unknown(baseline, "the baseline can no longer be read")
    shared = shared_variants(now.variants, before.variants)
    if not shared:
        return _unknown(baseline, NO_VARIANT)
    found: dict[_Kind, list[str]] = {kind: [] for kind in _Kind}
    regressed: dict[tuple[str, str], Tries] = {}
    number = 0
    for case, cells in now.rows():
        then = before.cells_of(case)
        for key in shared:
            if key not in cells or shared[key] not in then:
                continue
            number += 1
            kind, tried = _kind(cells[key], then[shared[key]]), _tried(again, case, key)
            if kind is _Kind.REGRESSED and tried is not None and tried.passed:
                kind = _Kind.FLAKY
            if kind is _Kind.REGRESSED:
                done = Tries() if tried is None else Tries(sum(tried[:4]), tried.failed)
                regressed[case, key] = done
            if kind:
                label = variant_label(now.variants[key]) if len(shared) > 1 else ""
                found[kind].append(f"{case} · {label}" if label else case)
    if not number:
        return _unknown(baseline, "no case in common")
    of = counted(number, "case" if len(shared) == 1 else "result")
    return _verdict(baseline, found, of, regressed)


def _tried(again: CaseBook | None, case: str, key: str) -> Cell | None:
    """How a case and variant ended when they ran again."""
    return None if again is None else again.cells_of(case).get(key)


def _kind(now: Cell, before: Cell) -> _Kind | None:
    if not before.passed:
        is_fixed = before.failed and now.passed and not now.failed
        return _Kind.FIXED if is_fixed else None
    missing = now.errors + now.skipped
    if not before.failed and now.failed + missing > now.passed:
        is_certain = now.failed > now.passed + missing
        return _Kind.REGRESSED if is_certain else _Kind.UNKNOWN
    return _Kind.FLAKY if now.failed else None


def _verdict(
    baseline: Baseline,
    found: dict[_Kind, list[str]],
    of: str,
    cells: Mapping[tuple[str, str], Tries],
) -> RegressionVerdict:
    """`of`: how many were compared, in words. `cells`: those that regressed."""
    allowed = baseline.max_regressed or 0
    regressed, unknown = found[_Kind.REGRESSED], found[_Kind.UNKNOWN]
    number = f"{len(regressed):,} of {of} got worse than {name_of(baseline)}"
    names = f": {_names(regressed, _ALL)}" if regressed else ""
    verdict = GateVerdict.MISSED if len(regressed) > allowed else GateVerdict.MET
    parts = [f"{number}, allowed {allowed:,}{names}", *_flaky(found[_Kind.FLAKY])]
    failed_again = [one.failed for one in cells.values() if one.failed]
    fixed, tries = len(found[_Kind.FIXED]), min(failed_again, default=0)
    is_beyond_chance = mcnemar_mid_p(len(regressed), fixed) < BEYOND_CHANCE
    if verdict is GateVerdict.MISSED and tries:
        again = "each" if len(failed_again) == len(cells) else f"{len(failed_again):,} of them"
        parts.append(f"{again} failed {counted(tries, 'more time')}")
    elif verdict is GateVerdict.MISSED and fixed and not is_beyond_chance:
        were = "was" if fixed == 1 else "were"
        parts.append(f"{fixed:,} {were} fixed: answers that vary turn both ways")
    finding = "; ".join(parts)
    if verdict is GateVerdict.MET and len(regressed) + len(unknown) > allowed:
        verdict = GateVerdict.UNKNOWN
        finding += f"; no verdict because of errors or skipped trials: {_names(unknown)}"
    return RegressionVerdict(
        verdict=verdict,
        finding=finding,
        baseline=baseline.name,
        max_regressed=allowed,
        regressed=tuple(regressed),
        flaky=tuple(found[_Kind.FLAKY]),
        unknown=tuple(unknown),
        cells=cells,
        tries=tries,
        is_beyond_chance=is_beyond_chance,
    )


def _unknown(baseline: Baseline, why: str) -> RegressionVerdict:
    return RegressionVerdict(
        verdict=GateVerdict.UNKNOWN,
        finding=f"regressions against {name_of(baseline)} undecided: {why}",
        baseline=baseline.name,
        max_regressed=baseline.max_regressed or 0,
    )


def _flaky(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield f"flaky, not counted: {_names(names)}"


def _names(names: Sequence[str], elsewhere: str = "") -> str:
    """The first few that are safe to show anywhere; `elsewhere`: where to find all."""
    shown = [name for one in names if (name := harmless(one))][:_MOST_NAMED]
    if more := len(names) - len(shown):
        shown.append((f"{more:,} more" if shown else counted(more, "case")) + elsewhere)
    return listed(shown)
