"""What pytest knows of a test's fixtures under names that it keeps to itself; from 8.2 on.

It tells none of this otherwise, so these few functions are the place to look when it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import pytest
from _pytest.fixtures import FixtureDef, FixtureManager, FuncFixtureInfo, SubRequest
from _pytest.main import Session
from _pytest.scope import Scope

Definition: TypeAlias = FixtureDef[Any]


def scope_of(definition: Definition) -> Scope:
    """Its public `scope` is a word, without an order."""
    return definition._scope


def has_finalizers(definition: Definition) -> bool:
    return bool(definition._finalizers)


def drop_value(definition: Definition) -> None:
    """Without running its finalizers, as `finish` would."""
    definition.cached_result = None
    definition._finalizers.clear()


def asking_item(request: SubRequest) -> pytest.Item:
    return request._pyfuncitem


def manager_of(session: Session) -> FixtureManager:
    return session._fixturemanager


def scopes_of_parameters(item: pytest.Item) -> Mapping[str, Scope]:
    """By name; a parameter's scope overrides that of its fixture."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return {}
    return cast("Mapping[str, Scope]", callspec._arg2scope)


def parameters_of(item: pytest.Item) -> Mapping[str, object]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else cast("Mapping[str, object]", callspec.params)


def fixtures_of(item: pytest.Item) -> FuncFixtureInfo | None:
    """None: a kind of test that knows no fixtures."""
    return getattr(item, "_fixtureinfo", None)


def set_fixtures(item: Any, info: FuncFixtureInfo) -> None:
    item._fixtureinfo = info


def renew_request(item: Any) -> None:
    """From here on the test asks for fixtures as `set_fixtures` left them."""
    item._initrequest()
