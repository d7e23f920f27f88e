"""Each test's own fixtures: definitions of its own where pytest keeps one for all.

A fixture's value lives in its definition, and pytest has one definition for all tests, since they
run one after another. Before it runs, a test is given copies: of function fixtures its own, of
shared ones those that the tests below the same node with the same parameters have, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from _pytest.fixtures import FuncFixtureInfo
from _pytest.main import Session
from _pytest.nodes import Node
from _pytest.scope import Scope

from paraval.pytest_plugin.fixture_shares import Shares
from paraval.pytest_plugin.fixture_uses import FixtureUses, Parameter, Use, node_of
from paraval.pytest_plugin.floor import Floor
from paraval.pytest_plugin.private_names import (
    Definition,
    drop_value,
    fixtures_of,
    manager_of,
    parameters_of,
    renew_request,
    scope_of,
    scopes_of_parameters,
    set_fixtures,
)
from paraval.pytest_plugin.shared_fixture import Builders, SharedFixture, unused_copy
from paraval.pytest_plugin.shared_setup import SharedSetup

COLLECTED = pytest.StashKey[FuncFixtureInfo]()
"""In a test that has been given its own: what it had from collection."""


class OwnFixtures:
    """Gives tests their fixtures, and takes them back."""

    def __init__(self, session: Session, floor: Floor) -> None:
        self._session = session
        self._builders = Builders(floor)
        self._lookup = manager_of(session).getfixturedefs
        self._uses: dict[int, FixtureUses | None] = {}
        """Of parametrized functions, by the identity of what was collected; see `_uses_of`."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While tests run, with a `SharedSetup` in place: that one tells when tests are done."""
        setup = self._session._setupstate
        assert isinstance(setup, SharedSetup), "session._setupstate is to be a SharedSetup first"
        manager = manager_of(self._session)
        self._setup = setup
        self._shares = Shares(setup.items, self._builders)
        setup.follower = self
        # For names that a test asks for as it runs. The instance's own attribute hides the method.
        vars(manager)["getfixturedefs"] = self._own_definitions
        try:
            yield
        finally:
            del vars(manager)["getfixturedefs"]
            setup.follower = None
            setup.is_over = True

    def give(self, item: pytest.Item) -> None:
        """Before each run of a test, in the thread that runs it."""
        self._setup.begin(item)
        collected = item.stash.get(COLLECTED, None) or fixtures_of(item)
        if collected is None:
            return
        item.stash[COLLECTED] = collected
        copies = self._copies(item, collected.name2fixturedefs)
        set_fixtures(item, replace(collected, name2fixturedefs=copies))
        renew_request(item)

    # ---- as `SharedSetup` tells it

    def done(self, item: pytest.Item) -> Sequence[Callable[[], object]]:
        self._take_back(item)
        return self._shares.done(item)

    def again(self, item: pytest.Item) -> None:
        self._shares.again(item)

    def abandoned(self, item: pytest.Item) -> None:
        """Nobody waits for it; and what its own fixtures would finalize, no shared one calls."""
        self._builders.abandoned(item)
        given = fixtures_of(item)
        if given is not None and COLLECTED in item.stash:
            for definition in [one for some in given.name2fixturedefs.values() for one in some]:
                if not isinstance(definition, SharedFixture):
                    drop_value(definition)
        self._take_back(item)
        self._shares.done(item)

    def gone(self, node: Node) -> None:
        self._shares.gone(node)

    def _take_back(self, item: pytest.Item) -> None:
        collected = item.stash.get(COLLECTED, None)
        if collected is not None:
            del item.stash[COLLECTED]
            set_fixtures(item, collected)

    # ---- whose is which

    def _own_definitions(self, argname: str, node: Node) -> Sequence[Definition] | None:
        """In the place of pytest's own: the same ones each time that a test asks."""
        found = self._lookup(argname, node)
        if not found or not isinstance(node, pytest.Item) or COLLECTED not in node.stash:
            return found
        given = fixtures_of(node)
        assert given is not None
        if argname not in given.name2fixturedefs:
            given.name2fixturedefs.update(self._copies(node, {argname: found}))
        return given.name2fixturedefs[argname]

    def _copies(
        self, item: pytest.Item, definitions: Mapping[str, Sequence[Definition]]
    ) -> dict[str, Sequence[Definition]]:
        uses = self._uses_of(item)
        if uses is None:
            return {
                name: [self._copy(item, one, node_of(item, scope_of(one), one)) for one in some]
                for name, some in definitions.items()
            }
        return {
            name: [self._copy_for(item, use) for use in uses.of(name, some)]
            for name, some in definitions.items()
        }

    def _copy_for(self, item: pytest.Item, use: Use) -> Definition:
        values = parameters_of(item)
        params = frozenset(Parameter(name, values[name]) for name in use.params)
        return self._copy(item, use.definition, use.node_for(item), params)

    def _copy(
        self,
        item: pytest.Item,
        definition: Definition,
        node: Node,
        params: frozenset[Parameter] = frozenset(),
    ) -> Definition:
        if node is item:
            return unused_copy(definition, type(definition))
        return self._shares.copy_of(definition, node, params)

    def _uses_of(self, item: pytest.Item) -> FixtureUses | None:
        """None: no parameter of the test has to do with a shared fixture."""
        collected, scopes = item.stash[COLLECTED], scopes_of_parameters(item)
        if not scopes:
            return None
        if id(collected) not in self._uses:

            def lookup(name: str) -> Sequence[Definition] | None:
                return collected.name2fixturedefs.get(name) or self._lookup(name, item)

            is_shared = any(
                scope is not Scope.Function
                or any(scope_of(one) is not Scope.Function for one in lookup(name) or ())
                for name, scope in scopes.items()
            )
            # Tests of the same function have the same parameters, in name and scope.
            self._uses[id(collected)] = FixtureUses(scopes, lookup) if is_shared else None
        return self._uses[id(collected)]
