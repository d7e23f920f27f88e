"""`paraval compare`: is B better than A, by how much, and which cases changed; `paraval pairwise`:
which answers a judge prefers; and `paraval baseline`: the run that a suite is compared with."""

from __future__ import annotations

import json
import shlex
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from paraval import Suite
from paraval.cli.error_messages import EXIT_CANNOT_TELL, EXIT_INTERRUPTED, talk
from paraval.cli.github import append_summary
from paraval.cli.help import SuggestingGroup, example
from paraval.cli.options import (
    ShareParam,
    files_option,
    json_option,
    progress_option,
    run_argument,
    store_option,
)
from paraval.cli.output import iso, own_name, print_at_end, print_shown
from paraval.cli.progress.progress import RunOutput, choose, shown_by
from paraval.cli.suites import suite_from
from paraval.codec import Style, to_data
from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import Baseline, RunInfo
from paraval.report.baseline_gate import judge_drop
from paraval.report.compare.compare_report import (
    check_comparison_outputs,
    versus_as_dict,
    within_as_dict,
    write_comparison,
)
from paraval.report.compare.comparison_text import (
    VariantComparisons,
    versus_text,
    within_run,
    within_text,
)
from paraval.report.compare.two_runs import ComparedMetric, ComparisonQuestion, SideComparison
from paraval.report.compare.variants import USUAL_CONFIDENCE
from paraval.report.formats.json import to_json
from paraval.report.gate import DropVerdict, GateVerdict
from paraval.report.pairwise import PairwiseReport, pairwise_sentences
from paraval.report.report import Report
from paraval.report.summary.tally import Summary
from paraval.runner.comparisons import SideFinder, alone, held_against
from paraval.runner.pairwise import PairwiseRequest, judge_pairs
from paraval.runner.run import open_store
from paraval.runner.stored_runs import InStore
from paraval.settings import Options, Selection
from paraval.store.baselines import Baselines, SetBaseline
from paraval.store.store import Store
from paraval.text.document import Markdown
from paraval.text.tables import Page
from paraval.text.terminal import one_line
from paraval.text.words import counted, percent

_EXIT_CODES = {GateVerdict.MET: 0, GateVerdict.MISSED: 1, GateVerdict.UNKNOWN: EXIT_CANNOT_TELL}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ComparisonOutput:
    """Where a comparison goes, and in how much detail."""

    outputs: tuple[Path, ...]
    as_json: bool
    every_case: bool
    every_answer: bool


@click.command("compare")
@click.argument("names", nargs=-1, metavar="[A] [B]")
@click.option(
    "--metric",
    type=click.Choice([metric.value for metric in ComparedMetric]),
    default=ComparedMetric.PASS.value,
    show_default=True,
    help="Which metric to compare first.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    show_default=f"{USUAL_CONFIDENCE}",
    help="Confidence level. Defaults to the run's own level if it stops early.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the resampling.")
@click.option(
    "--max-drop",
    type=ShareParam(),
    metavar="SHARE",
    help="Check that B's pass rate is at most this far below A's (0.05 is 5 points): exit with 0 "
    "if so, 1 if not, 3 if undecided.",
)
@click.option("--all", "every_case", is_flag=True, help="List every case that changed.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show both answers of every listed case, not only of the first three.",
)
@files_option("the comparison: .json .md .html")
@store_option
@json_option
def compare_command(names: tuple[str, ...], store: Path, **given: Any) -> int:
    """Compare A with B, case by case: is B better, and how certain is that?

    A and B are each a run (an id, the start of an id, `last`, `last~1` for the one before it, or a
    run's folder), a report file (.json, .jsonl), or a part of either: RUN:AXIS=VALUE, separated by
    commas if several. AXIS=VALUE without a run means the last run. With only A, its own variants
    are compared; with neither, the last run and the one before it of the same suite. Races are
    skipped: their own report compares them.

    Exits with 0 if a comparison was made, 2 for an invalid request, and 3 if no case has a verdict
    on both sides.
    """
    showing = _ComparisonOutput(
        outputs=given["outputs"],
        as_json=given["as_json"],
        every_case=given["every_case"],
        every_answer=given["verbose"],
    )
    check_comparison_outputs(showing.outputs)
    sides = SideFinder(open_store(Options(store=store)))
    metric, confidence, seed = ComparedMetric(given["metric"]), given["confidence"], given["seed"]
    match names:
        case (name,):
            if given["max_drop"] is not None:
                raise RequestError("--max-drop needs two sides: paraval compare A B")
            run = alone(sides.open(name))
            return _show_within(
                within_run(*run, metric=metric, confidence=confidence, seed=seed), showing
            )
        case ():
            reference, subject = map(sides.open_run, sides.last_two())
        case (one, other):
            reference, subject = sides.open(one), sides.open(other)
        case _:
            raise RequestError(f"expected two sides to compare, got {len(names)}")
    question = ComparisonQuestion(
        confidence=USUAL_CONFIDENCE if confidence is None else confidence, seed=seed, metric=metric
    )
    return _show(held_against(reference, subject, question), given["max_drop"], showing)


def _show(versus: SideComparison, max_drop: float | None, showing: _ComparisonOutput) -> int:
    drop = None if max_drop is None else _drop(versus, max_drop)
    for path in showing.outputs:
        write_comparison(path, versus, drop)
    if showing.as_json:
        print_shown(lambda _: to_json(versus_as_dict(versus, drop)))
    else:
        print_shown(
            lambda page: versus_text(
                versus,
                page,
                drop,
                every_case=showing.every_case,
                every_answer=showing.every_answer,
            )
        )
    append_summary(lambda: versus_text(versus, Markdown(), drop))
    if not versus.comparison.cases:
        return EXIT_CANNOT_TELL
    return 0 if drop is None else _EXIT_CODES[drop.verdict]


def _drop(versus: SideComparison, max_drop: float) -> DropVerdict:
    return judge_drop(
        versus.subject.contents.book,
        versus.reference.contents.book,
        Baseline(name=versus.reference.name, max_drop=max_drop),
        confidence=versus.question.confidence,
        at_any_time=versus.is_any_time,
        order_seed=versus.order_seed,
    )


# ---- a run's own variants


def _show_within(within: VariantComparisons, showing: _ComparisonOutput) -> int:
    for path in showing.outputs:
        write_comparison(path, within)
    if showing.as_json:
        print_shown(lambda _: to_json(within_as_dict(within)))
    else:
        print_shown(lambda page: within_text(within, page, every_case=showing.every_case))
    append_summary(lambda: within_text(within, Markdown()))
    return 0 if any(one.cases for one in within.comparisons) else EXIT_CANNOT_TELL


# ---- pairs of answers, judged


@click.command("pairwise")
@run_argument
@click.option(
    "--model", metavar="NAME", help="The judge's name in the suite's models. [default: the suite's]"
)
@click.option(
    "--rubric",
    metavar="TEXT|FILE",
    help="What makes an answer better. [default: the suite's; else correct, complete, clear]",
)
@click.option(
    "--against",
    metavar="AXIS=VALUE",
    help="Compare all variants with this one. [default: the suite's; else with each other]",
)
@click.option(
    "-j",
    "--parallel",
    type=click.IntRange(min=1),
    metavar="N",
    help="Judge N pairs in parallel. [default: the suite's, else auto]",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Stop before spending more than this on judging; the same command continues later.",
)
@progress_option
@json_option
@store_option
def pairwise_command(run: str, store: Path | None, *, as_json: bool, **given: Any) -> int:
    """Ask a judge which of two variants' answers to the same case of a RUN is better.

    Each pair is judged in both orders: an answer is better only if the judge says so both times,
    anything else is a tie. Pairs without two answers are left out. Identical answers tie without a
    call. The same command again continues where it stopped; verdicts it already has cost nothing.
    """
    opened = open_store(Options(store=store))
    info = opened.find(run)
    if given["model"] is None and given["rubric"] is not None:
        raise RequestError("--rubric needs --model: the judge that it is for")
    request = PairwiseRequest(
        run=info.id, model=given["model"], rubric=given["rubric"], against=given["against"]
    )
    selection = Selection(parallel=given["parallel"], budget_usd=given["budget"])
    showing = RunOutput(outputs=(), progress=given["progress"], verbose=False)
    return show_pairs(opened, request, selection, showing, as_json=as_json)


def show_pairs(
    store: Store,
    request: PairwiseRequest,
    selection: Selection,
    showing: RunOutput,
    *,
    as_json: bool = False,
) -> int:
    """Judge pairs, print what the judge prefers, and return the exit code."""
    info = store.find(request.run)
    if info.source is None:
        raise RequestError(f"run {info.id} has no suite file, whose models could judge")
    judged = judge_pairs_shown(store, suite_from(Path(info.source)), request, selection, showing)
    (report,) = [one for one in InStore(store, info).pairwise() if one.run == judged.id]
    if as_json:
        print_shown(lambda _: to_json(to_data(report, Style.SHOWN)))
    else:
        print_at_end(partial(_pairs_text, report))
    if judged.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_CANNOT_TELL if judged.held_back else 0


def _pairs_text(report: PairwiseReport, page: Page) -> str:
    return "\n".join(pairwise_sentences(report, page.quote))


def judge_pairs_shown(
    store: Store, suite: Suite, request: PairwiseRequest, selection: Selection, showing: RunOutput
) -> RunInfo:
    """Judge the pairs of a run, with progress on stderr; returns the run that judged them."""
    if showing.progress != "json":
        talk("Judging pairs of answers, each in both orders:")
    with shown_by(choose(showing.progress, sys.stderr, verbose=showing.verbose)) as observer:
        judged = judge_pairs(store, suite, request, selection, observer).run
    if judged.held_back or judged.interrupted:
        talk(f"Some pairs are not judged yet. Continue with: {_how_to_go_on(request)}")
    return judged


def _how_to_go_on(request: PairwiseRequest) -> str:
    """The same command again; a budget may have to be larger."""
    words = ["paraval", "pairwise", request.run]
    for name in ("model", "rubric", "against"):
        if (value := getattr(request, name)) is not None:
            words += [f"--{name}", value]
    return shlex.join(words)


# ---- baselines

LONGEST_NAME = 60


@click.group("baseline", cls=SuggestingGroup)
def baseline_command() -> None:
    """Set, show or clear the run that a suite is compared with.

    It applies if the suite has `max_drop` or `max_regressed`, or if a run is started with one of
    them as an option: the gate then fails if the pass rate drops by more than that, or if more
    cases regress.
    """


@baseline_command.command("set", epilog=example("paraval baseline set last"))
@click.argument("run")
@click.option("--suite", metavar="NAME", help="Set it for this suite. [default: the run's own]")
@store_option
def set_command(run: str, suite: str | None, store: Path | None) -> None:
    """Set a RUN as the baseline of its suite.

    RUN is an id, the start of an id, a run's folder, `last`, or `last~1` for the one before it. It
    must be complete.
    """
    opened = open_store(Options(store=store))
    info = opened.find(run)
    if opened.grows(info):
        raise RequestError(f"run {info.id} is a race, and cannot be the baseline of a suite")
    _refuse_unfinished(info)
    with opened.reader(info) as reader:
        summary = Report(reader).summary
    if summary.pass_rate is None:
        raise RequestError(
            f"run {info.id} cannot be a baseline: none of its trials passed or failed",
            hint="choose a run with verdicts; errors are not verdicts",
        )
    name = info.suite if suite is None else suite
    is_here = Path(info.folder).parent == opened.runs_folder
    chosen = SetBaseline(
        run=info.id if is_here else info.folder,
        set_at=iso(time.time()),
        pass_rate=summary.pass_rate,
    )
    before = Baselines(opened.root).set(name, chosen)
    _print_set(name, chosen, before, summary)


def _refuse_unfinished(info: RunInfo) -> None:
    if info.running:
        raise RequestError(
            f"run {info.id} cannot be a baseline: it is still running",
            hint="wait until it has ended",
        )
    if info.interrupted or info.held_back or info.done < info.trials:
        left = counted(info.trials - info.done, "trial")
        raise RequestError(
            f"run {info.id} cannot be a baseline: it is not complete, {left} without a result",
            hint=f"resume it first: {own_name()} resume {info.id}",
        )


def _print_set(
    name: str, chosen: SetBaseline, before: SetBaseline | None, summary: Summary
) -> None:
    instead = f", replacing {before.run}" if before and before.run != chosen.run else ""
    click.echo(
        f"Baseline of suite '{one_line(name, LONGEST_NAME)}': run {chosen.run}"
        f" ({percent(chosen.pass_rate)} passed, {counted(summary.cases, 'case')}){instead}."
    )
    if summary.errors:
        has = "has" if summary.errors == 1 else "have"
        talk(f"note: {counted(summary.errors, 'error')} in it {has} no verdict to compare with")
    talk("It applies to runs with `max_drop` or `max_regressed` in the suite or as an option.")


@baseline_command.command("show", epilog=example("paraval baseline show"))
@store_option
@json_option
def show_command(store: Path | None, *, as_json: bool) -> None:
    """List the baselines in the store, by suite."""
    opened = open_store(Options(store=store))
    known = Baselines(opened.root).all()
    if as_json:
        click.echo(json.dumps({suite: asdict(one) for suite, one in known.items()}, indent=2))
        return
    if not known:
        talk(f"No baseline is set. Set one: {own_name()} baseline set RUN")
    for suite, one in known.items():
        gone = "" if _exists(opened, one.run) else "  (the run no longer exists)"
        click.echo(
            f"{one_line(suite, LONGEST_NAME)}  {one_line(one.run, 200)}"
            f"  {percent(one.pass_rate)} passed  set {one_line(one.set_at, 30)}{gone}"
        )


def _exists(store: Store, run: str) -> bool:
    try:
        store.find(run)
    except RequestError:
        return False
    return True


@baseline_command.command("clear", epilog=example("paraval baseline clear my-suite"))
@click.argument("suite")
@store_option
def clear_command(suite: str, store: Path | None) -> None:
    """Remove the baseline of a SUITE, given by its name. The run itself stays."""
    opened = open_store(Options(store=store))
    baselines = Baselines(opened.root)
    before = baselines.clear(suite)
    if before is None:
        known = ", ".join(shlex.quote(one_line(name, LONGEST_NAME)) for name in baselines.all())
        raise RequestError(
            f"no baseline is set for suite '{suite}'",
            hint=f"suites with a baseline: {known}" if known else "no suite has a baseline",
        )
    click.echo(
        f"Removed the baseline of suite '{one_line(suite, LONGEST_NAME)}': run {before.run}."
    )
