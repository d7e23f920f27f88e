"""Results that say of which step they are: a store knows them by their keys alone.

A resume names its trials anew, and a course that is gone once more wants to know what there is
before it has named anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paraval.execute.driver import Performer
from paraval.racing.steps import STEP
from paraval.records import Attempt, AttemptResult, Output, TrialResult

SIGNATURE = "step"
"""Where in an output's metadata it is."""


class Signing:
    """Performs attempts as another performer does, and signs their results; a Performer."""

    def __init__(self, performer: Performer) -> None:
        self._performer = performer

    async def perform(self, attempt: Attempt) -> AttemptResult:
        result = await self._performer.perform(attempt)
        trial, output = attempt.trial, result.output or Output()
        signature = {
            "kind": trial.variant[STEP],
            "case": trial.case.id,
            "number": trial.repeat,
        }
        metadata = {**output.metadata, SIGNATURE: signature}
        return replace(result, output=replace(output, metadata=metadata))

    def forget(self, index: int) -> None:
        self._performer.forget(index)

    def kill(self) -> None:
        self._performer.kill()


def with_their_steps(known: Mapping[str, TrialResult]) -> dict[str, TrialResult]:
    """Those that are signed, with their case, variant and number again; by key, as they came."""
    return {
        key: replace(
            result,
            case_id=signature["case"],
            variant={STEP: signature["kind"]},
            repeat=signature["number"],
        )
        for key, result in known.items()
        if (signature := _signature_in(result)) is not None
    }


def _signature_in(result: TrialResult) -> Mapping[str, Any] | None:
    output = result.result.output
    return None if output is None else output.metadata.get(SIGNATURE)
