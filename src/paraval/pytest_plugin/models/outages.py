"""Whether an exception means an outage: of a provider or the network, not a wrong answer.

Searches the exception, its causes and exception groups: by HTTP status, by class names (`clients`),
and by Python's own exceptions. If examining an exception raises, it counts as no outage.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
import time
from asyncio.exceptions import CancelledError
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

import pytest

from paraval.dataclass import dataclass
from paraval.errors import RateLimitedError, TransientError
from paraval.models.call_errors import ProviderRefusal, complaint_in, one_line, refused
from paraval.models.rate_limits import duration, retry_after
from paraval.models.response_reader import ServerComplaint, complaint_of
from paraval.pytest_plugin.models.clients import KINDS, MODEL_CLIENTS, WEB_CLIENTS
from paraval.records import Failure, Model, Outcome, Provider, account_need

LONGEST_CHAIN = 100
_PASSING = frozenset({408, 425, 429, *range(500, 600)})
"""Statuses that count as outages for web clients."""
_NO_KEY = {"OpenAIError": "api_key", "TypeError": "Could not resolve authentication method"}
"""By class name: what OpenAI's and Anthropic's clients report without a key."""
_OF_PYTEST_TIMEOUT = re.compile(r"Timeout \(>[0-9.]+s\) from pytest-timeout")
_RETRY_DELAY = re.compile(r"'?\"?retryDelay'?\"?: ?['\"]([0-9.]+s)['\"]")
_NO_NETWORK = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT}
)
_ANY = Model(name="any", provider=Provider.OPENAI, model="any", base_url="", account="any")
"""Any model will do: it does not affect the meaning of a refusal."""


class OutageScope(Enum):
    """What cannot be used any more, according to the provider."""

    ACCOUNT = auto()
    """Its key is refused, or its quota used up."""
    MODEL = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Why there is no answer to judge."""

    kind: Outcome
    message: str
    retry_after: float | None = None
    lasting: bool = False
    stops: OutageScope | None = None
    client: str | None = None
    """The package of the client that raised it, or the provider that it names."""


def outage_in(error: BaseException | None) -> Outage | None:
    """What kept a test from getting an answer; None: nothing, the test itself failed.

    An assertion is a verdict, even while an outage is being handled: a test of outage handling is
    meant that way. Raised *from* an outage, it counts as one, and so does any other exception
    raised while handling one: without the outage, the code would not have run.
    """
    try:
        return _search(error, set())
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - code of users and clients must not end the run
        return None


def _search(error: BaseException | None, seen: set[int]) -> Outage | None:
    if error is None or id(error) in seen or len(seen) >= LONGEST_CHAIN:
        return None
    seen.add(id(error))
    if isinstance(error, BaseExceptionGroup):
        return _of_group(error, seen)
    # A class may have anything as its module, even None.
    kinds = [(str(one.__module__).partition(".")[0], one.__name__) for one in type(error).__mro__]
    known = [one for one in kinds if one[0] in MODEL_CLIENTS | WEB_CLIENTS]
    response = _response(error)
    found = _own(error) or (_of_client(error, response, known) if known else None)
    found = found or _of_python(error)
    if found is not None and known:
        provider = getattr(error, "llm_provider", None)  # litellm wraps many providers
        return replace(
            found,
            retry_after=_wait(error, response) if found.retry_after is None else found.retry_after,
            client=provider or known[0][0],  # the outermost: litellm's errors are also openai's
        )
    # With a status, the client has classified it: an answered request is no outage.
    if found is not None or (known and _status(error, response) is not None):
        return found
    if error.__cause__ is not None:
        return _search(error.__cause__, seen)
    is_verdict = isinstance(error, AssertionError | pytest.fail.Exception)
    return None if error.__suppress_context__ or is_verdict else _search(error.__context__, seen)


def _of_group(group: BaseExceptionGroup[BaseException], seen: set[int]) -> Outage | None:
    """None unless all are outages. Prefer lasting ones, then the longest wait."""
    inner = [one for one in group.exceptions if not isinstance(one, CancelledError)]
    found = [outage for outage in (_search(one, seen) for one in inner) if outage is not None]
    if len(found) < len(inner):
        return None
    refused = Outcome.RATE_LIMITED
    return max(
        found,
        key=lambda one: (one.lasting, one.kind is refused, one.retry_after or 0.0),
        default=None,
    )


# ---- one exception


def _own(error: BaseException) -> Outage | None:
    """Recognize paraval's own exceptions, timeouts, and clients without a key."""
    failure, name, text = getattr(error, "failure", None), type(error).__name__, str(error)
    if isinstance(failure, Failure):
        return _of_failure(failure)
    if isinstance(error, RateLimitedError):
        return replace(_outage(error, Outcome.RATE_LIMITED), retry_after=error.retry_after)
    if isinstance(error, TransientError):
        return _outage(error, Outcome.INFRA_ERROR)
    is_late = isinstance(error, pytest.fail.Exception) and _OF_PYTEST_TIMEOUT.search(text)
    if is_late or name == "TestTimedOut":
        return _outage(error, Outcome.TIMEOUT)
    return _outage(error, Outcome.CRASHED) if name in _NO_KEY and _NO_KEY[name] in text else None


def _of_failure(failure: Failure) -> Outage | None:
    if not failure.kind.is_error:
        return None
    is_account = (failure.stops or "").startswith(account_need(""))
    stops = OutageScope.ACCOUNT if is_account else OutageScope.MODEL
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


def _of_client(
    error: BaseException, response: Any, known: Sequence[tuple[str, str]]
) -> Outage | None:
    """Decide by status, by the code of AWS and gRPC, or by class names."""
    status, is_model = _status(error, response), known[0][0] in MODEL_CLIENTS
    if status is not None and (status in _PASSING or (is_model and status >= 400)):
        refusal = ProviderRefusal(
            status=status, complaint=_complaint(error), retry_after=_wait(error, response)
        )
        failure = refused(_ANY, refusal).failure
        if failure.kind is not Outcome.CRASHED or failure.stops is not None:
            return _of_failure(replace(failure, message=_line(error)))
        # Otherwise the request itself is wrong: the test's own fault.
    if isinstance(getattr(error, "reason", None), TimeoutError):  # from urllib
        return _outage(error, Outcome.TIMEOUT)
    code = getattr(error, "code", None)  # gRPC; AWS names the error in its response
    name = getattr(code() if callable(code) else code, "name", getattr(response, "code", None))
    names = [name, *(name for _, name in known if status is None)]
    kind = next((KINDS[name] for name in names if name in KINDS), Outcome.FAILED)
    return _outage(error, kind) if kind.is_error else None


def _outage(error: BaseException, kind: Outcome) -> Outage:
    """Build the outage; `CRASHED` means that there is no key."""
    is_keyless = kind is Outcome.CRASHED
    stops = OutageScope.ACCOUNT if is_keyless else None
    return Outage(kind=kind, message=_line(error), lasting=is_keyless, stops=stops)


def _line(error: BaseException) -> str:
    text = one_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# ---- what clients store in their exceptions


def _response(error: BaseException) -> Any:
    """The client's response; botocore's is a mapping."""
    response = getattr(error, "response", None) or getattr(error, "raw_response", None)
    if not isinstance(response, Mapping):
        return response
    about = response.get("ResponseMetadata", {})
    return SimpleNamespace(
        status_code=about.get("HTTPStatusCode"),
        headers=about.get("HTTPHeaders"),
        code=response.get("Error", {}).get("Code"),
    )


def _status(error: BaseException, response: Any) -> int | None:
    for holder in (error, response):
        for name in ("status_code", "http_status", "status", "code"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and 100 <= status < 600:
                return int(status)
    return None


def _complaint(error: BaseException) -> ServerComplaint:
    body = getattr(error, "body", None)
    if isinstance(body, str):
        return complaint_in(body)
    inner = body.get("error") if isinstance(body, Mapping) else None
    found = complaint_of(inner or body)
    return found if found.message else replace(found, message=str(error))


def _wait(error: BaseException, response: Any) -> float | None:
    for holder in (response, error):
        headers = getattr(holder, "headers", None) or {}
        wait = retry_after(
            {str(name).lower(): str(one) for name, one in headers.items()}, time.time()
        )
        if wait is not None:
            return wait
    found = _RETRY_DELAY.search(str(error)[:10_000])  # Google sends it in the body
    return None if found is None else duration(found[1], time.time()) or None
