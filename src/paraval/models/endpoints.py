"""Where a model is reached, with which headers, and through which proxy."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib import request as urllib_request

import aiohttp
from yarl import URL

from paraval.models.protocols import ADAPTERS, Adapter
from paraval.records import Model, Provider

CONNECT_TIMEOUT_S = 30.0


class KeyProblemError(Exception):
    """A key that is not there, or cannot be sent; says it in words that follow its variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """All that the calls of one model have in common."""

    model: Model
    adapter: Adapter
    url: URL
    headers: Mapping[str, str]
    proxy: URL | None
    streams: bool
    secrets: tuple[str, ...]

    def timeout(self, total: float) -> aiohttp.ClientTimeout:
        """A server that does not stream is silent until it is done: only the whole counts then."""
        return aiohttp.ClientTimeout(
            total=total,
            sock_connect=min(total, CONNECT_TIMEOUT_S),
            sock_read=self.model.idle_timeout if self.streams else None,
        )


def endpoint_of(
    model: Model, *, environment: Mapping[str, str], addresses: Mapping[str, str]
) -> Endpoint:
    """KeyProblemError where the model's key is not there; ValueError where its address is none."""
    simulated = model.provider is Provider.LOOPBACK
    base = addresses[model.name] if simulated else model.base_url
    adapter = ADAPTERS[model.provider]
    url = _address(base, adapter.path)
    key = _key(model, environment)
    proxy = proxy_for(url, environment)
    passwords = (url.password, proxy.password if proxy else None)
    return Endpoint(
        model=model,
        adapter=adapter,
        url=url,
        # By its key a server tells one account from another; a simulated one has no secret.
        headers=adapter.headers(model.account if simulated else key),
        proxy=proxy,
        streams=model.options.get("stream", True) is not False,
        secrets=tuple(secret for secret in (key, *passwords) if secret),
    )


def _address(base: str, path: str) -> URL:
    """Some gateways want a query (`?api-version=…`), which stays behind the path."""
    before, mark, query = base.partition("?")
    return URL(f"{before.rstrip('/')}{path}{mark}{query}")


def _key(model: Model, environment: Mapping[str, str]) -> str | None:
    if model.api_key_env is None:
        return None
    key = environment.get(model.api_key_env, "").strip()
    if not key:
        raise KeyProblemError("is not set")
    if not key.isascii() or not key.isprintable():
        raise KeyProblemError("holds characters that no key has")
    return key


def proxy_for(url: URL, environment: Mapping[str, str]) -> URL | None:
    """By the rules of Python's urllib, and never for this machine itself.

    aiohttp would do the same by `trust_env`, and send passwords out of ~/.netrc along.
    """
    host = url.host or ""
    if _is_this_machine(host):
        return None
    proxies = _proxies(environment)
    proxy = proxies.get(url.scheme)
    if proxy is None or _is_passed_by(f"{host}:{url.port}", proxies):
        return None
    return URL(proxy if "://" in proxy else f"http://{proxy}")


def _is_passed_by(place: str, proxies: Mapping[str, str]) -> bool:
    """By NO_PROXY."""
    return bool(urllib_request.proxy_bypass_environment(place, proxies))  # type: ignore[attr-defined]  # there since 2.6, and not in the stubs


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """`HTTPS_PROXY` and `https_proxy` -> `https`; the small one holds, also where it is empty."""
    found: dict[str, str] = {}
    for name, value in sorted(environment.items()):  # capitals first
        if name.lower().endswith("_proxy"):
            found[name.lower().removesuffix("_proxy")] = value
    if "REQUEST_METHOD" in environment and "http_proxy" not in environment:
        # A web server sets HTTP_PROXY from a header that anyone can send.
        found.pop("http", None)
    return {scheme: value for scheme, value in found.items() if value}
