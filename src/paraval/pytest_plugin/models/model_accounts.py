"""Which accounts tests ask with: for the engine's limits, and for those that wait out refusals.

`@pytest.mark.retry_rate_limits(account="openai", tries=20)` on a test asks for the latter. The
account of the `model` fixture is known without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from paraval.pytest_plugin.models.clients import MODEL_CLIENTS
from paraval.records import AccountLimits, Model, account_need, model_need

if TYPE_CHECKING:
    from paraval.plan.registry import Registry
    from paraval.pytest_plugin.models.outages import Outage

MARK = "retry_rate_limits"
TRIES = 20
UNNAMED = "tests"
"""The account that marked tests share of which nothing tells another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryMark:
    """What a test's mark asks for."""

    account: str | None = None
    tries: int = TRIES
    """How often it is tried, refusals by rate limits included."""


def retry_mark_of(item: pytest.Item) -> RetryMark | None:
    """None: the test isn't marked, and a refusal is its failure. UsageError for a wrong mark."""
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return None
    told: dict[str, object] = dict(zip(("account", "tries"), mark.args, strict=False))
    told.update(mark.kwargs)
    account, tries = told.pop("account", None), told.pop("tries", TRIES)
    is_account = account is None or (isinstance(account, str) and bool(account.strip()))
    is_number = isinstance(tries, int) and not isinstance(tries, bool) and tries >= 1
    if told or len(mark.args) > 2 or not is_account or not is_number:
        raise pytest.UsageError(
            f"{item.nodeid}: @pytest.mark.{MARK} takes account (a name) and tries (an integer, 1"
            f' or more), as in @pytest.mark.{MARK}(account="openai", tries={TRIES})'
        )
    assert isinstance(tries, int)
    return RetryMark(account=None if account is None else str(account), tries=tries)


def model_of(item: pytest.Item) -> Model | None:
    """The model of the registry that the test runs with; None: it asks for none."""
    callspec = getattr(item, "callspec", None)
    name = None if callspec is None else callspec.params.get("model")
    registry = _registry(item.config) if isinstance(name, str) else None
    return None if registry is None else registry.models.get(str(name))


def needs_of(item: pytest.Item) -> tuple[str, ...]:
    """What the engine is to know of the test's accounts and models; sorted."""
    model, account = model_of(item), _declared(item)
    needs = [] if account is None else [account_need(account)]
    return tuple(sorted(needs if model is None else [*needs, model_need(model.name)]))


def accounts_of(items: Iterable[pytest.Item]) -> Mapping[str, AccountLimits]:
    """Every account among the needs of tests, with what the registry says of it."""
    limits: dict[str, AccountLimits] = {}
    for item in items:
        account = _declared(item)
        if account is not None and account_need(account) not in limits:
            need = account_need(account)
            registry = None if model_of(item) is None else _registry(item.config)
            known = {} if registry is None else registry.limits
            limits[need] = known.get(need, AccountLimits())
    return limits


def account_of(item: pytest.Item, outage: Outage) -> str:
    """Who refused the test: as it declares, else as the client tells."""
    return _declared(item) or outage.client or UNNAMED


def _declared(item: pytest.Item) -> str | None:
    """The mark's, else the model's, else that of the one client that the test's module uses."""
    retry_mark, model = retry_mark_of(item), model_of(item)
    if retry_mark is not None and retry_mark.account is not None:
        return retry_mark.account
    if model is not None:
        return model.account
    return None if retry_mark is None else _client_in(item) or UNNAMED


def _client_in(item: pytest.Item) -> str | None:
    found: set[str] = set()
    for value in vars(item.module).values() if hasattr(item, "module") else ():
        # A module has a name, what was imported out of one a module.
        origin = getattr(value, "__module__", None) or getattr(value, "__name__", None)
        found |= {str(origin).partition(".")[0]} & MODEL_CLIENTS
    return found.pop() if len(found) == 1 else None


def _registry(config: pytest.Config) -> Registry | None:
    # Only here: most tests ask for no model, and the registry is slow to load.
    from paraval.pytest_plugin.models.choice import choice_in

    choice = choice_in(config)
    return None if choice is None else choice.registry
