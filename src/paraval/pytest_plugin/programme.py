"""Tests as trials: which run alone and why, what they share, how long they are thought to take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from paraval.pytest_plugin import asyncs, neighbours, scan
from paraval.pytest_plugin.engine import Programme
from paraval.pytest_plugin.groups import group_need, groups_of
from paraval.pytest_plugin.history import History
from paraval.pytest_plugin.needs import accounts_of, needs_of
from paraval.pytest_plugin.timeouts import seconds_of
from paraval.pytest_plugin.trials import trial_of
from paraval.pytest_plugin.wanted import Wanted
from paraval.records import Limits, Outcome, RetryPolicy
from paraval.schedule.messages import Work

MOST_TRIES = 1_000_000
"""How often a refused test is tried is for its own mark to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programmed:
    """A programme, and what a user is told of it."""

    programme: Programme
    alone: dict[str, str]
    """By node id: why a test runs alone."""
    seconds: dict[str, float]
    """By node id: how long a test may take, of those that are told."""


def programme_of(
    config: pytest.Config, items: Sequence[pytest.Item], wanted: Wanted, history: History
) -> Programmed:
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
        parallel=wanted.parallel, auto=wanted.auto, named=named, accounts=accounts_of(items)
    )
    retry = RetryPolicy(attempts=1, on=frozenset({Outcome.RATE_LIMITED}), refusals=MOST_TRIES)
    return Programmed(
        programme=Programme(
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
    config: pytest.Config, items: Sequence[pytest.Item], history: History
) -> dict[str, str]:
    everything = neighbours.why_all_alone(config)
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
        loop = asyncs.group_of(item)
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


def _why_alone(item: pytest.Item, history: History) -> str | None:
    reasons: tuple[Callable[[pytest.Item], str | None], ...] = (
        scan.why_alone,
        asyncs.why_alone,
        neighbours.why_alone,
        history.why_alone,
    )
    return next((why for reason in reasons if (why := reason(item)) is not None), None)
