"""A fixture that tests in several threads share: the first who needs it sets it up, once.

Who shares which is for `fixture_shares` to say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import pytest
from _pytest.fixtures import FixtureDef, SubRequest

from paraval.pytest_plugin.floor import Floor
from paraval.pytest_plugin.private_names import Definition, asking_item, has_finalizers
from paraval.pytest_plugin.told_again import told_again
from paraval.pytest_plugin.turns import Turn, current

D = TypeVar("D", bound=Definition)


class Builders:
    """Who sets up which shared fixture at this moment; whoever else needs it waits."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._changed = threading.Condition()
        """Guards what follows, and `hung_in` of the fixtures."""
        self._at: dict[SharedFixture, tuple[int, pytest.Item]] = {}

    @contextmanager
    def at(self, fixture: SharedFixture, item: pytest.Item) -> Iterator[None]:
        """One thread at a time; the same one may come in again."""
        me = (threading.get_ident(), item)
        while not self._take(fixture, me):
            with self._floor.waiting(), self._changed:
                self._changed.wait_for(lambda: fixture not in self._at)
        is_outer = self._at[fixture] is me
        try:
            yield
        finally:
            with self._changed:
                # If it was abandoned meanwhile, somebody else may be at it.
                if is_outer and self._at.get(fixture) is me:
                    del self._at[fixture]
                    self._changed.notify_all()

    def _take(self, fixture: SharedFixture, me: tuple[int, pytest.Item]) -> bool:
        with self._changed:
            if fixture.hung_in is not None and fixture.cached_result is None:
                pytest.fail(
                    f"the setup of fixture {fixture.argname!r} hung in {fixture.hung_in}, which was"
                    " given up; all tests that need it fail",
                    pytrace=False,
                )
            return self._at.setdefault(fixture, me)[0] == me[0]

    def abandoned(self, item: pytest.Item) -> None:
        """The test's thread may never come back: what it sets up fails for those who wait."""
        with self._changed:
            for fixture in [one for one, (_, whose) in self._at.items() if whose is item]:
                fixture.hung_in = item.nodeid
                del self._at[fixture]
            self._changed.notify_all()


class SharedFixture(FixtureDef[Any]):
    """A copy of a definition, for those tests that share its value. See `shared_copy`."""

    builders: Builders
    on_built: Callable[[SharedFixture, SubRequest], None] | None
    hung_in: str | None

    def execute(self, request: SubRequest) -> Any:
        if self.cached_result is None:
            with self.builders.at(self, asking_item(request)):
                if self.cached_result is None:
                    return self._build(request)
        # Read once: a failure is forgotten when pytest-rerunfailures runs another test again.
        cached: Any = self.cached_result
        failure = None if cached is None else cached[2]
        if failure is None:
            return super().execute(request)
        _fails_for_all(current())
        # Early in pytest 8, the exception alone.
        error, traceback = (
            failure if isinstance(failure, tuple) else (failure, failure.__traceback__)
        )
        raise told_again(error, traceback)

    def _build(self, request: SubRequest) -> Any:
        if has_finalizers(self):
            # An earlier setup was broken off (by a time limit, say): what it left ends first.
            self.cached_result = (None, None, None)
            self.finish(request)
        turn = current()
        try:
            with nullcontext() if turn is None else turn.setting_up_for_all():
                return super().execute(request)
        except BaseException:
            _fails_for_all(turn)
            raise
        finally:
            if self.on_built is not None and self.cached_result is not None:
                self.on_built(self, request)

    def finish(self, request: SubRequest) -> None:
        turn = current()
        with nullcontext() if turn is None else turn.setting_up_for_all():
            super().finish(request)

    def cache_key(self, request: SubRequest) -> object:  # noqa: ARG002 - pytest's signature
        """There is a copy for each value of a parameter, so it never changes here."""
        return None


def _fails_for_all(turn: Turn | None) -> None:
    """The fixture fails for each test that uses it, beside others or not."""
    if turn is not None:
        turn.check = "none"


_KINDS: dict[type[Definition], type[SharedFixture]] = {FixtureDef: SharedFixture}


def _shared_kind(kind: type[Definition]) -> type[SharedFixture]:
    """A plugin's own kind of definition stays one."""
    if kind not in _KINDS:
        _KINDS[kind] = type(kind.__name__, (SharedFixture, kind), {})
    return _KINDS[kind]


def shared_copy(
    definition: Definition,
    builders: Builders,
    on_built: Callable[[SharedFixture, SubRequest], None] | None,
) -> SharedFixture:
    """`on_built` is told of each setup, with the request that can end it."""
    fixture = unused_copy(definition, _shared_kind(type(definition)))
    fixture.builders = builders
    fixture.on_built = on_built
    fixture.hung_in = None
    return fixture


def unused_copy(definition: Definition, kind: type[D]) -> D:
    """As it was when it was collected: without a value, and with nothing to finalize."""
    fixture = object.__new__(kind)
    fixture.__dict__.update(definition.__dict__)
    fixture.__dict__.update(cached_result=None, _finalizers=[])
    return fixture
