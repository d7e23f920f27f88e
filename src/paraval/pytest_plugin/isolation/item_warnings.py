"""What tests warn of, for each of those that run at once: as pytest's warnings plugin does.

It is done by that plugin's own code, in the test's thread: `warnings_by_test` gives each test a
`warnings` module of its own, as it were. Reporters are told in the main thread.
"""

from __future__ import annotations

import inspect
import warnings
from collections import UserList
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from paraval.pytest_plugin.pytest_internals import catch_warnings_for_item
from paraval.pytest_plugin.running.current_test import RunningTest, owning_test

_FILTERS = pytest.StashKey[tuple[Any, ...]]()
"""Those of the configuration, where all of them can be read."""


@contextmanager
def isolate_warnings(config: pytest.Config) -> Iterator[None]:
    """Until the block ends, each test has its own; what code of nobody warns of is told then,
    without a test's name."""
    nobodys: list[warnings.WarningMessage] = []
    unread: list[warnings.WarningMessage] = []
    with warnings_by_test():
        with _recorded(config, None, nobodys, unread):
            filters = tuple(warnings.filters)
        if config.pluginmanager.hasplugin("warnings") and not unread:
            config.stash[_FILTERS] = filters
        with _recorded(config, None, nobodys, []):
            yield
    for message in nobodys:
        _tell(config.hook, message, "")


@contextmanager
def record_warnings(test: RunningTest) -> Iterator[None]:
    """In the test's own thread, around all its phases: filters of the configuration and of marks
    hold, and what they let through is in `test.warned` at once, for one that hangs, too."""
    item = test.item
    filters = item.config.stash.get(_FILTERS, None)
    if filters is None or any(item.iter_markers("filterwarnings")):
        with _recorded(item.config, item, test.warned, test.warned):
            yield
        return
    # What pytest would read anew for each test; and what a test holds ends with it.
    warnings.filters = list(filters)
    setattr(warnings, SHOW_IMPL, test.warned.append)
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
    unread: list[warnings.WarningMessage],
) -> Iterator[None]:
    """As pytest's own, without its hooks; `unread`: what filters that cannot be read warn of."""
    if not config.pluginmanager.hasplugin("warnings"):
        yield
        return

    def keep(kwargs: dict[str, Any]) -> None:
        unread.append(kwargs["warning_message"])

    hook = SimpleNamespace(pytest_warning_recorded=SimpleNamespace(call_historic=keep))
    with catch_warnings_for_item(config=config, ihook=hook, when="runtest", item=item):
        setattr(warnings, SHOW_IMPL, warned.append)
        yield


def _tell(hook: Any, message: warnings.WarningMessage, node_id: str) -> None:
    told = {"warning_message": message, "nodeid": node_id, "when": "runtest", "location": None}
    hook.pytest_warning_recorded.call_historic(kwargs=told)


# ---- a warnings module for each test


Filter = tuple[str, Any, type[Warning], Any, int]

SHOW_IMPL = "_showwarnmsg_impl"
_MUTATED = ("_filters_mutated", "_filters_mutated_lock_held")
"""The second since Python 3.14."""


@contextmanager
def warnings_by_test() -> Iterator[None]:
    """Until the block ends."""
    names = vars(warnings)
    before = dict(names)
    nobodys = _held(before)

    def here() -> WarningsState:
        test = owning_test()
        if test is None:
            return nobodys
        state: WarningsState = test.warnings_state or _held(before)
        test.warnings_state = state
        return state

    changed = _names_by_test(here, before)
    names.update(changed)
    plain_class = warnings.__class__
    warnings.__class__ = _class_by_test(here, before["_filters_mutated"])
    try:
        yield
    finally:
        warnings.__class__ = plain_class
        names.update({name: before[name] for name in changed})
        before["_filters_mutated"]()


@dataclass(slots=True, kw_only=True)
class WarningsState:
    """What the module holds, for one test or for nobody."""

    filters: list[Filter]
    showwarning: Callable[..., None]
    show_impl: Callable[[warnings.WarningMessage], object]
    shown: set[tuple[object, ...]] = field(default_factory=set)
    """By text and category, and file, and line: as far as the filter's action goes."""
    has_registry: bool = True
    """Whether what is just warned of is noted with a module."""

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


def _held(names: dict[str, Any]) -> WarningsState:
    return WarningsState(
        filters=list(names["filters"]),
        showwarning=names["showwarning"],
        show_impl=names[SHOW_IMPL],
    )


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


# ---- the module, while tests run at once


class _FilterList(UserList[Filter]):
    """`warnings.filters` for that module's own functions, which read it as a global name.

    All that a UserList does goes by its `data`."""

    def __init__(self, here: Callable[[], WarningsState]) -> None:
        self._here = here

    @property
    def data(self) -> list[Filter]:
        return self._here().filters

    @data.setter
    def data(self, filters: list[Filter]) -> None:
        self._here().filters = filters


def _class_by_test(
    here: Callable[[], WarningsState], raise_version: Callable[[], None]
) -> type[ModuleType]:
    """Of the module's attributes, as C code and all other modules see them."""

    def attribute(name: str) -> property:
        def get(_: ModuleType) -> Any:
            raise_version()
            return getattr(here(), name)

        return property(get, lambda _, value: setattr(here(), name, value))

    held = {"filters": "filters", "showwarning": "showwarning", SHOW_IMPL: "show_impl"}
    return type("module", (ModuleType,), {name: attribute(own) for name, own in held.items()})


def _names_by_test(here: Callable[[], WarningsState], names: dict[str, Any]) -> dict[str, Any]:
    """The module's global names that go by test, too, by what they are without."""
    raise_version, plainly_shown = names["_filters_mutated"], names["_showwarning_orig"]

    def show_message(message: warnings.WarningMessage) -> None:
        held = here()
        raise_version()
        if held.has_registry and not held.is_news(message):
            return
        if held.showwarning is plainly_shown:
            held.show_impl(message)
            return
        of = ("message", "category", "filename", "lineno", "file", "line")
        held.showwarning(*(getattr(message, name) for name in of))

    def warn_explicit(*arguments: Any, **named: Any) -> None:
        """Without a registry, nothing is known to have been shown before."""
        registry = arguments[5] if len(arguments) > 5 else named.get("registry")
        held = here()
        held.has_registry = registry is not None
        try:
            names["warn_explicit"](*arguments, **named)
        finally:
            held.has_registry = True

    def forgetting(mutated: Callable[[], None]) -> Callable[[], None]:
        def forget() -> None:
            mutated()
            here().shown.clear()

        return forget

    return {
        "filters": _FilterList(here),
        "_showwarnmsg": show_message,
        SHOW_IMPL: lambda message: here().show_impl(message),
        "warn_explicit": warn_explicit,
        **{name: forgetting(names[name]) for name in _MUTATED if name in names},
    }
