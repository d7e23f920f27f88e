"""`paraval pairwise`: a judge decides which of two variants' answers is better."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from paraval import Suite
from paraval.cli.commands.run import progress_option
from paraval.cli.error_messages import EXIT_CANNOT_TELL, EXIT_INTERRUPTED, talk
from paraval.cli.options import json_option, run_argument, store_option
from paraval.cli.output import print_at_end
from paraval.cli.progress.progress import RunOutput, choose, shown_by
from paraval.cli.suites import suite_from
from paraval.codec import Style, to_data
from paraval.errors import RequestError
from paraval.report.pairwise import PairwiseReport, pairwise_sentences
from paraval.report.report import Report
from paraval.runner.pairwise import PairwiseRequest, judge_pairs
from paraval.runner.run import open_store
from paraval.runner.stored_runs import pairwise_in
from paraval.settings import Options, Selection
from paraval.store.store import Store
from paraval.text.tables import Page


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
    help="Judge N pairs in parallel. [default: the suite's, or 4]",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Stop before spending more than this on judging; the same command goes on later.",
)
@progress_option
@json_option
@store_option
def pairwise_command(run: str, store: Path | None, *, as_json: bool, **given: Any) -> int:
    """Ask a judge which of two variants' answers to the same case of a RUN is better.

    Each pair is judged in both orders: an answer is better only if the judge says so both times,
    anything else is a tie. Pairs without two answers are left out. Identical answers tie without a
    call. The same command again goes on where it stopped, and costs nothing for what was judged.
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
    judged = judge_and_show(store, suite_from(Path(info.source)), request, selection, showing)
    (report,) = [one for one in pairwise_in(store, info)() if one.run == judged.run.id]
    if as_json:
        sys.stdout.write(json.dumps(to_data(report, Style.SHOWN), ensure_ascii=False) + "\n")
    else:
        print_at_end(partial(_text, report))
    if judged.run.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_CANNOT_TELL if judged.run.held_back else 0


def _text(report: PairwiseReport, page: Page) -> str:
    return "\n".join(pairwise_sentences(report, page.quote))


def judge_and_show(
    store: Store,
    suite: Suite,
    request: PairwiseRequest,
    selection: Selection,
    showing: RunOutput,
) -> Report:
    """Judge the pairs of a run, with progress on stderr."""
    if showing.progress != "json":
        talk("Judging pairs of answers, each in both orders:")
    with shown_by(choose(showing.progress, sys.stderr, verbose=showing.verbose)) as observer:
        judged = judge_pairs(store, suite, request, selection, observer)
    if judged.run.held_back or judged.run.interrupted:
        talk(f"Some pairs are not judged yet. Go on with: paraval pairwise {request.run}")
    return judged
