"""Runs of a suite one after another: made up, or in a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paraval.records import AttemptResult, Case, Outcome, Plan, RunInfo, Trial, Variant
from paraval.report.history.history import EarlierRuns, History, HistoryEntry
from paraval.settings import Selection
from paraval.store.store import Store
from tests.comparing_kit import trial
from tests.page_kit import MadeRun
from tests.test_store import TARGET, Desk, broken, finish, judged

PARTS = {"cases": "c", "case_count": "40", "prompt": "p", "models": "m", "repeats": "1"}
FIRST = 1_769_860_800.0
ENDS = {
    "P": judged(),
    "F": judged(passed=False),
    "E": broken(Outcome.TIMEOUT),
    "S": broken(Outcome.SKIPPED),
}


def made_run(number: int, ends: str | Mapping[str, str], **info: Any) -> MadeRun:
    """The so-maniest run of a suite: a letter a case, by mode or of one variant alone."""
    by_mode: Mapping[str, str] = {"": ends} if isinstance(ends, str) else ends
    trials = [
        trial(f"c{case}", {"mode": mode} if mode else {}, end)
        for mode, row in by_mode.items()
        for case, end in enumerate(row)
    ]
    usual = {
        "id": f"20260131-12{number:02}00-abcd",
        "started_at": FIRST + 60 * number,
        "ended_at": FIRST + 60 * number + 5,
        "parts": PARTS,
        "trials": len(trials),
        "done": len(trials),
    }
    return MadeRun(trials=trials, info_with=usual | info)


def entries_of(*runs: MadeRun, **asked: Any) -> list[HistoryEntry]:
    return list(EarlierRuns(**asked).entries(runs))


def history_of_made(*runs: MadeRun, **told: Any) -> History:
    return History(suite="greetings", entries=tuple(entries_of(*runs)), **told)


def plan_with(
    ends: Mapping[str, str],
    *,
    name: str = "greetings",
    parts: Mapping[str, str] = PARTS,
    selection: Selection | None = None,
) -> Plan:
    variants: tuple[Variant, ...] = tuple({"mode": mode} if mode else {} for mode in ends)
    trials = [
        Trial(
            index=0,
            key=f"{case}-{number}-{name}",
            case=Case(id=f"c{case}"),
            variant=variant,
            repeat=1,
            target=TARGET,
        )
        for number, (variant, row) in enumerate(zip(variants, ends.values(), strict=True))
        for case in range(len(row))
    ]
    return Plan(
        name=name,
        source="/suites/greetings.yaml",
        axes={"mode": tuple(ends)} if all(ends) else {},
        variants=variants,
        trials=tuple(replace(one, index=index) for index, one in enumerate(trials)),
        parts=parts,
        selection={} if selection is None else selection.as_mapping(),
    )


def stored(
    store: Store, ends: str | Mapping[str, str], *, stop_after: int | None = None, **plan: Any
) -> RunInfo:
    """A run in the store; one that is interrupted after so many trials, where that is said.

    `parts` are laid over the usual ones; with None, it has none, as sessions of tests do.
    """
    by_mode: Mapping[str, str] = {"": ends} if isinstance(ends, str) else ends
    usual = {**PARTS, "case_count": str(len(next(iter(by_mode.values()))))}
    asked = plan.pop("parts", {})
    parts = {} if asked is None else {**usual, **asked}
    ledger = store.create_run(plan_with(by_mode, parts=parts, **plan), seed=1)
    results: Sequence[AttemptResult] = [ENDS[end] for row in by_mode.values() for end in row]
    if stop_after is None:
        return finish(ledger, dict(enumerate(results)))
    desk = Desk(ledger)
    for index in range(stop_after):
        desk.run(index, results[index])
    ledger.close(interrupted=True)
    return ledger.run
