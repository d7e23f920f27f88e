"""pytest's own capture while turns run: it stays as it is, whatever a turn's code asks of it.

The only place that knows the insides of pytest's capture manager, which have been the same since
pytest 6; where one is missing, its part here is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TextIO

import pytest

from paraval.pytest_plugin.streams import ENCODING, StreamName
from paraval.pytest_plugin.turns import current


def kept_files(config: pytest.Config) -> dict[StreamName, TextIO]:
    """What pytest's global capture writes to; nothing with `-s`."""
    manager = config.pluginmanager.getplugin("capturemanager")
    kept = getattr(manager, "_global_capturing", None)
    files: dict[StreamName, TextIO | None] = {
        "stdout": getattr(getattr(kept, "out", None), "tmpfile", None),
        "stderr": getattr(getattr(kept, "err", None), "tmpfile", None),
    }
    return {name: file for name, file in files.items() if file is not None}


@contextmanager
def manager_apart(config: pytest.Config) -> Iterator[None]:
    with ExitStack() as stack:
        for name, file in kept_files(config).items():
            stack.enter_context(_file_apart(name, file))
        manager = config.pluginmanager.getplugin("capturemanager")
        if manager is not None:
            stack.enter_context(_requests_apart(manager))
        yield


@contextmanager
def _file_apart(name: StreamName, file: TextIO) -> Iterator[None]:
    """Handlers that were made as tests were imported hold pytest's file as their stream."""
    write = file.write

    def write_apart(text: str) -> int:
        turn = current()
        if turn is None:
            return write(text)
        turn.captured.sink(name).write(text.encode(ENCODING, "replace"))
        return len(text)

    with _covered(file, "write", write_apart):
        yield


@contextmanager
def _requests_apart(manager: Any) -> Iterator[None]:
    """A turn that suspends the capture, to show something, prints past its own alone.

    Nobody's code finds a capture that is suspended, and leaves it so: to resume it would take the
    terminal away from the reporters.
    """
    disabled = manager.global_and_fixture_disabled
    suspend, resume = manager.suspend_global_capture, manager.resume_global_capture
    kept = getattr(manager, "_global_capturing", None)
    is_suspended = kept is None or not kept.is_started()

    def disabled_apart() -> AbstractContextManager[None]:
        turn = current()
        made: AbstractContextManager[None] = turn.captured.lifted() if turn else disabled()
        return made

    def suspend_apart(in_: bool = False) -> None:
        if (turn := current()) is not None:
            turn.captured.lift()
        elif not is_suspended:
            suspend(in_)

    def resume_apart() -> None:
        if (turn := current()) is not None:
            turn.captured.lower()
        elif not is_suspended:
            resume()

    with (
        _covered(manager, "global_and_fixture_disabled", disabled_apart),
        _covered(manager, "suspend_global_capture", suspend_apart),
        _covered(manager, "resume_global_capture", resume_apart),
    ):
        yield


@contextmanager
def _covered(owner: object, name: str, cover: Callable[..., Any]) -> Iterator[None]:
    """An attribute of the thing's own lies over what its class has, or over what it had."""
    had = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, cover)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
