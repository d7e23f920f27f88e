"""Plans tests as trials: which run exclusively and why, what they share, and expected durations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

import pytest

from paraval.dataclass import dataclass
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
"""No limit here: the test's own mark sets the number of tries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSession:
    """A plan, with the information for the user."""

    plan: SessionPlan
    alone: dict[str, str]
    """By node id: why a test runs exclusively."""
    seconds: dict[str, float]
    """By node id: the timeouts of tests that have one."""


def plan_session(
    config: pytest.Config,
    items: Sequence[pytest.Item],
    options: PluginOptions,
    history: DurationHistory,
) -> PlannedSession:
    """Make every item a trial, by its position in the session."""
    alone = _reasons(config, items, history)
    needs, named = _needs(config, items)
    expected = history.expected(items)
    trials, works = [], []
    for index, item in enumerate(items):
        # Cached from here on. In threads, tests would wait for each other: Python locks this cache.
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
            # The first test may make a one-time change for all: run the same test first each time.
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
    """What each test needs, and the capacity of those that have one: groups and shared loops."""
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
    """Read the timeouts before anything runs, so that an invalid one ends the session."""
    limits = ((item.nodeid, seconds_of(item)) for item in items)
    return {nodeid: seconds for nodeid, seconds in limits if seconds is not None}


def _in_order_where_alone(works: list[Work]) -> list[Work]:
    """Keep exclusive tests in the order of collection, as in plain pytest.

    Running the longest first would gain nothing. With equal expected durations they stay in order,
    and the total is unchanged.
    """
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
    """Maps trials to tests, whether or not xdist hands them out."""

    def __init__(
        self, items: Sequence[pytest.Item], plan: SessionPlan, taken: WorkerItems | None
    ) -> None:
        """`taken`: what xdist hands out; None: this process runs all tests."""
        self._items = items
        self._plan = plan
        self._taken = taken
        self._handed_out: list[int] = []
        """By trial index: its test's position. A test taken back may return as another trial."""
        self._given_away = 0

    @property
    def is_handed_out(self) -> bool:
        return self._taken is not None

    @property
    def count(self) -> int:
        """How many tests this process has to run, as far as known."""
        if self._taken is None:
            return len(self._items)
        return len(self._handed_out) - self._given_away

    def give_away(self) -> None:
        """Note that a test handed out here now belongs to another worker."""
        self._given_away += 1

    def place(self, index: int) -> int:
        return index if self._taken is None else self._handed_out[index]

    def item(self, index: int) -> pytest.Item:
        return self._items[self.place(index)]

    def begin(self, engine: EngineThread) -> None:
        """Start adding tests to the running engine as xdist hands them out."""
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

    # ---- for xdist's controller

    def claim(self, index: int) -> bool:
        """Whether the trial's test is still this process's to run."""
        return self._taken is None or self._taken.claim(self.place(index))

    def about_to_report(self, index: int) -> None:
        """Announce that reports of this trial's test follow, in the main thread."""
        if self._taken is not None:
            self._taken.about_to_report(self.place(index))

    def done(self, index: int, duration_s: float) -> None:
        if self._taken is not None:
            self._taken.done(self.place(index), duration_s)


# ---- @pytest.mark.parallel_group


MARK = "parallel_group"
_WORDS = ("name", "limit")


def group_need(name: str) -> str:
    """The group's name among a trial's needs."""
    return f"group:{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelGroup:
    """The group that one mark names."""

    name: str
    limit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelGroups:
    """The groups of all tests."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """`group:name` -> how many tests run concurrently."""
    conflicts: tuple[str, ...] = ()
    """A message for each group with several limits."""
    by_test: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node id -> its groups, for tests that have any."""

    def needs(self, item: pytest.Item) -> tuple[str, ...]:
        return self.by_test.get(item.nodeid, ())

    def warn(self, config: pytest.Config) -> None:
        for conflict in self.conflicts:
            config.issue_config_time_warning(pytest.PytestWarning(conflict), stacklevel=2)


def groups_of(items: Iterable[pytest.Item]) -> ParallelGroups:
    """Collect the groups; the smallest limit of each applies, since a test may not tolerate more.

    Raises pytest.UsageError for an invalid mark.
    """
    by_name: dict[str, dict[int, str]] = {}
    by_test: dict[str, tuple[str, ...]] = {}
    for item in items:
        groups = groups_in(item)
        if groups:
            by_test[item.nodeid] = tuple(group_need(group.name) for group in groups)
        for group in groups:
            by_name.setdefault(group.name, {}).setdefault(group.limit, item.nodeid)
    conflicts = (_conflict(name, limits) for name, limits in by_name.items() if len(limits) > 1)
    return ParallelGroups(
        limits={group_need(name): min(limits) for name, limits in by_name.items()},
        conflicts=tuple(conflicts),
        by_test=by_test,
    )


def groups_in(item: pytest.Item) -> tuple[ParallelGroup, ...]:
    """The groups of a test, by its own marks and inherited ones, each once.

    If a test has several marks of one group, the nearest applies.
    """
    found: dict[str, ParallelGroup] = {}
    for mark in item.iter_markers(MARK):
        group = _group(mark, item)
        found.setdefault(group.name, group)
    return tuple(found.values())


def _conflict(name: str, limits: Mapping[int, str]) -> str:
    listed = ", ".join(f"{limit} in {node_id}" for limit, node_id in sorted(limits.items()))
    return f"parallel_group '{name}' has several limits ({listed}); the smallest applies"


def _group(mark: pytest.Mark, item: pytest.Item) -> ParallelGroup:
    given = dict(zip(_WORDS, mark.args, strict=False))
    arguments = {**given, **mark.kwargs}
    # Each argument once, by position or by name.
    if len(arguments) < len(mark.args) + len(mark.kwargs) or arguments.keys() - {*_WORDS}:
        raise _wrong(item, "takes a name and a limit")
    name, limit = arguments.get("name"), arguments.get("limit", 1)
    if not isinstance(name, str) or not name:
        raise _wrong(item, f"needs a name (a string), not {name!r}")
    if type(limit) is not int or limit < 1:
        raise _wrong(item, f"'{name}' needs a limit of 1 or more, not {limit!r}")
    return ParallelGroup(name=name, limit=limit)


def _wrong(item: pytest.Item, what: str) -> pytest.UsageError:
    return pytest.UsageError(
        f'{item.nodeid}: parallel_group {what}; e.g. @pytest.mark.parallel_group("db", limit=2)'
    )
