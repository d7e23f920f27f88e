"""Runs a program as a hook, and reads its lines while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence

from paraval.dataclass import dataclass
from paraval.processes.children import Command, ProcessEnd, Warden
from paraval.records import Failure, Outcome
from paraval.settings import LOG_LIMIT_BYTES
from paraval.targets.answer import InvalidOutputError, open_plain_file, seconds
from paraval.targets.command import TRY_AGAIN_EXIT_CODE
from paraval.targets.process_ends import last_words, unexpected_end

LOOK_EVERY_S = 0.05
"""How often to check for new lines; a check is one file read."""
_PIECE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A gap between lines, where output was not kept."""

    words: str
    begun_bytes: int
    """Length so far of the line that it begins in."""


TakeLines = Callable[[Sequence[str | Gap]], Awaitable[None]]


async def run_listening(warden: Warden, command: Command, take: TakeLines) -> ProcessEnd:
    """Run it, passing complete lines to `take`. Cancelling ends its process tree first."""
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
    """Reads what a program prints from its log: complete lines, each once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read = 0
        self._begun = b""

    def lines(self) -> list[str]:
        """The new lines."""
        # Beyond that the log may have a gap.
        return self._lines(LOG_LIMIT_BYTES)

    def rest(self) -> list[str]:
        """The remaining lines of a log without gaps; the last may be incomplete."""
        lines = self._lines(2 * LOG_LIMIT_BYTES)
        begun, self._begun = self._begun, b""
        return [*lines, _text(begun)] if begun else lines

    def end(self, total_bytes: int) -> list[str | Gap]:
        """The gap of a log that was read up to it, and the complete lines after it."""
        begun, self._begun = len(self._begun), b""
        # First comes the log's note on the gap, then part of a line.
        _, _, kept = self._more(2 * LOG_LIMIT_BYTES).removeprefix(b"\n").partition(b"\n")
        _, _, whole = kept.partition(b"\n")
        lost = total_bytes - LOG_LIMIT_BYTES - len(kept)
        words = (
            f"it printed {total_bytes:,} bytes: {lost:,} past the first"
            f" {LOG_LIMIT_BYTES >> 20} MiB were not kept or read"
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
            return b""  # Nothing printed yet: the first byte creates the log.
        pieces = []
        try:
            while piece := os.pread(descriptor, min(_PIECE_BYTES, limit - self._read), self._read):
                pieces.append(piece)
                self._read += len(piece)
        finally:
            os.close(descriptor)
        return b"".join(pieces)


def _text(line: bytes) -> str:
    # Keeps non-UTF-8 bytes: the reader of the line reports them.
    return line.decode(errors="surrogateescape")


def failure_of_hook(ended: ProcessEnd, command: Command) -> Failure | None:
    """Why it failed; None if it succeeded."""
    if ended.failure is None and ended.timed_out:
        assert command.timeout is not None
        message = f"timed out after {seconds(command.timeout)}"
        return Failure(kind=Outcome.TIMEOUT, message=message)
    if ended.failure is None and ended.signal is None:
        if ended.log_error:
            message = f"its output could not be saved: {ended.log_error}"
            return Failure(kind=Outcome.INFRA_ERROR, message=message)
        if ended.exit_code == 0:
            return None
        if ended.exit_code == TRY_AGAIN_EXIT_CODE:
            message = f"asked for a retry (exit code 75){last_words(command.stderr)}"
            return Failure(kind=Outcome.INFRA_ERROR, message=message)
    return unexpected_end(ended, command.stderr)
