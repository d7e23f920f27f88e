"""`paraval compare`: is B better than A, by how much, and which cases changed."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from paraval.cli.complaints import EXIT_CANNOT_TELL
from paraval.cli.options import json_option, store_option
from paraval.cli.showing import has_unicode, width_of
from paraval.cli.sides import Opened, Sides
from paraval.composition import open_store
from paraval.errors import RequestError
from paraval.records import Baseline
from paraval.report.as_json import to_json
from paraval.report.as_markdown import code
from paraval.report.contents import Contents
from paraval.report.dropping import judge_drop
from paraval.report.gate import DropVerdict, Verdict
from paraval.report.part import Part, choice_text, require_trials, side_by_side
from paraval.report.versus.as_dict import versus_as_dict, within_as_dict
from paraval.report.versus.as_markdown import story_markdown
from paraval.report.versus.as_text import Paper, paper, story_text
from paraval.report.versus.files import check_comparison_outputs, write_whole
from paraval.report.versus.held import Held, Metric, Question, Versus
from paraval.report.versus.story import MOST_CASES, story_of
from paraval.report.versus.within import Within, within_markdown, within_run, within_text
from paraval.settings import Options

_EXIT_CODES = {Verdict.MET: 0, Verdict.MISSED: 1, Verdict.UNKNOWN: EXIT_CANNOT_TELL}
_MOST_IN_MARKDOWN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class _Showing:
    """Where a comparison is shown, and how much of it."""

    outputs: tuple[Path, ...]
    as_json: bool
    every_case: bool

    @property
    def most(self) -> int | None:
        return None if self.every_case else MOST_CASES


@click.command("compare")
@click.argument("names", nargs=-1, metavar="[A] [B]")
@click.option(
    "--metric",
    type=click.Choice([metric.value for metric in Metric]),
    default=Metric.PASS.value,
    show_default=True,
    help="What the first sentence is about.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="How sure intervals are.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="For what is drawn by chance.")
@click.option(
    "--max-drop",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="How far below A's the pass rate of B may be; then the exit code tells: 0 no more than "
    "that, 1 more, 3 cannot tell.",
)
@click.option("--all", "every_case", is_flag=True, help="List every case that changed.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the comparison: .json .md; may be given several times.",
)
@store_option
@json_option
def compare_command(names: tuple[str, ...], store: Path, **given: Any) -> int:
    """Is B better than A? Case by case, with how sure that is.

    A and B are each a run (an id, the beginning of one, `last`, `last~1` for the one before, or a
    run's folder), a report file (.json, .jsonl), or a part of either: RUN:AXIS=VALUE, with commas
    between several; AXIS=VALUE alone is of the last run. With A alone, its own variants are
    compared. Without either, the last run with the one before it of the same suite.

    Ends with 0 where a comparison could be made, 2 for a wrong request, and 3 where no case is
    judged on both sides.
    """
    showing = _Showing(
        outputs=given["outputs"], as_json=given["as_json"], every_case=given["every_case"]
    )
    check_comparison_outputs(showing.outputs)
    with ExitStack() as stack:
        sides = Sides(open_store(Options(store=store)), stack)
        match names:
            case (name,):
                if given["max_drop"] is not None:
                    raise RequestError("--max-drop needs two sides: paraval compare A B")
                return _show_within(within_run(*_opened_alone(sides.open(name))), showing)
            case ():
                reference, subject = map(sides.open_run, sides.last_two())
            case (one, other):
                reference, subject = sides.open(one), sides.open(other)
            case _:
                raise RequestError(f"two sides can be compared, not {len(names)}")
        question = Question(
            confidence=given["confidence"], seed=given["seed"], metric=Metric(given["metric"])
        )
        return _show(_versus(reference, subject, question), given["max_drop"], showing)


# ---- two sides


def _versus(reference: Opened, subject: Opened, question: Question) -> Versus:
    _refuse_the_same(reference, subject)
    parts = side_by_side((reference.source, reference.choice), (subject.source, subject.choice))
    opened = (reference, subject)
    labels = _labels(*opened)
    one, other = (_held(*each) for each in zip(opened, parts, labels, strict=True))
    return Versus(other, one, question)


def _held(opened: Opened, part: Part, label: str) -> Held:
    require_trials(part, opened.name)
    return Held(
        label=label,
        name=opened.name,
        contents=Contents(part),
        choice=opened.choice,
        tells_run=opened.tells_run,
    )


def _refuse_the_same(one: Opened, other: Opened) -> None:
    """A trial that is on both sides tells nothing."""
    both = one.choice.keys() & other.choice.keys()
    if one.name == other.name and all(one.choice[axis] == other.choice[axis] for axis in both):
        raise RequestError(
            f"both sides hold trials of {one.name} that are the same",
            hint="name two runs, or two values of an axis: paraval compare AXIS=VALUE AXIS=OTHER",
        )


def _labels(reference: Opened, subject: Opened) -> tuple[str, str]:
    """What they are called in sentences: parts of one run by their values, others by a letter,
    since ids are hard to tell apart; which is which stands below."""
    if reference.name != subject.name:
        return "A", "B"
    return " · ".join(reference.choice.values()), " · ".join(subject.choice.values())


def _show(versus: Versus, max_drop: float | None, showing: _Showing) -> int:
    drop = None if max_drop is None else _drop(versus, max_drop)
    for path in showing.outputs:
        if path.suffix.lower() == ".json":
            text = f"{to_json(versus_as_dict(versus, drop))}\n"
        else:
            text = story_markdown(story_of(versus, code, most=_MOST_IN_MARKDOWN, drop=drop))
        write_whole(path, text)
    if showing.as_json:
        _print(to_json(versus_as_dict(versus, drop)))
    elif (page := _page()) is not None:
        story = story_of(versus, page.safe, most=showing.most, drop=drop)
        _print(story_text(story, page))
    if not versus.comparison.cases:
        return EXIT_CANNOT_TELL
    return 0 if drop is None else _EXIT_CODES[drop.verdict]


def _drop(versus: Versus, max_drop: float) -> DropVerdict:
    return judge_drop(
        versus.subject.contents.book,
        versus.reference.contents.book,
        Baseline(name=versus.reference.name, max_drop=max_drop),
        confidence=versus.question.confidence,
        at_any_time=versus.is_any_time,
        order_seed=versus.order_seed,
    )


# ---- a run's own variants


def _opened_alone(opened: Opened) -> tuple[str, Contents]:
    if not opened.choice:
        return opened.name, Contents(opened.source)
    part, _ = side_by_side((opened.source, opened.choice), (opened.source, opened.choice))
    require_trials(part, opened.name)
    return f"{opened.name} ({choice_text(opened.choice)})", Contents(part)


def _show_within(within: Within, showing: _Showing) -> int:
    for path in showing.outputs:
        is_json = path.suffix.lower() == ".json"
        text = f"{to_json(within_as_dict(within))}\n" if is_json else within_markdown(within)
        write_whole(path, text)
    if showing.as_json:
        _print(to_json(within_as_dict(within)))
    elif (page := _page()) is not None:
        _print(within_text(within, page, most=showing.most))
    return 0 if any(one.cases for one in within.comparisons) else EXIT_CANNOT_TELL


def _page() -> Paper | None:
    """None where stdout is closed: there is nowhere to print to."""
    if sys.stdout is None:
        return None
    return paper(width_of(sys.stdout), unicode=has_unicode(sys.stdout))


def _print(text: str) -> None:
    if sys.stdout is not None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
