"""`paraval simulate`: the scheduler alone, in virtual time; and `paraval loopback`: simulated
models, until they are stopped."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import sys
import time
from typing import Any

import click

from paraval.cli.error_messages import talk
from paraval.cli.options import json_option
from paraval.cli.output import has_unicode
from paraval.errors import RequestError
from paraval.loopback.scenario import Scenario, bundled_names
from paraval.loopback.server import LoopbackServer
from paraval.loopback.stats import Stats
from paraval.schedule.simulation import LoadFigures, SimulatedLoad, simulate_load
from paraval.text.terminal import to_ascii
from paraval.text.words import counted, duration, percent, without_separators

# ---- the scheduler


class Share(click.ParamType[float]):
    """`2%`, or 0.02."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            text = str(value)
            share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
        except ValueError:
            share = -1.0
        if not 0.0 <= share < 1.0:
            self.fail(f"'{value}' is not a share from 0% to below 100%", param, ctx)
        return share


class Count(click.ParamType[int]):
    """`1000000`, `1,000,000` or `1_000_000`; at least 1."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            count = int(without_separators(str(value)))
        except ValueError:
            count = 0
        if not 1 <= count <= MOST:
            self.fail(f"'{value}' is not a whole number from 1 to {MOST:,}", param, ctx)
        return count


COUNT, SHARE = Count(), Share()
MOST = 10_000_000
MOST_SECONDS = 30 * 24 * 3600.0


@click.command("simulate")
@click.option("--trials", type=COUNT, default=10_000, show_default=True, help="Number of trials.")
@click.option(
    "--slots", type=COUNT, default=100, show_default=True, help="How many run in parallel, in all."
)
@click.option("--nodes", type=COUNT, help="Spread the slots over so many nodes of a cluster.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.0, MOST_SECONDS, min_open=True),
    default=30.0,
    show_default=True,
    help="Mean duration of an attempt.",
)
@click.option(
    "--requests-per-minute",
    "per_minute",
    type=COUNT,
    help="What the provider accepts, over all accounts; each attempt is a request.",
)
@click.option(
    "--unknown-limit",
    is_flag=True,
    help="Don't tell the scheduler --requests-per-minute: it learns from refusals.",
)
@click.option(
    "--accounts",
    type=COUNT,
    help="Spread the trials over so many accounts of a provider.",
)
@click.option(
    "--failures",
    type=SHARE,
    default="0%",
    show_default=True,
    help="Share of attempts that end with an infrastructure error, and are retried.",
)
@click.option(
    "--stragglers",
    type=SHARE,
    default="0%",
    show_default=True,
    help="Share of attempts that take ten times as long.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random numbers.")
@json_option
def simulate_command(**given: Any) -> None:
    """Simulate a run of very many trials in virtual time, and show how long it would take, what
    determines that, and what scheduling it costs.

    Nothing runs. The same scheduler decides as in a run; durations vary around the mean. For a
    suite of your own, `paraval plan` does this with the durations of earlier runs.
    """
    if math.isnan(given["seconds"]):
        raise click.BadParameter("'nan' is not a duration", param_hint="--seconds")
    load = SimulatedLoad(
        trials=given["trials"],
        slots=given["slots"],
        nodes=given["nodes"] or 0,
        seconds=given["seconds"],
        accounts=given["accounts"] or (0 if given["per_minute"] is None else 1),
        requests_per_minute=given["per_minute"],
        knows_limits=not given["unknown_limit"],
        failures=given["failures"],
        stragglers=given["stragglers"],
        seed=given["seed"],
    )
    if load.nodes > load.slots:
        raise RequestError(
            f"{load.nodes:,} nodes cannot share {counted(load.slots, 'slot')}",
            hint="--slots is the number over all nodes",
        )
    if not load.knows_limits and load.requests_per_minute is None:
        raise RequestError(
            "--unknown-limit needs a limit", hint="add --requests-per-minute, for example 600"
        )
    is_shown = sys.stderr.isatty()
    with click.progressbar(
        length=load.trials, label="Simulating", file=sys.stderr, hidden=not is_shown
    ) as bar:
        figures = simulate_load(load, time.thread_time, bar.update)
    if given["as_json"]:
        click.echo(json.dumps(_figures_mapping(figures), indent=2))
        return
    for line in _figure_lines(figures):
        click.echo(line)


def _figures_mapping(figures: LoadFigures) -> dict[str, Any]:
    load, bound = figures.load, figures.bound
    return {
        "schema": 1,
        "trials": load.trials,
        "slots": load.slots,
        "nodes": load.nodes,
        "accounts": load.accounts,
        "makespan_s": figures.makespan_s,
        "lower_bound": {"limit": bound.name, "text": bound.text, "seconds": bound.seconds},
        "utilization": figures.utilization,
        "attempts": figures.attempts,
        "retries": figures.retries,
        "refusals": figures.refusals,
        "passed": figures.passed,
        "without_verdict": figures.failed,
        "scheduler_cpu_s": figures.cpu_s,
        "scheduler_cpu_us_per_trial": 1e6 * figures.cpu_s / load.trials,
    }


def _figure_lines(figures: LoadFigures) -> list[str]:
    load, bound = figures.load, figures.bound
    where = f" on {counted(load.nodes, 'node')}" if load.nodes else ""
    ratio = figures.makespan_s / bound.seconds if bound.seconds else 1.0
    retries = counted(figures.retries, "retry", "retries")
    failed = f"{figures.failed:,} without"
    each_us = 1e6 * figures.cpu_s / load.trials
    rows = [
        ("makespan", f"{duration(figures.makespan_s)}, {ratio:.2f} times the lower bound"),
        ("lower bound", f"{duration(bound.seconds)}, by {bound.text}"),
        ("utilization", f"{percent(figures.utilization)} of {counted(load.slots, 'slot')}{where}"),
        ("attempts", f"{figures.attempts:,}: {retries}, {counted(figures.refusals, 'refusal')}"),
        ("trials", f"{load.trials:,}: {figures.passed:,} with a result, {failed}"),
        ("scheduler", f"{duration(figures.cpu_s)} of CPU, {each_us:.0f} µs per trial"),
    ]
    unicode = has_unicode(sys.stdout)
    lines = [f"{name:12} {text}" for name, text in rows]
    return lines if unicode else [to_ascii(line) for line in lines]


# ---- models


@click.command("loopback")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on 127.0.0.1. [default: a free one]",
)
@click.option(
    "--scenario",
    default="fast",
    show_default=True,
    metavar="NAME|FILE",
    help="How the models behave: a bundled scenario, or a file of your own.",
)
@click.option("--list", "lists", is_flag=True, help="List the bundled scenarios.")
def loopback_command(port: int, scenario: str, *, lists: bool) -> int:
    """Serve simulated models on this machine, with OpenAI's and Anthropic's protocols.

    Prints the base URL on stdout, and runs until Ctrl-C or SIGTERM; then it exits with 0.
    """
    if lists:
        for name in bundled_names():
            click.echo(f"{name:14} {Scenario.load(name).about}")
        return 0
    loaded = Scenario.load(scenario)
    asyncio.run(_serve(LoopbackServer(loaded, port), scenario))
    return 0


async def _serve(server: LoopbackServer, scenario: str) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        async with server:
            talk(_introduction(server, scenario))
            click.echo(server.base_url)
            await stopped.wait()
            talk(_farewell(server.stats()))
    except RequestError as error:
        raise RequestError(error.message, hint="choose another with --port, or omit it") from error


def _introduction(server: LoopbackServer, scenario: str) -> str:
    return (
        f"Simulated models, scenario '{scenario}': no answer here comes from a real model.\n"
        "Point programs at them with\n"
        f"  export OPENAI_BASE_URL={server.base_url} OPENAI_API_KEY=loopback\n"
        f"  export ANTHROPIC_BASE_URL={server.root_url} ANTHROPIC_API_KEY=loopback\n"
        f"Statistics: {server.root_url}/stats. Ctrl-C stops it."
    )


def _farewell(stats: Stats) -> str:
    total = stats.total
    return (
        f"\nStopped after {counted(total.requests, 'request')}: {total.answered:,} answered, "
        f"{total.refused:,} refused, {total.rejected:,} rejected, {total.faults:,} faults; "
        f"{total.most_at_once:,} concurrent at most."
    )
