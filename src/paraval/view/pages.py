"""What the pages show: figures and rows from a run's state, and the templates they go into.

A page and its live updates are made of the same parts, so an update never looks different.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment
from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.records import RunInfo
from paraval.report.page.rendering import templates_with
from paraval.report.page.trials import SIGNS
from paraval.runner.live import time_left_s
from paraval.store.reader import RunTally
from paraval.text.terminal import cut_middle, one_line
from paraval.text.words import UNKNOWN, counted, duration, money, percent, rough_time, variant_label
from paraval.view.run_state import (
    RUNNING,
    SORTS,
    UNPASSED,
    WAITING,
    CaseFilter,
    CaseState,
    OutcomeTally,
    RunState,
    TrialState,
)

HERE = Path(__file__).parent
_MOST_CASES = 200
_MOST_CHIPS = 2_000
"""On one page: more take the browser longer than a look at them."""
_FEW_VARIANTS = 4
"""Up to here, chips are labeled with their variants."""
_MOST_RUNNING = 10
_LONGEST_LABEL = 60
_WORDS = {
    "unpassed": "not passed",
    "wrong": "failed",
    "error": "error",
    "pass": "passed",
    "skip": "skipped",
    RUNNING: "running",
    WAITING: "waiting",
}
"""What trials can be chosen by, and what it is called."""
_SIGNS = {**SIGNS, RUNNING: "◌", WAITING: "·"}


@cache
def _templates() -> Environment:
    return templates_with(HERE / "templates")


def render(template: str, **values: Any) -> Markup:
    text = _templates().get_template(template).render(values)
    return Markup(text)  # noqa: S704 - templates escape what they print


def state_word(info: RunInfo) -> str:
    return "pending" if info.state == "held_back" else info.state


def _cost(tally: RunTally | OutcomeTally) -> str:
    """`$0.12`; `$0.12+` if part of it is unknown, `unknown` if all is."""
    if tally.usd is None:
        return "unknown" if tally.is_partly_unknown else UNKNOWN
    return money(tally.usd) + "+" * tally.is_partly_unknown


def _rate(rate: float | None) -> str:
    return UNKNOWN if rate is None else percent(rate)


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


# ---- the list of runs


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    info: RunInfo
    tally: RunTally
    is_race: bool = False

    def row(self) -> Markup:
        info, tally = self.info, self.tally
        errors = sum(number for outcome, number in tally.outcomes.items() if outcome.is_error)
        done = "" if info.done == info.trials else f"{info.done:,} of "
        return render(
            "run_row.html",
            run=info,
            is_race=self.is_race,
            state=state_word(info),
            figures=(
                f"{done}{info.trials:,}",
                UNKNOWN if self.is_race else _rate(tally.pass_rate),
                f"{errors:,}" if errors else "",
                _cost(tally),
                _time(info.started_at),
                duration(info.wall_s),
            ),
        )


# ---- one run


class RunPage:
    """A run's page: the parts that change."""

    def __init__(self, state: RunState, wanted: CaseFilter, with_text: set[int] | None) -> None:
        """`with_text`: numbers of the cases with the text that is looked for."""
        self._state = state
        self._wanted = wanted
        self._found = wanted.select(state, with_text)
        a_case = max(1, len(state.trials) // max(1, len(state.cases)))
        size = max(10, min(_MOST_CASES, _MOST_CHIPS // a_case))
        self._pages = max(1, -(-len(self._found) // size))
        self._page = min(wanted.page, self._pages)
        self._first = (self._page - 1) * size
        self._cases = self._found[self._first : self._first + size]
        self._labels = [one_line(variant_label(one), _LONGEST_LABEL) for one in state.variants]

    @cached_property
    def _snippets(self) -> Mapping[int, str]:
        return self._state.snippets(self._cases)

    def _row(self, case: CaseState, query: str) -> Markup:
        """Rendered again if one of its trials changed."""
        known = self._state.rows.get((case.number, query))
        if known is not None and known[0] == case.version:
            return known[1]
        few = 1 < len(self._labels) <= _FEW_VARIANTS
        groups: dict[int, list[Any]] = {}
        for trial in case.trials:
            variant = trial.entry.variant
            label = self._labels[variant]
            group = groups.setdefault(variant, [cut_middle(label, 18) if few else "", []])
            group[1].append((trial.index, trial.kind, _SIGNS[trial.kind], _title(trial, label)))
        why = next((trial.why for trial in case.trials if trial.kind in UNPASSED), "")
        row = render(
            "case_row.html",
            run=self._state.folder.name,
            case=case,
            query=query,
            snippet=self._snippets[case.number],
            why=one_line(why, 160),
            groups=[groups[variant] for variant in sorted(groups)],
        )
        self._state.rows[case.number, query] = (case.version, row)
        return row

    def parts(self, verdict: Markup) -> dict[str, str]:
        """The parts that change while it runs, by the ids of their elements."""
        is_live = self._state.worked_on
        words = urlencode(self._wanted.query(page=""))
        query = f"?{words}" if words else ""
        return {
            "verdict": verdict,
            "figures": render("figures.html", **self._figures()),
            "live": render("live.html", **self._live()) if is_live else "",
            "place": render("place.html", **self._place()),
            "rows": Markup().join(self._row(case, query) for case in self._cases),
        }

    def _figures(self) -> dict[str, Any]:
        state = self._state
        info = state.info
        assert info is not None
        now = rough_time(time.time() - info.started_at)
        rows = [
            _tally_row(label or "all trials", state.by_variant[number])
            for number, label in enumerate(self._labels)
        ]
        return {
            "facts": (
                ("state", "running" if state.worked_on else state_word(info)),
                ("began", _time(info.started_at)),
                ("took", now if state.worked_on else duration(info.wall_s)),
                ("trials", f"{state.whole.done:,} of {state.whole.trials:,}"),
                ("cost", _cost(state.whole)),
            ),
            "rows": rows,
            "total": _tally_row("all", state.whole) if len(rows) > 1 else None,
        }

    def _live(self) -> dict[str, Any]:
        """What the engine reports: who runs, what holds others back, the budget, the time left."""
        state, live, now = self._state, self._state.live, time.time()
        running = sorted(state.running, key=lambda trial: trial.started_at)
        budget, spent = live.get("budget_usd"), live.get("spent_usd") or 0.0
        left_s = time_left_s(live)
        return {
            **{name: live.get(name) for name in ("allowed", "parallel", "message")},
            **{name: live.get(name) or () for name in ("waiting", "limits")},
            "run": state.folder.name,
            "samples": _steps(state.samples),
            "most": max(number for _, number in state.samples),
            "in_parallel": len(running),
            "running": [
                (
                    trial,
                    one_line(state.cases[trial.entry.case].id, 80),
                    self._labels[trial.entry.variant],
                    rough_time(max(0.0, now - trial.started_at)),
                )
                for trial in running[:_MOST_RUNNING]
            ],
            "more_running": max(0, len(running) - _MOST_RUNNING),
            "eta": "" if left_s is None else rough_time(left_s),
            "budget": f"{money(spent)} of {money(budget)}" if budget else "",
            "budget_share": round(min(100.0, 100.0 * spent / budget), 1) if budget else 0,
        }

    def _place(self) -> dict[str, Any]:
        found, every = len(self._found), len(self._state.cases)
        shown = f"{self._first + 1:,}\N{EN DASH}{self._first + len(self._cases):,}"
        links = [
            (rel, f"?{urlencode(self._wanted.query(page=page if page > 1 else ''))}")
            for rel, page in (("prev", self._page - 1), ("next", self._page + 1))
            if 1 <= page <= self._pages
        ]
        of = "" if found == every else f" of {every:,}"
        return {
            "sentence": counted(found, "case") + of if found else "No matching case.",
            "shown": shown if self._pages > 1 else "",
            "links": links,
        }

    def choices(self) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
        """The filters: name in the address, label, and the values to choose from."""
        kinds = self._state.whole.kinds
        counts = {**kinds, "unpassed": sum(kinds[kind] for kind in UNPASSED)}
        asked = [kind for kind in _WORDS if counts.get(kind) or kind == self._wanted.outcome]
        yield "outcome", "Outcome", [(kind, _WORDS[kind]) for kind in asked]
        tags = sorted({tag for case in self._state.cases for tag in case.tags})
        yield "tag", "Tag", [(tag, one_line(tag, 40)) for tag in tags]
        graders = sorted(self._state.graders)
        yield "grader", "Failed by", [(name, one_line(name, 40)) for name in graders]
        yield "sort", "Order", [(name, label) for name, (label, _) in SORTS.items()]


def _title(trial: TrialState, label: str) -> str:
    figures = (
        label,
        f"#{trial.entry.repeat}" if trial.entry.repeat > 1 else "",
        trial.outcome.value.replace("_", " ") if trial.outcome else _WORDS[trial.kind],
        duration(trial.seconds) if trial.seconds else "",
        money(trial.usd) if trial.usd else "",
    )
    return " · ".join(filter(None, figures))


def _tally_row(label: str, tally: OutcomeTally) -> dict[str, Any]:
    """A variant's progress: a bar by outcome, of 100, and its figures."""
    parts, at = [], 0.0
    for kind in (*SIGNS, RUNNING):
        if width := 100.0 * tally.kinds[kind] / max(1, tally.trials):
            parts.append((kind, round(at, 2), round(width, 2)))
            at += width
    words = (
        counted(tally.kinds[kind], _WORDS[kind], None if kind == "error" else _WORDS[kind])
        for kind in (*SIGNS, RUNNING, WAITING)
        if tally.kinds[kind]
    )
    return {
        "label": label,
        "parts": parts,
        "rate": _rate(tally.rate),
        "cost": _cost(tally),
        "counts": ", ".join(words),
    }


def _steps(samples: list[tuple[float, int]]) -> str:
    """Points of a line of steps in a box of 240 by 40."""
    (start, before), (end, _) = samples[0], samples[-1]
    most = max(1, *(number for _, number in samples))
    points = []
    for at, number in samples:
        x = 240 * (at - start) / max(1e-9, end - start)
        points += [f"{x:.1f},{39 - 37 * height / most:.1f}" for height in (before, number)]
        before = number
    return " ".join(points)
