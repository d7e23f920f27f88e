"""How a model is reached: its protocol, its headers, and any proxy in between."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol
from urllib import request as urllib_request

import aiohttp
from yarl import URL

from paraval.dataclass import dataclass
from paraval.models.anthropic_messages import AnthropicMessages
from paraval.models.openai_chat import OpenAIChat, OpenAIEmbeddings
from paraval.models.openai_responses import OpenAIResponses
from paraval.models.requests import Request
from paraval.models.response_reader import AnswerReading
from paraval.records import Model, Provider

# What a protocol adapter is, and which provider uses which.


class AnswerReader(Protocol):
    """Collects the events of one stream. Raises the errors of `response_reader`."""

    done: bool
    """The end has been reached; anything after it is ignored."""

    @property
    def size(self) -> int:
        """Characters kept so far."""
        ...

    def take(self, event: Mapping[str, Any]) -> None: ...

    def take_end(self) -> None:
        """Handle `[DONE]`."""
        ...

    def finish(self) -> AnswerReading: ...


class Adapter(Protocol):
    """One protocol: what to send, and how to read the response. No I/O."""

    path: str
    """Path after the base URL."""

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The request body, without the model's own options, which are merged over it."""
        ...

    def reader(self) -> AnswerReader: ...

    def read(self, whole: Mapping[str, Any]) -> AnswerReading:
        """Read an answer that came in one piece."""
        ...


ADAPTERS: Mapping[Provider, Adapter] = {
    Provider.OPENAI: OpenAIChat(),
    Provider.OPENAI_RESPONSES: OpenAIResponses(),
    Provider.ANTHROPIC: AnthropicMessages(),
    Provider.LOOPBACK: OpenAIChat(),
}

EMBEDDINGS: Adapter = OpenAIEmbeddings()
CONNECT_TIMEOUT_S = 30.0


class KeyProblemError(Exception):
    """A key that is missing or cannot be sent; the message follows the variable's name."""


class ProxyProblemError(Exception):
    """A proxy that cannot be used."""

    def __init__(self, variable: str, problem: str) -> None:
        super().__init__(f"{variable} {problem}")
        self.variable = variable
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The proxy between us and a model."""

    url: URL
    variable: str
    """The variable that sets it: `HTTPS_PROXY`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """What all calls of one model have in common."""

    model: Model
    adapter: Adapter
    url: URL
    headers: Mapping[str, str]
    proxy: Proxy | None
    streams: bool
    secrets: tuple[str, ...]

    @property
    def proxy_variable(self) -> str:
        """The variable that sets its proxy, or would."""
        return f"{self.url.scheme.upper()}_PROXY" if self.proxy is None else self.proxy.variable

    def timeout(self, total: float) -> aiohttp.ClientTimeout:
        """A server that does not stream is silent until it is done, so only the total timeout
        applies."""
        total = max(0.001, total)  # aiohttp treats 0 as no timeout.
        return _timeout(total, self.model.idle_timeout if self.streams else None)


@lru_cache(maxsize=256)
def _timeout(total: float, idle: float | None) -> aiohttp.ClientTimeout:
    connect = min(total, CONNECT_TIMEOUT_S)
    return aiohttp.ClientTimeout(total=total, sock_connect=connect, sock_read=idle)


def endpoint_of(
    model: Model,
    *,
    environment: Mapping[str, str],
    addresses: Mapping[str, str],
    embeds: bool = False,
) -> ModelEndpoint:
    """Raises KeyProblemError if the model's key is missing, ProxyProblemError if its proxy is
    invalid, ValueError if its address is."""
    simulated = model.provider is Provider.LOOPBACK
    base = addresses[model.name] if simulated else model.base_url
    adapter = EMBEDDINGS if embeds else ADAPTERS[model.provider]
    url = _address(base, adapter.path)
    key = _key(model, environment)
    proxy = proxy_for(url, environment)
    passwords = (url.password, proxy.url.password if proxy else None)
    return ModelEndpoint(
        model=model,
        adapter=adapter,
        url=url,
        # A server identifies accounts by key; a simulated one needs no secret.
        headers=adapter.headers(model.account if simulated else key),
        proxy=proxy,
        streams=not embeds and model.options.get("stream", True) is not False,
        secrets=tuple(secret for secret in (key, *passwords) if secret),
    )


def _address(base: str, path: str) -> URL:
    """Some gateways need a query (`?api-version=…`), which stays behind the path."""
    before, mark, query = base.partition("?")
    return URL(f"{before.rstrip('/')}{path}{mark}{query}")


def _key(model: Model, environment: Mapping[str, str]) -> str | None:
    if model.api_key_env is None:
        return None
    key = environment.get(model.api_key_env, "").strip()
    if not key:
        raise KeyProblemError("is not set")
    if not key.isascii() or not key.isprintable():
        raise KeyProblemError("contains characters that are not allowed in a key")
    return key


def proxy_for(url: URL, environment: Mapping[str, str]) -> Proxy | None:
    """Choose the proxy by the rules of Python's urllib; never one for this machine itself.

    aiohttp's `trust_env` would do the same, but also send passwords from ~/.netrc.
    """
    host = url.host or ""
    if _is_this_machine(host):
        return None
    variables = _proxy_variables(environment)
    proxies = {scheme: environment[variable] for scheme, variable in variables.items()}
    proxy = proxies.get(url.scheme)
    if proxy is None or _is_passed_by(f"{host}:{url.port}", proxies):
        return None
    variable = variables[url.scheme]
    return Proxy(url=_proxy_address(proxy, variable), variable=variable)


def _proxy_address(proxy: str, variable: str) -> URL:
    """Parse the proxy's URL. Errors don't quote it: it may contain a password."""
    try:
        url = URL(proxy if "://" in proxy else f"http://{proxy}")
    except ValueError:
        raise ProxyProblemError(variable, "is not a valid proxy URL") from None
    if url.scheme not in ("http", "https"):
        raise ProxyProblemError(variable, f"has an unsupported proxy scheme ({url.scheme})")
    if not url.host:
        raise ProxyProblemError(variable, "is not a valid proxy URL")
    return url


def _is_passed_by(place: str, proxies: Mapping[str, str]) -> bool:
    """Whether NO_PROXY excludes the host."""
    return bool(urllib_request.proxy_bypass_environment(place, proxies))  # type: ignore[attr-defined]  # there since 2.6, and not in the stubs


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _proxy_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """`https` -> `HTTPS_PROXY` or `https_proxy`; lowercase wins, even if empty."""
    found: dict[str, str] = {}
    for name in sorted(environment):  # capitals come first
        if name.lower().endswith("_proxy"):
            found[name.lower().removesuffix("_proxy")] = name
    if "REQUEST_METHOD" in environment and "http_proxy" not in environment:
        # A web server sets HTTP_PROXY from a request header, which anyone can send.
        found.pop("http", None)
    return {scheme: name for scheme, name in found.items() if environment[name]}
