"""Two simulated models for `paraval demo`: they wait as models do, and err as models do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

from paraval import Case

WRONG = {
    ("capital-australia", "small"): "Sydney is the capital of Australia.",
    ("sum-large", "small"): "48213 + 91877 = 139990",
    ("letters", "small"): "There are two letters r in 'strawberry'.",
    ("reverse-word", "large"): "lelarap",
}
SLOWNESS_S = {"small": 0.5, "large": 1.0}
NEVER = ("long-story", "large")
BROKEN = ("riddle", "small")


async def answer(case: Case, variant: Mapping[str, str]) -> str:
    """The simulated model's answer, after a while that differs from case to case."""
    which = (case.id, variant["model"])
    print(f"asking the simulated model '{variant['model']}': {case.input}")
    draw = random.Random("/".join(which))  # noqa: S311 - the same waits in every demo
    await asyncio.sleep(min(2.5, draw.lognormvariate(0, 0.7) * SLOWNESS_S[variant["model"]]))
    if which == NEVER:
        await asyncio.sleep(3600)
    if which == BROKEN:
        raise ConnectionResetError("the simulated service closed the connection")
    return WRONG.get(which, f"The answer is {case.expect}.")
