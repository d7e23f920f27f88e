"""Classifies calls that break off: what each exception means while connecting or reading."""

from __future__ import annotations

import os
import ssl
from dataclasses import replace

import aiohttp

from paraval.models.call_errors import (
    ProviderRefusal,
    complaint_in,
    failed_in_stream,
    one_line,
    passing,
    refused,
    shown_address,
    stops_model,
    unanswered,
    unknown_spend,
    unreached,
)
from paraval.models.endpoints import ModelEndpoint, ProxyProblemError
from paraval.models.requests import FailedCall
from paraval.models.response_reader import (
    ErrorInStreamError,
    PageError,
    TooLongError,
    TruncatedError,
    UnreadableError,
)
from paraval.records import Model, Outcome
from paraval.settings import ANSWER_LIMIT_BYTES


def broken_off(
    endpoint: ModelEndpoint, error: Exception, *, timeout: float, has_text: bool
) -> FailedCall:
    """Turn an exception while connecting or reading into a failure; `has_text`: part of an answer
    had arrived."""
    model = endpoint.model
    if isinstance(error, ErrorInStreamError):
        return failed_in_stream(model, error.complaint, has_text=has_text)
    ended = _of_proxy(endpoint, error) or _of_exception(model, error, timeout)
    # Not a refusal, so the provider may bill the work done so far.
    return replace(ended, spend=unknown_spend()) if ended.use.reached else ended


def _of_proxy(endpoint: ModelEndpoint, error: Exception) -> FailedCall | None:
    """The failure, if the proxy caused it; else None."""
    model, variable = endpoint.model, endpoint.proxy_variable
    match error:
        case aiohttp.ClientProxyConnectionError():
            where = f"{error.host}:{error.port}"
            return unreached(model, f"cannot connect to the proxy {where}; check {variable}")
        case aiohttp.ClientHttpProxyError(status=407):
            return refused(model, ProviderRefusal(status=407, proxy=variable))
        case aiohttp.ClientHttpProxyError():
            answer = f"the proxy could not connect (status {error.status})"
            return unreached(model, f"{answer}; check {variable}")
    return None


def _of_exception(model: Model, error: Exception, timeout: float) -> FailedCall:
    match error:
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            return _untrusted(model, error)
        case aiohttp.ConnectionTimeoutError():
            return unreached(model, "connecting timed out; check base_url and the network")
        case aiohttp.SocketTimeoutError():
            message = f"no data for {model.idle_timeout:g} s (idle_timeout); gave up"
            return passing(model, message)
        case TimeoutError():
            message = f"model '{model.name}': timed out after {timeout:g} s"
            return unanswered(model, Outcome.TIMEOUT, message)
        case aiohttp.ClientConnectorError():
            return _unconnected(model, error)
        case aiohttp.ClientResponseError():
            return unreached(model, "the response is not valid HTTP; check base_url")
        case TruncatedError() | aiohttp.ClientPayloadError():
            return passing(model, "the answer was cut off")
        case PageError():
            page = ProviderRefusal(status=200, complaint=complaint_in(error.page), html=True)
            return refused(model, page)
        case TooLongError():
            return _too_long(model)
        case UnreadableError():
            quote = one_line(error.quote)
            what = f"{error.why}: '{quote}'" if quote else error.why
            return passing(model, f"the answer cannot be read: {what}")
        case OSError() | aiohttp.ClientConnectionError():
            return passing(model, f"connection lost: {_words(error)}")
    # Addresses that aiohttp does not accept or cannot encode.
    return no_address(model)


def no_address(model: Model) -> FailedCall:
    message = f"base_url ({shown_address(model)}) is not a valid URL; fix it"
    return stops_model(model, message, reached=False)


def no_proxy(model: Model, error: ProxyProblemError) -> FailedCall:
    return stops_model(model, f"{error.variable} {error.problem}; fix it", reached=False)


def _words(error: Exception) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed by the server"
    return one_line(str(error)) or type(error).__name__


def _untrusted(model: Model, error: Exception) -> FailedCall:
    inner = getattr(error, "certificate_error", error)
    why = getattr(inner, "verify_message", "") or one_line(str(inner))
    message = (
        f"the server's certificate is not trusted ({why}); "
        "check base_url, or set SSL_CERT_FILE to the CA's certificate"
    )
    return stops_model(model, message, reached=False)


def _unconnected(model: Model, error: aiohttp.ClientConnectorError) -> FailedCall:
    where = f"{error.host}:{error.port}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return unreached(model, f"host '{error.host}' not found; check base_url and the network")
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return unreached(model, f"TLS with {where} failed ({one_line(str(error.os_error))})")
    number = error.os_error.errno
    why = os.strerror(number) if number else one_line(str(error.os_error))
    return unreached(model, f"cannot connect to {where} ({why}); is the server running?")


def _too_long(model: Model) -> FailedCall:
    message = (
        f"model '{model.name}': the answer exceeds the limit of {ANSWER_LIMIT_BYTES:,} "
        "bytes; set max_tokens"
    )
    return unanswered(model, Outcome.INVALID_OUTPUT, message, lasting=True)
