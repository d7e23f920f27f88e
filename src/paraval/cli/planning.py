"""`paraval plan` and `paraval schema`: what would run, and how suites are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from paraval.cli.loading import suite_from
from paraval.cli.options import (
    json_option,
    selection_from,
    selection_options,
    store_option,
    suite_argument,
)
from paraval.composition import (
    Forecast,
    foresee,
    open_store,
    plan_suite,
    suite_schema,
)
from paraval.report.text import one_line
from paraval.report.wording import counted, duration
from paraval.settings import Options

SHOWN = 50


@click.command("plan")
@suite_argument
@selection_options
@store_option
@json_option
@click.option("--all", "show_all", is_flag=True, help=f"Not only the first {SHOWN} trials.")
def plan_command(suite: Path, **given: Any) -> None:
    """Tell what a SUITE would run, in which order, and how long it would take.

    Nothing runs: the scheduler goes through the plan in virtual time, with the durations that
    earlier runs of the suite had.
    """
    selection = selection_from(given)
    plan = plan_suite(suite_from(suite), selection)
    forecast = foresee(plan, open_store(Options(store=given["store"])))
    if given["as_json"]:
        click.echo(json.dumps(_as_mapping(forecast), ensure_ascii=False, indent=2))
    else:
        _print(forecast, None if given["show_all"] else SHOWN)


def _as_mapping(forecast: Forecast) -> dict[str, Any]:
    plan = forecast.plan
    return {
        "schema": 1,
        "suite": plan.name,
        "trials": len(plan.trials),
        "parallel": plan.limits.parallel,
        "limits": dict(plan.limits.named),
        "estimate": {
            "from_history": forecast.from_history,
            "wall_s": forecast.wall_s,
            "serial_s": forecast.serial_s,
        },
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


def _print(forecast: Forecast, limit: int | None) -> None:
    plan = forecast.plan
    cases = len({trial.case.id for trial in plan.trials})
    click.echo(
        f"{plan.name}: {counted(len(plan.trials), 'trial')} ({counted(cases, 'case')}, "
        f"{counted(len(plan.variants), 'variant')}), {plan.limits.parallel} at once"
    )
    for name, capacity in plan.limits.named.items():
        click.echo(f"at most {capacity} at once of {name}")
    click.echo("")
    width = len(str(len(plan.trials)))
    for place, (trial, start_s, expected_s) in enumerate(forecast.starts[:limit], start=1):
        times = f"  at {duration(start_s)}, {duration(expected_s)}" if forecast.from_history else ""
        click.echo(f"{place:{width}}. {one_line(trial.label, 90)}{times}")
    if limit is not None and len(forecast.starts) > limit:
        click.echo(f"... and {len(forecast.starts) - limit:,} more (--all shows them)")
    click.echo("")
    click.echo(_estimate(forecast))


def _estimate(forecast: Forecast) -> str:
    if forecast.wall_s is None or forecast.serial_s is None:
        return (
            "No estimate of the time: this suite has not run in this store yet. "
            "Until then trials start in plan order."
        )
    return (
        f"About {duration(forecast.wall_s)}; one after the other about "
        f"{duration(forecast.serial_s)} (from earlier runs; longest first)."
    )


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of suite files, for editors.

    paraval schema > suite.schema.json, then in a suite:
    # yaml-language-server: $schema=suite.schema.json
    """
    click.echo(json.dumps(suite_schema(), indent=2))
