"""Whether an exception tells of an outage: a provider, or the way to it, and not of an answer.

Looked for in the exception, in what it was raised from, and in groups. Nothing in an exception is
to be trusted: a client's attributes may be missing, or raise themselves.
"""

from __future__ import annotations

import asyncio.exceptions
import errno
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import pytest

from paraval.errors import RateLimitedError, TransientError
from paraval.models.rates import duration, retry_after
from paraval.models.reading import Complaint, complaint_of
from paraval.models.weather import Refusal, complaint_in, one_line, refused
from paraval.pytest_plugin.models import clients
from paraval.pytest_plugin.models.clients import Client, client_of
from paraval.records import Failure, Model, Outcome, Provider, account_need

LONGEST_CHAIN = 100
_PASSING = frozenset({408, 425, 429, 529})
"""Beside all from 500 on: of these a web client tells an outage."""
_NO_KEY = re.compile(r"api_key|authentication method|credentials", re.IGNORECASE)
_OF_PYTEST_TIMEOUT = re.compile(r"Timeout \(>[0-9.]+s\) from pytest-timeout")
_NO_NETWORK = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT}
)
_ADDRESS = "https://provider"


class Stops(Enum):
    """What nothing can be done with any more, by a provider's own words."""

    ACCOUNT = auto()
    """Its key is refused, or its quota used up."""
    MODEL = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Why there is no answer to be judged."""

    kind: Outcome
    message: str
    retry_after: float | None = None
    lasting: bool = False
    stops: Stops | None = None
    client: str | None = None
    """The package of the client that tells it, or the provider that it names."""
    host: str | None = None


def outage_in(error: BaseException | None) -> Outage | None:
    """What kept a test from an answer; None: nothing did, it failed by itself.

    An assertion is a verdict, and stands, also while an outage is being handled: a test of what
    happens then means just that. Raised *from* an outage it is one, and so is any other exception
    that comes up while one is handled: without it, the code would not have come there.
    """
    if error is None:
        return None
    try:
        return _search(error, set())
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a class's own code: it must not end the run
        return None


def _search(error: BaseException, seen: set[int]) -> Outage | None:
    if id(error) in seen or len(seen) >= LONGEST_CHAIN:
        return None
    seen.add(id(error))
    if isinstance(error, BaseExceptionGroup):
        return _of_group(error, seen)
    client = client_of(error)
    found = _told_by(error, client)
    if found is not None:
        return found
    if client is not None and _status(error) is not None:
        return None  # The client's own word: what was answered is no outage.
    if error.__cause__ is not None:
        return _search(error.__cause__, seen)
    if error.__context__ is None or error.__suppress_context__ or _is_verdict(error):
        return None
    return _search(error.__context__, seen)


def _of_group(group: BaseExceptionGroup[BaseException], seen: set[int]) -> Outage | None:
    """One that failed by itself decides: what it says holds, whatever became of the others."""
    found: list[Outage] = []
    for inner in group.exceptions:
        if isinstance(inner, asyncio.exceptions.CancelledError):
            continue
        outage = _search(inner, seen)
        if outage is None:
            return None
        found.append(outage)
    return max(found, key=_weight, default=None)


def _weight(outage: Outage) -> tuple[bool, bool, float]:
    """What lasts says most; then the longest wait."""
    is_refusal = outage.kind is Outcome.RATE_LIMITED
    return (outage.lasting, is_refusal, outage.retry_after or 0.0)


def _is_verdict(error: BaseException) -> bool:
    return isinstance(error, AssertionError | pytest.fail.Exception)


# ---- one exception


def _told_by(error: BaseException, client: Client | None) -> Outage | None:
    if client is None:
        return _own(error) or _of_python(error)
    found = _of_status(error, client) or _of_code(error, client) or _of_name(error, client)
    if found is None:
        found = _of_python(error)
    if found is None:
        return None
    wait = found.retry_after
    return replace(
        found,
        retry_after=_wait(error) if wait is None else wait,
        client=_provider(error, client),
        host=_host(error),
    )


def _own(error: BaseException) -> Outage | None:
    """What paraval itself raises, or is told by."""
    told = _got(error, "failure")
    if isinstance(told, Failure):
        return _of_failure(told)
    match error:
        case RateLimitedError():
            return _outage(error, Outcome.RATE_LIMITED, retry_after=error.retry_after)
        case TransientError():
            return _outage(error, Outcome.INFRA_ERROR)
    if type(error).__name__ == "TestTimedOut" or (
        isinstance(error, pytest.fail.Exception) and _OF_PYTEST_TIMEOUT.search(_text(error))
    ):
        return _outage(error, Outcome.TIMEOUT)
    if isinstance(error, TypeError) and "Could not resolve authentication method" in _text(error):
        # Anthropic's client, without a key.
        return _outage(error, Outcome.CRASHED, lasting=True, stops=Stops.ACCOUNT)
    return None


def _of_failure(failure: Failure) -> Outage | None:
    if not failure.kind.is_error:
        return None
    stops = None
    if failure.stops is not None:
        stops = Stops.ACCOUNT if failure.stops == failure.account else Stops.MODEL
    return Outage(
        kind=failure.kind,
        message=failure.message,
        retry_after=failure.retry_after,
        lasting=failure.lasting,
        stops=stops,
    )


def _of_python(error: BaseException) -> Outage | None:
    match error:
        case ssl.SSLCertVerificationError():
            return _outage(error, Outcome.INFRA_ERROR, lasting=True)
        case TimeoutError():
            return _outage(error, Outcome.TIMEOUT)
        case ConnectionError() | socket.gaierror() | ssl.SSLError():
            return _outage(error, Outcome.INFRA_ERROR)
        case OSError(errno=number) if number in _NO_NETWORK:
            return _outage(error, Outcome.INFRA_ERROR)
    return None


def _of_status(error: BaseException, client: Client) -> Outage | None:
    status = _status(error)
    if status is None or status < 400:
        return None
    if not client.asks_models and status not in _PASSING and status < 500:
        return None
    refusal = Refusal(status=status, complaint=_complaint(error), retry_after=_wait(error))
    failure = refused(_stand_in(client), refusal).failure
    if failure.kind is Outcome.CRASHED and failure.stops is None:
        return None  # The request itself is wrong: that is the test's own.
    told = _of_failure(failure)
    return None if told is None else replace(told, message=_line(error))


def _stand_in(client: Client) -> Model:
    """Which model was asked tells nothing of what a refusal means."""
    return Model(
        name=client.package,
        provider=Provider.OPENAI,
        model=client.package,
        base_url=_ADDRESS,
        account=client.package,
    )


def _of_code(error: BaseException, client: Client) -> Outage | None:
    code = _code(error)
    if code in clients.REFUSED_CODES:
        return _outage(error, Outcome.RATE_LIMITED)
    if code in clients.PASSING_CODES:
        return _outage(error, Outcome.INFRA_ERROR)
    if code in clients.LATE_CODES:
        return _outage(error, Outcome.TIMEOUT)
    is_keyless = "OpenAIError" in client.names and "APIError" not in client.names
    if is_keyless and _NO_KEY.search(_text(error)):
        return _outage(error, Outcome.CRASHED, lasting=True, stops=Stops.ACCOUNT)
    return None


def _of_name(error: BaseException, client: Client) -> Outage | None:
    names = client.names
    if _status(error) is not None or not names.isdisjoint(clients.OURS_ALONE):
        return None
    if not names.isdisjoint(clients.REFUSED):
        return _outage(error, Outcome.RATE_LIMITED)
    if not names.isdisjoint(clients.NO_KEY):
        return _outage(error, Outcome.CRASHED, lasting=True, stops=Stops.ACCOUNT)
    if not names.isdisjoint(clients.UNCONNECTED_IN_TIME):
        return _outage(error, Outcome.INFRA_ERROR)
    is_late = isinstance(_got(error, "reason"), TimeoutError)  # urllib's
    if is_late or not names.isdisjoint(clients.TIMED_OUT):
        return _outage(error, Outcome.TIMEOUT)
    if not names.isdisjoint(clients.BROKEN):
        return _outage(error, Outcome.INFRA_ERROR)
    return None


def _outage(
    error: BaseException,
    kind: Outcome,
    *,
    retry_after: float | None = None,
    lasting: bool = False,
    stops: Stops | None = None,
) -> Outage:
    return Outage(
        kind=kind, message=_line(error), retry_after=retry_after, lasting=lasting, stops=stops
    )


# ---- what clients keep in their exceptions


def _status(error: BaseException) -> int | None:
    response = _got(error, "response")
    for holder in (error, response, _got(error, "raw_response")):
        for name in ("status_code", "http_status", "status", "code"):
            status = _got(holder, name)
            if isinstance(status, int) and not isinstance(status, bool) and 100 <= status < 600:
                return int(status)
    told = _inner(response, "ResponseMetadata").get("HTTPStatusCode")  # botocore's
    return told if isinstance(told, int) else None


def _code(error: BaseException) -> str | None:
    """AWS's own name of an error, or gRPC's."""
    told = _inner(_got(error, "response"), "Error").get("Code")
    if isinstance(told, str):
        return told
    code = _got(error, "code")
    if callable(code):
        try:
            code = code()
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a client's own code, of which we know nothing
            return None
    name = _got(code, "name")
    return name if isinstance(name, str) else None


def _complaint(error: BaseException) -> Complaint:
    body = _got(error, "body")
    if isinstance(body, str):
        return complaint_in(body)
    if isinstance(body, Mapping):
        inner = body.get("error")
        found = complaint_of(inner if isinstance(inner, Mapping) else body)
        return found if found.message else replace(found, message=_text(error))
    return Complaint(message=_text(error))


def _wait(error: BaseException) -> float | None:
    for headers in _headers(error):
        plain = {str(name).lower(): str(value) for name, value in headers}
        wait = retry_after(plain, time.time())
        if wait is not None:
            return wait
    # Google tells it in the body.
    found = re.search(r"'?\"?retryDelay'?\"?: ?['\"]([0-9.]+s)['\"]", _text(error)[:10_000])
    return None if found is None else duration(found[1], time.time()) or None


def _headers(error: BaseException) -> Iterator[list[tuple[Any, Any]]]:
    response = _got(error, "response")
    holders = (
        _got(response, "headers"),
        _got(error, "headers"),
        _got(_got(error, "raw_response"), "headers"),
        _inner(response, "ResponseMetadata").get("HTTPHeaders"),
    )
    for held in holders:
        found = _items(held)
        if found:
            yield found


def _items(held: Any) -> list[tuple[Any, Any]]:
    try:
        return list(held.items())
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever a client keeps there that is no mapping
        return []


def _provider(error: BaseException, client: Client) -> str:
    """litellm speaks for many, and says for whom."""
    told = _got(error, "llm_provider")
    return told if isinstance(told, str) and told else client.package


def _host(error: BaseException) -> str | None:
    response = _got(error, "response")
    for holder in (_got(error, "request"), _got(response, "request"), response, error):
        for name in ("url", "real_url", "filename"):
            found = re.match(r"https?://(?:[^/@]*@)?([^/?#]+)", str(_got(holder, name) or ""))
            if found is not None:
                return found[1].lower()
    host = _got(error, "host")  # aiohttp's
    return host if isinstance(host, str) and host else None


def _inner(held: Any, name: str) -> Mapping[str, Any]:
    found = held.get(name) if isinstance(held, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _got(held: Any, name: str) -> Any:
    try:
        return getattr(held, name, None)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - properties raise what they like: pytest.fail, too
        return None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a user's own class
        return ""


def _line(error: BaseException) -> str:
    said = one_line(_text(error))
    name = type(error).__name__
    return f"{name}: {said}" if said else name


def need_of(stops: Stops | None, *, account: str, model: str | None) -> str | None:
    """The need that nothing can be done with any more."""
    match stops:
        case Stops.ACCOUNT:
            return account_need(account)
        case Stops.MODEL:
            return model
    return None
