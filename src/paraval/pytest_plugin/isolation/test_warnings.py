"""What tests warn of, kept apart: what pytest's warnings plugin does for each test, for a turn.

It is done by that plugin's own code, in the test's thread: `warnings_by_turn` gives each turn a
`warnings` module of its own, as it were. Reporters are told in the main thread.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections import UserList
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from _pytest.warnings import catch_warnings_for_item

from paraval.pytest_plugin.running.current_test import Turn, turn_here

_CONFIGURED = pytest.StashKey[tuple[Any, ...] | None]()
"""The filters of the configuration, as they are in force; None: some of them cannot be read."""
_PLAINLY_SHOWN: Any = vars(warnings)["_showwarning_orig"]


@contextmanager
def warnings_apart(config: pytest.Config) -> Iterator[None]:
    """Until the block ends, each turn has its own; what code of nobody warns of is told then,
    without a test's name."""
    nobodys: list[warnings.WarningMessage] = []
    of_filters: list[warnings.WarningMessage] = []
    with warnings_by_turn():
        # Tried once: what filters that cannot be read warn of is told when they are left.
        with _recorded(config, None, nobodys, of_filters):
            pass
        with _recorded(config, None, nobodys, []):
            is_plain = config.pluginmanager.hasplugin("warnings") and not of_filters
            config.stash[_CONFIGURED] = tuple(warnings.filters) if is_plain else None
            yield
    for message in nobodys:
        _tell(config.hook, message, "")


@contextmanager
def catching(turn: Turn) -> Iterator[None]:
    """In the test's own thread, around all its phases: filters of the configuration and of marks
    hold, and what they let through is in `turn.warned` at once, for one that hangs, too."""
    configured = turn.item.config.stash.get(_CONFIGURED, None)
    if configured is not None and not any(turn.item.iter_markers("filterwarnings")):
        # What pytest would read anew for each test; and what a turn holds ends with it.
        warnings.filters = list(configured)
        warnings.showwarning = _PLAINLY_SHOWN
        setattr(warnings, SHOW_IMPL, turn.warned.append)
        yield
        return
    with _recorded(turn.item.config, turn.item, turn.warned, turn.warned):
        yield


def emit(item: pytest.Item, warned: Sequence[warnings.WarningMessage]) -> None:
    """In the main thread: reporters hear of a test's warnings, as from pytest's own plugin."""
    for message in warned:
        _tell(item.ihook, message, item.nodeid)


@contextmanager
def _recorded(
    config: pytest.Config,
    item: pytest.Item | None,
    warned: list[warnings.WarningMessage],
    of_filters: list[warnings.WarningMessage],
) -> Iterator[None]:
    """As pytest's own, without its hooks. `of_filters`: what filters that cannot be read warn of;
    that is told for each test, and so once too often for nobody."""
    if not config.pluginmanager.hasplugin("warnings"):
        yield
        return

    def keep(kwargs: dict[str, Any]) -> None:
        of_filters.append(kwargs["warning_message"])

    hook = SimpleNamespace(pytest_warning_recorded=SimpleNamespace(call_historic=keep))
    with catch_warnings_for_item(config=config, ihook=hook, when="runtest", item=item):
        setattr(warnings, SHOW_IMPL, warned.append)
        yield


def _tell(hook: Any, message: warnings.WarningMessage, node_id: str) -> None:
    hook.pytest_warning_recorded.call_historic(
        kwargs={
            "warning_message": message,
            "nodeid": node_id,
            "when": "runtest",
            "location": None,
        }
    )


# ---- a warnings module for each turn


Filter = tuple[str, Any, type[Warning], Any, int]

SHOW_IMPL = "_showwarnmsg_impl"
_MUTATED = ("_filters_mutated", "_filters_mutated_lock_held")
"""The second since Python 3.14."""


@contextmanager
def warnings_by_turn() -> Iterator[None]:
    """Until the block ends."""
    names = vars(warnings)
    before = dict(names)
    holders = _HeldByTurn(
        _Held(
            filters=list(before["filters"]),
            showwarning=before["showwarning"],
            show_impl=before[SHOW_IMPL],
        )
    )
    plain_class = warnings.__class__
    changed = _names_by_turn(holders, before)
    by_turn = _class_by_turn(holders, before["_filters_mutated"])
    names.update(changed)
    warnings.__class__ = by_turn
    try:
        yield
    finally:
        warnings.__class__ = plain_class
        names.update({name: before[name] for name in changed})
        before["_filters_mutated"]()


# ---- what is held


@dataclass(slots=True, kw_only=True)
class _Held:
    """What the module holds, for one turn or for nobody."""

    filters: list[Filter]
    showwarning: Callable[..., None]
    show_impl: Callable[[warnings.WarningMessage], object]
    shown: set[tuple[object, ...]] = field(default_factory=set)
    """By text and category, and file, and line: as far as the filter's action goes."""

    def copy(self) -> _Held:
        return _Held(
            filters=list(self.filters), showwarning=self.showwarning, show_impl=self.show_impl
        )

    def is_news(self, message: warnings.WarningMessage) -> bool:
        """Whether it is to be shown again, where the same was shown before."""
        in_file = (str(message.message), message.category, message.filename)
        in_line = (*in_file, message.lineno)
        if in_file not in self.shown:
            self.shown |= {in_file, in_line}
            return True
        action = self._action(message)
        if action == "default" and in_line not in self.shown:
            self.shown.add(in_line)
            return True
        return action in ("always", "all")

    def is_news_without_registry(self, message: warnings.WarningMessage) -> bool:
        """The same, where nothing is noted with a module."""
        anywhere = (str(message.message), message.category)
        if self._action(message) != "once":
            return True
        if anywhere in self.shown:
            return False
        self.shown.add(anywhere)
        return True

    def _action(self, message: warnings.WarningMessage) -> str:
        """Of the first filter that fits: C code has found it, too, but tells nobody."""
        text, module = str(message.message), _module_of(message)
        for action, text_pattern, category, module_pattern, lineno in tuple(self.filters):
            if (
                _fits(text_pattern, text)
                and issubclass(message.category, category)
                and _fits(module_pattern, module)
                and lineno in (0, message.lineno)
            ):
                return action
        return str(getattr(warnings, "defaultaction", "default"))


def _fits(pattern: Any, text: str) -> bool:
    if pattern is None or isinstance(pattern, str):
        return pattern in (None, text)
    return pattern.match(text) is not None


def _module_of(message: warnings.WarningMessage) -> str:
    """The name of the module that is warned of, from the frame that the warning points at."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_filename == message.filename:
            return str(frame.f_globals.get("__name__", "<string>"))
        frame = frame.f_back
    return message.filename.removesuffix(".py")


class _HeldByTurn:
    """Who holds what."""

    def __init__(self, nobodys: _Held) -> None:
        self._before = nobodys.copy()
        self._nobodys = nobodys
        self._turns: dict[Turn, _Held] = {}
        self._adding = threading.Lock()
        """Guards the turns, when one is added and those that are over are let go."""

    @property
    def here(self) -> _Held:
        turn = turn_here()
        if turn is None:
            return self._nobodys
        held = self._turns.get(turn)
        return self._add(turn) if held is None else held

    def _add(self, turn: Turn) -> _Held:
        if turn.is_over:
            # What is left behind of it changes nothing for anyone.
            return self._before.copy()
        with self._adding:
            for one in [one for one in self._turns if one.is_over]:
                del self._turns[one]
            return self._turns.setdefault(turn, self._before.copy())


# ---- the module, while turns run


class _FiltersHere(UserList[Filter]):
    """`warnings.filters` for that module's own functions, which read it as a global name.

    All that a UserList does goes by its `data`."""

    def __init__(self, holders: _HeldByTurn) -> None:
        self._holders = holders

    @property
    def data(self) -> list[Filter]:
        return self._holders.here.filters

    @data.setter
    def data(self, filters: list[Filter]) -> None:
        self._holders.here.filters = filters


def _class_by_turn(holders: _HeldByTurn, raise_version: Callable[[], None]) -> type[ModuleType]:
    """Of the module's attributes, as C code and all other modules see them."""

    class WarningsByTurn(ModuleType):
        @property
        def filters(self) -> list[Filter]:
            raise_version()
            return holders.here.filters

        @filters.setter
        def filters(self, filters: list[Filter]) -> None:
            holders.here.filters = filters

        @property
        def showwarning(self) -> Callable[..., None]:
            return holders.here.showwarning

        @showwarning.setter
        def showwarning(self, show: Callable[..., None]) -> None:
            holders.here.showwarning = show

        @property
        def _showwarnmsg_impl(self) -> Callable[[warnings.WarningMessage], object]:
            return holders.here.show_impl

        @_showwarnmsg_impl.setter
        def _showwarnmsg_impl(self, show: Callable[[warnings.WarningMessage], object]) -> None:
            holders.here.show_impl = show

    return WarningsByTurn


def _names_by_turn(holders: _HeldByTurn, names: dict[str, Any]) -> dict[str, Any]:
    """The module's global names that go by turn, too, by what they are without."""
    raise_version, plainly_shown = names["_filters_mutated"], names["_showwarning_orig"]
    unregistered = threading.local()

    def show_message(message: warnings.WarningMessage) -> None:
        held = holders.here
        raise_version()
        is_unregistered = getattr(unregistered, "is_so", False)
        is_news = held.is_news_without_registry if is_unregistered else held.is_news
        if not is_news(message):
            return
        if held.showwarning is plainly_shown:
            held.show_impl(message)
        else:
            held.showwarning(
                message.message,
                message.category,
                message.filename,
                message.lineno,
                message.file,
                message.line,
            )

    def show_impl(message: warnings.WarningMessage) -> None:
        holders.here.show_impl(message)

    def warn_explicit(*arguments: Any, **named: Any) -> None:
        """Without a registry, nothing is known to have been shown before."""
        registry = arguments[5] if len(arguments) > 5 else named.get("registry")
        unregistered.is_so = registry is None
        try:
            names["warn_explicit"](*arguments, **named)
        finally:
            unregistered.is_so = False

    def forgetting(mutated: Callable[[], None]) -> Callable[[], None]:
        def forget() -> None:
            mutated()
            holders.here.shown.clear()

        return forget

    return {
        "filters": _FiltersHere(holders),
        "_showwarnmsg": show_message,
        SHOW_IMPL: show_impl,
        "warn_explicit": warn_explicit,
        **{name: forgetting(names[name]) for name in _MUTATED if name in names},
    }
