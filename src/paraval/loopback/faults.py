"""Chooses the requests that fail, and how."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist

from paraval.loopback.exchange import ModelRequest, Reply, TokenUsage
from paraval.loopback.scenario_forms import Fault, Latency

# Randomness that does not depend on the order of requests: drawn from the request, not from a
# sequence.

_NORMAL = NormalDist()


def draw(*of: str | int) -> float:
    """A number from 0 up to 1, evenly distributed over all inputs."""
    text = "\0".join(map(str, of))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest()
    # Never 0 itself, which the distributions cannot use.
    return (int.from_bytes(digest) + 1) / (2**56 + 2)


def fits(match: re.Pattern[str] | None, prompt: str) -> bool:
    return match is None or match.search(prompt) is not None


def latency_s(rules: list[Latency], question: ModelRequest, seed: int) -> float:
    """The latency of this request."""
    for rule in rules:
        if fits(rule.match, question.prompt):
            if rule.median is None:
                return rule.seconds or 0.0
            place = _NORMAL.inv_cdf(draw(seed, "latency", question.model, question.prompt))
            sigma = 1.0 if rule.sigma is None else rule.sigma
            return rule.median * math.exp(sigma * place)
    return 0.0


REMEMBERED_PROMPTS = 1_000_000

WRONG_USAGE: Mapping[str, TokenUsage | None] = {
    "negative": TokenUsage(input=-5, output=-7),
    "missing": None,
    "huge": TokenUsage(input=10**30, output=10**30),
    "text": TokenUsage(input="many", output="many"),
}


class Faults:
    """Chooses among a model's faults; the first that fits applies."""

    def __init__(self, faults: list[Fault], seed: int) -> None:
        self._faults = faults
        self._seed = seed
        self._asked: Counter[int] = Counter()
        self._met = [0] * len(faults)
        self._draws = any(fault.share is not None for fault in faults)

    def of(self, question: ModelRequest) -> Fault | None:
        if not self._faults:
            return None
        time = self._time(question) if self._draws else 1
        for place, fault in enumerate(self._faults):
            if self._is_met(place, fault, question, time):
                self._met[place] += 1
                return fault
        return None

    def _time(self, question: ModelRequest) -> int:
        """How often this was asked: a retry may end differently, in whatever order requests
        come."""
        if len(self._asked) >= REMEMBERED_PROMPTS:
            self._asked.clear()
        # Hashed, since the text may be long.
        asked = hash((question.model, question.prompt))
        self._asked[asked] += 1
        return self._asked[asked]

    def _is_met(self, place: int, fault: Fault, question: ModelRequest, time: int) -> bool:
        if fault.first is not None and self._met[place] >= fault.first:
            return False
        if question.tool_results < fault.after_calls or not fits(fault.match, question.prompt):
            return False
        if fault.share is None:
            return True
        chance = draw(self._seed, "fault", place, question.model, question.prompt, time)
        return chance < fault.share


def with_wrong_usage(reply: Reply, fault: Fault) -> Reply:
    return replace(reply, usage=WRONG_USAGE[fault.usage])


def with_key(reply: Reply, fault: Fault, key: str) -> Reply:
    """An answer that leaks the API key of its request."""
    pieces: tuple[str, ...]
    match fault.form:
        case "plain":
            pieces = (f"Your key is {key}, I believe.",)
        case "split":
            middle = len(key) // 2
            pieces = (f"Your key is {key[:middle]}", f"{key[middle:]}, I believe.")
        case "base64":
            coded = base64.b64encode(key.encode("utf-8", "surrogateescape")).decode()
            pieces = (f"Your key is {coded}, I believe.",)
    return replace(reply, pieces=pieces)


def broken(text: str) -> str:
    """Invalid JSON: an object's first key has lost its colon."""
    return text.replace('":', '"', 1)
