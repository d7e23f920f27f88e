"""How the tests of one function use fixtures: which parameters decide a value, how long it lives.

pytest gives a shared fixture a new value whenever one of its parameters changes, or a parameter of
a fixture that it needs. Tests that run side by side have different parameters at once; so whose
value is whose must be known before.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import dedent
from types import CodeType

import pytest
from _pytest.fixtures import get_scope_node, get_scope_package
from _pytest.nodes import Node
from _pytest.scope import Scope

from paraval.pytest_plugin.private_names import Definition, scope_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One definition of a fixture, as the tests of one function use it."""

    definition: Definition
    lives: tuple[tuple[Scope, Definition], ...]
    """What it lives no longer than: itself, and the parametrized ones that it needs."""
    params: frozenset[str] = frozenset()
    """The names of the parameters that decide its value."""

    def node_for(self, item: pytest.Item) -> Node:
        """What its value is torn down with; the test itself: it is the test's own."""
        nodes = [node_of(item, scope, definition) for scope, definition in self.lives]
        return nodes[0] if len(nodes) == 1 else max(nodes, key=lambda node: len(node.listchain()))


class FixtureUses:
    """The fixtures that the tests of one function can see."""

    def __init__(
        self, scopes: Mapping[str, Scope], lookup: Callable[[str], Sequence[Definition] | None]
    ) -> None:
        """`scopes`: of the parameters, by name; a parameter's scope overrides its fixture's."""
        self._scopes = scopes
        self._lookup = lookup
        self._known: dict[Definition, Use] = {}

    def of(self, name: str, definitions: Sequence[Definition]) -> list[Use]:
        """For each of a name's definitions, of which a later one overrides those before."""
        # Whoever gets the second last has come by the last, which asked for its own name.
        chains = ((name,) * depth for depth in reversed(range(len(definitions))))
        uses = (self._use(name, chain) for chain in chains)
        return [use for use in uses if use is not None]

    def _use(self, name: str, chain: tuple[str, ...]) -> Use | None:
        """`chain`: the names by which it is come to. None: there is no such fixture."""
        definitions, depth = self._lookup(name) or (), chain.count(name)
        if depth >= len(definitions):
            return None
        definition = definitions[-1 - depth]
        if definition not in self._known:
            self._known[definition] = self._found_out(name, definition, chain)
        return self._known[definition]

    def _found_out(self, name: str, definition: Definition, chain: tuple[str, ...]) -> Use:
        scope = self._scopes.get(name, scope_of(definition))
        lives = {(scope, definition): None}
        params = {name} & self._scopes.keys()
        if scope is not Scope.Function:
            for needed in self._needed(definition):
                use = self._use(needed, (*chain, name))
                if use is not None and use.params:
                    lives |= dict.fromkeys(use.lives)
                    params |= use.params
        return Use(definition=definition, lives=tuple(lives), params=frozenset(params))

    def _needed(self, definition: Definition) -> Iterator[str]:
        yield from definition.argnames
        if "request" not in definition.argnames:
            return
        asked = asked_by(definition.func)
        if asked is not None:
            yield from asked
            return
        for name in self._scopes:
            # What lives shorter than itself, it must not ask for.
            found = self._lookup(name)
            if found and scope_of(found[-1]) >= scope_of(definition):
                yield name


def asked_by(function: Callable[..., object]) -> frozenset[str] | None:
    """The fixtures that a function hands to `request.getfixturevalue`; None: it may be any."""
    innermost = inspect.unwrap(function)
    code = getattr(getattr(innermost, "__func__", innermost), "__code__", None)
    return None if code is None else _asked_in(code)


@lru_cache(maxsize=1024)
def _asked_in(code: CodeType) -> frozenset[str] | None:
    try:
        nodes = list(ast.walk(ast.parse(dedent(inspect.getsource(code)))))
    except (OSError, SyntaxError, ValueError):
        return None
    requests = [one for one in nodes if isinstance(one, ast.Name) and one.id == "request"]
    uses = [one for one in nodes if isinstance(one, ast.Attribute) and one.value in requests]
    asks = [one for one in uses if one.attr == "getfixturevalue"]
    calls = [one for one in nodes if isinstance(one, ast.Call) and one.func in asks]
    first = [one.args[0] for one in calls if one.args]
    names = [one.value for one in first if isinstance(one, ast.Constant)]
    # A request that is handed on or kept, or a name that is computed: it may be any.
    is_exact = len(requests) == len(uses) and len(asks) == len(names)
    return frozenset(map(str, names)) if is_exact else None


def node_of(item: pytest.Item, scope: Scope, definition: Definition) -> Node:
    """What a fixture of this scope belongs to, as `SubRequest` has it in pytest."""
    if scope is Scope.Function:
        return item
    if scope is Scope.Package:
        return get_scope_package(item, definition) or item.session
    # A fixture for a class belongs to the test itself where there is no class.
    return get_scope_node(item, scope) or item


class Parameter:
    """A parameter's name and value, to be compared: equal ones share a fixture's value."""

    __slots__ = ("_hash", "_is_hashable", "name", "value")

    def __init__(self, name: str, value: object) -> None:
        self.name = name
        self.value = value
        try:
            self._hash = hash((name, value))
            self._is_hashable = True
        except Exception:  # noqa: BLE001 - a list; or whatever a user's own class raises
            self._hash = hash((name, id(value)))
            self._is_hashable = False

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parameter) or self.name != other.name:
            return False
        if self.value is other.value:
            return True
        if not self._is_hashable or type(self.value) is not type(other.value):
            return False
        try:
            return bool(self.value == other.value)
        except Exception:  # noqa: BLE001 - arrays and the like do not compare to a yes or no
            return False
