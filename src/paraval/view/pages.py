"""What the pages show: figures and rows from a run's state, and the templates they go into.

A page and its live updates are made of the same parts, so an update never looks different.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment
from markupsafe import Markup

from paraval.records import Case, RunInfo, value_text
from paraval.report.page.rendering import templates_with
from paraval.report.page.trials import SIGNS
from paraval.store.reader import RunTally
from paraval.text.terminal import cut_middle, one_line
from paraval.text.words import UNKNOWN, counted, duration, money, percent, rough_time, variant_label
from paraval.view.run_state import (
    KINDS,
    RUNNING,
    SORTS,
    WAITING,
    CaseFilter,
    CaseState,
    RunState,
    Tally,
    TrialState,
)

HERE = Path(__file__).parent
_MOST_CASES = 200
_MOST_CHIPS = 2_000
"""On one page: more take the browser longer than a look at them."""
_FEW_VARIANTS = 4
"""Up to here, chips are labeled with their variants."""
_MOST_RUNNING = 20
_LONGEST_LABEL = 60
_WORDS = {
    "wrong": "failed",
    "error": "error",
    "pass": "passed",
    "skip": "skipped",
    RUNNING: "running",
    WAITING: "waiting",
    "unpassed": "not passed",
}
_SIGNS = {**SIGNS, RUNNING: "◌", WAITING: "·"}
STATES = {"held_back": "pending"}
"""States of a run whose name is not what users call it."""

Rows = dict[str, tuple[object, Callable[[], str]]]
"""Id of a row -> a value that changes with it, and how to render it."""


@cache
def _templates() -> Environment:
    return templates_with(HERE / "templates")


def render(template: str, **values: Any) -> Markup:
    text = _templates().get_template(template).render(values)
    return Markup(text)  # noqa: S704 - templates escape what they print


# ---- the list of runs


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    info: RunInfo
    tally: RunTally
    is_race: bool = False
    problem: str = ""

    @property
    def key(self) -> object:
        """Changes whenever the row does."""
        took = int(self.info.wall_s) if self.info.running else self.info.ended_at
        return (self.info.state, self.info.done, self.info.trials, self.tally.usd, took)

    def cells(self) -> dict[str, str]:
        info, tally = self.info, self.tally
        errors = sum(number for outcome, number in tally.outcomes.items() if outcome.is_error)
        return {
            "state": STATES.get(info.state, info.state),
            "began": _time(info.started_at),
            "trials": f"{info.trials:,}"
            if info.done == info.trials
            else f"{info.done:,} of {info.trials:,}",
            "rate": UNKNOWN
            if tally.pass_rate is None or self.is_race
            else percent(tally.pass_rate),
            "errors": f"{errors:,}" if errors else "",
            "cost": UNKNOWN if tally.usd is None else money(tally.usd),
            "took": duration(info.wall_s),
        }


def runs_rows(runs: Iterable[ListedRun]) -> Rows:
    return {
        f"run-{one.info.id}": (
            one.key,
            partial(render, "run_row.html", run=one.info, cells=one.cells(), one=one),
        )
        for one in runs
    }


# ---- one run


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One trial in the list of cases."""

    index: int
    kind: str
    sign: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipGroup:
    """The repeats of a case with one variant."""

    label: str
    """Empty if there are too many variants to label."""
    chips: list[Chip] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePage:
    """The cases that are listed, and where in the list they are."""

    wanted: CaseFilter
    cases: list[CaseState]
    matching: int
    first: int
    pages: int


def page_of(state: RunState, wanted: CaseFilter, with_text: set[int] | None) -> CasePage:
    found = wanted.select(state, with_text)
    a_case = max(1, len(state.trials) // max(1, len(state.cases)))
    size = max(10, min(_MOST_CASES, _MOST_CHIPS // a_case))
    pages = max(1, -(-len(found) // size))
    first = (min(wanted.page, pages) - 1) * size
    return CasePage(
        wanted=wanted,
        cases=found[first : first + size],
        matching=len(found),
        first=first,
        pages=pages,
    )


def case_rows(state: RunState, cases: Iterable[CaseState], texts: Mapping[int, Case]) -> Rows:
    """`texts`: of these cases, for the beginning of their input."""
    labels = [one_line(variant_label(one), _LONGEST_LABEL) for one in state.variants]
    return {
        f"case-{case.number}": (
            case.version,
            partial(_case_row, state, case, labels, _snippet(texts.get(case.number))),
        )
        for case in cases
    }


def _case_row(state: RunState, case: CaseState, labels: list[str], snippet: str) -> str:
    few = 1 < len(labels) <= _FEW_VARIANTS
    groups: dict[int, ChipGroup] = {}
    for trial in case.trials:
        variant = trial.entry.variant
        label = cut_middle(labels[variant], 18) if few else ""
        groups.setdefault(variant, ChipGroup(label=label)).chips.append(
            _chip(trial, labels[variant])
        )
    why = next((trial.why for trial in case.trials if trial.kind in ("wrong", "error")), "")
    return render(
        "case_row.html",
        run=state.folder.name,
        case=case,
        name=one_line(case.id, 120),
        snippet=snippet,
        why=one_line(why, 160),
        groups=[groups[number] for number in sorted(groups)],
    )


def _chip(trial: TrialState, label: str) -> Chip:
    words = trial.outcome.value.replace("_", " ") if trial.outcome else _WORDS[trial.kind]
    figures = (
        label,
        f"#{trial.entry.repeat}" if trial.entry.repeat > 1 else "",
        words,
        duration(trial.seconds) if trial.seconds else "",
        money(trial.usd) if trial.usd else "",
    )
    return Chip(
        index=trial.index,
        kind=trial.kind,
        sign=_SIGNS[trial.kind],
        title=" · ".join(filter(None, figures)),
    )


def _snippet(case: Case | None) -> str:
    if case is None or case.input is None:
        return ""
    given = case.input
    return one_line(given if isinstance(given, str) else value_text(given), 120)


def run_parts(state: RunState, verdict: Markup, shown: CasePage) -> dict[str, str]:
    """The parts of a run's page that change while it runs, by the ids of their elements."""
    assert state.info is not None
    return {
        "verdict": verdict,
        "figures": render("figures.html", **_figures(state)),
        "live": render("live.html", **_live(state)) if state.worked_on else "",
        "place": render("place.html", **_place(state, shown)),
    }


def _figures(state: RunState) -> dict[str, Any]:
    assert state.info is not None
    info = state.info
    took = time.time() - info.started_at if state.worked_on else info.wall_s
    word = "running" if state.worked_on else STATES.get(info.state, info.state)
    tallies = [
        (one_line(variant_label(variant), _LONGEST_LABEL) or "all trials", state.by_variant[number])
        for number, variant in enumerate(state.variants)
    ]
    rows = [_tally_row(label, tally) for label, tally in tallies]
    if len(rows) > 1:
        rows.append(_tally_row("all", state.whole))
    facts = [
        ("state", word),
        ("began", _time(info.started_at)),
        ("took", rough_time(took) if state.worked_on else duration(took)),
        ("trials", f"{state.whole.done:,} of {state.whole.trials:,}"),
        ("cost", UNKNOWN if state.whole.usd is None else money(state.whole.usd)),
    ]
    return {"facts": facts, "rows": rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class TallyRow:
    """A variant's progress: a bar by outcome, and its figures."""

    label: str
    parts: list[tuple[str, float, float]]
    """Kind, and where its part of the bar starts and how wide it is, of 100."""
    rate: str
    counts: str
    cost: str


def _tally_row(label: str, tally: Tally) -> TallyRow:
    parts, at = [], 0.0
    for kind in ("pass", "wrong", "error", "skip", RUNNING):
        width = 100.0 * tally.kinds[kind] / max(1, tally.trials)
        if width:
            parts.append((kind, round(at, 2), round(width, 2)))
        at += width
    return TallyRow(
        label=label,
        parts=parts,
        rate=UNKNOWN if tally.rate is None else percent(tally.rate),
        counts=", ".join(
            counted(tally.kinds[kind], _WORDS[kind], None if kind == "error" else _WORDS[kind])
            for kind in (*SIGNS, RUNNING, WAITING)
            if tally.kinds[kind]
        ),
        cost=UNKNOWN if tally.usd is None else money(tally.usd),
    )


def _live(state: RunState) -> dict[str, Any]:
    """What the engine reports: who runs, what holds others back, the budget, the time left."""
    live = state.live
    now = time.time()
    running = [trial for trial in state.trials if trial.kind == RUNNING]
    running.sort(key=lambda trial: trial.started_at)
    budget, spent = live.get("budget_usd"), live.get("spent_usd")
    return {
        "run": state.folder.name,
        "samples": _polyline(state.samples),
        "most": max((number for _, number in state.samples), default=0),
        "in_parallel": len(running),
        "allowed": live.get("allowed"),
        "parallel": live.get("parallel"),
        "running": [
            (
                trial.index,
                trial.entry.case,
                one_line(state.cases[trial.entry.case].id, 80),
                one_line(variant_label(state.variants[trial.entry.variant]), _LONGEST_LABEL),
                rough_time(max(0.0, now - trial.started_at)),
            )
            for trial in running[:_MOST_RUNNING]
        ],
        "more_running": max(0, len(running) - _MOST_RUNNING),
        "waiting": live.get("waiting") or (),
        "limits": live.get("limits") or (),
        "eta": rough_time(live["eta_s"]) if live.get("eta_s") is not None else "",
        "budget": "" if budget is None else f"{money(spent or 0.0)} of {money(budget)}",
        "budget_share": 0 if not budget else round(min(100.0, 100.0 * (spent or 0.0) / budget), 1),
        "message": live.get("message") or "",
    }


def _polyline(samples: list[tuple[float, int]]) -> str:
    """Points of a line of steps in a box of 240 by 40."""
    if len(samples) < 2:
        return ""
    start, end = samples[0][0], samples[-1][0]
    most = max(1, *(number for _, number in samples))
    points, before = [], samples[0][1]
    for at, number in samples:
        x = 240 * (at - start) / max(1e-9, end - start)
        points += [f"{x:.1f},{39 - 37 * height / most:.1f}" for height in (before, number)]
        before = number
    return " ".join(points)


def _place(state: RunState, shown: CasePage) -> dict[str, Any]:
    wanted = shown.wanted
    page = min(wanted.page, shown.pages)
    return {
        "sentence": f"{counted(shown.matching, 'case')} of {len(state.cases):,}"
        if shown.matching != len(state.cases)
        else counted(shown.matching, "case"),
        "range": f"{shown.first + 1:,}\N{EN DASH}{shown.first + len(shown.cases):,}"
        if shown.pages > 1
        else "",
        "earlier": _address(state, wanted.query(page=page - 1 if page > 2 else ""))
        if page > 1
        else "",
        "later": _address(state, wanted.query(page=page + 1)) if page < shown.pages else "",
    }


def _address(state: RunState, query: Mapping[str, str]) -> str:
    return f"/runs/{state.folder.name}" + (f"?{urlencode(query)}" if query else "")


def choices(state: RunState, wanted: CaseFilter) -> Iterator[tuple[str, str, list[Any]]]:
    """The filters: name in the address, label, and the values to choose from."""
    outcomes = [("unpassed", "not passed"), *((kind, _WORDS[kind]) for kind in KINDS)]
    counts = state.whole.kinds
    yield (
        "outcome",
        "Outcome",
        [(name, word) for name, word in outcomes if counts[name] or name == wanted.outcome
         or (name == "unpassed" and counts["wrong"] + counts["error"])],
    )  # fmt: skip
    tags = sorted({tag for case in state.cases for tag in case.tags})
    yield "tag", "Tag", [(tag, one_line(tag, 40)) for tag in tags]
    graders = sorted(state.graders)
    yield "grader", "Failed by", [(name, one_line(name, 40)) for name in graders]
    yield "sort", "Order", [(name, label) for name, (label, _) in SORTS.items()]


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
