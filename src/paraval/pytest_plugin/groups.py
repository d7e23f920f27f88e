"""`@pytest.mark.parallel_group("name", limit=2)`: of the tests of a group, so many run at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

MARK = "parallel_group"
_WORDS = ("name", "limit")


def group_need(name: str) -> str:
    """What a group is called among a trial's needs."""
    return f"group:{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """As one mark says it."""

    name: str
    limit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
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


def groups_of(items: Iterable[pytest.Item]) -> Groups:
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
    return Groups(
        limits={group_need(name): min(limits) for name, limits in told.items()},
        conflicts=tuple(conflicts),
        by_test=by_test,
    )


def groups_in(item: pytest.Item) -> tuple[Group, ...]:
    """Those that a test is in, by its own marks and those around it; each once.

    Where a test has several marks of one group, the nearest counts.
    """
    found: dict[str, Group] = {}
    for mark in item.iter_markers(MARK):
        group = _group(mark, item)
        found.setdefault(group.name, group)
    return tuple(found.values())


def _conflict(name: str, limits: Mapping[int, str]) -> str:
    said = ", ".join(f"{limit} by {node_id}" for limit, node_id in sorted(limits.items()))
    return f"parallel_group '{name}' is given several limits ({said}): the smallest counts"


def _group(mark: pytest.Mark, item: pytest.Item) -> Group:
    given = dict(zip(_WORDS, mark.args, strict=False))
    told = {**given, **mark.kwargs}
    # Each once: by its place, or by its name.
    if len(told) < len(mark.args) + len(mark.kwargs) or told.keys() - {*_WORDS}:
        raise _wrong(item, "takes a name and a limit")
    name, limit = told.get("name"), told.get("limit", 1)
    if not isinstance(name, str) or not name:
        raise _wrong(item, f"needs a name, a text; not {name!r}")
    if type(limit) is not int or limit < 1:
        raise _wrong(item, f"'{name}' needs a limit from 1 on; not {limit!r}")
    return Group(name=name, limit=limit)


def _wrong(item: pytest.Item, what: str) -> pytest.UsageError:
    return pytest.UsageError(
        f'{item.nodeid}: parallel_group {what}; e.g. @pytest.mark.parallel_group("db", limit=2)'
    )
