"""Live logs (`log_cli`) while several tests run: each run of lines says whose it is.

pytest's own handler lifts the capture of the whole process for each record, and knows one phase of
one test. Here nothing is captured by descriptor, and the heading names the test.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from _pytest.logging import LoggingPlugin

from paraval.pytest_plugin.turns import current


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
