"""Measures the machine during a run: often while attempts start and end, rarely otherwise.

The scheduler interprets the readings; `measure` takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from paraval.records import MachineReading
from paraval.threads import Threads

SAMPLE_S = 0.1
LONGEST_S = 0.5
SLOWER = 1.3

Measure = Callable[[], MachineReading]
"""Blocking, so it is called in a thread; never twice at the same time."""


class MachineWatch:
    """Takes readings until it is canceled."""

    def __init__(
        self,
        measure: Measure,
        *,
        on_reading: Callable[[MachineReading | None], None],
        warn: Callable[[str], None],
    ) -> None:
        """`on_reading` gets None if no reading is available; `warn` gets the reason, once."""
        self._measure = measure
        self._on_reading = on_reading
        self._warn = warn
        self._has_warned = False
        self._stirred = asyncio.Event()

    def stir(self) -> None:
        """Something has started or ended: take the next reading soon."""
        self._stirred.set()

    async def run(self) -> None:
        threads = Threads(limit=1)
        try:
            wait_s = SAMPLE_S
            while True:
                await asyncio.sleep(SAMPLE_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s - SAMPLE_S):
                        await self._stirred.wait()
                wait_s = SAMPLE_S if self._stirred.is_set() else min(LONGEST_S, SLOWER * wait_s)
                self._stirred.clear()
                self._on_reading(await self._read(threads))
        finally:
            threads.close()

    async def _read(self, threads: Threads) -> MachineReading | None:
        try:
            return await threads.call(self._measure)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run can do without
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"Cannot measure the machine ({error!r}): only a few run in parallel.")
            return None
