"""Keeps what each of several concurrent tests logs, as pytest's logging plugin does.

A handler on the root logger passes each record to the test whose code logs it. Records from outside
of tests go to the other handlers, such as those of `log_file` and `log_cli`, which pytest keeps on
the root logger during the whole loop. Levels set by caplog, and the headings of live logs, are per
test.
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

from paraval.pytest_plugin.pytest_internals import (
    LogCaptureFixture,
    LogCaptureHandler,
    LoggingPlugin,
    caplog_handler_key,
    caplog_records_key,
)
from paraval.pytest_plugin.running.current_test import Phase, current_test

Post = Callable[[Callable[[], None]], None]


class LogRecorder:
    """The records of one test. Without pytest's logging plugin (`-p no:logging`), it keeps none."""

    def __init__(self, item: pytest.Item, config: pytest.Config) -> None:
        self._item = item
        self._plugin = _plugin_of(config)
        self._handing = config.stash.get(_HANDING, None)
        self._phase: Phase | None = None
        self._thread = 0
        """The test's own thread, once it runs."""
        self.levels: dict[logging.Logger, int] = {}
        """The levels set through caplog."""
        if self._plugin is not None:
            # Creating handlers takes longer than many tests do, so handlers of finished tests are
            # reused.
            self._spare = config.stash.setdefault(_SPARE, deque())
            try:
                self._caplog, self._report = self._spare.pop()
            except IndexError:
                self._caplog, self._report = _handler(self._plugin), _handler(self._plugin)

    def begin(self, phase: Phase) -> None:
        """Start keeping records, for caplog and for the report."""
        if self._plugin is None:
            return
        for handler in (self._caplog, self._report):
            handler.reset()
            if self._plugin.log_level is not None:
                handler.setLevel(self._plugin.log_level)
        stash = self._item.stash
        if phase == "setup":
            self._thread = threading.get_ident()
            stash[caplog_records_key] = {}
        stash[caplog_records_key][phase] = self._caplog.records
        stash[caplog_handler_key] = self._caplog
        if self._handing is not None:
            self._handing.put_in_place(is_new_test=phase == "setup")
        self._phase = phase

    def end(self, phase: Phase) -> None:
        """Add the phase's records to the report as a section, once."""
        if self._plugin is None or self._phase != phase:
            return
        self._phase = None
        self._item.add_report_section(phase, "log", self._report.stream.getvalue().strip())
        if self._plugin.log_level is not None:
            # In this case pytest restores the root logger after each phase.
            self.levels.pop(logging.getLogger(), None)
        if phase == "teardown":
            del self._item.stash[caplog_records_key]
            del self._item.stash[caplog_handler_key]
            if threading.get_ident() == self._thread:  # An abandoned test may continue to log.
                for handler in (self._caplog, self._report):
                    handler.setLevel(logging.NOTSET)
                    handler.filters.clear()
                self._spare.append((self._caplog, self._report))

    def take(self, record: logging.LogRecord) -> None:
        """Pass the record to the test's own handlers, like a logger's `callHandlers`."""
        if self._phase is None:
            return
        for handler in (self._caplog, self._report):
            if record.levelno >= handler.level:
                handler.handle(record)


@contextmanager
def isolate_logs(config: pytest.Config, post: Post | None = None) -> Iterator[None]:
    """Until the block ends, keep each test's records separately.

    Live logs (`log_cli`) are written by jobs passed to `post`, since reporters work only in the
    main thread. None: write immediately, in the thread that logs.
    """
    plugin = _plugin_of(config)
    if plugin is None:
        yield
        return
    handing = config.stash[_HANDING] = _RoutingHandler(plugin.log_level)
    level = logging.getLogger().level
    handing.put_in_place(is_new_test=True)
    try:
        with _isolate_levels(), _isolate_live_log(plugin, post or (lambda job: job())):
            yield
    finally:
        for logger in (logging.getLogger(), *_loggers()):
            logger.removeHandler(handing)
        if plugin.log_level is not None:
            logging.getLogger().setLevel(level)
        del config.stash[_HANDING]


class _RoutingHandler(logging.NullHandler):
    """Passes records to tests, without a lock: one test's slow message must not block the others.

    It is attached to the root logger, and to loggers that don't propagate to it.
    """

    def __init__(self, log_level: int | None) -> None:
        super().__init__()
        self._log_level = log_level

    def handle(self, record: logging.LogRecord) -> bool:
        test = current_test()
        if test is not None:
            test.logs.take(record)
        return True

    def put_in_place(self, *, is_new_test: bool) -> None:
        """Attach the handler again in each phase, since a test may have cleared the handlers. For
        each new test, also check which loggers propagate."""
        root = logging.getLogger()
        if self in root.handlers and not is_new_test:
            return
        root.addHandler(self)
        if self._log_level is not None and root.level > self._log_level:
            root.setLevel(self._log_level)
        for logger in _loggers():
            if not logger.propagate:
                logger.addHandler(self)
            elif logger.handlers:
                # It would receive the same record twice.
                logger.removeHandler(self)


_SPARE = pytest.StashKey[deque[tuple[LogCaptureHandler, LogCaptureHandler]]]()
_HANDING = pytest.StashKey[_RoutingHandler]()


def _loggers() -> Iterator[logging.Logger]:
    """All loggers but the root; a copy, since others may be added meanwhile."""
    known = list(logging.getLogger().manager.loggerDict.values())
    return (one for one in known if isinstance(one, logging.Logger))


def _plugin_of(config: pytest.Config) -> LoggingPlugin | None:
    plugin: LoggingPlugin | None = config.pluginmanager.get_plugin("logging-plugin")
    return plugin


def _handler(plugin: LoggingPlugin) -> LogCaptureHandler:
    """Create a handler with its own formatter: the color formatter stores each record's level."""
    formatter = copy.copy(plugin.formatter)
    vars(formatter)["_style"] = copy.copy(vars(formatter)["_style"])
    handler = LogCaptureHandler()
    handler.setFormatter(formatter)
    return handler


# ---- levels


_BY_CAPLOG: ContextVar[bool] = ContextVar("paraval_by_caplog", default=False)
"""Whether caplog is setting levels in this context."""


@contextmanager
def _isolate_levels() -> Iterator[None]:
    """Until the block ends, caplog's levels apply only to the test that sets them."""
    # The last one is private: it restores what the first one set.
    plain = {name: vars(LogCaptureFixture)[name] for name in ("set_level", "at_level", "_finalize")}
    is_enabled_for = logging.Logger.isEnabledFor
    asking = {name: _by_caplog()(method) for name, method in plain.items()}
    asking["at_level"] = _for_a_while(plain["at_level"])
    for name, method in asking.items():
        setattr(LogCaptureFixture, name, method)
    logger_class: Any = logging.Logger
    logger_class.level = _LevelPerTest()
    logger_class.isEnabledFor = _is_enabled_for(is_enabled_for)
    try:
        yield
    finally:
        # Each logger has kept its own level in its instance dictionary.
        del logger_class.level
        logger_class.isEnabledFor = is_enabled_for
        for name, method in plain.items():
            setattr(LogCaptureFixture, name, method)


@contextmanager
def _by_caplog() -> Iterator[None]:
    token = _BY_CAPLOG.set(True)
    try:
        yield
    finally:
        _BY_CAPLOG.reset(token)


def _for_a_while(at_level: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def ask(self: LogCaptureFixture, *arguments: Any, **named: Any) -> Iterator[None]:
        with _by_caplog(), at_level(self, *arguments, **named):
            yield

    return ask


class _LevelPerTest:
    """`Logger.level` for all loggers: the test's own level, if it set one through caplog."""

    def __get__(self, logger: logging.Logger | None, owner: type | None = None) -> Any:
        if logger is None:
            return self
        test = current_test()
        own = vars(logger)["level"]
        return own if test is None else test.logs.levels.get(logger, own)

    def __set__(self, logger: logging.Logger, level: int) -> None:
        test = current_test()
        # A logger being created has no level yet: its first level is for all tests.
        is_new = "level" not in vars(logger)
        if test is None or is_new or not (_BY_CAPLOG.get() or logger in test.logs.levels):
            vars(logger)["level"] = level
        else:
            test.logs.levels[logger] = level


def _is_enabled_for(plain: Callable[[logging.Logger, int], bool]) -> Any:
    def is_enabled_for(self: logging.Logger, level: int) -> bool:
        test = current_test()
        if test is None or not test.logs.levels:
            return plain(self, level)
        # The logger's own cache is only valid for tests that set no level.
        if self.disabled or self.manager.disable >= level:
            return False
        return level >= self.getEffectiveLevel()

    return is_enabled_for


# ---- live logs


@contextmanager
def _isolate_live_log(plugin: LoggingPlugin, post: Post) -> Iterator[None]:
    """Until the block ends, write a heading wherever the source of live logs changes."""
    handler: Any = plugin.log_cli_handler
    if not isinstance(handler, logging.StreamHandler):
        yield
        return
    reporter, last = handler.stream, None

    def emit(record: logging.LogRecord) -> None:
        # The test's own handler reports a bad record, as pytest's does.
        try:
            text = handler.format(record)
        except Exception:  # noqa: BLE001 - as above: formatting calls users' code
            return
        test = current_test()
        source = "" if test is None else f"{test.phase}: {test.item.nodeid}"
        post(partial(write, source, text))

    def write(source: str, text: str) -> None:
        nonlocal last
        reporter.ensure_newline()
        if source != last:
            last = source
            reporter.section(f"live log {source}".strip(), sep="-", bold=True)
        reporter.write(f"{text}\n", flush=True)

    vars(handler)["emit"] = emit
    try:
        yield
    finally:
        del vars(handler)["emit"]
