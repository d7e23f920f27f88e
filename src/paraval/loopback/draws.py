"""Chance that is the same whatever the order of requests: a draw from what is asked, not from a
sequence."""

from __future__ import annotations

import hashlib
import math
import re
from statistics import NormalDist

from paraval.loopback.exchange import Question
from paraval.loopback.forms import Latency

_NORMAL = NormalDist()


def draw(*of: str | int) -> float:
    """A number from 0 up to 1, spread evenly over all that can be drawn of."""
    text = "\0".join(map(str, of))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest()
    # One more than the smallest, so that 0 itself, which no distribution can use, never comes.
    return (int.from_bytes(digest) + 1) / (2**56 + 2)


def fits(match: re.Pattern[str] | None, prompt: str) -> bool:
    return match is None or match.search(prompt) is not None


def latency_s(rules: list[Latency], question: Question, seed: int) -> float:
    """How long this question takes."""
    for rule in rules:
        if fits(rule.match, question.prompt):
            if rule.median is None:
                return rule.seconds or 0.0
            place = _NORMAL.inv_cdf(draw(seed, "latency", question.model, question.prompt))
            sigma = 1.0 if rule.sigma is None else rule.sigma
            return rule.median * math.exp(sigma * place)
    return 0.0
