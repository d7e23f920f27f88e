"""What each of the tests that run at once logs, as pytest's logging plugin keeps it.

One handler stands on the root logger meanwhile, and hands each record to the test whose code
logs it. Records of nobody are for the other handlers, as those of `log_file` and `log_cli`, which
pytest keeps on the root logger through the whole loop. The levels that caplog sets are each test's
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
        """The test's own, once it runs."""
        self.levels: dict[logging.Logger, int] = {}
        """What caplog was asked for."""
        if self._plugin is not None:
            # To make them takes longer than many a test: those of one that is over serve again.
            self._spare = config.stash.setdefault(_SPARE, deque())
            try:
                self._caplog, self._report = self._spare.pop()
            except IndexError:
                self._caplog, self._report = _handler(self._plugin), _handler(self._plugin)

    def begin(self, phase: Phase) -> None:
        """From here on its records are kept, for caplog and for the report."""
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
        """What was logged becomes a section of the report; once, whoever asks."""
        if self._plugin is None or self._phase != phase:
            return
        self._phase = None
        self._item.add_report_section(phase, "log", self._report.stream.getvalue().strip())
        if self._plugin.log_level is not None:
            # pytest puts the root logger back after each phase then.
            self.levels.pop(logging.getLogger(), None)
        if phase == "teardown":
            del self._item.stash[caplog_records_key]
            del self._item.stash[caplog_handler_key]
            if threading.get_ident() == self._thread:  # One that was given up may go on to log.
                for handler in (self._caplog, self._report):
                    handler.setLevel(logging.NOTSET)
                    handler.filters.clear()
                self._spare.append((self._caplog, self._report))

    def take(self, record: logging.LogRecord) -> None:
        """As a logger's `callHandlers`, for the test's own handlers."""
        if self._phase is None:
            return
        for handler in (self._caplog, self._report):
            if record.levelno >= handler.level:
                handler.handle(record)


@contextmanager
def isolate_logs(config: pytest.Config, post: Post | None = None) -> Iterator[None]:
    """Until the block ends, each test has its own records.

    Live logs (`log_cli`) are written by jobs for `post`: reporters know the main thread alone.
    None: at once, in the thread that logs.
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
    """Hands records on. It takes no lock: one test's slow message must not hold up the others.

    It stands on the root logger, and on those that pass nothing on to it.
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
        """Again with each phase: a test may have cleared the handlers; or set `propagate`, which is
        looked at with each test."""
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
                # It would be handed the same record twice.
                logger.removeHandler(self)


_SPARE = pytest.StashKey[deque[tuple[LogCaptureHandler, LogCaptureHandler]]]()
_HANDING = pytest.StashKey[_RoutingHandler]()


def _loggers() -> Iterator[logging.Logger]:
    """All but the root; a copy, since others may come meanwhile."""
    known = list(logging.getLogger().manager.loggerDict.values())
    return (one for one in known if isinstance(one, logging.Logger))


def _plugin_of(config: pytest.Config) -> LoggingPlugin | None:
    plugin: LoggingPlugin | None = config.pluginmanager.get_plugin("logging-plugin")
    return plugin


def _handler(plugin: LoggingPlugin) -> LogCaptureHandler:
    """With a formatter of its own: the one for colors writes each record's level into itself."""
    formatter = copy.copy(plugin.formatter)
    vars(formatter)["_style"] = copy.copy(vars(formatter)["_style"])
    handler = LogCaptureHandler()
    handler.setFormatter(formatter)
    return handler


# ---- levels


_BY_CAPLOG: ContextVar[bool] = ContextVar("paraval_by_caplog", default=False)
"""Whether it is caplog that sets levels here at this moment."""


@contextmanager
def _isolate_levels() -> Iterator[None]:
    """Until the block ends, caplog's levels hold for the test that asks for them."""
    # The last one is private: it puts back what the first one has set.
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
        # Each logger has kept its own level in its own dictionary all the while.
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
    """`Logger.level`, for all loggers."""

    def __get__(self, logger: logging.Logger | None, owner: type | None = None) -> Any:
        if logger is None:
            return self
        test = current_test()
        own = vars(logger)["level"]
        return own if test is None else test.logs.levels.get(logger, own)

    def __set__(self, logger: logging.Logger, level: int) -> None:
        test = current_test()
        # A logger that is only being made has no level yet: that one is everybody's.
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
        # The logger's own cache is for those who asked for nothing.
        if self.disabled or self.manager.disable >= level:
            return False
        return level >= self.getEffectiveLevel()

    return is_enabled_for


# ---- live logs


@contextmanager
def _isolate_live_log(plugin: LoggingPlugin, post: Post) -> Iterator[None]:
    """Until the block ends, a heading stands where the source changes; without live logs, nothing
    happens."""
    handler: Any = plugin.log_cli_handler
    if not isinstance(handler, logging.StreamHandler):
        yield
        return
    reporter, last = handler.stream, None

    def emit(record: logging.LogRecord) -> None:
        # A bad record is reported by the handler of the test's own, as with pytest's.
        try:
            text = handler.format(record)
        except Exception:  # noqa: BLE001 - as above: formatting calls code of users
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
