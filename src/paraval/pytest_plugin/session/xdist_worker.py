"""One of xdist's workers that runs several tests at once: which are its own, and what it answers.

The controller hands out tests by their place in the session, a few or many at a time, and may take
back ("steal") what has not begun. All that were handed out are known to the engine at once, so that
it may choose among them; xdist's own queue says which of them are still the worker's. A test is
claimed from it at the moment that it starts: one that was stolen until then is not run here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

_END = object()
"""The channel is closed: nothing more comes."""


class WorkerItems:
    """The tests that the controller gives to this worker."""

    def __init__(self, interactor: Any) -> None:
        self._interactor = interactor
        self._given: Callable[[Sequence[int]], None] = _unheard
        self._ended: Callable[[], None] = _unheard
        self._is_ended = threading.Event()

    def listen(self, given: Callable[[Sequence[int]], None], ended: Callable[[], None]) -> None:
        """From here on `given` is told the indexes of tests as they come, and `ended`, once, that
        none will come any more. Both are called in a thread of xdist's: quickly, never raising."""
        self._given, self._ended = given, ended
        self._interactor.channel.setcallback(self._heard, endmarker=_END)

    def claim(self, index: int) -> bool:
        """A test is about to start, in whatever thread; False: it is another worker's by now."""
        with self._interactor.torun.lock() as queue:
            if index not in queue:
                return False
            queue.remove(index)
            return True

    def about_to_tell(self, index: int) -> None:
        """The reports that come now, in the main thread, are those of this test."""
        self._interactor.item_index = index

    def done(self, index: int, duration_s: float) -> None:
        """All is told of a test; in the main thread."""
        self._interactor.sendevent(
            "runtest_protocol_complete", item_index=index, duration=duration_s
        )

    # ---- what the controller says

    def _heard(self, command: Any) -> None:
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
                # What a later xdist may say is its own business.
                self._interactor.handle_command(command)

    def _take(self, indexes: Sequence[int]) -> None:
        for index in indexes:
            self._interactor.torun.put(index)
        self._given(indexes)

    def _give_back(self, wanted: Sequence[int]) -> None:
        """As many as have not begun. xdist's own way, all or none, would refuse nearly always: here
        tests don't begin in the order in which they were handed out."""
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
    """The work of xdist's own loop in this process; None: it is no worker of xdist."""
    if not hasattr(config, "workerinput"):
        return None
    for plugin in config.pluginmanager.get_plugins():
        # Its class cannot be imported: the worker's module is run by the text, under no name.
        if hasattr(plugin, "torun") and hasattr(plugin, "handle_command"):
            return WorkerItems(plugin)
    return None


def _unheard(*_: object) -> None: ...
