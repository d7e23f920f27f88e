"""Which accounts tests use, for the engine's limits and for tests that wait out rate limits.

Tests request the latter with `@pytest.mark.retry_rate_limits(account="openai", tries=20)`. The
account of the `model` fixture is known without the mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.models.clients import MODEL_CLIENTS
from paraval.records import AccountLimits, Model, account_need, model_need

if TYPE_CHECKING:
    from paraval.plan.registry import Registry
    from paraval.pytest_plugin.models.outages import Outage

MARK = "retry_rate_limits"
TRIES = 20
UNNAMED = "tests"
"""The account shared by marked tests without any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryMark:
    """The arguments of a test's mark."""

    account: str | None = None
    tries: int = TRIES
    """The maximum number of attempts, including those refused by rate limits."""


def retry_mark_of(item: pytest.Item) -> RetryMark | None:
    """Read the mark; None: not marked, so refusals are final. Raises UsageError."""
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return None
    arguments: dict[str, object] = dict(zip(("account", "tries"), mark.args, strict=False))
    arguments.update(mark.kwargs)
    account, tries = arguments.pop("account", None), arguments.pop("tries", TRIES)
    is_account = account is None or (isinstance(account, str) and bool(account.strip()))
    is_number = isinstance(tries, int) and not isinstance(tries, bool) and tries >= 1
    if arguments or len(mark.args) > 2 or not is_account or not is_number:
        raise pytest.UsageError(
            f"{item.nodeid}: @pytest.mark.{MARK} takes account (a name) and tries (an integer, 1"
            f' or more), as in @pytest.mark.{MARK}(account="openai", tries={TRIES})'
        )
    assert isinstance(tries, int)
    return RetryMark(account=None if account is None else str(account), tries=tries)


def model_of(item: pytest.Item) -> Model | None:
    """The registry's model that the test runs with; None: it uses none."""
    callspec = getattr(item, "callspec", None)
    name = None if callspec is None else callspec.params.get("model")
    registry = _registry(item.config) if isinstance(name, str) else None
    return None if registry is None else registry.models.get(str(name))


def needs_of(item: pytest.Item) -> tuple[str, ...]:
    """The test's accounts and models for the engine, sorted."""
    model, account = model_of(item), _declared(item)
    needs = [] if account is None else [account_need(account)]
    return tuple(sorted(needs if model is None else [*needs, model_need(model.name)]))


def accounts_of(items: Iterable[pytest.Item]) -> Mapping[str, AccountLimits]:
    """Every account among the tests' needs, with its limits from the registry."""
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
    """The account that refused the test: the declared one, or else the client's."""
    return _declared(item) or outage.client or UNNAMED


def _declared(item: pytest.Item) -> str | None:
    """The mark's account, else the model's, else that of the only client its module imports."""
    retry_mark, model = retry_mark_of(item), model_of(item)
    if retry_mark is not None and retry_mark.account is not None:
        return retry_mark.account
    if model is not None:
        return model.account
    return None if retry_mark is None else _client_in(item) or UNNAMED


def _client_in(item: pytest.Item) -> str | None:
    found: set[str] = set()
    for value in vars(item.module).values() if hasattr(item, "module") else ():
        # A module has a `__name__`; an object imported from one has a `__module__`.
        origin = getattr(value, "__module__", None) or getattr(value, "__name__", None)
        found |= {str(origin).partition(".")[0]} & MODEL_CLIENTS
    return found.pop() if len(found) == 1 else None


def _registry(config: pytest.Config) -> Registry | None:
    # Imported here because most tests use no model, and the registry is slow to load.
    from paraval.pytest_plugin.models.choice import choice_in

    choice = choice_in(config)
    return None if choice is None else choice.registry
