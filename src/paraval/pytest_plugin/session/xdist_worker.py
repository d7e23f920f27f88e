"""An xdist worker that runs several tests concurrently: which are its own, and how it answers.

The controller hands out tests by their position in the session, a few or many at a time, and may
take back ("steal") those that have not begun. The engine gets all of them at once, so that it can
choose; xdist's own queue holds those that still belong to the worker. A test is claimed from the
queue when it starts: one that was stolen before is not run here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

_END = object()
"""The channel is closed: no more tests come."""


class WorkerItems:
    """The tests that the controller gives to this worker."""

    def __init__(self, interactor: Any) -> None:
        self._interactor = interactor
        self._given: Callable[[Sequence[int]], None] = _unheard
        self._ended: Callable[[], None] = _unheard
        self._is_ended = threading.Event()

    def listen(self, given: Callable[[Sequence[int]], None], ended: Callable[[], None]) -> None:
        """Call `given` with the indexes of tests as they come, and `ended` once after the last.

        Both are called in one of xdist's threads, so they must be quick and never raise.
        """
        self._given, self._ended = given, ended
        self._interactor.channel.setcallback(self._on_command, endmarker=_END)

    def claim(self, index: int) -> bool:
        """Claim a test that is about to start, in any thread; False: another worker has it."""
        with self._interactor.torun.lock() as queue:
            if index not in queue:
                return False
            queue.remove(index)
            return True

    def about_to_report(self, index: int) -> None:
        """Announce that the reports that follow, in the main thread, are this test's."""
        self._interactor.item_index = index

    def done(self, index: int, duration_s: float) -> None:
        """Announce that all reports of a test are sent; in the main thread."""
        self._interactor.sendevent(
            "runtest_protocol_complete", item_index=index, duration=duration_s
        )

    # ---- commands from the controller

    def _on_command(self, command: Any) -> None:
        if command is _END:
            self._end()
            return
        name, arguments = command
        match name:
            case "shutdown":
                self._end()
            case "runtests":
                self._take(list(arguments["indices"]))
            case "runtests_all":
                self._take(list(range(len(self._interactor.session.items))))
            case "steal":
                self._give_back(arguments["indices"])
            case _:
                # Leave unknown commands of a later xdist to xdist.
                self._interactor.handle_command(command)

    def _take(self, indexes: Sequence[int]) -> None:
        for index in indexes:
            self._interactor.torun.put(index)
        self._given(indexes)

    def _give_back(self, wanted: Sequence[int]) -> None:
        """Give back those that have not begun. xdist gives back all or none, which would almost
        always be none: here tests don't begin in the order in which they were handed out."""
        stolen = [index for index in wanted if self.claim(index)]
        self._interactor.sendevent("unscheduled", indices=stolen)

    def _end(self) -> None:
        if not self._is_ended.is_set():
            self._is_ended.set()
            self._ended()


def is_controller(config: pytest.Config) -> bool:
    """Whether tests run in xdist's workers, and none in this process."""
    return (
        not hasattr(config, "workerinput")
        and config.getoption("dist", "no") != "no"
        and bool(config.getoption("tx", None))
    )


def take_worker_items(config: pytest.Config) -> WorkerItems | None:
    """Take over the work of xdist's own loop; None: this is not an xdist worker."""
    if not hasattr(config, "workerinput"):
        return None
    for plugin in config.pluginmanager.get_plugins():
        # Its class cannot be imported: xdist executes the worker's module as text, without a name.
        if hasattr(plugin, "torun") and hasattr(plugin, "handle_command"):
            return WorkerItems(plugin)
    return None


def _unheard(*_: object) -> None: ...
