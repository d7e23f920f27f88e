"""The registry of models: entries in the suite or in a file, neither of which may contain keys.

Prompts belong to targets and judges; whether a key is set is checked by the run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from paraval.dataclass import dataclass
from paraval.documents.files import read_beside, why_unreadable
from paraval.documents.forms import check
from paraval.documents.problems import Location, Step, shown
from paraval.documents.scalars import plain
from paraval.documents.variables import References
from paraval.errors import ScenarioError
from paraval.models.requests import DEFAULT_BASE_URL, DEFAULT_KEY_VARIABLE
from paraval.models.secrets import names_a_secret
from paraval.plan.schema.model_forms import MODEL_NAME, AccountLimitsForm, ModelForm, PriceForm
from paraval.records import AccountLimits, Model, Price, Provider, account_need, call_need
from paraval.text.suggest import suggestion

# Find keys that were written into a file, without repeating them in messages.

NAME_THE_VARIABLE = "never write a key into a file; name its environment variable in api_key_env"

_KEY_NAMES = frozenset(("apikey", "key", "token", "accesstoken", "secret", "authorization"))
_KEY_VALUE = re.compile(
    r"\A(?:bearer\s+\S|sk-|sk_|gsk_|xai-|hf_[A-Za-z0-9]{8}|AIza[A-Za-z0-9_-]{8})", re.IGNORECASE
)
_VARIABLE = re.compile(r"\A[A-Za-z_][A-Za-z0-9_]*\Z")


def without_credentials(entry: Mapping[str, Any], spot: Location) -> dict[str, Any]:
    """Return an entry without values that look secret, after reporting each.

    Must come first: other messages show the values they are about.
    """
    wrong: set[str] = set()
    for steps in _secret_places(entry, ()):
        spot.at(*steps).report(NAME_THE_VARIABLE)
        wrong.add(str(steps[0]))
    variable = entry.get("api_key_env")
    if variable is not None and "api_key_env" not in wrong and not _names_a_variable(variable):
        spot.at("api_key_env").report(
            "must be the name of a variable, such as OPENAI_API_KEY, never the key itself"
        )
        wrong.add("api_key_env")
    return {str(key): value for key, value in entry.items() if str(key) not in wrong}


def _names_a_variable(value: Any) -> bool:
    return isinstance(value, str) and _VARIABLE.match(value) is not None


def _secret_places(value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    match value:
        case str() if _KEY_VALUE.match(value.strip()):
            yield steps
        case Mapping():
            for key, inner in value.items():
                name = str(key)
                # A mapping is not a key: a JSON Schema may have a property of this name.
                if isinstance(inner, str) and re.sub("[^a-z]", "", name.lower()) in _KEY_NAMES:
                    yield (*steps, name)
                else:
                    yield from _secret_places(inner, (*steps, name))
        case list() | tuple():
            for number, inner in enumerate(value):
                yield from _secret_places(inner, (*steps, number))


DEFAULT_SCENARIO = "fast"
REQUESTS_OWN = frozenset(("model", "messages", "input"))
"""Request keys that options cannot override."""
_ENDPOINTS = ("/chat/completions", "/responses", "/messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The models that a suite may use, by name, in order, and their accounts' limits."""

    models: Mapping[str, Model] = field(default_factory=dict)
    limits: Mapping[str, AccountLimits] = field(default_factory=dict)
    """By the account's name among needs; only accounts with limits in an entry."""
    spots: Mapping[str, Location] = field(default_factory=dict)
    """The location of each entry, including invalid ones."""
    identities: Mapping[str, str] = field(default_factory=dict)
    """For loopback models: equal for scenarios that behave the same, wherever they are."""

    unreadable: bool = False
    """True: models were given, but none could be read (already reported)."""

    def find(self, name: str, spot: Location) -> Model | None:
        """Return the model of this name; report an unknown one at a location and return None.

        An invalid entry has already been reported.
        """
        if not self.spots and not self.unreadable:
            spot.report(f"unknown model '{name}': the suite has no models; add models:")
        elif name not in self.spots and not self.unreadable:
            near = suggestion(name, self.spots)
            spot.report(f"unknown model '{name}'{near}")
        return self.models.get(name)


def read_registry(written: Any, spot: Location, folder: Path) -> Registry:
    """Read the key `models`: entries, or a file that contains them."""
    if written is None:
        return Registry()
    what = "a mapping of names to models, or the path of a file that contains one"
    if isinstance(written, str):
        document = read_beside(written, spot, folder)
        if document is None:
            return Registry(unreadable=True)
        what = "a mapping of names to models"
        found = len(spot.problems)
        folder = (folder / written).parent
        written = References(names_a_secret=names_a_secret).filled(document.data, document.spot)
        if len(spot.problems) > found:
            return Registry(unreadable=True)
        spot = document.spot
        if _is_wrapped(written):
            written, spot = written["models"], spot.at("models")
    if not isinstance(written, Mapping):
        spot.report(f"must be {what}, not {shown(written)}")
        return Registry(unreadable=True)
    if not written:
        spot.report("is empty; add at least one model")
        return Registry(unreadable=True)
    return _read_entries({str(name): entry for name, entry in written.items()}, spot, folder)


def _is_wrapped(written: Any) -> bool:
    """Whether a file repeats the key `models`, as in a suite, and has no model of that name."""
    if not isinstance(written, Mapping) or list(written) != ["models"]:
        return False
    inside = written["models"]
    return isinstance(inside, Mapping) and all(isinstance(one, Mapping) for one in inside.values())


def _read_entries(written: Mapping[str, Any], spot: Location, folder: Path) -> Registry:
    models: dict[str, Model] = {}
    limits = _AccountTable()
    for name, entry in written.items():
        here = spot.at(name)
        if not re.fullmatch(MODEL_NAME, name) or name == "all":
            here.report(
                "'all' is reserved (it selects every model); rename this model"
                if name == "all"
                else "model names consist of letters, digits and any of '_.:/@+-'"
            )
        elif not isinstance(entry, Mapping):
            # The value is not shown: it may well be a key.
            here.report("must be a mapping with provider and model")
        else:
            found = len(spot.problems)
            model, allowed = _read_entry(name, entry, here, folder)
            if model is not None and len(spot.problems) == found:
                models[name] = model
                limits.add(model, allowed, here.at("limits"), per=_per(entry))
    return Registry(
        models=models,
        limits=limits.by_need,
        spots={name: spot.at(name) for name in written},
        identities=_identities(models, spot),
    )


class _AccountTable:
    """Collect the limits of accounts from the entries, which must not contradict each other."""

    def __init__(self) -> None:
        self.by_need: dict[str, AccountLimits] = {}
        self._set_by: dict[str, str] = {}

    def add(self, model: Model, limits: AccountLimits | None, spot: Location, *, per: str) -> None:
        if limits is None:
            return
        need = call_need(model) if per == "model" else account_need(model.account)
        if self.by_need.setdefault(need, limits) != limits:
            spot.report(
                f"'{model.name}' and '{self._set_by[need]}' share the account '{model.account}'"
                " but set different limits; use the same limits, set `per: model` if each model"
                " has its own, or give each its own account"
            )
        self._set_by.setdefault(need, model.name)


def _read_entry(
    name: str, entry: Mapping[str, Any], spot: Location, folder: Path
) -> tuple[Model | None, AccountLimits | None]:
    entry = without_credentials(entry, spot)
    form = check(ModelForm, entry, spot)
    limits = _read_limits(entry.get("limits"), spot.at("limits"))
    price = _read_price(entry.get("price"), spot.at("price"))
    if form is None:
        return None, limits
    provider = Provider(form.provider)
    base_url = _base_url(form, provider, spot)
    scenario = _scenario(form, provider, spot.at("scenario"), folder)
    if form.model is None and provider is not Provider.LOOPBACK:
        spot.at("model").report("is missing")
    check_options(form.options, spot.at("options"))
    key = form.api_key_env or _usual_key(provider, base_url)
    model = Model(
        name=name,
        provider=provider,
        model=form.model or name,
        base_url=base_url,
        api_key_env=key,
        account=form.account or _account(name, provider, base_url, key),
        timeout=float(form.timeout),
        idle_timeout=float(form.idle_timeout),
        price=price,
        options=plain(form.options),
        scenario=scenario,
    )
    return model, limits


def _read_limits(written: Any, spot: Location) -> AccountLimits | None:
    form = None if written is None else check(AccountLimitsForm, written, spot)
    if form is None:
        return None
    requests, tokens = form.requests_per_minute, form.tokens_per_minute
    return AccountLimits(
        concurrent=None if form.concurrent is None else int(form.concurrent),
        requests_per_minute=None if requests is None else float(requests),
        tokens_per_minute=None if tokens is None else float(tokens),
    )


def _per(entry: Mapping[str, Any]) -> str:
    limits = entry.get("limits")
    return str(limits.get("per", "account")) if isinstance(limits, Mapping) else "account"


def _read_price(written: Any, spot: Location) -> Price | None:
    form = None if written is None else check(PriceForm, written, spot)
    if form is None:
        return None
    cached = form.cached_input_per_million
    return Price(
        input_per_million=float(form.input_per_million),
        output_per_million=float(form.output_per_million),
        cached_input_per_million=None if cached is None else float(cached),
    )


def check_options(options: Mapping[str, Any], spot: Location) -> None:
    """Report options that cannot be sent."""
    for name in options:
        if name in REQUESTS_OWN:
            spot.at(name).report("is set by paraval and cannot be an option")
    try:
        json.dumps(plain(options), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        spot.report(f"must be plain data: {error}")


# ---- base URLs


def _base_url(form: ModelForm, provider: Provider, spot: Location) -> str:
    if provider is Provider.LOOPBACK:
        for key in ("base_url", "api_key_env"):
            if getattr(form, key) is not None:
                spot.at(key).report("does not apply to a loopback model; the run starts its server")
        return ""
    if form.base_url is None:
        return DEFAULT_BASE_URL[provider]
    problem = _address_problem(form.base_url)
    if problem:
        spot.at("base_url").report(problem)
    return form.base_url.rstrip("/")


def _address_problem(address: str) -> str | None:
    """Return the problem with a base URL. It is never shown: it may contain a key."""
    parts = _parts(address)
    if parts is None or any(letter.isspace() or not letter.isprintable() for letter in address):
        return "is not a valid URL; write one such as https://host/v1"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "must be a URL such as https://host/v1 or http://127.0.0.1:8000/v1"
    if "@" in parts.netloc:
        return f"contains a user name or password; {NAME_THE_VARIABLE}"
    if "?" in address or "#" in address:
        return "must end with the path, without '?' or '#'"
    for endpoint in _ENDPOINTS:
        if parts.path.rstrip("/").endswith(endpoint):
            return f"must not include {endpoint}; paraval adds it"
    return None


def _parts(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
        _ = parts.port  # a wrong port is found only when accessed
    except ValueError:
        return None
    return parts


def _is_own(provider: Provider, base_url: str) -> bool:
    """Whether the provider's key may be sent there without being configured."""
    own, given = urlsplit(DEFAULT_BASE_URL[provider]), _parts(base_url)
    return given is not None and (given.scheme, given.netloc.lower()) == (own.scheme, own.netloc)


def _usual_key(provider: Provider, base_url: str) -> str | None:
    if provider is Provider.LOOPBACK or not _is_own(provider, base_url):
        return None
    return DEFAULT_KEY_VARIABLE[provider]


def _account(name: str, provider: Provider, base_url: str, key: str | None) -> str:
    """Return the default account: one host with one key."""
    if provider is Provider.LOOPBACK:
        return f"loopback:{name}"
    if _is_own(provider, base_url):
        place = "anthropic" if provider is Provider.ANTHROPIC else "openai"
    else:
        parts = _parts(base_url)
        place = base_url if parts is None else parts.netloc.lower()
    return place if key == _usual_key(provider, base_url) else f"{place}:{key}"


# ---- simulated models


def _scenario(form: ModelForm, provider: Provider, spot: Location, folder: Path) -> str | None:
    written = form.scenario
    if provider is not Provider.LOOPBACK:
        if written is not None:
            spot.report("applies only to loopback models")
        return None
    if written is None:
        return DEFAULT_SCENARIO
    if "/" not in written and not Path(written).suffix:
        return written
    reason = why_unreadable(folder / written, written)
    if reason:
        spot.report(f"{shown(written)}: {reason}")
    return os.path.normpath(Path.cwd() / folder / written)


def _identities(models: Mapping[str, Model], spot: Location) -> dict[str, str]:
    """Return how each loopback model behaves, for trial keys; report invalid scenarios."""
    names = {model.scenario for model in models.values() if model.scenario is not None}
    if not names:
        return {}
    # Imported late: most suites have no simulated model.
    from paraval.loopback.scenario import Scenario  # noqa: PLC0415 - see above

    found: dict[str, str] = {}
    for name, model in models.items():
        if model.scenario is None:
            continue
        try:
            scenario = Scenario.load(model.scenario)
            found[name] = scenario.identity
            if scenario.models and model.model not in scenario.models and not scenario.answers:
                known = suggestion(model.model, scenario.models)
                spot.at(name, "model").report(f"its scenario has no model '{model.model}'{known}")
        except ScenarioError as error:
            for problem in error.problems:
                if problem.file is None:
                    spot.at(name, "scenario").report(problem.message)
                else:
                    spot.problems[problem] = None
    return found
