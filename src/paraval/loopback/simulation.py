"""Decides what becomes of each question, and keeps the accounts: no sockets, no waiting.

The time is told by the caller. What is decided is carried out by the server.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from dataclasses import dataclass

from paraval.loopback.accounts import Account, Allowance, retry_after_headers
from paraval.loopback.answers import Rules, reply_to
from paraval.loopback.draws import latency_s
from paraval.loopback.exchange import Question, Refusal, RefusalKind, Reply
from paraval.loopback.faults import Faults, with_key, with_wrong_usage
from paraval.loopback.forms import Behaviour, Fault, FaultKind, Headers
from paraval.loopback.scenario import Scenario
from paraval.loopback.tallies import DISTINCT_NAMES, OTHERS, Stats, Tallies, Visit

ANONYMOUS = "anonymous"
REQUEST_ID = {Headers.OPENAI: "x-request-id", Headers.ANTHROPIC: "request-id"}
ERRORS_AT_ONCE = frozenset({FaultKind.STATUS, FaultKind.HTML, FaultKind.REDIRECT})


def account_name(key: str | None) -> str:
    """What an account that no scenario names is called: not by its key, which may be a real one."""
    if key is None:
        return ANONYMOUS
    digest = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=4)
    return f"key-{digest.hexdigest()}"


class Persona:
    """What one model of the scenario is like."""

    def __init__(self, scenario: Scenario, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.rules = Rules(
            seed=scenario.seed,
            answers=behaviour.answers,
            key=scenario.key,
            tokens=behaviour.tokens,
        )
        self.faults = Faults(behaviour.faults, scenario.seed)


@dataclass(slots=True, kw_only=True)
class Served:
    """A question that was let in: what it gets, after how long. It must be ended, once."""

    reply: Reply
    wait_s: float
    headers: dict[str, str]
    visit: Visit
    account: Account
    fault: Fault | None = None
    refusal: Refusal | None = None
    """Where a fault answers with an error."""

    def end(self, how: str) -> None:
        """Frees its place; `how` names the count of a Tally. A second end changes nothing."""
        if self.visit.end(how, self.reply if how == "answered" else None):
            self.account.leave()


class Simulation:
    """The models, accounts and counts of one scenario, from its start."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._tallies = Tallies()
        self._accounts: dict[tuple[str, str], Account] = {}
        self._common = Persona(scenario, scenario)
        self._personas = {
            name: Persona(scenario, scenario.behaviour(name)) for name in scenario.models
        }
        self._numbers = itertools.count(1)

    def stats(self) -> Stats:
        return self._tallies.stats()

    def reject(self, key: str | None) -> None:
        """Counts a request that makes no sense."""
        self._tallies.visit(self._name(key), OTHERS).end("rejected")

    def meet(
        self, question: Question, key: str | None, own: Headers, now: float
    ) -> Served | Refusal:
        """Lets a question in, or says why not; `own` is how its protocol tells of limits."""
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
        served = Served(
            reply=reply,
            wait_s=latency_s(persona.behaviour.latency, question, self.scenario.seed),
            headers=headers,
            visit=visit,
            account=account,
        )
        fault = persona.faults.of(question)
        return served if fault is None else _spoilt(served, fault, key or "")

    def _stranger(self, question: Question, key: str | None) -> Refusal | None:
        accepted = self.scenario.accepted_keys
        if accepted is not None and key not in accepted:
            message = "Incorrect API key provided." if key else "You didn't provide an API key."
            return Refusal(kind=RefusalKind.BAD_KEY, status=401, message=message)
        if self.scenario.models_only and question.model not in self._personas:
            message = f"The model `{question.model[:100]}` does not exist."
            return Refusal(kind=RefusalKind.NO_MODEL, status=404, message=message)
        return None

    def _name(self, key: str | None) -> str:
        known = None if key is None else self.scenario.accounts_by_key.get(key)
        return account_name(key) if known is None else known[0]

    def _account(self, name: str, key: str | None, model: str, now: float) -> Account:
        """The account that counts: of a key, or, where a model has limits of its own, of both."""
        own = self.scenario.models.get(model)
        has_own = own is not None and own.model_fields_set & {"limits", "storm", "quota"}
        named = key is not None and key in self.scenario.accounts_by_key
        place = (name, model if has_own and not named else "")
        account = self._accounts.get(place)
        if account is None:
            if len(self._accounts) >= DISTINCT_NAMES:
                place = (OTHERS, "")
            allowance = self._allowance(key, model)
            account = self._accounts.setdefault(place, Account(allowance, now))
        return account

    def _allowance(self, key: str | None, model: str) -> Allowance:
        behaviour = self._personas.get(model, self._common).behaviour
        limits, storm, quota = behaviour.limits, behaviour.storm, behaviour.quota
        if key is not None and key in self.scenario.accounts_by_key:
            own = self.scenario.accounts_by_key[key][1]
            whole = self.scenario
            limits = whole.limits if own.limits is None else own.limits
            storm = whole.storm if own.storm is None else own.storm
            quota = whole.quota if own.quota is None else own.quota
        return Allowance(limits=limits, storm=storm, quota=quota)


def _spoilt(served: Served, fault: Fault, key: str) -> Served:
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


def _error(served: Served, fault: Fault) -> Refusal:
    assert fault.status is not None
    message = fault.message or f"Simulated error {fault.status}."
    if fault.kind is FaultKind.ECHO_KEY:
        message = served.reply.text
    headers = {**served.headers, **retry_after_headers(fault.retry_after, 1.0)}
    return Refusal(kind=RefusalKind.STATUS, status=fault.status, message=message, headers=headers)
