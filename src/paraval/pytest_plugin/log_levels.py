"""Levels of loggers, apart for each turn: what caplog sets holds for its test alone.

A logger's level belongs to the whole process. While turns run, what caplog sets goes into a book of
the turn's, and a logger that is asked for its level, or whether it takes a record, looks there
first. So nobody else sees more or less than without it, log files included, and nothing real has to
be put back. What a test sets itself, by `Logger.setLevel` or `logging.disable`, stays process-wide;
but for a logger that caplog has set before, since caplog will put that back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from _pytest.logging import LogCaptureFixture

from paraval.pytest_plugin.turns import current

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
