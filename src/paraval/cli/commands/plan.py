"""`paraval plan` and `paraval schema`: what would run, and the keys of files."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from paraval.cli.error_messages import talk
from paraval.cli.options import (
    cluster_options,
    json_option,
    seed_option,
    selection_from,
    selection_options,
    store_option,
    suite_argument,
)
from paraval.cli.output import has_unicode, page_on
from paraval.cli.suites import suite_from, suite_or_default
from paraval.documents.variables import env_file
from paraval.models.requests import missing_keys
from paraval.records import (
    ChatTarget,
    Plan,
    Trial,
    Workspace,
    WorkspaceKind,
    account_need,
    call_need,
)
from paraval.report.formats.json_schema import report_schema
from paraval.runner.cluster.survey import ClusterForecast, NodeForecast
from paraval.runner.forecast import (
    USUAL_OUTPUT_TOKENS,
    Forecast,
    first_request,
    models_of,
    needs_of,
)
from paraval.runner.notices import of_hidden_tests
from paraval.runner.run import forecast_of, suite_schema
from paraval.schedule.throttle import FIRST
from paraval.settings import Options
from paraval.text.tables import Column, Table, TableRow, table_lines
from paraval.text.terminal import columns, one_line, printable, to_ascii
from paraval.text.words import UNKNOWN, counted, duration, listed, money, percent, size, some

SHOWN = 3
"""Trials; `-v` shows all of them."""
SHOWN_NODES = 50
LONGEST_REQUEST = 600
"""Characters of one part of the first request; `-v` shows all of it."""
SHOWN_OF_A_COMMIT = 8
LONGEST_PATH = 90
MOST_OF_IT = 0.8
"""A limit that accounts for less of a run's time than this share is not its bottleneck."""
LONGEST_TRIAL, PARALLEL = "longest trial", "parallel"
"""Names of bottlenecks that are not limits of the suite."""


@click.command("plan")
@suite_argument
@selection_options
@cluster_options
@seed_option
@store_option
@json_option
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help=f"List all trials, not only the first {SHOWN}, and the whole first request.",
)
def plan_command(suite: Path | None, **given: Any) -> None:
    """Show what a SUITE would run first and what it would send, and estimate its time and its
    cost. Without SUITE: suite.yaml in the current folder.

    Nothing runs: the scheduler simulates the plan with the durations and costs of the suite's
    earlier runs. With --cluster, its nodes report what they have and what they lack.
    """
    selection = selection_from(given)
    options = Options(
        store=given["store"],
        cluster=given["cluster"],
        insecure_cluster=given["insecure_cluster"],
    )
    loaded = suite_from(suite_or_default(suite))
    forecast = forecast_of(loaded, selection, options, talk)
    if given["as_json"]:
        click.echo(json.dumps(_as_mapping(forecast), ensure_ascii=False, indent=2))
        return
    _print(forecast, verbose=given["verbose"])
    _print_sentences(
        [
            *(f"{notice}." for notice in loaded.notices),
            *([f"{part.sentence}."] if (part := forecast.plan.cases) else ()),
            *([f"{chosen.sentence}."] if (chosen := forecast.plan.models) else ()),
            *sentences(forecast),
        ]
    )


def _as_mapping(forecast: Forecast) -> dict[str, Any]:
    plan = forecast.plan
    return {
        "schema": 1,
        "suite": plan.name,
        "trials": len(plan.trials),
        "parallel": plan.limits.parallel,
        "auto": plan.limits.auto,
        "workspace": _workspace_mapping(plan.workspace),
        "limits": dict(plan.limits.named),
        "cluster": None if forecast.cluster is None else _cluster_mapping(forecast.cluster),
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
        "budget_usd": None if plan.budget is None else plan.budget.usd,
        "first_request": [{"part": part, "text": text} for part, text in first_request(forecast)],
        "order": [
            {
                "index": trial.index,
                "case": trial.case.id,
                "variant": dict(trial.variant),
                "repeat": trial.repeat,
                "key": trial.key,
                **(
                    {}
                    if trial.workspace is None
                    else {"workspace": _workspace_mapping(trial.workspace)}
                ),
                "expected_start_s": start_s if forecast.from_history else None,
                "expected_s": expected_s if forecast.from_history else None,
            }
            for trial, start_s, expected_s in forecast.starts
        ],
    }


def _cluster_mapping(cluster: ClusterForecast) -> dict[str, Any]:
    nodes = []
    for node in cluster.nodes:
        machine = None if node.facts is None else node.facts.machine
        nodes.append(
            {
                "name": node.name,
                "cpus": None if machine is None else machine.cpus,
                "memory_bytes": None if machine is None else machine.memory_bytes,
                "slots": node.slots,
                "missing": list(node.missing),
            }
        )
    return {"slots": cluster.slots, "nodes": nodes}


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


def _print(forecast: Forecast, *, verbose: bool) -> None:
    limit = None if verbose else SHOWN
    plan = forecast.plan
    cases = len({trial.case.id for trial in plan.trials})
    click.echo(
        f"{plan.name}: {counted(len(plan.trials), 'trial')} ({counted(cases, 'case')}, "
        f"{counted(len(plan.variants), 'variant')}), {_parallel(forecast)}"
    )
    if (where := _workspace(plan)) is not None:
        click.echo(where)
    for name, capacity in plan.limits.named.items():
        click.echo(f"at most {capacity} in parallel: {name}")
    if exclusive := sum(trial.exclusive for trial in plan.trials):
        click.echo(f"{counted(exclusive, 'trial')} exclusive: nothing else runs meanwhile")
    click.echo("")
    for line in _order(forecast, limit):
        click.echo(line if has_unicode(sys.stdout) else to_ascii(line))
    if limit is not None and len(forecast.starts) > limit:
        click.echo(f"... and {len(forecast.starts) - limit:,} more (-v shows them)")
    click.echo("")
    _print_sentences(_request_lines(forecast, None if verbose else LONGEST_REQUEST))
    if forecast.cluster is not None:
        _print_nodes(forecast.cluster, None if verbose else SHOWN_NODES)


def _request_lines(forecast: Forecast, longest: int | None) -> Iterator[str]:
    parts = list(first_request(forecast))
    if parts:
        yield f"The first, {one_line(_label(forecast.starts[0][0]), 90)}, is sent:"
    for part, text in parts:
        shown = text if longest is None else text[:longest]
        more = "" if len(shown) == len(text) else f" ... ({len(text):,} characters; -v shows all)"
        first, *others = printable(shown + more).split("\n")
        yield f"  {part}: {first}"
        yield from (f"    {line}" for line in others)
    if parts:
        yield ""


def _order(forecast: Forecast, limit: int | None) -> Iterator[str]:
    """`1. greet · small  (starts at 0 s, takes 1.2 s)`, in columns."""
    rows = [
        (one_line(_label(trial), 90), duration(start_s), duration(expected_s))
        for trial, start_s, expected_s in forecast.starts[:limit]
    ]
    place_width = len(str(len(forecast.plan.trials)))
    label, start, took = (max(map(columns, column)) for column in zip(*rows, strict=True))
    for place, (name, start_s, expected_s) in enumerate(rows, start=1):
        line = f"{place:{place_width}}. {name}"
        if forecast.from_history:
            gap = " " * (label - columns(name))
            line += f"{gap}  (starts at {start_s:>{start}}, takes {expected_s:>{took}})"
        yield line


def _print_nodes(cluster: ClusterForecast, limit: int | None) -> None:
    """A table of the nodes, and what each of them lacks."""
    if sys.stdout is None:
        return
    page = page_on(sys.stdout)
    shown = cluster.nodes[:limit]

    def row(node: NodeForecast) -> TableRow:
        machine = None if node.facts is None else node.facts.machine
        figures = (
            UNKNOWN if machine is None else f"{machine.cpus:g}",
            UNKNOWN if machine is None else size(machine.memory_bytes),
            f"{node.slots:,}",
        )
        lacks = "; ".join(page.quote(why) for why in node.missing)
        style = "red" if lacks else ""
        return TableRow(label=page.quote(node.name), cells=figures, beside=lacks, style=style)

    columns: list[Column[str]] = [
        Column(heading=heading, cell=str) for heading in ("CPUs", "memory", "slots")
    ]
    table = Table(
        label="node",
        columns=columns,
        rows=[row(node) for node in shown],
        unshown=len(cluster.nodes) - len(shown),
        noun="more node",
    )
    for line in table_lines(table, page):
        click.echo(line)
    click.echo("")


def _label(trial: Trial) -> str:
    about = trial.case.description
    return trial.label if about is None else f"{trial.label} ({about})"


def _print_sentences(sentences: Iterable[str]) -> None:
    if sys.stdout is None:
        # Started with stdout closed.
        return
    page = page_on(sys.stdout)
    for sentence in sentences:
        text = "\n".join(page.wrapped(sentence))
        click.echo(text if page.unicode else to_ascii(text))


def _parallel(forecast: Forecast) -> str:
    limits, cluster = forecast.plan.limits, forecast.cluster
    if cluster is not None:
        nodes = counted(sum(node.slots > 0 for node in cluster.nodes), "node")
        if limits.auto and not forecast.from_history:
            return f"as many in parallel as {nodes} can handle, at most {cluster.slots:,}"
        return f"{'about ' * limits.auto}{cluster.slots:,} in parallel on {nodes}"
    if limits.auto:
        most = f"at most {limits.parallel:,}, starting with {_starts_with(forecast.plan):,}"
        return f"as many in parallel as the machine can handle, {most}"
    return f"{limits.parallel} in parallel"


def _starts_with(plan: Plan) -> int:
    """How many `auto` starts with, if nothing is known from earlier runs."""
    targets = {id(trial.target): trial.target for trial in plan.trials}.values()
    models = {call_need(one.model): one.model for one in targets if isinstance(one, ChatTarget)}
    if not models:
        return min(plan.limits.parallel, max(2, (os.cpu_count() or 1) - 1))
    calls = Counter[str]()
    for need, model in models.items():
        calls[account_need(model.account)] += plan.limits.accounts[need].concurrent or FIRST
    of_accounts = (
        min(number, plan.limits.accounts[name].concurrent or number)
        for name, number in calls.items()
    )
    return min(plan.limits.parallel, sum(of_accounts))


def _workspace(plan: Plan) -> str | None:
    """`each in a worktree of /home/me/code at 0f31c2b4`."""
    if plan.workspace.kind is WorkspaceKind.NONE:
        return None
    every = {trial.workspace or plan.workspace for trial in plan.trials}
    hidden = len({files.source for one in every for files in one.hidden})
    what = counted(hidden, "hidden file or folder", "hidden files or folders")
    put = f"; {what} put there before grading" if hidden else ""
    return f"each in {_where({replace(one, hidden=()) for one in every})}{put}"


def _where(workspaces: set[Workspace]) -> str:
    workspace, *others = workspaces
    if others:
        sources = len({one.source for one in workspaces})
        of = "one source" if sources == 1 else f"{sources:,} sources"
        return f"a workspace of its own case or variant: {len(workspaces):,} of {of}"
    box = workspace.container
    inside = "" if box is None else box.image or one_line(box.build or "", LONGEST_PATH)
    if workspace.kind is WorkspaceKind.IMAGE:
        return f"a container of {inside}"
    return _place(workspace) + (f", in a container of {inside}" if inside else "")


def _place(workspace: Workspace) -> str:
    source = one_line(workspace.source or "", LONGEST_PATH)
    if workspace.kind is WorkspaceKind.FOLDER:
        return f"a copy of {source}" if source else "an empty folder"
    commit = (workspace.commit or "")[:SHOWN_OF_A_COMMIT]
    at = f"as it is, on {commit}" if workspace.uncommitted else f"at {commit}"
    return f"a worktree of {source} {at}"


def sentences(forecast: Forecast) -> list[str]:
    """Estimates for the run: its time, its bottleneck and its cost."""
    return [
        _estimate(forecast),
        *_decides(forecast),
        *_cost(forecast),
        *_budget(forecast),
        *_stop(forecast),
        *of_hidden_tests(forecast.plan),
        *(f"A run would fail to start here: {why}." for why in forecast.absent),
        *_missing_keys(forecast.plan),
        *_left_out(forecast.cluster),
    ]


def _missing_keys(plan: Plan) -> Iterator[str]:
    with env_file(None if plan.source is None else Path(plan.source).parent):
        for name, variable in missing_keys(models_of(plan), os.environ):
            yield f"A run would fail to start here: model '{name}' needs {variable}."


def _left_out(cluster: ClusterForecast | None) -> Iterator[str]:
    """Nodes that would run nothing."""
    if cluster is None:
        return
    names = [one_line(node.name, LONGEST_PATH) for node in cluster.nodes if not node.slots]
    if len(names) == len(cluster.nodes):
        yield "A run would fail to start: no node can run it."
    elif names:
        yield f"A run would leave out {counted(len(names), 'node')}: {some(names, 5)}."


def _estimate(forecast: Forecast) -> str:
    drawn = "case by case, in random order"
    stops = forecast.plan.stop is not None
    if forecast.wall_s is None or forecast.serial_s is None:
        order = drawn if stops else "in plan order"
        return (
            "No time estimate: the store has no run of this suite. "
            f"Trials will start {order}, as far as limits and the machine allow."
        )
    order = drawn if stops else "longest first"
    return (
        f"About {duration(forecast.wall_s)}; one after another, about "
        f"{duration(forecast.serial_s)} (from earlier runs; {order})."
    )


def _decides(forecast: Forecast) -> Iterator[str]:
    """`Bottleneck: gpt-oss at 300 requests a minute, at least about 6 min 40 s.`"""
    bound = forecast.decides
    if bound is None:
        return
    if bound.name == LONGEST_TRIAL:
        bottleneck = "the longest trial"
    elif bound.name == PARALLEL:
        bottleneck = f"--parallel ({bound.text})"
    else:
        bottleneck = f"{_limited(bound.name, forecast)} at {bound.text}"
    if forecast.wall_s is None:
        yield f"Bottleneck: {bottleneck}, at least about {duration(bound.seconds)}."
    elif bound.seconds >= MOST_OF_IT * forecast.wall_s:
        yield f"Bottleneck: {bottleneck}."


def _limited(limit: str, forecast: Forecast) -> str:
    """The models under a limit, by their names in the registry; else the limit's own name."""
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
    most, usual = forecast.cost_at_most_usd, forecast.cost_usual_usd
    if cached and forecast.cost_at_most_usd == 0:
        yield f"No cost: {cached}."
    elif forecast.cost_usd is not None:
        without = ", plus unknown costs" if forecast.unpriced else ""
        yield f"About {money(forecast.cost_usd)}{without}{cached and '; '}{cached}."
    elif usual is not None and usual == most and forecast.cost_is_bounded:
        yield f"At most {money(most)}{cached and '; '}{cached}."
    elif usual is not None and most is not None:
        limit = f"at most {money(most)}" if forecast.cost_is_bounded else "max_tokens sets no limit"
        answers = f"if answers have about {USUAL_OUTPUT_TOKENS:.0f} tokens ({limit})"
        yield f"About {money(usual)} {answers}{cached and '; '}{cached}."
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
    likely, usual, most = forecast.cost_usd, forecast.cost_usual_usd, forecast.cost_at_most_usd
    if forecast.unpriced:
        rest = ": a run would fail to start, since a budget needs the price of every model"
    elif likely is not None and likely > budget.usd:
        rest = ": not enough for all trials; the rest can be resumed"
    elif likely is None and usual is not None and usual > budget.usd:
        rest = ": may not be enough for all trials; the rest can be resumed"
    elif likely is None and most is not None and most > budget.usd:
        rest = ": probably enough; if answers are very long, the rest can be resumed"
    else:
        rest = ""
    yield f"Budget: {money(budget.usd)}{rest}."


def _stop(forecast: Forecast) -> Iterator[str]:
    if (rule := forecast.plan.stop) is not None:
        yield (
            f"May stop early, once every comparison is decided ({percent(rule.confidence)}); "
            "these estimates assume that it does not."
        )


@click.command("schema")
@click.argument("kind", type=click.Choice(["suite", "race", "report"]), default="suite")
def schema_command(kind: str) -> None:
    """Print the JSON Schema of suite files (the default) or race files, for editors, or of JSON
    reports.

    \b
    Save it as suite.schema.json, and start a suite with:
      # yaml-language-server: $schema=suite.schema.json
    """
    click.echo(json.dumps(_schema(kind), indent=2))


def _schema(kind: str) -> dict[str, Any]:
    if kind == "suite":
        return suite_schema()
    if kind == "report":
        return report_schema()
    # Only here: suites need nothing of it.
    from paraval.racing.race_file import race_schema  # noqa: PLC0415 - see above

    return race_schema()
