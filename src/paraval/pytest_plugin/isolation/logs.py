"""What a test logs, kept apart: what pytest's logging plugin does for each phase, for a turn.

One handler stands on the root logger while turns run, and hands each record to the turn whose code
logs it. Records of nobody are for the other handlers, as those of `log_file` and `log_cli`, which
pytest keeps on the root logger through the whole loop. The levels that caplog sets are each turn's
own, and so are the headings of live logs.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest
from _pytest.logging import (
    LogCaptureFixture,
    LogCaptureHandler,
    LoggingPlugin,
    caplog_handler_key,
    caplog_records_key,
    catching_logs,
)

from paraval.pytest_plugin.running.current_test import Phase, current

Post = Callable[[Callable[[], None]], None]
Handlers = tuple[LogCaptureHandler, LogCaptureHandler]

_HEARS_ALL = hasattr(catching_logs, "attached_loggers")
"""Whether this pytest hears loggers that pass nothing on to the root, too: older ones don't."""


class TurnLogs:
    """The records of one turn. Without pytest's logging plugin (`-p no:logging`), it keeps none."""

    def __init__(self, item: pytest.Item, config: pytest.Config) -> None:
        self._item = item
        self._plugin = _plugin_of(config)
        self._root = config.stash.get(_ROOT, None)
        self._phase: Phase | None = None
        self._thread = 0
        """The test's own, once it runs."""
        self._ending = threading.Lock()
        """Guards the end of a phase: a test that is given up may come to its end after all."""
        self.levels = Levels()
        if self._plugin is not None:
            self._spare = config.stash.setdefault(_SPARE, deque())
            self._caplog, self._report = _handlers(self._plugin, self._spare)

    def begin(self, phase: Phase) -> None:
        """From here on its records are kept, for caplog and for the report."""
        if self._plugin is None:
            return
        if phase == "setup":
            self._thread = threading.get_ident()
            self._item.stash[caplog_records_key] = {}
        for handler in (self._caplog, self._report):
            handler.reset()
            if self._plugin.log_level is not None:
                handler.setLevel(self._plugin.log_level)
        self._item.stash[caplog_records_key][phase] = self._caplog.records
        self._item.stash[caplog_handler_key] = self._caplog
        if self._root is not None and (phase == "setup" or not self._root.is_in_place):
            self._root.put_in_place()
        self._phase = phase

    def end(self, phase: Phase) -> None:
        """What was logged becomes a section of the report; once, whoever asks."""
        with self._ending:
            if self._plugin is None or self._phase != phase:
                return
            self._phase = None
        self._item.add_report_section(phase, "log", self._report.stream.getvalue().strip())
        if self._plugin.log_level is not None:
            self.levels.forget_root()
        if phase == "teardown":
            del self._item.stash[caplog_records_key]
            del self._item.stash[caplog_handler_key]
            if threading.get_ident() == self._thread:
                # Not those of a test that was given up: it may go on to log.
                self._spare.append((self._caplog, self._report))

    def take(self, record: logging.LogRecord) -> None:
        """As a logger's `callHandlers`, for the turn's own handlers."""
        if self._phase is None:
            return
        for handler in (self._caplog, self._report):
            if record.levelno >= handler.level:
                handler.handle(record)


@contextmanager
def logs_apart(config: pytest.Config, post: Post | None = None) -> Iterator[None]:
    """Until the block ends, each turn has its own records.

    Live logs (`log_cli`) are written by jobs for `post`: reporters know the main thread alone.
    None: at once, in the thread that logs.
    """
    plugin = _plugin_of(config)
    if plugin is None:
        yield
        return
    root = config.stash[_ROOT] = _Root(plugin.log_level)
    level = logging.getLogger().level
    root.put_in_place()
    try:
        with levels_apart(), live_log_of_turns(plugin, post or _at_once):
            yield
    finally:
        root.take_away()
        if plugin.log_level is not None:
            logging.getLogger().setLevel(level)
        del config.stash[_ROOT]


class _Handing(logging.NullHandler):
    """Hands records on. It takes no lock: one test's slow message must not hold up the others."""

    def handle(self, record: logging.LogRecord) -> bool:
        turn = current()
        if turn is not None:
            turn.logs.take(record)
        return True


class _Root:
    """Where our handler stands: on the root logger, and on those that pass nothing on to it."""

    def __init__(self, log_level: int | None) -> None:
        self._handler = _Handing()
        self._log_level = log_level
        self._placing = threading.Lock()
        """Guards the handlers and the level of the root logger, against turns that both begin."""
        self._is_over = False

    @property
    def is_in_place(self) -> bool:
        """On the root logger: the others are looked at with each test."""
        return self._handler in logging.getLogger().handlers

    def put_in_place(self) -> None:
        """Again with each test: one before may have cleared the handlers, or set `propagate`."""
        root = logging.getLogger()
        with self._placing:
            if self._is_over:
                # A test that was given up has come to its next phase after all.
                return
            if self._handler not in root.handlers:
                root.addHandler(self._handler)
            if self._log_level is not None and root.level > self._log_level:
                root.setLevel(self._log_level)
            for logger in _loggers() if _HEARS_ALL else ():
                if not logger.propagate:
                    logger.addHandler(self._handler)
                elif logger.handlers:
                    # It would be handed the same record twice.
                    logger.removeHandler(self._handler)

    def take_away(self) -> None:
        with self._placing:
            self._is_over = True
            for logger in (logging.getLogger(), *_loggers()):
                logger.removeHandler(self._handler)


_ROOT = pytest.StashKey[_Root]()
_SPARE = pytest.StashKey[deque[Handlers]]()


def _loggers() -> Iterator[logging.Logger]:
    """All but the root; a copy, since others may come meanwhile."""
    known = list(logging.getLogger().manager.loggerDict.values())
    return (one for one in known if isinstance(one, logging.Logger))


def _plugin_of(config: pytest.Config) -> LoggingPlugin | None:
    plugin: LoggingPlugin | None = config.pluginmanager.get_plugin("logging-plugin")
    return plugin


def _handlers(plugin: LoggingPlugin, spare: deque[Handlers]) -> Handlers:
    """For caplog and for the report. Those of a test that is over serve the next one: to make
    them takes longer than many a test."""
    try:
        used = spare.pop()
    except IndexError:
        return _handler(plugin), _handler(plugin)
    for handler in used:
        handler.setLevel(logging.NOTSET)
        handler.filters.clear()
    return used


def _handler(plugin: LoggingPlugin) -> LogCaptureHandler:
    """With a formatter of its own: the one for colours writes each record's level into itself."""
    formatter = copy.copy(plugin.formatter)
    vars(formatter)["_style"] = copy.copy(vars(formatter)["_style"])
    handler = LogCaptureHandler()
    handler.setFormatter(formatter)
    return handler


def _at_once(job: Callable[[], None]) -> None:
    job()


# ---- levels


_BY_CAPLOG: ContextVar[bool] = ContextVar("paraval_by_caplog", default=False)
"""Whether it is caplog that sets levels here at this moment."""


class Levels:
    """What one turn asked for."""

    __slots__ = ("disabled", "of_loggers")

    def __init__(self) -> None:
        self.of_loggers: dict[logging.Logger, int] = {}
        self.disabled: int | None = None
        """In the place of `logging.disable`, which caplog lifts; None: nothing was asked."""

    @property
    def is_empty(self) -> bool:
        return not self.of_loggers and self.disabled is None

    def forget_root(self) -> None:
        """With a `log_level` of pytest's own, it puts the root logger back after each phase."""
        self.of_loggers.pop(logging.getLogger(), None)


@contextmanager
def levels_apart() -> Iterator[None]:
    """Until the block ends, caplog's levels hold for the turn that asks for them."""
    is_enabled_for, disable = logging.Logger.isEnabledFor, logging.Manager.disable
    # The last one is private: it puts back what the first one has set.
    plain = {name: vars(LogCaptureFixture)[name] for name in ("set_level", "at_level", "_finalize")}
    asking = {name: _asks(method) for name, method in plain.items()}
    asking["at_level"] = _asks_for_a_while(plain["at_level"])
    _set(LogCaptureFixture, asking)
    _set(logging.Manager, {"disable": _disable_of_turns(disable)})
    _set(
        logging.Logger, {"level": _LevelOfTurns(), "isEnabledFor": _is_enabled_for(is_enabled_for)}
    )
    try:
        yield
    finally:
        # Each logger has kept its own level in its own dictionary all the while.
        del logging.Logger.level
        _set(logging.Logger, {"isEnabledFor": is_enabled_for})
        _set(logging.Manager, {"disable": disable})
        _set(LogCaptureFixture, plain)


def _set(owner: type, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(owner, name, value)


def _levels_here() -> Levels | None:
    turn = current()
    return None if turn is None else turn.logs.levels


# ---- how loggers answer


class _LevelOfTurns:
    """`Logger.level`, for all loggers."""

    def __get__(self, logger: logging.Logger | None, owner: type | None = None) -> Any:
        if logger is None:
            return self
        levels = _levels_here()
        asked = None if levels is None else levels.of_loggers.get(logger)
        return vars(logger)["level"] if asked is None else asked

    def __set__(self, logger: logging.Logger, level: int) -> None:
        levels = _levels_here()
        # A logger that is only being made has no level yet: that one is everybody's.
        is_new = "level" not in vars(logger)
        if levels is None or is_new or not (_BY_CAPLOG.get() or logger in levels.of_loggers):
            vars(logger)["level"] = level
        else:
            levels.of_loggers[logger] = level


def _is_enabled_for(plain: Callable[[logging.Logger, int], bool]) -> Any:
    def is_enabled_for(self: logging.Logger, level: int) -> bool:
        levels = _levels_here()
        if levels is None or levels.is_empty:
            return plain(self, level)
        # The logger's own cache is for those who asked for nothing.
        if self.disabled or self.manager.disable >= level:
            return False
        return level >= self.getEffectiveLevel()

    return is_enabled_for


def _disable_of_turns(plain: Any) -> property:
    def get(manager: logging.Manager) -> int:
        levels = _levels_here()
        own = None if levels is None else levels.disabled
        real: int = plain.fget(manager)
        return real if own is None else own

    def put(manager: logging.Manager, level: int) -> None:
        levels = _levels_here()
        if levels is not None and (_BY_CAPLOG.get() or levels.disabled is not None):
            levels.disabled = level
        else:
            plain.fset(manager, level)

    return property(get, put)


# ---- caplog


@contextmanager
def _by_caplog() -> Iterator[None]:
    token = _BY_CAPLOG.set(True)
    try:
        yield
    finally:
        _BY_CAPLOG.reset(token)


def _asks(plain: Callable[..., None]) -> Callable[..., None]:
    def ask(self: LogCaptureFixture, *arguments: Any, **named: Any) -> None:
        with _by_caplog():
            plain(self, *arguments, **named)

    return ask


def _asks_for_a_while(plain: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def ask(self: LogCaptureFixture, *arguments: Any, **named: Any) -> Iterator[None]:
        asked = plain(self, *arguments, **named)
        with _by_caplog():
            asked.__enter__()
        try:
            yield
        finally:
            with _by_caplog():
                asked.__exit__(None, None, None)

    return ask


# ---- live logs


@contextmanager
def live_log_of_turns(
    plugin: LoggingPlugin, post: Callable[[Callable[[], None]], None]
) -> Iterator[None]:
    """Until the block ends; without live logs, nothing."""
    handler: Any = plugin.log_cli_handler
    if not isinstance(handler, logging.StreamHandler):
        yield
        return
    lines = _LiveLines(handler)

    def emit(record: logging.LogRecord) -> None:
        # A bad record is reported by the handler of the test's own, as with pytest's.
        try:
            text = handler.format(record)
        except Exception:  # noqa: BLE001 - as above: formatting calls code of users
            return
        turn = current()
        source = "" if turn is None else f"{turn.phase}: {turn.item.nodeid}"
        post(partial(lines.write, source, text))

    vars(handler)["emit"] = emit
    try:
        yield
    finally:
        del vars(handler)["emit"]


class _LiveLines:
    """What stands on the terminal: a heading where the source changes, then lines."""

    def __init__(self, handler: Any) -> None:
        self._reporter = handler.stream
        self._source: str | None = None

    def write(self, source: str, text: str) -> None:
        self._reporter.ensure_newline()
        if source != self._source:
            self._source = source
            self._reporter.section(f"live log {source}".strip(), sep="-", bold=True)
        self._reporter.write(f"{text}\n", flush=True)
