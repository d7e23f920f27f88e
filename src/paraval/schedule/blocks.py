"""Cases one after another, in an order drawn by chance: for runs that may stop early.

What is decided by then must not depend on which cases take long, so the longest go first only among
the trials of one case.
"""

from __future__ import annotations

from collections.abc import Sequence

from paraval.records import Trial
from paraval.schedule.messages import Work
from paraval.statistics.drawing import drawn_order


def case_by_case(works: Sequence[Work], trials: Sequence[Trial], seed: int) -> list[Work]:
    """The works with the block of their case; `trials` are all of the plan, by index."""
    cases = drawn_order(list(dict.fromkeys(trial.case.id for trial in trials)), seed)
    blocks = {case: block for block, case in enumerate(cases)}
    return [work._replace(block=blocks[trials[work.index].case.id]) for work in works]
