"""Options shared by several commands, each declared once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from paraval.errors import RequestError
from paraval.records import CacheUse, Variant, value_text
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
from paraval.store.reader import RunReader
from paraval.text.suggest import suggestion

MOST_PARALLEL = 1_000_000
"""More than the number of trials can be."""


class ShareParam(click.FloatRange):
    """A number from 0 to 1; the error for a percentage suggests the right form."""

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
                f"'{value}' is not a number from 0 to 1; did you mean {percent / 100:g}?",
                ctx=error.ctx,
                param=error.param,
            ) from None
        return share


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


suite_argument = click.argument("suite", required=False, type=click.Path(path_type=Path))
suites_argument = click.argument(
    "suites", nargs=-1, metavar="[SUITE]...", type=click.Path(path_type=Path)
)
run_argument = click.argument("run", default="last")
store_option = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    # Absolute from the start: the user's code may change the current folder.
    callback=lambda _context, _option, store: (store or default_store()).absolute(),
    help=f"Folder that runs are stored in. [default: ${STORE_VARIABLE}, or {STORE_FOLDER} in this "
    "folder or the nearest parent, up to the git root; a new one is created at the git "
    "root, or else here]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def files_option(what: str) -> Callable[[Any], Any]:
    """The option -o for files of `what`, which names their formats."""
    return click.option(
        "-o",
        "--output",
        "outputs",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"Also write {what}. Repeatable.",
    )


_SUITE_FORMATS = ".json .jsonl .csv .md .junit.xml .html"
output_option = files_option(f"the report: {_SUITE_FORMATS}")
output_of_any_option = files_option(
    f"the report: {_SUITE_FORMATS}; for a race .json .md .txt, or .patch for the winning change"
)


def _parallel(_context: click.Context, _option: click.Parameter, text: str | None) -> Any:
    """A number, `auto`, or None if the option is not given."""
    if text is None or text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' is neither an integer nor auto") from None


_REPEATS = click.option(
    "--repeats",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run each case N times. [default: the suite's]",
)
_TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End an attempt after this time. [default: the suite's]",
)
parallel_option = click.option(
    "-j", "--parallel", metavar="N|auto", callback=_parallel, help="Run N attempts in parallel."
)
_SELECTION = (
    click.option(
        "-j",
        "--parallel",
        metavar="N|auto",
        callback=_parallel,
        help="Run N attempts in parallel, or as many as the machine can handle (auto). "
        "[default: the suite's, else auto]",
    ),
    click.option(
        "--case", "cases", multiple=True, metavar="GLOB", help="Run only these cases. Repeatable."
    ),
    click.option(
        "--tag",
        "tags",
        multiple=True,
        metavar="TAG",
        help="Run only cases with this tag. Repeatable.",
    ),
    click.option(
        "--sample",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run only N of these cases, drawn at random: the same ones for the same --seed.",
    ),
    click.option(
        "--limit",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run only the first N of these cases.",
    ),
    click.option(
        "--variant",
        "variants",
        multiple=True,
        metavar="AXIS=VALUE",
        help="Run only variants with this value. Repeatable.",
    ),
    click.option(
        "--models",
        metavar="NAMES",
        help="Run only these models of the suite: names or globs, separated by commas, or all. "
        f"[default: ${MODELS_VARIABLE}, or the suite's]",
    ),
    _REPEATS,
    _TIMEOUT,
    click.option(
        "--fail-under",
        type=ShareParam(),
        metavar="RATE",
        help="Fail the gate below this pass rate, from 0 to 1; 1: every trial must pass. "
        "[default: the suite's]",
    ),
    click.option(
        "--budget",
        type=click.FloatRange(min=0, min_open=True),
        metavar="USD",
        help="Stop before spending more than this; the remaining trials can be resumed. "
        "[default: the suite's]",
    ),
    click.option(
        "--cache",
        type=click.Choice([use.value for use in CacheUse]),
        help="Reuse cached model answers, refresh them, or turn the cache off. "
        "[default: the suite's, or reuse]",
    ),
)


def _absolute_if_path(
    _context: click.Context, _option: click.Parameter, name: str | None
) -> str | None:
    """Make a path absolute from the start, as the store's is."""
    if name == "":
        raise click.BadParameter("name a run or a report file")
    is_path = name is not None and (os.sep in name or is_report_file(name))
    return str(Path(name or "").absolute()) if is_path else name


_BASELINE = (
    click.option(
        "--baseline",
        metavar="RUN|FILE",
        callback=_absolute_if_path,
        help="Compare the pass rate with this run (id, start of an id, last or last~1), or with "
        "a .json or .jsonl report. [default: the suite's baseline, if --max-drop or "
        "--max-regressed applies]",
    ),
    click.option(
        "--max-drop",
        type=ShareParam(),
        metavar="SHARE",
        help="Fail the gate if the pass rate is lower than the baseline's by more than this: 0.05 "
        "is 5 points. "
        f"[default: the suite's, or {DEFAULT_MAX_DROP} with --baseline]",
    ),
    click.option(
        "--max-regressed",
        type=click.IntRange(min=0),
        metavar="N",
        help="Fail the gate if more than N cases that passed in the baseline fail now; works with "
        "any number of cases. Replaces the default of --max-drop. [default: the suite's]",
    ),
    click.option("--no-baseline", is_flag=True, help="Ignore the baseline this time."),
)


def baseline_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the baseline that a run is compared with."""
    for option in reversed(_BASELINE):
        command = option(command)
    return command


def baseline_from(given: dict[str, Any]) -> Selection:
    """Move the baseline's options from a command's arguments into a selection."""
    asked = {name: given.pop(name) for name in ("baseline", "max_drop", "max_regressed")}
    if given.pop("no_baseline"):
        for name, value in asked.items():
            if value is not None:
                other = f"--{name.replace('_', '-')}"
                raise RequestError(f"--no-baseline cannot be combined with {other}")
        asked["baseline"] = ""
    return Selection(**asked)


seed_option = click.option(
    "--seed",
    type=int,
    help="Seed for --sample, for the jitter of retries, and for the order of cases if the run may "
    "stop early. [default: the suite's, or 0]",
)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose which trials run, and how."""
    for option in reversed(_SELECTION):
        command = option(command)
    return command


def regrade_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for answers that exist: nothing is repeated, and no target is timed."""
    for option in reversed(_SELECTION):
        if option not in (_REPEATS, _TIMEOUT):
            command = option(command)
    return command


def selection_from(given: dict[str, Any]) -> Selection:
    """Move the selection's options from a command's arguments into a selection."""
    return Selection(
        parallel=parallel_in_range(given.pop("parallel")),
        cases=given.pop("cases"),
        tags=given.pop("tags"),
        sample=given.pop("sample"),
        sample_seed=given.get("seed"),
        limit=given.pop("limit"),
        variants=axes_and_values(given.pop("variants")),
        repeats=given.pop("repeats", None),
        timeout=given.pop("timeout", None),
        fail_under=given.pop("fail_under"),
        models=_models(given.pop("models")),
        budget_usd=budget_in_dollars(given.pop("budget")),
        cache=given.pop("cache"),
    )


def parallel_in_range(asked: Parallel | None) -> Parallel | None:
    if asked is None or asked == "auto":
        return asked
    if asked < 1:
        click.echo(f"note: --parallel {asked} means 1: one attempt at a time", err=True)
    return max(1, min(asked, MOST_PARALLEL))


def _models(text: str | None) -> tuple[str, ...]:
    return () if text is None else chosen_models(text, source="--models")


def budget_in_dollars(usd: float | None) -> float | None:
    if usd is not None and not math.isfinite(usd):
        raise RequestError(f"--budget {usd}: write an amount in US dollars, e.g. --budget 2.50")
    return usd


def axis_and_value(text: str) -> tuple[str, str]:
    """Parse the value of --variant."""
    axis, equals, value = text.partition("=")
    if not (axis and equals):
        raise RequestError(f"--variant {text}: write it as axis=value, e.g. --variant model=small")
    return axis, value


def axes_and_values(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parse the values of --variant: `mode=a`, or several as `mode=a,model=b`."""
    pieces = [text.split(",") if text.count("=") > 1 else [text] for text in texts]
    return tuple(axis_and_value(piece) for each in pieces for piece in each)


Choices = Iterable[tuple[str, str]]
"""The values of --variant."""


def has_values(variant: Variant, choices: Choices) -> bool:
    told = {axis: value_text(value) for axis, value in variant.items()}
    return all(told.get(axis) == value for axis, value in choices)


def no_match(reader: RunReader, case: str | None, choices: Choices, what: str) -> RequestError:
    """Nothing in a run fits the options; names the nearest case or value, or the known ones."""
    run, cases = f"run {reader.info().id}", [name for name, _ in reader.case_names()]
    if case is not None and not any(case == one or fnmatchcase(one, case) for one in cases):
        return RequestError(f"{run} has no case '{case}'{suggestion(case, cases)}")
    variants = reader.variants()
    for axis, value in choices:
        values = dict.fromkeys(value_text(one[axis]) for one in variants if axis in one)
        if not values:
            known = dict.fromkeys(name for one in variants for name in one)
            return RequestError(f"{run} has no axis '{axis}'{suggestion(axis, known)}")
        if value not in values:
            wrong = f"the axis '{axis}' of {run} has no value '{value}'"
            return RequestError(f"{wrong}{suggestion(value, values)}")
    return RequestError(f"{run} has no matching {what}")


_CLUSTER = (
    click.option(
        "--cluster",
        metavar="ADDRESS",
        help="Run attempts on the nodes of a Ray cluster: `ray` for the cluster of this machine "
        "or a new one for this run, ray://HOST:10001, or HOST:6379. [default: on this machine]",
    ),
    click.option(
        "--insecure-cluster",
        is_flag=True,
        help="Use a cluster without token authentication: anyone who can reach it can run "
        "commands on its nodes.",
    ),
)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for a run on a cluster."""
    for option in reversed(_CLUSTER):
        command = option(command)
    return command


PROGRESS_MODES = ("auto", "bar", "lines", "json", "none")
progress_option = click.option(
    "--progress",
    type=click.Choice(PROGRESS_MODES),
    default="auto",
    show_default=True,
    help="How to show progress on stderr.",
)
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Show trials as they start; print a detailed report."
)
