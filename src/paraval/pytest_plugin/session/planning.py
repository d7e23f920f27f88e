"""Tests as trials: which run alone and why, what they share, how long they are thought to take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from paraval.pytest_plugin.async_tests import plugins as async_plugins
from paraval.pytest_plugin.exclusive import other_plugins, scan
from paraval.pytest_plugin.models.model_accounts import accounts_of, needs_of
from paraval.pytest_plugin.options import PluginOptions
from paraval.pytest_plugin.recording.item_trials import trial_of
from paraval.pytest_plugin.session.engine import EngineThread, SessionPlan
from paraval.pytest_plugin.session.item_history import DurationHistory
from paraval.pytest_plugin.session.xdist_worker import WorkerItems
from paraval.pytest_plugin.timeouts.time_limits import seconds_of
from paraval.records import Limits, Outcome, RetryPolicy
from paraval.schedule.messages import Work

MOST_TRIES = 1_000_000
"""How often a refused test is tried is for its own mark to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSession:
    """A plan, and what a user is told of it."""

    plan: SessionPlan
    alone: dict[str, str]
    """By node id: why a test runs alone."""
    seconds: dict[str, float]
    """By node id: how long a test may take, of those that are told."""


def plan_session(
    config: pytest.Config,
    items: Sequence[pytest.Item],
    options: PluginOptions,
    history: DurationHistory,
) -> PlannedSession:
    """Every item as a trial, by its place in the session."""
    alone = _reasons(config, items, history)
    needs, named = _needs(config, items)
    expected = history.expected(items)
    trials, works = [], []
    for index, item in enumerate(items):
        # Kept from here on. In threads, one would wait for another: Python locks what it caches.
        _ = item.location
        trial = trial_of(item, index, needs=needs[index], exclusive=item.nodeid in alone)
        trials.append(trial)
        works.append(
            Work(
                index=index,
                needs=trial.needs,
                expected_s=expected.get(item.nodeid, 1.0),
                exclusive=trial.exclusive,
            )
        )
    limits = Limits(
        parallel=options.parallel, auto=options.auto, named=named, accounts=accounts_of(items)
    )
    retry = RetryPolicy(attempts=1, on=frozenset({Outcome.RATE_LIMITED}), refusals=MOST_TRIES)
    return PlannedSession(
        plan=SessionPlan(
            trials=trials,
            works=_in_order_where_alone(works),
            limits=limits,
            retry=retry,
            has_history=history.is_known,
            # Whoever comes first may do what is done once for all: the same test each time.
            is_alone_first=any(history.why_alone(item) is not None for item in items),
        ),
        alone=alone,
        seconds=_seconds(items),
    )


def _reasons(
    config: pytest.Config, items: Sequence[pytest.Item], history: DurationHistory
) -> dict[str, str]:
    everything = other_plugins.why_all_alone(config)
    found = ((item.nodeid, everything or _why_alone(item, history)) for item in items)
    return {nodeid: why for nodeid, why in found if why is not None}


def _needs(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """What each test takes one of, and how many there are of those that have a number: groups, and
    loops that tests share."""
    groups = groups_of(items)
    groups.warn(config)
    limits, needs = dict(groups.limits), []
    for item in items:
        loop = async_plugins.group_of(item)
        shared = () if loop is None else (group_need(loop),)
        limits.update(dict.fromkeys(shared, 1))
        needs.append(tuple(sorted({*needs_of(item), *groups.needs(item), *shared})))
    return needs, limits


def _seconds(items: Sequence[pytest.Item]) -> dict[str, float]:
    """Read before anything runs, so that a limit that says nothing sensible ends the session."""
    told = ((item.nodeid, seconds_of(item)) for item in items)
    return {nodeid: seconds for nodeid, seconds in told if seconds is not None}


def _in_order_where_alone(works: list[Work]) -> list[Work]:
    """What runs alone runs in the order of collection, as in plain pytest: the longest first would
    gain nothing. Thought to be equally long, they stay in it, and take as long in all."""
    alone = [work.expected_s for work in works if work.exclusive]
    mean_s = sum(alone) / max(1, len(alone))
    return [work._replace(expected_s=mean_s) if work.exclusive else work for work in works]


def _why_alone(item: pytest.Item, history: DurationHistory) -> str | None:
    reasons: tuple[Callable[[pytest.Item], str | None], ...] = (
        scan.why_alone,
        async_plugins.why_alone,
        other_plugins.why_alone,
        history.why_alone,
    )
    return next((why for reason in reasons if (why := reason(item)) is not None), None)


# ---- which test each trial is


class ItemAssignment:
    """Trials and tests, whoever chose them."""

    def __init__(
        self, items: Sequence[pytest.Item], plan: SessionPlan, taken: WorkerItems | None
    ) -> None:
        """`taken`: what xdist hands out; None: all tests are this process's own."""
        self._items = items
        self._plan = plan
        self._taken = taken
        self._handed_out: list[int] = []
        """By a trial's index: the place of its test in the session. A test that was taken back may
        come once more, as another trial."""
        self._given_away = 0

    @property
    def is_handed_out(self) -> bool:
        return self._taken is not None

    @property
    def count(self) -> int:
        """How many tests this process has to run, as far as it is known."""
        if self._taken is None:
            return len(self._items)
        return len(self._handed_out) - self._given_away

    def give_away(self) -> None:
        """One that was handed out is another worker's by now."""
        self._given_away += 1

    def place(self, index: int) -> int:
        return index if self._taken is None else self._handed_out[index]

    def item(self, index: int) -> pytest.Item:
        return self._items[self.place(index)]

    def begin(self, engine: EngineThread) -> None:
        """Once the engine runs: what is handed out is added as it comes."""
        if self._taken is not None:
            self._taken.listen(self._given_to(engine), engine.add_no_more)

    def _given_to(self, engine: EngineThread) -> Callable[[Sequence[int]], None]:
        def given(places: Sequence[int]) -> None:
            first = len(self._handed_out)
            self._handed_out.extend(places)
            trials = [self._plan.trials[place] for place in places]
            works = [self._plan.works[place] for place in places]
            engine.add(
                [
                    replace(trial, index=index, key=f"{trial.key} ({index})")
                    for index, trial in enumerate(trials, first)
                ],
                [work._replace(index=index) for index, work in enumerate(works, first)],
            )

        return given

    # ---- what the one who hands out has to know

    def claim(self, index: int) -> bool:
        """Whether the trial's test is still this process's to run."""
        return self._taken is None or self._taken.claim(self.place(index))

    def about_to_tell(self, index: int) -> None:
        """Reports of this trial's test come now, in the main thread."""
        if self._taken is not None:
            self._taken.about_to_tell(self.place(index))

    def done(self, index: int, duration_s: float) -> None:
        if self._taken is not None:
            self._taken.done(self.place(index), duration_s)


# ---- @pytest.mark.parallel_group


MARK = "parallel_group"
_WORDS = ("name", "limit")


def group_need(name: str) -> str:
    """What a group is called among a trial's needs."""
    return f"group:{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelGroup:
    """As one mark says it."""

    name: str
    limit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelGroups:
    """The groups of all tests."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """`group:name` -> how many at once."""
    conflicts: tuple[str, ...] = ()
    """A sentence for each group that is given several limits."""
    by_test: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node id -> the limits that it takes; of those that are in a group."""

    def needs(self, item: pytest.Item) -> tuple[str, ...]:
        return self.by_test.get(item.nodeid, ())

    def warn(self, config: pytest.Config) -> None:
        for conflict in self.conflicts:
            config.issue_config_time_warning(pytest.PytestWarning(conflict), stacklevel=2)


def groups_of(items: Iterable[pytest.Item]) -> ParallelGroups:
    """The smallest limit of each group counts: more at once may be what a test cannot bear.

    Raises pytest.UsageError where a mark says no group.
    """
    told: dict[str, dict[int, str]] = {}
    by_test: dict[str, tuple[str, ...]] = {}
    for item in items:
        groups = groups_in(item)
        if groups:
            by_test[item.nodeid] = tuple(group_need(group.name) for group in groups)
        for group in groups:
            told.setdefault(group.name, {}).setdefault(group.limit, item.nodeid)
    conflicts = (_conflict(name, limits) for name, limits in told.items() if len(limits) > 1)
    return ParallelGroups(
        limits={group_need(name): min(limits) for name, limits in told.items()},
        conflicts=tuple(conflicts),
        by_test=by_test,
    )


def groups_in(item: pytest.Item) -> tuple[ParallelGroup, ...]:
    """Those that a test is in, by its own marks and those around it; each once.

    Where a test has several marks of one group, the nearest counts.
    """
    found: dict[str, ParallelGroup] = {}
    for mark in item.iter_markers(MARK):
        group = _group(mark, item)
        found.setdefault(group.name, group)
    return tuple(found.values())


def _conflict(name: str, limits: Mapping[int, str]) -> str:
    said = ", ".join(f"{limit} in {node_id}" for limit, node_id in sorted(limits.items()))
    return f"parallel_group '{name}' has several limits ({said}); the smallest applies"


def _group(mark: pytest.Mark, item: pytest.Item) -> ParallelGroup:
    given = dict(zip(_WORDS, mark.args, strict=False))
    told = {**given, **mark.kwargs}
    # Each once: by its place, or by its name.
    if len(told) < len(mark.args) + len(mark.kwargs) or told.keys() - {*_WORDS}:
        raise _wrong(item, "takes a name and a limit")
    name, limit = told.get("name"), told.get("limit", 1)
    if not isinstance(name, str) or not name:
        raise _wrong(item, f"needs a name (a string), not {name!r}")
    if type(limit) is not int or limit < 1:
        raise _wrong(item, f"'{name}' needs a limit of 1 or more, not {limit!r}")
    return ParallelGroup(name=name, limit=limit)


def _wrong(item: pytest.Item, what: str) -> pytest.UsageError:
    return pytest.UsageError(
        f'{item.nodeid}: parallel_group {what}; e.g. @pytest.mark.parallel_group("db", limit=2)'
    )
