"""`paraval loopback`: the model server, until it is stopped."""

from __future__ import annotations

import asyncio
import signal

import click

from paraval.cli.error_messages import talk
from paraval.errors import RequestError
from paraval.loopback.scenario import Scenario, bundled_names
from paraval.loopback.server import LoopbackServer
from paraval.loopback.stats import Stats
from paraval.text.words import counted


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
