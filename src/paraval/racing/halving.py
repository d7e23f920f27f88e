"""Who is measured how often: successive halving, then finals on fresh measurements. Pure.

What the measurements say of a candidate is told by `verdicts`.
"""

from __future__ import annotations

from paraval.racing.request import BenchSpec

FIRST_BLOCKS = 3
"""Of everyone, in the first round: six processes on each side."""
FINALISTS = 2
LEAST_FINAL_BLOCKS = 5
MOST_BLOCKS = 15
"""Of one candidate in one round, or in the finals: beyond it the interval hardly narrows."""
PROCESSES_OF_A_BLOCK = 4
_FINALS_S = 30.0
"""What the finals of one candidate should take, where its processes are neither long nor short."""


def halving_rounds(n: int, budget: int, eta: int = 2) -> list[tuple[int, int]]:
    """(how many are left, blocks for each of them), round by round, for `budget` blocks in all."""
    if n < 1 or eta < 2:
        raise ValueError(f"{n} candidates cannot be halved by {eta}")
    sizes = [n]
    while sizes[-1] > eta:
        sizes.append(-(-sizes[-1] // eta))
    return [(left, budget // (left * len(sizes))) for left in sizes]


def screening_rounds(n: int) -> list[tuple[int, int]]:
    """The rounds of a race with `n` candidates that are right, before its finals.

    A round for the last two would decide nothing: the finals measure both of them afresh.
    """
    count = len(halving_rounds(n, 0))
    first, *later = halving_rounds(n, FIRST_BLOCKS * n * count)
    return [
        first,
        *((left, min(blocks, MOST_BLOCKS)) for left, blocks in later if left > FINALISTS),
    ]


def final_blocks(bench: BenchSpec, process_s: float) -> int:
    """Of each finalist."""
    if bench.blocks is not None:
        return max(1, bench.blocks)
    worth = MOST_BLOCKS
    if process_s > 0:
        worth = round(min(_FINALS_S / (PROCESSES_OF_A_BLOCK * process_s), MOST_BLOCKS))
    return max(LEAST_FINAL_BLOCKS, worth)


def final_confidence(confidence: float, finalists: int) -> float:
    """Of each finalist."""
    return one_of(finalists, confidence)


def one_of(number: int, confidence: float) -> float:
    """Bonferroni's: of several one is lucky more easily, so each must show more."""
    return 1 - (1 - confidence) / max(1, number)
