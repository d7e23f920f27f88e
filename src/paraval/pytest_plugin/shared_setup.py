"""Collectors and tests set up and torn down from many threads: a tree in the place of a stack.

pytest runs one test after another, so what is set up is always one chain of nodes, and the next
test tells what of it is still needed. Here several tests are under way, and each node counts the
tests below it that are not yet done: the first comer sets it up, the last one tears it down. What
a fixture is and who shares it is left to `own_fixtures`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

import pytest
from _pytest.nodes import Node
from _pytest.outcomes import TEST_OUTCOME
from _pytest.runner import SetupState

from paraval.pytest_plugin.floor import Floor, LeftBehindError
from paraval.pytest_plugin.told_again import told_again

Finalizer = Callable[[], object]


class Follower(Protocol):
    """Who else must know when tests and nodes are done."""

    def done(self, item: pytest.Item) -> Sequence[Finalizer]:
        """The test is done; returns what ends with it, in the order to be called."""
        ...

    def again(self, item: pytest.Item) -> None: ...

    def abandoned(self, item: pytest.Item) -> None: ...

    def gone(self, node: Node) -> None:
        """No test below the node is left."""
        ...


class SharedSetup(SetupState):
    """What is set up at this moment. `stack` holds all of it, parents before their children."""

    def __init__(self, items: Sequence[pytest.Item] | None, floor: Floor) -> None:
        """`items`: all that will run. None: nobody knows, as in a worker of xdist; then what is
        shared is torn down at the end."""
        super().__init__()
        self.items = items
        self.follower: Follower | None = None
        self.is_over = False
        """True: no test runs any more, and what is left is torn down as one."""
        self.last: pytest.Item | None = None
        """The test that ended last."""
        self._home = threading.get_ident()
        """The session's own thread."""
        self._floor = floor
        self._here = threading.local()
        """`item`: what this thread runs."""
        self._changed = threading.Condition()
        """Guards `stack` and all below."""
        self._busy: dict[Node, pytest.Item | None] = {}
        """Nodes that are being set up or torn down, and for which test."""
        self._running: dict[pytest.Item, int] = {}
        """Tests that have begun, and the thread of each."""
        self._ahead: set[pytest.Item] = set(items or ())
        """Tests that are not done yet."""
        self._kept: set[pytest.Item] = set()
        """Tests that will run once more: with their end, nothing ends but what is their own."""
        self._leaving: dict[pytest.Item, list[Node]] = {}
        """Tests that are done, and the nodes that do not know yet, outermost first."""
        self._counts: Counter[Node] = Counter()
        """How many tests below a node are not done."""
        for item in self._ahead:
            self._counts.update(item.listchain()[:-1])

    # ---- what becomes of a test

    def begin(self, item: pytest.Item) -> None:
        """This thread runs the test from here on, even if it is skipped before it is set up."""
        self.again(item)
        self._here.item = item
        with self._changed:
            self._kept.discard(item)
            self._running[item] = threading.get_ident()

    def keep(self, item: pytest.Item) -> None:
        """Before its teardown: it will run once more, and is not done until then."""
        with self._changed:
            self._kept.add(item)

    def release(self, item: pytest.Item) -> None:
        """It has ended for good, even if it was kept for another run."""
        with self._changed:
            is_kept = item in self._kept
        if is_kept:
            self.forget(item)

    def again(self, item: pytest.Item) -> None:
        """A test that was done will run once more; what it needs stays, or is set up once more."""
        with self._changed:
            if self.items is None or item in self._ahead:
                return
            self._ahead.add(item)
            self._counts.update(item.listchain()[:-1])
        if self.follower is not None:
            self.follower.again(item)

    def forget(self, item: pytest.Item) -> None:
        """It will never run. What was only needed for it is torn down with the next that is."""
        if self.follower is not None:
            self.follower.done(item)
        with self._changed:
            self._kept.discard(item)
            self._discount(item)

    def abandon(self, item: pytest.Item) -> None:
        """Its thread may never come back. Its own finalizers are not run, and what it was setting
        up fails for all who need it."""
        if self.follower is not None:
            self.follower.abandoned(item)
        with self._changed:
            self._running.pop(item, None)
            self._kept.discard(item)
            self.stack.pop(item, None)
            self._discount(item)
            for node in [node for node, whose in self._busy.items() if whose is item]:
                del self._busy[node]
                if node in self.stack:
                    hung = pytest.fail.Exception(
                        f"the setup of {node!r} hung in {item.nodeid}, which was given up",
                        pytrace=False,
                    )
                    self.stack[node] = (self.stack[node][0], (hung, None))
            self._changed.notify_all()

    def _discount(self, item: pytest.Item) -> None:
        """With the lock held: its nodes count it as done, and nothing is torn down for that."""
        nodes = self._leaving.pop(item, [])
        if item in self._ahead:
            self._ahead.remove(item)
            nodes = item.listchain()[:-1]
        self._counts.subtract(nodes)

    # ---- setting up

    def setup(self, item: pytest.Item) -> None:
        if getattr(self._here, "item", None) is not item:
            self.begin(item)
        for node in item.listchain():
            if not self._is_mine(item):
                raise LeftBehindError(f"{item.nodeid} was given up as it was set up")
            if self._is_first(node, item):
                self._set_up(node, item)

    def _is_first(self, node: Node, item: pytest.Item) -> bool:
        """Waits for whoever is at it. Raises what its setup raised, if it failed."""
        # What is set up, with this test still to run below it, stays so: no lock is needed to see
        # that. Whoever sets it up is noted as busy before the node stands in the stack.
        while node in self._busy or node not in self.stack:
            with self._changed:
                if node not in self._busy:
                    if node in self.stack:
                        break
                    self._busy[node] = item
                    self.stack[node] = ([node.teardown], None)
                    return True
            with self._floor.waiting(), self._changed:
                self._changed.wait_for(lambda: node not in self._busy)
        failure = self.stack[node][1]
        if failure is not None:
            raise told_again(*failure)
        return False

    def _set_up(self, node: Node, item: pytest.Item) -> None:
        failure = None
        try:
            node.setup()
        except TEST_OUTCOME as error:
            failure = (error, error.__traceback__)
            raise
        finally:
            with self._changed:
                # If it was abandoned meanwhile, that has been settled.
                if self._busy.get(node) is item:
                    self.stack[node] = (self.stack[node][0], failure)
                    del self._busy[node]
                    self._changed.notify_all()

    # ---- tearing down

    def teardown_exact(self, nextitem: pytest.Item | None) -> None:
        """Tears down this thread's test, and all that no other test needs; in the thread of the
        session, with no test there or after all tests, everything that is left."""
        item = getattr(self._here, "item", None)
        self._here.item = None
        is_end = self.is_over or (item is None and nextitem is None)
        if is_end and threading.get_ident() == self._home:
            with self._changed:
                left = list(reversed(self.stack))
            raise_together([error for node in left for error in self._end(node, None)])
        elif item is not None:
            raise_together(self._tear_down(item))

    def _tear_down(self, item: pytest.Item) -> list[BaseException]:
        if not self._is_mine(item):
            return []
        errors = self._end(item, item)
        if not self._is_mine(item) or self._stays(item):
            return errors
        if self.follower is not None:
            for finalizer in self.follower.done(item):
                errors += _called([finalizer])
        with self._changed:
            self.last = item
            self._running.pop(item, None)
            if item in self._ahead:
                self._ahead.remove(item)
                self._leaving[item] = item.listchain()[:-1]
        while (left := self._leave_next(item)) is not None:
            node, is_last = left
            if is_last:
                errors += self._end_all_below(node, item)
        return errors

    def _is_mine(self, item: pytest.Item) -> bool:
        """False: this thread hung and was given up, and is late. One look needs no lock."""
        return self._running.get(item) == threading.get_ident()

    def _stays(self, item: pytest.Item) -> bool:
        """Whether it is kept; if so, it has ended for now."""
        with self._changed:
            if item not in self._kept:
                return False
            self.last = item
            self._running.pop(item, None)
            return True

    def _leave_next(self, item: pytest.Item) -> tuple[Node, bool] | None:
        """The next node up, and whether the test is the last below it.

        The node counts the test as done from here on, and not before: what this test was the last
        of is torn down by then, and whoever is the last above finds nothing at work below.
        """
        with self._changed:
            nodes = self._leaving.get(item)
            if not nodes:
                self._leaving.pop(item, None)
                return None
            node = nodes.pop()
            self._counts[node] -= 1
            return node, self._counts[node] == 0

    def _end_all_below(self, node: Node, item: pytest.Item) -> list[BaseException]:
        with self._changed:
            # Tests that were forgotten or abandoned may have left nodes below.
            left = [
                one for one in reversed(self.stack) if one is node or node in one.iter_parents()
            ]
        errors = [error for one in left for error in self._end(one, item)]
        if self.follower is not None:
            self.follower.gone(node)
        return errors

    def _end(self, node: Node, item: pytest.Item | None) -> list[BaseException]:
        """Runs the node's finalizers, as pytest does: what fails does not keep the others back."""
        with self._changed:
            entry = self.stack.pop(node, None)
            if entry is None:
                return []
            self._busy[node] = item
        errors = _called(entry[0])
        with self._changed:
            # If it was abandoned meanwhile, somebody else may be at the node.
            if self._busy.get(node) is item:
                self._busy.pop(node, None)
                self._changed.notify_all()
        if len(errors) < 2 or any(isinstance(error, KeyboardInterrupt) for error in errors):
            return errors
        return [BaseExceptionGroup(f"errors while tearing down {node!r}", errors[::-1])]


def _called(finalizers: list[Finalizer]) -> list[BaseException]:
    """Last in, first out; returns what they raised."""
    errors: list[BaseException] = []
    while finalizers:
        try:
            finalizers.pop()()
        except BaseException as error:  # noqa: BLE001 - raised in the end, when all is torn down
            errors.append(error)
    return errors


def raise_together(errors: list[BaseException]) -> None:
    """As pytest does; but nothing is left halfway for an interrupt, which is told alone."""
    for error in errors:
        if isinstance(error, KeyboardInterrupt):
            raise error
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise BaseExceptionGroup("errors during test teardown", errors[::-1])
