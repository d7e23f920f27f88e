"""Agents as targets: one process tree for each attempt, told and read by its `AgentProgram`."""

from __future__ import annotations

from paraval.records import Attempt
from paraval.targets.answer import Answer


class AgentAnswerer:
    """Runs agent programs."""

    async def answer(self, attempt: Attempt) -> Answer:
        raise NotImplementedError

    async def close(self) -> None:
        """The warden, which others use too, is closed by its owner."""
