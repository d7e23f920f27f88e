"""What a test logs, kept apart: what pytest's logging plugin does for each phase, for a turn.

One handler stands on the root logger while turns run, and hands each record to the turn whose code
logs it. Records of nobody are for the other handlers, as those of `log_file` and `log_cli`, which
pytest keeps on the root logger through the whole loop. Levels are the matter of `log_levels`.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from _pytest.logging import (
    LogCaptureHandler,
    LoggingPlugin,
    caplog_handler_key,
    caplog_records_key,
    catching_logs,
)

from paraval.pytest_plugin.live_log import live_log_of_turns
from paraval.pytest_plugin.log_levels import Levels, levels_apart
from paraval.pytest_plugin.turns import Phase, current

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
