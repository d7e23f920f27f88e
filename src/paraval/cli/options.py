"""Options that several commands share, each declared once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from paraval.errors import RequestError
from paraval.records import CacheUse
from paraval.settings import (
    DEFAULT_MAX_DROP,
    MODELS_VARIABLE,
    STORE_FOLDER,
    STORE_VARIABLE,
    Parallel,
    Selection,
    chosen_models,
    default_store,
    is_report_file,
)

MOST_PARALLEL = 1_000_000
"""More than there can be trials."""


class ShareParam(click.FloatRange):
    """From 0 to 1; whoever writes it in percent is told how it is written here."""

    name = "share"

    def __init__(self) -> None:
        super().__init__(0, 1)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            share: float = super().convert(value, param, ctx)
        except click.BadParameter as error:
            percent = _number(str(value).removesuffix("%"))
            if percent is None or not 0 < percent <= 100:
                raise
            raise click.BadParameter(
                f"'{value}' is not a share from 0 to 1: did you mean {percent / 100:g}?",
                ctx=error.ctx,
                param=error.param,
            ) from None
        return share


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


suite_argument = click.argument("suite", type=click.Path(path_type=Path))
run_argument = click.argument("run", default="last")
store_option = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    # Absolute from the start: a function or a module of the user's may change the folder.
    callback=lambda _context, _option, store: (store or default_store()).absolute(),
    help=f"Where runs are kept. [default: ${STORE_VARIABLE}, or {STORE_FOLDER}]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def files_option(what: str) -> Callable[[Any], Any]:
    """-o, for files of `what`, which says their endings."""
    return click.option(
        "-o",
        "--output",
        "outputs",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"Also write {what}; may be given several times.",
    )


_OF_SUITES = ".json .jsonl .csv .md .junit.xml .html"
output_option = files_option(f"the report: {_OF_SUITES}")
output_of_any_option = files_option(
    f"the report: {_OF_SUITES}; of a race .json .md .txt, and .patch for the winner's change"
)


def _parallel(_context: click.Context, _option: click.Parameter, text: str | None) -> Any:
    """A number, or `auto`; None where nothing is said."""
    if text is None or text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' is neither a whole number nor auto") from None


_SELECTION = (
    click.option(
        "-j",
        "--parallel",
        metavar="N|auto",
        callback=_parallel,
        help="Attempts at once, or auto: as many as the machine can carry. "
        "[default: the suite's, or auto for commands and agents, 4 for others]",
    ),
    click.option("--case", "cases", multiple=True, metavar="GLOB", help="Only these cases."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only cases with this tag."),
    click.option(
        "--variant", "variants", multiple=True, metavar="AXIS=VALUE", help="Only this value."
    ),
    click.option(
        "--models",
        metavar="NAMES",
        help="Only these of the suite's models: names or globs with commas between, or all. "
        f"[default: ${MODELS_VARIABLE}, or the suite's]",
    ),
    click.option("--repeats", type=click.IntRange(min=1), help="Instead of the suite's."),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="For each attempt, instead of the suite's.",
    ),
    click.option(
        "--fail-under",
        type=ShareParam(),
        metavar="RATE",
        help="Pass rate below which the gate fails. [default: every trial must pass]",
    ),
    click.option(
        "--budget",
        type=click.FloatRange(min=0, min_open=True),
        metavar="USD",
        help="What the run may spend in all, instead of the suite's; the rest is left for later.",
    ),
    click.option(
        "--cache",
        type=click.Choice([use.value for use in CacheUse]),
        help="Whether models' answers are used again, asked for anew, or not kept. "
        "[default: the suite's, or reuse]",
    ),
)


def _at_its_place(
    _context: click.Context, _option: click.Parameter, name: str | None
) -> str | None:
    """A path is made absolute from the start, as the store's is."""
    if name == "":
        raise click.BadParameter("name a run, or the file of a report")
    is_path = name is not None and (os.sep in name or is_report_file(name))
    return str(Path(name or "").absolute()) if is_path else name


_BASELINE = (
    click.option(
        "--baseline",
        metavar="RUN|FILE",
        callback=_at_its_place,
        help="Hold the run against this one (an id, the beginning of one, last or last~1), or "
        "against a .json or .jsonl report. [default: the one that is set for the suite, with "
        "--max-drop]",
    ),
    click.option(
        "--max-drop",
        type=ShareParam(),
        metavar="SHARE",
        help="How far below the baseline's the pass rate may be. "
        f"[default: the suite's, or {DEFAULT_MAX_DROP} with --baseline]",
    ),
    click.option("--no-baseline", is_flag=True, help="For once, hold the run against none."),
)


def baseline_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what a run is held against."""
    for option in reversed(_BASELINE):
        command = option(command)
    return command


def baseline_from(given: dict[str, Any]) -> Selection:
    """Takes the baseline's options out of a command's own; no others are in the selection."""
    baseline, max_drop = given.pop("baseline"), given.pop("max_drop")
    if given.pop("no_baseline"):
        if baseline is not None or max_drop is not None:
            other = "--max-drop" if baseline is None else "--baseline"
            raise RequestError(f"--no-baseline and {other} cannot go together")
        baseline = ""
    return Selection(baseline=baseline, max_drop=max_drop)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which trials run."""
    for option in reversed(_SELECTION):
        command = option(command)
    return command


def selection_from(given: dict[str, Any]) -> Selection:
    """Takes the selection's options out of a command's own, and says what it made of them."""
    return Selection(
        parallel=_at_once(given.pop("parallel")),
        cases=given.pop("cases"),
        tags=given.pop("tags"),
        variants=tuple(axis_and_value(text) for text in given.pop("variants")),
        repeats=given.pop("repeats"),
        timeout=given.pop("timeout"),
        fail_under=given.pop("fail_under"),
        models=_models(given.pop("models")),
        budget_usd=_budget(given.pop("budget")),
        cache=given.pop("cache"),
    )


def _at_once(asked: Parallel | None) -> Parallel | None:
    if asked is None or asked == "auto":
        return asked
    if asked < 1:
        click.echo(f"note: --parallel {asked} means 1: one attempt at a time", err=True)
    return max(1, min(asked, MOST_PARALLEL))


def _models(text: str | None) -> tuple[str, ...]:
    return () if text is None else chosen_models(text, source="--models")


def _budget(usd: float | None) -> float | None:
    if usd is not None and not math.isfinite(usd):
        raise RequestError(f"--budget {usd}: write an amount of US dollars, e.g. --budget 2.50")
    return usd


def axis_and_value(text: str) -> tuple[str, str]:
    """What a --variant names."""
    axis, equals, value = text.partition("=")
    if not (axis and equals):
        raise RequestError(f"--variant {text}: write it as axis=value, e.g. --variant model=small")
    return axis, value
