"""Records the warnings of each of several concurrent tests, as pytest's warnings plugin does.

That plugin's own code does the work, in the test's thread: `warnings_by_test` in effect gives each
test its own `warnings` module. Reporters are notified in the main thread.
"""

from __future__ import annotations

import inspect
import warnings
from collections import UserList
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.pytest_internals import catch_warnings_for_item
from paraval.pytest_plugin.running.current_test import RunningTest, owning_test

_FILTERS = pytest.StashKey[tuple[Any, ...]]()
"""The configuration's filters, if all of them could be read."""


@contextmanager
def isolate_warnings(config: pytest.Config) -> Iterator[None]:
    """Until the block ends, record warnings by test; then report those from outside of tests."""
    unowned: list[warnings.WarningMessage] = []
    unread: list[warnings.WarningMessage] = []
    with warnings_by_test():
        with _recorded(config, None, unowned, unread):
            filters = tuple(warnings.filters)
        if config.pluginmanager.hasplugin("warnings") and not unread:
            config.stash[_FILTERS] = filters
        with _recorded(config, None, unowned, []):
            yield
    for message in unowned:
        _report(config.hook, message, "")


@contextmanager
def record_warnings(test: RunningTest) -> Iterator[None]:
    """Record a test's warnings, in its own thread, around all its phases.

    The filters of the configuration and of marks apply. Warnings that pass them are in
    `test.warned` immediately, so a hung test has them too.
    """
    item = test.item
    filters = item.config.stash.get(_FILTERS, None)
    if filters is None or any(item.iter_markers("filterwarnings")):
        with _recorded(item.config, item, test.warned, test.warned):
            yield
        return
    # Avoid reading pytest's filters again for each test; the test's state ends with the test.
    warnings.filters = list(filters)
    setattr(warnings, SHOW_IMPL, test.warned.append)
    yield


def emit(item: pytest.Item, warned: Sequence[warnings.WarningMessage]) -> None:
    """Report a test's warnings from the main thread, as pytest's own plugin does."""
    for message in warned:
        _report(item.ihook, message, item.nodeid)


@contextmanager
def _recorded(
    config: pytest.Config,
    item: pytest.Item | None,
    warned: list[warnings.WarningMessage],
    unread: list[warnings.WarningMessage],
) -> Iterator[None]:
    """Record as pytest does, without its hooks; `unread`: warnings about unreadable filters."""
    if not config.pluginmanager.hasplugin("warnings"):
        yield
        return

    def keep(kwargs: dict[str, Any]) -> None:
        unread.append(kwargs["warning_message"])

    hook = SimpleNamespace(pytest_warning_recorded=SimpleNamespace(call_historic=keep))
    with catch_warnings_for_item(config=config, ihook=hook, when="runtest", item=item):
        setattr(warnings, SHOW_IMPL, warned.append)
        yield


def _report(hook: Any, message: warnings.WarningMessage, node_id: str) -> None:
    kwargs = {"warning_message": message, "nodeid": node_id, "when": "runtest", "location": None}
    hook.pytest_warning_recorded.call_historic(kwargs=kwargs)


# ---- a warnings module for each test


Filter = tuple[str, Any, type[Warning], Any, int]

SHOW_IMPL = "_showwarnmsg_impl"
_MUTATED = ("_filters_mutated", "_filters_mutated_lock_held")
"""The second exists since Python 3.14."""


@contextmanager
def warnings_by_test() -> Iterator[None]:
    """Until the block ends, give each test its own state of the `warnings` module."""
    names = vars(warnings)
    before = dict(names)
    unowned = _state_from(before)

    def here() -> WarningsState:
        test = owning_test()
        if test is None:
            return unowned
        state: WarningsState = test.warnings_state or _state_from(before)
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
    """The state of the `warnings` module for one test, or for code outside of tests."""

    filters: list[Filter]
    showwarning: Callable[..., None]
    show_impl: Callable[[warnings.WarningMessage], object]
    shown: set[tuple[object, ...]] = field(default_factory=set)
    """By text, category, file and line, as the filter's action requires."""
    has_registry: bool = True
    """Whether the current warning is recorded in a module's registry."""

    def is_news(self, message: warnings.WarningMessage) -> bool:
        """Whether to show the message, even if an equal one was shown before."""
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
        """The action of the first matching filter; C code has found it too, but hides it."""
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


def _state_from(names: dict[str, Any]) -> WarningsState:
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
    """The name of the module that the warning points at, from its frame."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_filename == message.filename:
            return str(frame.f_globals.get("__name__", "<string>"))
        frame = frame.f_back
    return message.filename.removesuffix(".py")


# ---- the module while tests run concurrently


class _FilterList(UserList[Filter]):
    """`warnings.filters` for that module's own functions, which read it as a global.

    Everything in a UserList goes through its `data`.
    """

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
    """Create a module class whose attributes are per test, for C code and all other modules."""

    def attribute(name: str) -> property:
        def get(_: ModuleType) -> Any:
            raise_version()
            return getattr(here(), name)

        return property(get, lambda _, value: setattr(here(), name, value))

    attributes = {"filters": "filters", "showwarning": "showwarning", SHOW_IMPL: "show_impl"}
    return type("module", (ModuleType,), {name: attribute(own) for name, own in attributes.items()})


def _names_by_test(here: Callable[[], WarningsState], names: dict[str, Any]) -> dict[str, Any]:
    """The module's globals that are also per test, built from the original ones."""
    raise_version, plainly_shown = names["_filters_mutated"], names["_showwarning_orig"]

    def show_message(message: warnings.WarningMessage) -> None:
        state = here()
        raise_version()
        if state.has_registry and not state.is_news(message):
            return
        if state.showwarning is plainly_shown:
            state.show_impl(message)
            return
        of = ("message", "category", "filename", "lineno", "file", "line")
        state.showwarning(*(getattr(message, name) for name in of))

    def warn_explicit(*arguments: Any, **named: Any) -> None:
        """Without a registry, every warning counts as new."""
        registry = arguments[5] if len(arguments) > 5 else named.get("registry")
        state = here()
        state.has_registry = registry is not None
        try:
            names["warn_explicit"](*arguments, **named)
        finally:
            state.has_registry = True

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
