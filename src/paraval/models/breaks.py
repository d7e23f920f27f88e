"""Calls that break off: what each exception, of the connection or of the reading, is as a failure.

Ends with a status, and the words for both, are `weather`'s.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import replace

import aiohttp

from paraval.models.conversation import Unanswered
from paraval.models.endpoints import Endpoint, ProxyProblemError
from paraval.models.reading import (
    PageError,
    ToldError,
    TooLongError,
    TruncatedError,
    UnreadableError,
)
from paraval.models.weather import (
    Refusal,
    complaint_in,
    one_line,
    passing,
    refused,
    shown_address,
    stops_model,
    told,
    unanswered,
    unknown_spend,
    unreached,
)
from paraval.records import Model, Outcome
from paraval.settings import ANSWER_LIMIT_BYTES


def broken_off(
    endpoint: Endpoint, error: Exception, *, timeout: float, has_text: bool
) -> Unanswered:
    """The end that an exception is, of the connection or of the reading; `has_text`: some of an
    answer had come."""
    model = endpoint.model
    if isinstance(error, ToldError):
        return told(model, error.complaint, has_text=has_text)
    ended = _of_proxy(endpoint, error) or _of_exception(model, error, timeout)
    # Without a word of refusal, what it worked on until then may be billed.
    return replace(ended, spend=unknown_spend()) if ended.use.reached else ended


def _of_proxy(endpoint: Endpoint, error: Exception) -> Unanswered | None:
    """None: it is no end that the proxy made."""
    model, variable = endpoint.model, endpoint.proxy_variable
    match error:
        case aiohttp.ClientProxyConnectionError():
            where = f"{error.host}:{error.port}"
            return unreached(model, f"no connection to the proxy {where}; check {variable}")
        case aiohttp.ClientHttpProxyError(status=407):
            return refused(model, Refusal(status=407, proxy=variable))
        case aiohttp.ClientHttpProxyError():
            answer = f"the proxy made no connection (it answered {error.status})"
            return unreached(model, f"{answer}; check {variable}")
    return None


def _of_exception(model: Model, error: Exception, timeout: float) -> Unanswered:
    match error:
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            return _untrusted(model, error)
        case aiohttp.ConnectionTimeoutError():
            return unreached(model, "no connection in time; check base_url and the network")
        case aiohttp.SocketTimeoutError():
            message = f"silent for {model.idle_timeout:g} s (idle_timeout); given up"
            return passing(model, message)
        case TimeoutError():
            message = f"model '{model.name}': not done after {timeout:g} s; given up"
            return unanswered(model, Outcome.TIMEOUT, message)
        case aiohttp.ClientConnectorError():
            return _unconnected(model, error)
        case aiohttp.ClientResponseError():
            return unreached(model, "what came back is not proper HTTP; check base_url")
        case TruncatedError() | aiohttp.ClientPayloadError():
            return passing(model, "the answer broke off before its end")
        case PageError():
            page = Refusal(status=200, complaint=complaint_in(error.page), html=True)
            return refused(model, page)
        case TooLongError():
            return _too_long(model)
        case UnreadableError():
            said = one_line(error.said)
            what = f"{error.why}: '{said}'" if said else error.why
            return passing(model, f"the answer cannot be read: {what}")
        case OSError() | aiohttp.ClientConnectionError():
            return passing(model, f"the connection broke: {_words(error)}")
    # Addresses that aiohttp does not take, or cannot write in its way.
    return no_address(model)


def no_address(model: Model) -> Unanswered:
    message = f"base_url ({shown_address(model)}) is no address to call; set a right one"
    return stops_model(model, message, reached=False)


def no_proxy(model: Model, error: ProxyProblemError) -> Unanswered:
    return stops_model(model, f"{error.variable} {error.problem}; set a right one", reached=False)


def _words(error: Exception) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed by the other side"
    return one_line(str(error)) or type(error).__name__


def _untrusted(model: Model, error: Exception) -> Unanswered:
    inner = getattr(error, "certificate_error", error)
    why = getattr(inner, "verify_message", "") or one_line(str(inner))
    message = (
        f"its server's certificate is not trusted ({why}); "
        "check base_url, or name the authority in SSL_CERT_FILE"
    )
    return stops_model(model, message, reached=False)


def _unconnected(model: Model, error: aiohttp.ClientConnectorError) -> Unanswered:
    where = f"{error.host}:{error.port}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return unreached(model, f"there is no host '{error.host}'; check base_url and the network")
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return unreached(model, f"no TLS with {where} ({one_line(str(error.os_error))})")
    number = error.os_error.errno
    why = os.strerror(number) if number else one_line(str(error.os_error))
    return unreached(model, f"no connection to {where} ({why}); is the server up?")


def _too_long(model: Model) -> Unanswered:
    message = (
        f"model '{model.name}': the answer is longer than {ANSWER_LIMIT_BYTES:,} bytes, the most "
        "that is read; set max_tokens"
    )
    return unanswered(model, Outcome.INVALID_OUTPUT, message, lasting=True)
