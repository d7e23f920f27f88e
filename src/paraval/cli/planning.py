"""`paraval plan` and `paraval schema`: what would run, and how suites are written."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from paraval import news
from paraval.cli.loading import suite_from
from paraval.cli.options import (
    json_option,
    selection_from,
    selection_options,
    store_option,
    suite_argument,
)
from paraval.cli.prospects import prospect_mapping, prospect_of, prospect_sentences
from paraval.cli.showing import width_of
from paraval.composition import forecast_of, open_store, suite_schema
from paraval.expectations import Forecast, models_of, needs_of
from paraval.isolation import Workspace, WorkspaceKind
from paraval.news import of_hidden_tests
from paraval.records import Limits, account_need
from paraval.report.detectable import Detectable
from paraval.report.terminal import NARROWEST, wrapped
from paraval.report.text import one_line
from paraval.report.wording import counted, duration, listed, money, percent
from paraval.settings import Options

SHOWN = 50
SHOWN_OF_A_COMMIT = 8
LONGEST_PATH = 90
MOST_OF_IT = 0.8
"""A limit that accounts for less than this of a run does not decide its end."""
LONGEST_TRIAL, PARALLEL = "longest trial", "parallel"
"""What decides the end where no limit of the suite's does."""


@click.command("plan")
@suite_argument
@selection_options
@store_option
@json_option
@click.option("--all", "show_all", is_flag=True, help=f"Not only the first {SHOWN} trials.")
def plan_command(suite: Path, **given: Any) -> None:
    """Tell what a SUITE would run, in which order, how long it would take, what it would cost and
    what difference it could show.

    Nothing runs: the scheduler goes through the plan in virtual time, with the durations and costs
    that earlier runs of the suite had.
    """
    selection = selection_from(given)
    options = Options(store=given["store"])
    loaded = suite_from(suite)
    forecast = forecast_of(loaded, selection, options)
    prospect = prospect_of(forecast.plan, open_store(options))
    if given["as_json"]:
        click.echo(json.dumps(_as_mapping(forecast, prospect), ensure_ascii=False, indent=2))
        return
    _print(forecast, None if given["show_all"] else SHOWN)
    _print_sentences(
        [
            *news.of_the_models(loaded, forecast.plan),
            *sentences(forecast),
            *prospect_sentences(prospect),
        ]
    )


def _as_mapping(forecast: Forecast, prospect: Detectable | None) -> dict[str, Any]:
    plan = forecast.plan
    return {
        "schema": 1,
        "suite": plan.name,
        "trials": len(plan.trials),
        "parallel": plan.limits.parallel,
        "auto": plan.limits.auto,
        "workspace": _workspace_mapping(plan.workspace),
        "limits": dict(plan.limits.named),
        "estimate": {
            "from_history": forecast.from_history,
            "wall_s": forecast.wall_s,
            "serial_s": forecast.serial_s,
            "decided_by": _bound_mapping(forecast),
            "cost_usd": forecast.cost_usd,
            "cost_at_most_usd": forecast.cost_at_most_usd,
            "models_without_price": list(forecast.unpriced),
            "cached": forecast.cached,
            "absent": list(forecast.absent),
        },
        "detectable": prospect_mapping(prospect),
        "budget_usd": None if plan.budget is None else plan.budget.usd,
        "order": [
            {
                "index": trial.index,
                "case": trial.case.id,
                "variant": dict(trial.variant),
                "repeat": trial.repeat,
                "key": trial.key,
                "expected_start_s": start_s if forecast.from_history else None,
                "expected_s": expected_s if forecast.from_history else None,
            }
            for trial, start_s, expected_s in forecast.starts
        ],
    }


def _bound_mapping(forecast: Forecast) -> dict[str, Any] | None:
    bound = forecast.decides
    if bound is None:
        return None
    return {"limit": bound.name, "text": bound.text, "seconds": bound.seconds}


def _workspace_mapping(workspace: Workspace) -> dict[str, Any] | None:
    if workspace.kind is WorkspaceKind.NONE:
        return None
    return {
        "kind": workspace.kind.value,
        "source": workspace.source,
        "commit": workspace.commit,
        "uncommitted": workspace.uncommitted,
        "tree": workspace.tree,
    }


def _print(forecast: Forecast, limit: int | None) -> None:
    plan = forecast.plan
    cases = len({trial.case.id for trial in plan.trials})
    click.echo(
        f"{plan.name}: {counted(len(plan.trials), 'trial')} ({counted(cases, 'case')}, "
        f"{counted(len(plan.variants), 'variant')}), {_at_once(plan.limits)}"
    )
    if (where := _workspace(plan.workspace)) is not None:
        click.echo(where)
    for name, capacity in plan.limits.named.items():
        click.echo(f"at most {capacity} at once of {name}")
    if alone := sum(trial.exclusive for trial in plan.trials):
        click.echo(f"{counted(alone, 'trial')} with nothing beside")
    click.echo("")
    width = len(str(len(plan.trials)))
    for place, (trial, start_s, expected_s) in enumerate(forecast.starts[:limit], start=1):
        times = f"  at {duration(start_s)}, {duration(expected_s)}" if forecast.from_history else ""
        click.echo(f"{place:{width}}. {one_line(trial.label, 90)}{times}")
    if limit is not None and len(forecast.starts) > limit:
        click.echo(f"... and {len(forecast.starts) - limit:,} more (--all shows them)")
    click.echo("")


def _print_sentences(told: Iterable[str]) -> None:
    if sys.stdout is None:
        # Started with stdout closed: there is nowhere to print to.
        return
    width = max(width_of(sys.stdout), NARROWEST)
    for sentence in told:
        click.echo(wrapped(sentence, width))


def _at_once(limits: Limits) -> str:
    if limits.auto:
        return f"as many at once as the machine carries, {limits.parallel} at most"
    return f"{limits.parallel} at once"


def _workspace(workspace: Workspace) -> str | None:
    """`each in a worktree of /home/me/code at 0f31c2b4`."""
    if workspace.kind is WorkspaceKind.NONE:
        return None
    source = one_line(workspace.source or "", LONGEST_PATH)
    if workspace.kind is WorkspaceKind.FOLDER:
        return f"each in a copy of {source}" if source else "each in an empty folder"
    commit = (workspace.commit or "")[:SHOWN_OF_A_COMMIT]
    at = f"as it is, on {commit}" if workspace.uncommitted else f"at {commit}"
    return f"each in a worktree of {source} {at}"


def sentences(forecast: Forecast) -> list[str]:
    """What is expected of the run: how long, because of what, at what cost."""
    return [
        _estimate(forecast),
        *_decides(forecast),
        *_cost(forecast),
        *_budget(forecast),
        *_stop(forecast),
        *of_hidden_tests(forecast.plan),
        *(f"A run would be refused here: {why}." for why in forecast.absent),
    ]


def _estimate(forecast: Forecast) -> str:
    drawn = "case by case, in an order drawn by chance"
    stops = forecast.plan.stop is not None
    if forecast.wall_s is None or forecast.serial_s is None:
        order = drawn if stops else "in plan order"
        return (
            "No estimate of the time: no run in this store tells how long its trials take. "
            f"Until then they start {order}, as far as their limits and the machine let them."
        )
    order = drawn if stops else "longest first"
    return (
        f"About {duration(forecast.wall_s)}; one after the other about "
        f"{duration(forecast.serial_s)} (from earlier runs; {order})."
    )


def _decides(forecast: Forecast) -> Iterator[str]:
    """`At 300 requests a minute gpt-oss decides the end, about 6 min 40 s.`"""
    bound = forecast.decides
    if bound is None:
        return
    if bound.name == LONGEST_TRIAL:
        who = "The longest trial"
    elif bound.name == PARALLEL:
        who = f"--parallel ({bound.text})"
    else:
        who = f"At {bound.text} {_who_needs(bound.name, forecast)}"
    if forecast.wall_s is None:
        yield f"{who} decides the end, about {duration(bound.seconds)} at least."
    elif bound.seconds >= MOST_OF_IT * forecast.wall_s:
        yield f"{who} decides the end."


def _who_needs(limit: str, forecast: Forecast) -> str:
    """The models of an account, by their names in the registry; else the limit's own name."""
    models = [model.name for model in models_of(forecast.plan) if limit in needs_of(model)]
    if 1 <= len(models) <= 3:
        return one_line(listed(models), 90)
    return one_line(limit.removeprefix(account_need("")), 90)


def _cost(forecast: Forecast) -> Iterator[str]:
    cached = ""
    if forecast.cached:
        answers = counted(len(forecast.plan.trials), "answer")
        are = "is" if forecast.cached == 1 else "are"
        cached = f"{forecast.cached:,} of {answers} {are} in the cache, free"
    most = forecast.cost_at_most_usd if forecast.cost_is_bounded else None
    guess = None if forecast.cost_is_bounded else forecast.cost_at_most_usd
    if cached and forecast.cost_at_most_usd == 0:
        yield f"Nothing to pay: {cached}."
    elif forecast.cost_usd is not None:
        at_most = "" if most is None else f", at most {money(most)}"
        without = " without what is unknown" if forecast.unpriced else ""
        yield f"About {money(forecast.cost_usd)}{at_most}{without}{cached and '; '}{cached}."
    elif most is not None:
        yield f"At most about {money(most)}{cached and '; '}{cached}."
    elif guess is not None:
        why = "if answers have 1,000 tokens each: no max_tokens bounds them"
        yield f"About {money(guess)} {why}{cached and '; '}{cached}."
    elif cached:
        yield f"{cached}."
    if forecast.unpriced:
        models = listed(f"'{one_line(name, 90)}'" for name in forecast.unpriced)
        noun = "model" if len(forecast.unpriced) == 1 else "models"
        yield f"Cost unknown: no price for {noun} {models} (price: in the registry)."


def _budget(forecast: Forecast) -> Iterator[str]:
    budget = forecast.plan.budget
    if budget is None:
        return
    likely, most = forecast.cost_usd, forecast.cost_at_most_usd
    if forecast.unpriced:
        rest = ": a run is refused, since it needs the price of every model"
    elif likely is not None and likely > budget.usd:
        rest = ": it will not do for all, and the rest can be resumed"
    elif likely is None and most is not None and most > budget.usd:
        rest = ": it may not do for all; the rest can be resumed"
    else:
        rest = ""
    yield f"Budget: {money(budget.usd)}{rest}."


def _stop(forecast: Forecast) -> Iterator[str]:
    if (rule := forecast.plan.stop) is not None:
        yield (
            f"It may stop early, once every comparison is decided ({percent(rule.confidence)}); "
            "the figures here are without that."
        )


@click.command("schema")
@click.argument("kind", type=click.Choice(["suite", "race"]), default="suite")
def schema_command(kind: str) -> None:
    """Print the JSON Schema of suite files, or of race files, for editors.

    paraval schema > suite.schema.json, then in a suite:
    # yaml-language-server: $schema=suite.schema.json
    """
    click.echo(json.dumps(_schema(kind), indent=2))


def _schema(kind: str) -> dict[str, Any]:
    if kind == "suite":
        return suite_schema()
    # Only here: suites need nothing of it.
    from paraval.racing.race_forms import race_schema  # noqa: PLC0415 - see above

    return race_schema()
