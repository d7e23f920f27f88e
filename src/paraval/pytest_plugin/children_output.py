"""Child processes of a test: they get its environment, and print to its own file.

A child that is given no stdout inherits the process's, which belongs to nobody here. So it is given
the turn's, in order with what the test prints. This is for `--capture=fd` alone, pytest's default:
in the other modes what children print is not captured, and comes out where it always does.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from paraval.pytest_plugin.captured import OUTPUTS, Captured, mode_of
from paraval.pytest_plugin.turns import current

_POSITIONS = {"stdout": 4, "stderr": 5, "env": 10}
"""Among what Popen is given: args, bufsize, executable, stdin, stdout, stderr, ..."""


@contextmanager
def children_apart(config: pytest.Config) -> Iterator[None]:
    """While the block runs. A child that outlives its test writes to a file that nobody reads."""
    begin, system = subprocess.Popen.__init__, os.system
    if mode_of(config) == "fd":
        _share_files_with_forks()

    def begin_apart(child: subprocess.Popen[Any], *args: Any, **named: Any) -> None:
        given = list(args)
        for name, make in _inherited().items():
            position = _POSITIONS[name]
            if position < len(given):
                given[position] = make() if given[position] is None else given[position]
            elif named.get(name) is None:
                named[name] = make()
        begin(child, *given, **named)

    def system_apart(command: Any) -> int:
        if current() is None:
            return system(command)
        code = subprocess.call(command, shell=True)  # noqa: S602 - it is what os.system does
        return code << 8 if code >= 0 else -code

    subprocess.Popen.__init__ = begin_apart  # type: ignore[method-assign,assignment]  # put back below
    os.system = system_apart
    try:
        yield
    finally:
        subprocess.Popen.__init__ = begin  # type: ignore[method-assign]  # as it was
        os.system = system


def _inherited() -> dict[str, Callable[[], Any]]:
    """By argument of Popen: what makes the test's own of what a child would inherit."""
    turn, captured = current(), _captured()
    made: dict[str, Callable[[], Any]] = {}
    if captured is not None:
        made |= {name: captured.voices[name].spool.descriptor for name in OUTPUTS}
    if turn is not None and turn.environment:
        made["env"] = os.environ.copy
    return made


def _captured() -> Captured | None:
    turn = current()
    # Forks are looked at for good, also after a session of another mode.
    return None if turn is None or turn.captured.mode != "fd" else turn.captured


# ---- children that are forked, as multiprocessing does on Linux

_is_sharing = False


def _share_files_with_forks() -> None:
    """Once for the process, as this cannot be taken back; it does nothing for code of nobody."""
    global _is_sharing  # noqa: PLW0603 - it is the process's, as the registration is
    if not _is_sharing:
        _is_sharing = True
        os.register_at_fork(before=_make_files, after_in_child=_unlock)


def _make_files() -> None:
    """What a forked child prints into memory would be lost with it."""
    captured = _captured()
    if captured is not None:
        for voice in captured.voices.values():
            voice.spool.descriptor()


def _unlock() -> None:
    captured = _captured()
    if captured is not None:
        for voice in captured.voices.values():
            voice.spool.unlock_after_fork()
