"""Who shares a fixture's value: the tests below a node, with the same parameters.

A value that depends on parameters is torn down when the last test with these is done, not only at
its node's end: a suite with twenty models does not keep twenty servers. Several of them may be up
at once, since their tests run side by side.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import pytest
from _pytest.fixtures import SubRequest
from _pytest.nodes import Node
from _pytest.scope import Scope

from paraval.pytest_plugin.fixture_uses import Parameter
from paraval.pytest_plugin.private_names import (
    Definition,
    parameters_of,
    scopes_of_parameters,
)
from paraval.pytest_plugin.shared_fixture import Builders, SharedFixture, shared_copy

Params = frozenset[Parameter]


@dataclass(slots=True, kw_only=True, eq=False)
class Share:
    """Tests below one node with the same parameters, and what they share."""

    node: Node
    params: Params
    items: set[pytest.Item] | None
    """Tests that are not done yet; None: what is shared ends with the node."""
    copies: dict[Definition, SharedFixture] = field(default_factory=dict)
    built: list[tuple[int, SharedFixture, SubRequest]] = field(default_factory=list)
    """Setups in their order, with the request that can end each."""


class Shares:
    """All that tests share at this moment."""

    def __init__(self, items: Sequence[pytest.Item] | None, builders: Builders) -> None:
        """`items`: all that will run; None: nobody knows."""
        self._items = items
        self._builders = builders
        self._order = count()
        self._lock = threading.Lock()
        """Guards all below."""
        self._by_node: dict[Node, dict[Params, Share]] = {}
        self._by_item: dict[pytest.Item, list[Share]] = defaultdict(list)
        """The shares that depend on parameters."""
        self._ahead: dict[Parameter, set[pytest.Item]] | None = None
        """Tests with a parameter that are not done; None: nobody has asked yet."""
        self._done: set[pytest.Item] = set()
        """Tests that were done before anybody asked."""

    def copy_of(self, definition: Definition, node: Node, params: Params) -> SharedFixture:
        """The one that all tests below the node with these parameters share."""
        with self._lock:
            shares = self._by_node.setdefault(node, {})
            share = shares.get(params)
            if share is None:
                share = shares[params] = self._share(node, params)
            fixture = share.copies.get(definition)
            if fixture is None:
                told = None if share.items is None else partial(self._built, share)
                fixture = shared_copy(definition, self._builders, told)
                share.copies[definition] = fixture
            return fixture

    def _share(self, node: Node, params: Params) -> Share:
        share = Share(node=node, params=params, items=None)
        if params and self._items is not None:
            if self._ahead is None:
                self._ahead = _by_parameter(item for item in self._items if item not in self._done)
                self._done.clear()
            having = (self._ahead.get(parameter, set()) for parameter in params)
            matching = set.intersection(*having)
            share.items = {item for item in matching if node in item.iter_parents()}
            for item in share.items:
                self._by_item[item].append(share)
        return share

    def _built(self, share: Share, fixture: SharedFixture, request: SubRequest) -> None:
        with self._lock:
            share.built.append((next(self._order), fixture, request))

    # ---- as tests come and go

    def done(self, item: pytest.Item) -> list[Callable[[], object]]:
        """What ends with the test, dependents first."""
        with self._lock:
            if self._ahead is None:
                self._done.add(item)
                return []
            for parameter in shared_parameters(item):
                self._ahead.get(parameter, set()).discard(item)
            ended = []
            for share in self._by_item.pop(item, ()):
                assert share.items is not None
                share.items.discard(item)
                if not share.items:
                    # Whoever runs once more begins with new ones.
                    self._by_node.get(share.node, {}).pop(share.params, None)
                    ended += share.built
        ended.sort(key=lambda built: built[0], reverse=True)
        return [partial(fixture.finish, request=request) for _, fixture, request in ended]

    def again(self, item: pytest.Item) -> None:
        with self._lock:
            self._done.discard(item)
            if self._ahead is None:
                return
            mine = shared_parameters(item)
            for parameter in mine:
                self._ahead.setdefault(parameter, set()).add(item)
            for node in item.iter_parents():
                for params, share in self._by_node.get(node, {}).items():
                    if share.items is not None and params <= mine:
                        share.items.add(item)
                        self._by_item[item].append(share)

    def gone(self, node: Node) -> None:
        with self._lock:
            self._by_node.pop(node, None)


def shared_parameters(item: pytest.Item) -> Params:
    """Those of the test's parameters whose value other tests may share."""
    scopes = scopes_of_parameters(item)
    return frozenset(
        Parameter(name, value)
        for name, value in parameters_of(item).items()
        if scopes[name] is not Scope.Function
    )


def _by_parameter(items: Iterator[pytest.Item]) -> dict[Parameter, set[pytest.Item]]:
    found: dict[Parameter, set[pytest.Item]] = defaultdict(set)
    for item in items:
        for parameter in shared_parameters(item):
            found[parameter].add(item)
    return found
