"""The cost of a call in US dollars: by the registry's price, else by the table of genai-prices.

Unknown costs are None, never 0: a model missing from the table, an entry without figures, a call
without reported usage, or implausible usage. The table comes with the library. It is loaded when a
price is first needed (a quarter of a second, 27 MB) and never updated from the network. It is not
loaded for servers that cannot be in it: loopback ones, and addresses that are not public names.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from paraval.dataclass import dataclass
from paraval.records import Model, Price, Provider

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

_MILLION = 1e6
NOTHING = Price(input_per_million=0.0, output_per_million=0.0)
"""Price of a simulated model, unless the registry gives one."""
_COUNTED = frozenset({"input_mtok", "output_mtok", "cache_read_mtok"})
_NEVER_USED = frozenset(
    {"cache_write_mtok", "cache_write_1h_mtok", "web_searches_kcount", "storage_searches_kcount"}
)
"""Prices of extras that are billed only on request and counted separately from tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """A model's entry in the table."""

    price: Price
    """Its base price, if it has tiers."""
    flat: bool
    """True: there is nothing else, so a call's cost is simple arithmetic."""


class Prices:
    """The prices of a run's models, each looked up once."""

    def __init__(self) -> None:
        self._listed: dict[tuple[str, str], _Listed | None] = {}

    def price(self, model: Model) -> Price | None:
        """Price per million tokens; the lowest tier if the price grows with the request."""
        if model.price is not None:
            return model.price
        if model.provider is Provider.LOOPBACK:
            return NOTHING
        listed = self._look_up(model)
        return None if listed is None else listed.price

    def cost_usd(self, model: Model, usage: Mapping[str, float] | None) -> float | None:
        if usage is None or not _makes_sense(usage):
            return None
        if model.price is not None:
            return _cost(model.price, usage)
        if model.provider is Provider.LOOPBACK:
            return 0.0
        listed = self._look_up(model)
        if listed is None:
            return None
        if listed.flat and not usage.get("cache_written_tokens"):
            return _cost(listed.price, usage)
        return _cost_by_table(model, usage)

    def _look_up(self, model: Model) -> _Listed | None:
        place = (model.base_url, model.model)
        if place not in self._listed:
            known = model.provider is not Provider.LOOPBACK and _is_public(model.base_url)
            self._listed[place] = _listed(model) if known else None
        return self._listed[place]


def _makes_sense(usage: Mapping[str, float]) -> bool:
    if "input_tokens" not in usage or "output_tokens" not in usage:
        return False
    if not all(math.isfinite(amount) and amount >= 0 for amount in usage.values()):
        return False
    return usage.get("cached_tokens", 0) <= usage["input_tokens"]


def _cost(price: Price, usage: Mapping[str, float]) -> float:
    cached = usage.get("cached_tokens", 0)
    for_cached = price.cached_input_per_million
    if for_cached is None:
        for_cached = price.input_per_million
    return (
        (usage["input_tokens"] - cached) * price.input_per_million
        + cached * for_cached
        + usage["output_tokens"] * price.output_per_million
    ) / _MILLION


def _is_public(base_url: str) -> bool:
    """Whether a host could be a provider's: a name with a dot, not an IP address."""
    host = urlsplit(base_url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." in host
    return False


def _cost_by_table(model: Model, usage: Mapping[str, float]) -> float | None:
    """The cost with tiers and times of day, as computed by the library."""
    amounts = {
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "cache_read_tokens": usage.get("cached_tokens") or None,
        "cache_write_tokens": usage.get("cache_written_tokens") or None,
        "output_reasoning_tokens": usage.get("reasoning_tokens") or None,
    }
    found = _ask_table(model, amounts)
    return None if found is None else float(found.total_price)


def _ask_table(model: Model, amounts: Mapping[str, float | None]) -> PriceCalculation | None:
    # Imported here because it is slow to load, and most runs don't need it.
    from genai_prices import Usage, calc_price  # noqa: PLC0415

    try:
        # By address: the protocol doesn't identify who runs a server, and so what it charges.
        return calc_price(
            Usage(**amounts), model.model, provider_api_url=model.base_url.lower() + "/"
        )
    except (LookupError, ValueError):
        return None


def _listed(model: Model) -> _Listed | None:
    found = _ask_table(model, {"input_tokens": 0, "output_tokens": 0})
    if found is None:
        return None
    figures = {name: value for name, value in vars(found.model_price).items() if value is not None}
    if "input_mtok" not in figures or "output_mtok" not in figures:
        return None  # An entry without figures: the library would return a cost of zero.
    cached = figures.get("cache_read_mtok")
    price = Price(
        input_per_million=_base(figures["input_mtok"]),
        output_per_million=_base(figures["output_mtok"]),
        cached_input_per_million=None if cached is None else _base(cached),
    )
    return _Listed(price=price, flat=_is_flat(found, figures))


def _base(figure: Any) -> float:
    return float(getattr(figure, "base", figure))


def _is_flat(found: PriceCalculation, figures: Mapping[str, Any]) -> bool:
    if figures.keys() - _COUNTED - _NEVER_USED:
        return False
    tiered = any(hasattr(figures[name], "tiers") for name in _COUNTED & figures.keys())
    prices = found.model.prices
    by_clock = isinstance(prices, list) and any(
        hasattr(one.constraint, "start_time") for one in prices
    )
    return not tiered and not by_clock
