"""Plans tests for the scheduler: what each needs, what it shares, and how long it will take."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from paraval.pytest_plugin.history import History
from paraval.pytest_plugin.models.model_accounts import accounts_of, needs_of, retry_mark_of
from paraval.pytest_plugin.options import PluginOptions
from paraval.pytest_plugin.pytest_internals import shares_fixtures
from paraval.pytest_plugin.time_limits import seconds_of
from paraval.records import Limits, Outcome, RetryPolicy
from paraval.schedule.messages import Work

MOST_TRIES = 1_000_000
"""No limit here: the test's own mark sets the number of tries."""
SHORT_S = 0.01
MOST_AT_ONCE = 16
"""Short tests that a worker is given together."""


@dataclass(slots=True)
class Unit:
    """Tests that one worker runs one after another: almost always a single one."""

    tests: list[int]
    """By their positions in the session."""
    is_fixed: bool = False
    """False: while it waits, another test with the same needs may take its turn."""


@dataclass(slots=True)
class SessionPlan:
    """What to run. The index of a work is the position of its unit's first test."""

    units: dict[int, Unit]
    works: list[Work]
    limits: Limits
    retry: RetryPolicy
    expected: list[float]
    """By test, in seconds."""
    alone: Mapping[str, str]
    """By node id: why a test runs with no other beside it."""
    conflicts: tuple[str, ...]
    """What the marks of groups contradict each other in."""
    shared: SharedFixtures


def plan_session(
    items: Sequence[pytest.Item], options: PluginOptions, history: History
) -> SessionPlan:
    groups = groups_of(items)
    known = history.expected(items)
    expected = [known[item.nodeid] for item in items]
    for item in items:
        _ = item.location  # Cached from here on, in all workers, too.
    alone = {item.nodeid: why for item in items if (why := _why_alone(item, history)) is not None}
    units: dict[int, Unit] = {}
    needs: dict[int, set[str]] = {}
    first_of: dict[str, int] = {}
    for index, item in enumerate(items):
        own = groups.by_test.get(item.nodeid, ())
        bound = next((name for name in own if groups.limits[name] == 1), None)
        is_alone = item.nodeid in alone
        first = index if bound is None or is_alone else first_of.setdefault(bound, index)
        unit = units.setdefault(first, Unit([], is_fixed=bound is not None or is_alone))
        unit.tests.append(index)
        needs.setdefault(first, set()).update(needs_of(item), own)
    works = [
        Work(
            index=first,
            needs=tuple(sorted(needs[first])),
            expected_s=sum(expected[test] for test in unit.tests),
            exclusive=items[first].nodeid in alone,
        )
        for first, unit in units.items()
    ]
    return SessionPlan(
        units=units,
        works=works,
        limits=Limits(
            parallel=options.parallel,
            auto=options.auto,
            named=dict(groups.limits),
            accounts=accounts_of(items),
        ),
        retry=RetryPolicy(attempts=1, on=frozenset({Outcome.RATE_LIMITED}), refusals=MOST_TRIES),
        expected=expected,
        alone=alone,
        conflicts=groups.conflicts,
        shared=SharedFixtures(
            items,
            works,
            units,
            expected,
            is_known=history.is_known,
            is_one_by_one=bool(items and items[0].config.getoption("maxfail", 0)),
        ),
    )


def _why_alone(item: pytest.Item, history: History) -> str | None:
    if item.get_closest_marker("serial") is not None:
        return "marked serial"
    return history.why_alone(item.nodeid)


# ---- fixtures that tests of a module share


class SharedFixtures:
    """Which test takes a turn: one whose module's fixtures the free worker has set up already.

    The scheduler says when a test with certain needs may start; among those with the same needs,
    this chooses. Modules whose tests take longest in all go first.
    """

    def __init__(
        self,
        items: Sequence[pytest.Item],
        works: Iterable[Work],
        units: Mapping[int, Unit],
        expected: Sequence[float],
        *,
        is_known: bool,
        is_one_by_one: bool,
    ) -> None:
        """`is_one_by_one`: no worker is given several tests."""
        self._expected = expected
        self._is_one_by_one = is_one_by_one
        self._is_known = is_known
        self._mean_s = 1.0
        """Of the last tests."""
        self._homes = [_home_of(item) for item in items]
        self._waiting: dict[tuple[str, ...], dict[object, deque[int]]] = defaultdict(dict)
        """By needs and home: tests in their order."""
        self._needs: dict[int, tuple[str, ...]] = {}
        for work in sorted(works, key=lambda work: (-work.expected_s, work.index)):
            if not units[work.index].is_fixed:
                self._needs[work.index] = work.needs
                homes = self._waiting[work.needs]
                homes.setdefault(self._homes[work.index], deque()).append(work.index)
        for homes in self._waiting.values():
            for home, tests in homes.items():
                if home is not None:
                    homes[home] = deque(sorted(tests))

    def home(self, test: int) -> object:
        """The module whose fixtures it shares; None: it shares none."""
        return self._homes[test]

    def observe(self, seconds: float) -> None:
        """Note how long a test has taken."""
        self._mean_s += 0.1 * (seconds - self._mean_s)

    def choose(self, index: int, home: object, others: set[object], *, at_most: int) -> list[int]:
        """The test that takes the turn of this one, on a worker with this home; `others`: homes
        that other workers have. `at_most` more if they are so short that handing them out takes
        longer.
        """
        needs = self._needs[index]
        homes = self._waiting[needs]
        if home is None or home not in homes:
            home = max(homes, key=lambda one: (one not in others, self._weight(one, homes[one])))
        chosen = [homes[home].popleft()]
        if self._is_short(chosen[0]):
            chosen += self.more(chosen[0], at_most=at_most)
        if home in homes and not homes[home]:
            del homes[home]
        return chosen

    def more(self, test: int, *, at_most: int) -> list[int]:
        """Further short tests for a worker that runs this short one."""
        needs, home = self._needs[test], self._homes[test]
        tests = self._waiting[needs].get(home, deque())
        most = 0 if needs or self._is_one_by_one else min(at_most, MOST_AT_ONCE)
        found: list[int] = []
        while tests and len(found) < most and self._is_short(tests[0]):
            found.append(tests.popleft())
        if found and not tests:
            del self._waiting[needs][home]
        return found

    def _is_short(self, test: int) -> bool:
        return (self._expected[test] if self._is_known else self._mean_s) < SHORT_S

    def _weight(self, home: object, tests: deque[int]) -> float:
        if home is None:
            return self._expected[tests[0]]
        return sum(self._expected[test] for test in tests)

    def waits_for(self, home: object) -> bool:
        return home is not None and any(home in homes for homes in self._waiting.values())


def _home_of(item: pytest.Item) -> object:
    return item.getparent(pytest.Module) if shares_fixtures(item) else None


# ---- @pytest.mark.parallel_group


MARK = "parallel_group"
_WORDS = ("name", "limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelGroups:
    """The groups of all tests."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """`group:name` -> how many tests run beside each other; 1: all in one worker."""
    conflicts: tuple[str, ...] = ()
    """A message for each group with several limits."""
    by_test: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node id -> its groups, for tests that have any."""


def groups_of(items: Iterable[pytest.Item]) -> ParallelGroups:
    """Collect the groups; the smallest limit of each applies, since a test may not tolerate more.

    Raises pytest.UsageError for an invalid mark.
    """
    by_name: dict[str, dict[int, str]] = {}
    by_test: dict[str, tuple[str, ...]] = {}
    for item in items:
        groups = groups_in(item)
        if groups:
            by_test[item.nodeid] = tuple(f"group:{name}" for name in groups)
        for name, limit in groups.items():
            by_name.setdefault(name, {}).setdefault(limit, item.nodeid)
    conflicts = (_conflict(name, limits) for name, limits in by_name.items() if len(limits) > 1)
    return ParallelGroups(
        limits={f"group:{name}": min(limits) for name, limits in by_name.items()},
        conflicts=tuple(conflicts),
        by_test=by_test,
    )


def groups_in(item: pytest.Item) -> dict[str, int]:
    """The limits of a test's groups, by its own marks and inherited ones; the nearest applies."""
    found: dict[str, int] = {}
    for mark in item.iter_markers(MARK):
        found.setdefault(*_name_and_limit(mark, item))
    return found


def _conflict(name: str, limits: Mapping[int, str]) -> str:
    listed = ", ".join(f"{limit} in {node_id}" for limit, node_id in sorted(limits.items()))
    return f"parallel_group '{name}' has several limits ({listed}); the smallest applies"


def _name_and_limit(mark: pytest.Mark, item: pytest.Item) -> tuple[str, int]:
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
    return name, limit


def _wrong(item: pytest.Item, what: str) -> pytest.UsageError:
    return pytest.UsageError(
        f'{item.nodeid}: parallel_group {what}; e.g. @pytest.mark.parallel_group("db", limit=2)'
    )


# ---- marks that are not valid: all are reported before any test runs


MOST_LINES = 20
_READERS = (seconds_of, groups_in, retry_mark_of)


def mistakes_in(items: Iterable[pytest.Item]) -> list[str]:
    """Return an error message per mistake, once for all cases of a parametrized test."""
    found: dict[str, None] = {}
    for item in items:
        for read in _READERS:
            try:
                read(item)
            except pytest.UsageError as error:
                test = item.nodeid.partition("[")[0]
                found[str(error).replace(item.nodeid, test, 1)] = None
    return list(found)


def refuse(session: pytest.Session, items: list[pytest.Item], mistakes: Sequence[str]) -> None:
    """End the session before its first test."""
    more = len(mistakes) - MOST_LINES
    shown = [*mistakes[:MOST_LINES], *([f"... and {more} more"] if more > 0 else [])]
    text = "\n".join(shown)
    items.clear()
    if not hasattr(session.config, "workerinput"):
        raise pytest.UsageError(text)
    # This is an xdist worker: its controller shows a collection error once for all workers, and
    # would treat any other way to stop as a crash.
    report = pytest.CollectReport(nodeid="", outcome="failed", longrepr=text, result=None)
    session.config.hook.pytest_collectreport(report=report)
