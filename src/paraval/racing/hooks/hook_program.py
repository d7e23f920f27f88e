"""A program as a hook: run to its end, and its lines taken while it still runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from paraval.processes.children import Command, ProcessEnd, Warden
from paraval.records import Failure, Outcome
from paraval.settings import LOG_LIMIT_BYTES
from paraval.targets.answer import InvalidOutputError, open_plain_file, seconds
from paraval.targets.command import TRY_AGAIN_EXIT_CODE
from paraval.targets.process_ends import last_words, unexpected_end

LOOK_EVERY_S = 0.05
"""How soon a line that was printed joins the race; to look costs one read of a file."""
_PIECE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Stands among lines for what was printed between them, and not kept."""

    words: str
    begun_bytes: int
    """Of the line that it begins in."""


TakeLines = Callable[[Sequence[str | Gap]], Awaitable[None]]


async def run_listening(warden: Warden, command: Command, take: TakeLines) -> ProcessEnd:
    """Runs it; `take` is handed its whole lines as they come. A cancel ends its tree first."""
    printed = PrintedLines(command.stdout)
    over = asyncio.Event()

    async def listen() -> None:
        while not over.is_set():
            await take(printed.lines())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), LOOK_EVERY_S)

    listening = asyncio.create_task(listen())
    try:
        ended = await warden.run(command)
        over.set()
        await listening
    finally:
        listening.cancel()
        await asyncio.wait({listening})
    await take(printed.lines())
    await take(printed.end(ended.stdout_bytes) if ended.stdout_cut else printed.rest())
    return ended


class PrintedLines:
    """What a program prints, read again from its log: whole lines, each once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read = 0
        self._begun = b""

    def lines(self) -> list[str]:
        """Those that came since."""
        # Past that the log may have a gap.
        return self._lines(LOG_LIMIT_BYTES)

    def rest(self) -> list[str]:
        """Those that are left of a log without gaps; the last may have no end."""
        lines = self._lines(2 * LOG_LIMIT_BYTES)
        begun, self._begun = self._begun, b""
        return [*lines, _text(begun)] if begun else lines

    def end(self, total_bytes: int) -> list[str | Gap]:
        """Of a log with a gap, all of which was read before it: those that are whole behind it."""
        begun, self._begun = len(self._begun), b""
        # Before the first end of a line is what tells of the gap; before the next, half a line.
        _, _, kept = self._more(2 * LOG_LIMIT_BYTES).removeprefix(b"\n").partition(b"\n")
        _, _, whole = kept.partition(b"\n")
        lost = total_bytes - LOG_LIMIT_BYTES - len(kept)
        words = (
            f"it printed {total_bytes:,} bytes: {lost:,} past the first"
            f" {LOG_LIMIT_BYTES >> 20} MiB are not kept, and were not read"
        )
        gap = Gap(words=words, begun_bytes=begun)
        return [gap, *(_text(line) for line in whole.split(b"\n") if line)]

    def _lines(self, limit: int) -> list[str]:
        pieces = (self._begun + self._more(limit)).split(b"\n")
        self._begun = pieces.pop()
        return [_text(piece) for piece in pieces]

    def _more(self, limit: int) -> bytes:
        try:
            descriptor = open_plain_file(self._path)
        except InvalidOutputError:
            return b""  # Nothing printed yet: the log comes into being with the first byte.
        pieces = []
        try:
            while piece := os.pread(descriptor, min(_PIECE_BYTES, limit - self._read), self._read):
                pieces.append(piece)
                self._read += len(piece)
        finally:
            os.close(descriptor)
        return b"".join(pieces)


def _text(line: bytes) -> str:
    # Bytes that are no UTF-8 stay what they are: whoever reads the line says what is wrong with it.
    return line.decode(errors="surrogateescape")


def failure_of_hook(ended: ProcessEnd, command: Command) -> Failure | None:
    """What its end means; None: it ended as it should."""
    if ended.failure is None and ended.timed_out:
        assert command.timeout is not None
        message = f"not done after {seconds(command.timeout)}; ended"
        return Failure(kind=Outcome.TIMEOUT, message=message)
    if ended.failure is None and ended.signal is None:
        if ended.log_error:
            message = f"what it printed could not be kept: {ended.log_error}"
            return Failure(kind=Outcome.INFRA_ERROR, message=message)
        if ended.exit_code == 0:
            return None
        if ended.exit_code == TRY_AGAIN_EXIT_CODE:
            message = f"asked to be tried again (exit code 75){last_words(command.stderr)}"
            return Failure(kind=Outcome.INFRA_ERROR, message=message)
    return unexpected_end(ended, command.stderr)
