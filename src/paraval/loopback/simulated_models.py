"""Decides what happens to each request, and keeps the state of accounts: no socket, no clock.

The caller passes the time, and the server carries out the decisions.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from paraval.dataclass import dataclass
from paraval.loopback.exchange import ErrorReply, ModelRequest, RefusalKind, Reply
from paraval.loopback.faults import Faults, latency_s, with_key, with_wrong_usage
from paraval.loopback.replies import Rules, reply_to
from paraval.loopback.scenario import Scenario
from paraval.loopback.scenario_forms import (
    Behavior,
    Fault,
    FaultKind,
    Headers,
    RetryAfter,
    ScenarioLimits,
    Storm,
)
from paraval.loopback.stats import DISTINCT_NAMES, OTHERS, CountedRequest, RequestCounter, Stats

# The limits of an account: requests and tokens per minute, concurrent calls, a quota, storms.

QUOTA_MESSAGE = (
    "You exceeded your current quota, please check your plan and billing details. "
    "(Simulated: the scenario's quota is used up.)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The limits of one account."""

    limits: ScenarioLimits
    storm: Storm | None = None
    quota: int | None = None


class RequestBucket:
    """A token bucket, with a rate per minute and a burst."""

    def __init__(self, per_minute: float, capacity: float, now: float) -> None:
        self.per_minute = per_minute
        self.capacity = capacity
        self._level = capacity
        self._at = now

    def level(self, now: float) -> float:
        gained = max(0.0, now - self._at) * self.per_minute / 60
        return min(self.capacity, self._level + gained)

    def take(self, amount: float, now: float) -> None:
        self._level = self.level(now) - amount
        self._at = now

    def wait_s(self, amount: float, now: float) -> float:
        """How long until this much is available; more than the capacity waits for a full bucket."""
        short = min(amount, self.capacity) - self.level(now)
        # Ignore rounding errors of small amounts.
        return 0.0 if short <= 1e-9 * self.capacity else short * 60 / self.per_minute

    def full_in_s(self, now: float) -> float:
        return (self.capacity - self.level(now)) * 60 / self.per_minute


class AccountState:
    """One account's requests, over time."""

    def __init__(self, allowance: Allowance, now: float) -> None:
        limits = allowance.limits
        self.at_once = 0
        self._limits = limits
        self._allowance = allowance
        self._first_at = now
        self._admitted = 0
        self._buckets: dict[str, RequestBucket] = {}
        if limits.requests_per_minute is not None:
            burst = limits.burst or max(1.0, limits.requests_per_minute / 60)
            self._buckets["requests"] = RequestBucket(limits.requests_per_minute, burst, now)
        if limits.tokens_per_minute is not None:
            burst = limits.burst_tokens or limits.tokens_per_minute
            self._buckets["tokens"] = RequestBucket(limits.tokens_per_minute, burst, now)

    def admit(self, tokens: float, now: float) -> ErrorReply | None:
        """Admit a request and count it, or return the refusal. An admitted request must `leave`."""
        refusal = self._refusal(tokens, now)
        if refusal is None:
            self.at_once += 1
            self._admitted += 1
            for name, bucket in self._buckets.items():
                bucket.take(1 if name == "requests" else tokens, now)
        return refusal

    def leave(self) -> None:
        self.at_once -= 1

    def _refusal(self, tokens: float, now: float) -> ErrorReply | None:
        if self._allowance.quota is not None and self._admitted >= self._allowance.quota:
            return ErrorReply(kind=RefusalKind.QUOTA, status=429, message=QUOTA_MESSAGE)
        storm = self._allowance.storm
        if storm is not None:
            since = now - self._first_at - storm.from_s
            if 0 <= since < storm.for_s:
                headers = retry_after_headers(storm.retry_after, storm.for_s - since)
                return _rate_refusal("The service is busy; please try again later.", headers)
        concurrent = self._limits.concurrent
        if concurrent is not None and self.at_once >= concurrent:
            headers = retry_after_headers(self._limits.retry_after, 1.0)
            return _rate_refusal(f"Too many requests at once: limit {concurrent}.", headers)
        return self._empty_bucket(tokens, now)

    def _empty_bucket(self, tokens: float, now: float) -> ErrorReply | None:
        for name, bucket in self._buckets.items():
            wait_s = bucket.wait_s(1 if name == "requests" else tokens, now)
            if wait_s > 0:
                headers = retry_after_headers(self._limits.retry_after, wait_s)
                return _rate_refusal(
                    f"Rate limit reached on {name} per min: limit {bucket.per_minute:g}. "
                    f"Please try again in {duration(wait_s)}.",
                    headers,
                )
        return None

    def headers(self, own: Headers, now: float) -> dict[str, str]:
        """The rate limit headers; `own` is the style of the protocol."""
        style = own if self._limits.headers is None else self._limits.headers
        if style is Headers.NONE:
            return {}
        headers: dict[str, str] = {}
        for name, bucket in self._buckets.items():
            headers.update(_HEADER_STYLES[style](name, bucket, now))
        return headers


def _rate_refusal(message: str, headers: Mapping[str, str]) -> ErrorReply:
    return ErrorReply(kind=RefusalKind.RATE, status=429, message=message, headers=headers)


def retry_after_headers(setting: RetryAfter | None, wait_s: float) -> dict[str, str]:
    """The header as set in the scenario; by default the actual wait, in whole seconds."""
    if setting is False:
        return {}
    if setting is None:
        return {"retry-after": str(max(1, math.ceil(wait_s)))}
    return {"retry-after": setting if isinstance(setting, str) else f"{setting:g}"}


def _as_openai(name: str, bucket: RequestBucket, now: float) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{name}": f"{bucket.per_minute:.0f}",
        f"x-ratelimit-remaining-{name}": str(max(0, int(bucket.level(now)))),
        f"x-ratelimit-reset-{name}": duration(bucket.full_in_s(now)),
    }


def _as_anthropic(name: str, bucket: RequestBucket, now: float) -> dict[str, str]:
    # Whole seconds, as in theirs; rounded up, so that no client retries too early.
    full_at = datetime.now(UTC) + timedelta(seconds=bucket.full_in_s(now) + 0.999_999)
    return {
        f"anthropic-ratelimit-{name}-limit": f"{bucket.per_minute:.0f}",
        f"anthropic-ratelimit-{name}-remaining": str(max(0, int(bucket.level(now)))),
        f"anthropic-ratelimit-{name}-reset": full_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


_HEADER_STYLES = {Headers.OPENAI: _as_openai, Headers.ANTHROPIC: _as_anthropic}


def duration(seconds: float) -> str:
    """In OpenAI's format: `6m0s`, `1.5s`, `20ms`; rounded up to milliseconds."""
    milliseconds = math.ceil(seconds * 1000 - 1e-6)
    if milliseconds < 1000:
        return f"{max(0, milliseconds)}ms" if milliseconds > 0 else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


ANONYMOUS = "anonymous"
REQUEST_ID = {Headers.OPENAI: "x-request-id", Headers.ANTHROPIC: "request-id"}
ERRORS_AT_ONCE = frozenset({FaultKind.STATUS, FaultKind.HTML, FaultKind.REDIRECT})


def account_name(key: str | None) -> str:
    """A name for an account not in the scenario: not its key, which may be a real one."""
    if key is None:
        return ANONYMOUS
    digest = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=4)
    return f"key-{digest.hexdigest()}"


class SimulatedModel:
    """The behavior of one model of the scenario."""

    def __init__(self, scenario: Scenario, behavior: Behavior) -> None:
        self.behavior = behavior
        self.rules = Rules(
            seed=scenario.seed,
            answers=behavior.answers,
            key=scenario.key,
            tokens=behavior.tokens,
        )
        self.faults = Faults(behavior.faults, scenario.seed)


@dataclass(slots=True, kw_only=True)
class ServedRequest:
    """An admitted request: its reply, and the delay. It must be ended, once."""

    reply: Reply
    wait_s: float
    headers: dict[str, str]
    visit: CountedRequest
    account: AccountState
    fault: Fault | None = None
    refusal: ErrorReply | None = None
    """Set if a fault answers with an error."""

    def end(self, how: str) -> None:
        """Release its slot; `how` names the count of a Tally. A second call changes nothing."""
        if self.visit.end(how, self.reply if how == "answered" else None):
            self.account.leave()


class SimulatedModels:
    """The models, accounts and counts of one scenario, from its start."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._tallies = RequestCounter()
        self._accounts: dict[tuple[str, str], AccountState] = {}
        self._common = SimulatedModel(scenario, scenario)
        self._personas = {
            name: SimulatedModel(scenario, scenario.behavior(name)) for name in scenario.models
        }
        self._numbers = itertools.count(1)

    def stats(self) -> Stats:
        return self._tallies.stats()

    def reject(self, key: str | None) -> None:
        """Count an invalid request."""
        self._tallies.visit(self._name(key), OTHERS).end("rejected")

    def meet(
        self, question: ModelRequest, key: str | None, own: Headers, now: float
    ) -> ServedRequest | ErrorReply:
        """Admit a request, or return the refusal; `own` is the header style of its protocol."""
        name = self._name(key)
        visit = self._tallies.visit(name, question.model)
        refusal = self._stranger(question, key)
        if refusal is not None:
            visit.end("rejected")
            return refusal
        persona = self._personas.get(question.model, self._common)
        number = next(self._numbers)
        reply = reply_to(question, persona.rules, number=number, created=int(time.time()))
        account = self._account(name, key, question.model, now)
        refusal = account.admit(reply.usage.total if reply.usage else 0, now)
        headers = {**account.headers(own, now), REQUEST_ID[own]: f"req_{reply.id}"}
        if refusal is not None:
            visit.end("refused")
            return refusal.with_headers(headers)
        visit.let_in()
        served = ServedRequest(
            reply=reply,
            wait_s=latency_s(persona.behavior.latency, question, self.scenario.seed),
            headers=headers,
            visit=visit,
            account=account,
        )
        fault = persona.faults.of(question)
        return served if fault is None else _spoiled(served, fault, key or "")

    def _stranger(self, question: ModelRequest, key: str | None) -> ErrorReply | None:
        accepted = self.scenario.accepted_keys
        if accepted is not None and key not in accepted:
            message = "Incorrect API key provided." if key else "You didn't provide an API key."
            return ErrorReply(kind=RefusalKind.BAD_KEY, status=401, message=message)
        if self.scenario.models_only and question.model not in self._personas:
            message = f"The model `{question.model[:100]}` does not exist."
            return ErrorReply(kind=RefusalKind.NO_MODEL, status=404, message=message)
        return None

    def _name(self, key: str | None) -> str:
        known = None if key is None else self.scenario.accounts_by_key.get(key)
        return account_name(key) if known is None else known[0]

    def _account(self, name: str, key: str | None, model: str, now: float) -> AccountState:
        """The account to charge: that of a key, or, if a model has limits of its own, of key and
        model."""
        own = self.scenario.models.get(model)
        has_own = own is not None and own.model_fields_set & {"limits", "storm", "quota"}
        named = key is not None and key in self.scenario.accounts_by_key
        place = (name, model if has_own and not named else "")
        account = self._accounts.get(place)
        if account is None:
            if len(self._accounts) >= DISTINCT_NAMES:
                place = (OTHERS, "")
            allowance = self._allowance(key, model)
            account = self._accounts.setdefault(place, AccountState(allowance, now))
        return account

    def _allowance(self, key: str | None, model: str) -> Allowance:
        behavior = self._personas.get(model, self._common).behavior
        limits, storm, quota = behavior.limits, behavior.storm, behavior.quota
        if key is not None and key in self.scenario.accounts_by_key:
            own = self.scenario.accounts_by_key[key][1]
            whole = self.scenario
            limits = whole.limits if own.limits is None else own.limits
            storm = whole.storm if own.storm is None else own.storm
            quota = whole.quota if own.quota is None else own.quota
        return Allowance(limits=limits, storm=storm, quota=quota)


def _spoiled(served: ServedRequest, fault: Fault, key: str) -> ServedRequest:
    served.fault = fault
    if fault.kind is FaultKind.WRONG_USAGE:
        served.reply = with_wrong_usage(served.reply, fault)
    elif fault.kind is FaultKind.ECHO_KEY:
        served.reply = with_key(served.reply, fault, key)
    if fault.kind in ERRORS_AT_ONCE:
        served.wait_s = 0.0
    if fault.kind is FaultKind.STATUS or (
        fault.kind is FaultKind.ECHO_KEY and fault.status is not None
    ):
        served.refusal = _error(served, fault)
    return served


def _error(served: ServedRequest, fault: Fault) -> ErrorReply:
    assert fault.status is not None
    message = fault.message or f"Simulated error {fault.status}."
    if fault.kind is FaultKind.ECHO_KEY:
        message = served.reply.text
    headers = {**served.headers, **retry_after_headers(fault.retry_after, 1.0)}
    return ErrorReply(
        kind=RefusalKind.STATUS, status=fault.status, message=message, headers=headers
    )
