"""Claims that hold whenever one looks: tests by betting, and confidence sequences.

A p-value is meant for one look. Who looks after every case and stops when it is small calls equal
sides different far too often (23 % of the time within 100 pairs, where 5 % was promised). What is
here may be looked at after every pair and stopped at any time. Pairs must come in an order that
has nothing to do with how they end; which order that is, is decided by those who call.
"""

from __future__ import annotations

import math

from paraval.statistics.confidence import check_confidence


def sign_e_value(wins: int, losses: int) -> float:
    """What a fair bet against "wins are as likely as losses" made of 1, spread evenly over all
    that the share of wins might be; infinite where that is beyond all numbers.

    Were they as likely, it would ever reach 20 with a chance of at most one in 20.
    """
    if wins < 0 or losses < 0:
        raise ValueError(f"{wins} wins and {losses} losses are not possible")
    n = wins + losses
    ways = math.lgamma(n + 1) - (math.lgamma(wins + 1) + math.lgamma(losses + 1))
    try:
        return math.exp(n * math.log(2) - math.log(n + 1) - ways)
    except OverflowError:
        return math.inf


class SignTest:
    """Whether one side of pairs wins more often, decided as they come. Ties say nothing."""

    def __init__(self) -> None:
        self.wins = 0
        self.losses = 0
        self.best = 1.0
        """The largest e-value so far: what was decided once stays so."""

    def add(self, difference: float) -> None:
        """One pair more; above 0: the first side won it."""
        if math.isnan(difference):
            raise ValueError("a difference is a number")
        self.wins += difference > 0
        self.losses += difference < 0
        self.best = max(self.best, self.e)

    @property
    def e(self) -> float:
        return sign_e_value(self.wins, self.losses)

    @property
    def p(self) -> float:
        """The p-value that holds at any time."""
        return 1 / self.best

    def is_decided(self, alpha: float) -> bool:
        return self.best >= _needed(alpha)

    def best_possible(self, remaining: int) -> float:
        """The e-value if the side that is ahead won all that remains: none can come out higher.

        From a tie or behind, wins lower it before they raise it, so the other side reaches less.
        """
        if remaining < 0:
            raise ValueError(f"{remaining} remaining pairs are not possible")
        ahead, behind = max(self.wins, self.losses), min(self.wins, self.losses)
        return sign_e_value(ahead + remaining, behind)

    def is_futile(self, remaining: int, alpha: float) -> bool:
        """Whether nothing that can still come would decide it."""
        return not self.is_decided(alpha) and self.best_possible(remaining) < _needed(alpha)


def mixture_radius(
    n: int, confidence: float = 0.95, *, tuned_for: int = 50, range_: float = 1.0
) -> float:
    """How far from the mean of the first `n` values the truth may be, at every `n` at once: the
    normal mixture (Howard et al. 2021) for values within a range of this width.

    It is narrowest near the number of values that it is tuned for, and valid at all.
    """
    check_confidence(confidence)
    if n < 1 or tuned_for < 1:
        raise ValueError(f"a radius is that of at least one value, not {min(n, tuned_for)}")
    if not 0 < range_ < math.inf:
        raise ValueError(f"a range is wider than 0 and finite, not {range_}")
    alpha = 1 - confidence
    surprise = -2 * math.log(alpha)
    rho = tuned_for / 4 / (surprise + math.log1p(surprise))
    spread = n / 4 + rho
    return range_ * math.sqrt(spread * (math.log(spread / rho) + surprise)) / n


def _needed(alpha: float) -> float:
    if not 0 < alpha < 1:
        raise ValueError(f"a chance of a false claim lies between 0 and 1, not at {alpha}")
    return 1 / alpha
