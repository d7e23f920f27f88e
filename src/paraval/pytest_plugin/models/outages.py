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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import pytest

from paraval.errors import RateLimitedError, TransientError
from paraval.models.call_errors import ProviderRefusal, complaint_in, one_line, refused
from paraval.models.rate_limits import duration, retry_after
from paraval.models.response_reader import ServerComplaint, complaint_of
from paraval.pytest_plugin.models.clients import KINDS, MODEL_CLIENTS, WEB_CLIENTS
from paraval.records import Failure, Model, Outcome, Provider

LONGEST_CHAIN = 100
_PASSING = frozenset({408, 425, 429, *range(500, 600)})
"""Of these a web client tells an outage."""
_NO_KEY = {"OpenAIError": "api_key", "TypeError": "Could not resolve authentication method"}
"""By a class's name: what OpenAI's and Anthropic's clients say without a key."""
_OF_PYTEST_TIMEOUT = re.compile(r"Timeout \(>[0-9.]+s\) from pytest-timeout")
_RETRY_DELAY = re.compile(r"'?\"?retryDelay'?\"?: ?['\"]([0-9.]+s)['\"]")
_NO_NETWORK = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT}
)
_ANY = Model(name="any", provider=Provider.OPENAI, model="any", base_url="", account="any")
"""Which model was asked tells nothing of what a refusal means."""


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
    found: Outage | None = _safely(_search, error, set())
    return found


def _search(error: BaseException | None, seen: set[int]) -> Outage | None:
    if error is None or id(error) in seen or len(seen) >= LONGEST_CHAIN:
        return None
    seen.add(id(error))
    if isinstance(error, BaseExceptionGroup):
        return _of_group(error, seen)
    # A class may have anything for its module, None, too.
    kinds = [(str(one.__module__).partition(".")[0], one.__name__) for one in type(error).__mro__]
    known = [one for one in kinds if one[0] in MODEL_CLIENTS | WEB_CLIENTS]
    found = _own(error) or _of_client(error, known) or _of_python(error)
    if found is not None and known:  # the outermost client: litellm's errors are openai's, too
        found = _with_client(found, error, known[0][0])
    # With a status it is the client's own word: what was answered is no outage.
    if found is not None or (known and _status(error) is not None):
        return found
    if error.__cause__ is not None:
        return _search(error.__cause__, seen)
    is_verdict = isinstance(error, AssertionError | pytest.fail.Exception)
    return None if error.__suppress_context__ or is_verdict else _search(error.__context__, seen)


def _of_group(group: BaseExceptionGroup[BaseException], seen: set[int]) -> Outage | None:
    """One that failed by itself decides. Else what lasts says most; then the longest wait."""
    found: list[Outage] = []
    for inner in group.exceptions:
        if not isinstance(inner, asyncio.exceptions.CancelledError):
            outage = _search(inner, seen)
            if outage is None:
                return None
            found.append(outage)
    return max(found, key=_weight, default=None)


def _weight(outage: Outage) -> tuple[bool, bool, float]:
    is_refusal = outage.kind is Outcome.RATE_LIMITED
    return (outage.lasting, is_refusal, outage.retry_after or 0.0)


# ---- one exception


def _own(error: BaseException) -> Outage | None:
    """What paraval itself raises or is told by, and what clients say without a key."""
    told, name, text = _got(error, "failure"), type(error).__name__, _text(error)
    if isinstance(told, Failure):
        return _of_failure(told)
    if isinstance(error, RateLimitedError):
        return _outage(error, Outcome.RATE_LIMITED, retry_after=error.retry_after)
    if isinstance(error, TransientError):
        return _outage(error, Outcome.INFRA_ERROR)
    is_late = isinstance(error, pytest.fail.Exception) and _OF_PYTEST_TIMEOUT.search(text)
    if is_late or name == "TestTimedOut":
        return _outage(error, Outcome.TIMEOUT)
    return _outage(error, Outcome.CRASHED) if name in _NO_KEY and _NO_KEY[name] in text else None


def _of_failure(failure: Failure) -> Outage | None:
    if not failure.kind.is_error:
        return None
    stops = Stops.ACCOUNT if failure.stops == failure.account else Stops.MODEL
    return Outage(
        kind=failure.kind,
        message=failure.message,
        retry_after=failure.retry_after,
        lasting=failure.lasting,
        stops=None if failure.stops is None else stops,
    )


def _of_python(error: BaseException) -> Outage | None:
    if isinstance(error, TimeoutError):
        return _outage(error, Outcome.TIMEOUT)
    is_network = isinstance(error, ConnectionError | socket.gaierror | ssl.SSLError)
    if is_network or (isinstance(error, OSError) and error.errno in _NO_NETWORK):
        is_lasting = isinstance(error, ssl.SSLCertVerificationError)
        return replace(_outage(error, Outcome.INFRA_ERROR), lasting=is_lasting)
    return None


def _of_client(error: BaseException, known: list[tuple[str, str]]) -> Outage | None:
    """By its status, by the code that AWS and gRPC have, or by the names of its classes."""
    if not known:
        return None
    status, code, is_model = _status(error), _code(error), known[0][0] in MODEL_CLIENTS
    if status is not None and (status in _PASSING or (is_model and status >= 400)):
        refusal = ProviderRefusal(
            status=status, complaint=_complaint(error), retry_after=_wait(error)
        )
        failure = refused(_ANY, refusal).failure
        if failure.kind is not Outcome.CRASHED or failure.stops is not None:
            return _of_failure(replace(failure, message=_line(error)))
        # Else the request itself is wrong: that is the test's own.
    if isinstance(_got(error, "reason"), TimeoutError):  # urllib's
        return _outage(error, Outcome.TIMEOUT)
    names = [code, *(name for _, name in known if status is None)]
    kind = next((KINDS[name] for name in names if name in KINDS), Outcome.FAILED)
    return _outage(error, kind) if kind.is_error else None


def _with_client(outage: Outage, error: BaseException, client: str) -> Outage:
    provider = _got(error, "llm_provider")  # litellm speaks for many, and says for whom
    return replace(
        outage,
        retry_after=_wait(error) if outage.retry_after is None else outage.retry_after,
        client=provider if provider and isinstance(provider, str) else client,
        host=_host(error),
    )


def _outage(error: BaseException, kind: Outcome, *, retry_after: float | None = None) -> Outage:
    """`CRASHED`: for want of a key."""
    is_keyless = kind is Outcome.CRASHED
    return Outage(
        kind=kind,
        message=_line(error),
        retry_after=retry_after,
        lasting=is_keyless,
        stops=Stops.ACCOUNT if is_keyless else None,
    )


# ---- what clients keep in their exceptions


def _status(error: BaseException) -> int | None:
    response = _got(error, "response")
    for holder in (error, response, _got(error, "raw_response")):
        for name in ("status_code", "http_status", "status", "code"):
            status = _got(holder, name)
            if isinstance(status, int) and 100 <= status < 600:
                return int(status)
    told = _inner(response, "ResponseMetadata").get("HTTPStatusCode")  # botocore's
    return told if isinstance(told, int) else None


def _code(error: BaseException) -> str | None:
    """AWS's own name of an error, or gRPC's."""
    code = _got(error, "code")
    name = _got(_safely(code) if callable(code) else code, "name")
    told = _inner(_got(error, "response"), "Error").get("Code", name)
    return told if isinstance(told, str) else None


def _complaint(error: BaseException) -> ServerComplaint:
    body = _got(error, "body")
    if isinstance(body, str):
        return complaint_in(body)
    found = complaint_of(_inner(body, "error") or body)
    return found if found.message else replace(found, message=_text(error))


def _wait(error: BaseException) -> float | None:
    response = _got(error, "response")
    holders = (response, error, _got(error, "raw_response"))
    told = [_got(one, "headers") for one in holders]
    for headers in (*told, _inner(response, "ResponseMetadata").get("HTTPHeaders")):
        items = _safely(lambda held: list(held.items()), headers) or []
        wait = retry_after({str(name).lower(): str(one) for name, one in items}, time.time())
        if wait is not None:
            return wait
    found = _RETRY_DELAY.search(_text(error)[:10_000])  # Google tells it in the body
    return None if found is None else duration(found[1], time.time()) or None


def _host(error: BaseException) -> str | None:
    response = _got(error, "response")
    for holder in (_got(error, "request"), _got(response, "request"), response, error):
        for name in ("url", "real_url", "filename"):
            found = re.match(r"https?://(?:[^/@]*@)?([^/?#]+)", str(_got(holder, name) or ""))
            if found is not None:
                return found[1].lower()
    host = _got(error, "host")  # aiohttp's
    return host if isinstance(host, str) and host else None


def _line(error: BaseException) -> str:
    said = one_line(_text(error))
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _text(error: BaseException) -> str:
    return str(_safely(str, error) or "")


def _inner(held: Any, name: str) -> Mapping[str, Any]:
    found = held.get(name) if isinstance(held, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _got(held: Any, name: str) -> Any:
    return _safely(getattr, held, name, None)


def _safely(act: Callable[..., Any], *given: Any) -> Any:
    """None where it raises: properties raise what they like, `pytest.fail` and `sys.exit`, too."""
    try:
        return act(*given)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a user's or a client's own code: it must not end the run
        return None
