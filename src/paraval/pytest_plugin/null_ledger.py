"""A ledger that keeps nothing, for runs of tests: what a run found is recorded from its reports.

What the driver is told of is told in a step of its own, as by a real ledger: called at once, it
would come back into the driver while that still acts on what the scheduler decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from paraval.records import Attempt, AttemptResult, Outcome, Trial

_NOTHING: Mapping[int, Outcome] = MappingProxyType({})


class NullLedger:
    """What the driver needs of a store, without one. Made in the loop that it serves."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._made: dict[int, int] = {}
        self._durable: list[Callable[[], None]] = []
        """Called together, in their order, in the loop's next step."""

    @property
    def done(self) -> Mapping[int, Outcome]:
        return _NOTHING

    def add(self, trials: Sequence[Trial]) -> None: ...

    def attempts_made(self, index: int) -> int:
        return self._made.get(index, 0)

    def attempt_folder(self, trial: Trial, number: int) -> str:  # noqa: ARG002 - the driver's words
        """There is none: a test that wants a folder has `tmp_path`."""
        return ""

    def record_start(self, attempt: Attempt, at: float, on_durable: Callable[[], None]) -> None:  # noqa: ARG002 - the driver's words
        self._made[attempt.trial.index] = attempt.number
        self._call_soon(on_durable)

    def record_end(
        self,
        attempt: Attempt,  # noqa: ARG002 - the driver's words, here and below
        result: AttemptResult,  # noqa: ARG002
        *,
        final: bool,  # noqa: ARG002
        queued_s: float | None,  # noqa: ARG002
        on_durable: Callable[[], None],
    ) -> None:
        self._call_soon(on_durable)

    def _call_soon(self, on_durable: Callable[[], None]) -> None:
        if not self._durable:
            self._loop.call_soon(self._deliver)
        self._durable.append(on_durable)

    def _deliver(self) -> None:
        durable, self._durable = self._durable, []
        for each in durable:
            # Each by itself: what one raises is the loop's to tell, and holds up no other.
            try:
                each()
            except Exception as error:  # noqa: BLE001 - whatever it is, the loop tells of it
                self._loop.call_exception_handler(
                    {"message": "a test's end could not be acted on", "exception": error}
                )
