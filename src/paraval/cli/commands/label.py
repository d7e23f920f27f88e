"""`paraval label`: a person's verdicts on a sample of answers, to check a judge by."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import click

from paraval.cli.error_messages import talk
from paraval.cli.options import run_argument, store_option
from paraval.cli.output import own_name
from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import Case, Grade, Label, RunInfo, Variant, answer_digest, value_text
from paraval.report.contents import Contents
from paraval.report.files import check_place, write_whole
from paraval.report.formats.csv import inert
from paraval.report.judge_agreement import agreement_sentence
from paraval.runner.run import open_store
from paraval.runner.stored_runs import InStore, StoredRun
from paraval.settings import Options
from paraval.store.labels import Labels
from paraval.store.store import Store
from paraval.templates.template import DEFAULT_CONTEXT, context_of
from paraval.text.suggest import quoted, suggestion
from paraval.text.terminal import one_line, printable
from paraval.text.words import counted

_LONGEST_SHOWN = 20_000
_LONGEST_LINE = 500
_MOST_PROBLEMS = 10
_PASS = frozenset({"pass", "passed", "true", "yes", "1", "good"})
_FAIL = frozenset({"fail", "failed", "false", "no", "0", "bad"})
_COLUMNS = ("case", "variant", "repeat", "label", "input", "expect", "answer")
_KEYS = {"p": "pass", "f": "fail", "s": "skip", "u": "undo", "q": "quit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """An answer that a grader gave a verdict on."""

    case: Case
    variant: Variant
    repeat: int
    digest: str
    verdict: Grade

    def label(self, grader: str, *, passed: bool | None) -> Label:
        return Label(grader=grader, case_id=self.case.id, answer=self.digest, passed=passed)

    @property
    def place(self) -> tuple[str, str, str]:
        """How a row of a CSV file names it."""
        return (inert(self.case.id), inert(_variant_text(self.variant)), str(self.repeat))


@click.command("label")
@run_argument
@click.option("--grader", metavar="NAME", help="The grader to check; by default the only judge.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="How many answers to label: as many that the grader passed as failed, if it has both.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, other answers.")
@click.option(
    "--export",
    "target",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the sample to a CSV file with an empty column `label` instead of asking.",
)
@click.option(
    "--import",
    "source",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read labels (pass or fail) from a CSV file: columns case, variant, repeat, label.",
)
@store_option
def label_command(run: str, store: Path | None, **given: Any) -> int:
    """Label answers of a RUN as pass or fail, and see how far its judge agrees with you.

    The judge's verdict is hidden until you have answered. Every label is saved at once: quit with
    q and continue later. Labels belong to the answers, so later runs with the same answers have
    them too. Reports show the agreement.
    """
    opened = open_store(Options(store=store))
    info = opened.find(run)
    labels = Labels(opened.root)
    grader = _grader(opened, info, given["grader"])
    answers = _answers(opened, info, grader)
    if given["source"] is not None:
        added = list(_read_csv(given["source"], answers, grader))
        labels.add(info.suite, added)
        talk(f"Read {counted(len(added), 'label')} from {given['source']}")
    else:
        sample = _sample(list({one.digest: one for one in answers}.values()), given)
        if given["target"] is not None:
            _write_csv(given["target"], opened, info, sample, labels.of(info.suite), grader)
            return 0
        _ask_all(opened, info, sample, labels, grader)
    contents = Contents(StoredRun(opened, info), InStore(opened, info))
    for one in contents.judges:
        if one.grader == grader:
            click.echo(agreement_sentence(one, one_line(grader, _LONGEST_LINE)))
    return 0


# ---- which answers


def _grader(store: Store, info: RunInfo, asked: str | None) -> str:
    """The grader to check: the one asked for, or the run's only judge."""
    found: dict[str, bool] = {}
    with store.reader(info) as reader:
        for result in reader.results():
            for grade in result.result.grades:
                is_judge = grade.judge is not None
                found[grade.grader] = found.get(grade.grader, False) or is_judge
    if asked is not None:
        if asked not in found:
            message = f"no grader '{asked}' graded an answer of run {info.id}"
            raise RequestError(message + suggestion(asked, found))
        return asked
    judges = [name for name, is_judge in found.items() if is_judge]
    if len(judges) == 1:
        return judges[0]
    if judges:
        raise RequestError(
            f"run {info.id} has several judges: {quoted(judges)}", hint="choose one with --grader"
        )
    grader = f"choose a grader with --grader: {quoted(found)}; " if found else ""
    suite = one_line(info.suite, _LONGEST_LINE)
    raise RequestError(
        f"no judge gave a verdict in run {info.id} of suite '{suite}'",
        hint=f"{grader}for a run of another suite, see {own_name()} runs --suite SUITE",
    )


def _answers(store: Store, info: RunInfo, grader: str) -> list[_Answer]:
    """Every answer that the grader gave a verdict on; their texts are read again when shown."""
    found = []
    with store.reader(info) as reader:
        cases = {case.id: case for case in reader.cases()}
        for result in reader.results():
            end = result.result
            verdicts = [grade for grade in end.grades if grade.grader == grader]
            if verdicts and end.output is not None:
                case = cases[result.case_id]
                found.append(
                    _Answer(
                        case=case,
                        variant=result.variant,
                        repeat=result.repeat,
                        digest=answer_digest(case, end.output.whole),
                        verdict=verdicts[0],
                    )
                )
    return found


def _sample(answers: Sequence[_Answer], given: dict[str, Any]) -> list[_Answer]:
    """Passed and failed ones by turns, then mixed, so that the order tells nothing. A larger sample
    contains the smaller ones."""

    def rank(one: _Answer) -> str:
        return hashlib.blake2b(f"{given['seed']} {one.digest}".encode()).hexdigest()

    ordered = sorted(answers, key=rank)
    passed = [one for one in ordered if one.verdict.passed]
    failed = [one for one in ordered if not one.verdict.passed]
    by_turns = [one for one in chain(*zip_longest(passed, failed)) if one is not None]
    return sorted(by_turns[: given["sample"]], key=rank)


def _texts(store: Store, info: RunInfo, wanted: Iterable[_Answer]) -> dict[str, str]:
    digests = {one.digest: one.case for one in wanted}
    ids = {case.id for case in digests.values()}
    texts: dict[str, str] = {}
    with store.reader(info) as reader:
        cases = {case.id: case for case in reader.cases() if case.id in ids}
        for result in reader.results():
            output = result.result.output
            if result.case_id in ids and output is not None:
                digest = answer_digest(cases[result.case_id], output.whole)
                if digest in digests:
                    texts.setdefault(digest, _as_text(output.whole))
    return texts


# ---- asking in the terminal


def _ask_all(
    store: Store, info: RunInfo, sample: Sequence[_Answer], labels: Labels, grader: str
) -> None:
    """Ask for each answer without a label, until the last one, `quit` or the end of input."""
    known = labels.of(info.suite)
    todo = [one for one in sample if one.label(grader, passed=None).key not in known]
    if not todo:
        talk("Every answer of the sample has a label; a larger --sample has more")
        return
    texts = _texts(store, info, todo)
    done = len(sample) - len(todo)
    at = 0
    while at < len(todo):
        one = todo[at]
        click.echo(_shown(one, texts[one.digest], f"{done + at + 1} of {len(sample)}"))
        said = _asked(grader)
        if said == "quit":
            talk("Saved. Run the same command to continue")
            return
        if said == "undo":
            at = max(0, at - 1)
            labels.add(info.suite, [todo[at].label(grader, passed=None)])
            continue
        if said != "skip":
            labels.add(info.suite, [one.label(grader, passed=said == "pass")])
            click.echo(_compared(one.verdict, said))
        at += 1


def _asked(grader: str) -> str:
    while True:
        question = f"{one_line(grader, _LONGEST_LINE)}: (p)ass, (f)ail, (s)kip, (u)ndo, (q)uit? "
        click.echo(question, nl=False)
        sys.stdout.flush()
        line = sys.stdin.readline() if sys.stdin is not None else ""
        if not sys.stdin or not sys.stdin.isatty():
            click.echo()
        if not line:
            return "quit"
        word = line.strip().lower()
        said = _KEYS.get(word, word)
        if said in _KEYS.values():
            return said
        if word:
            talk(f"'{one_line(word, 40)}' is none of these keys: {', '.join(_KEYS)}")


def _shown(one: _Answer, answer: str, place: str) -> str:
    name = " · ".join(filter(None, (one.case.id, _variant_text(one.variant))))
    parts = [("Input", one.case.input), ("Expected", one.case.expect)]
    parts += [("Context", context_of(one.case, DEFAULT_CONTEXT)), ("Answer", answer or "(empty)")]
    lines = [f"\n--- {place}: {one_line(name, _LONGEST_LINE)}"]
    for heading, value in parts:
        if value is not None:
            text = printable(_as_text(value)[:_LONGEST_SHOWN])
            lines += [f"{heading}:", *(f"  {line}" for line in text.splitlines())]
    return "\n".join(lines)


def _compared(verdict: Grade, said: str) -> str:
    word = "pass" if verdict.passed else "fail"
    agrees = "agrees" if word == said else "disagrees"
    reason = one_line(verdict.reason, _LONGEST_LINE)
    return f"The grader {agrees}: {word}, score {verdict.score:g}. {reason}"


def _variant_text(variant: Variant) -> str:
    return ", ".join(f"{axis}={value_text(value)}" for axis, value in variant.items())


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=1, default=repr)


# ---- CSV files


def _write_csv(
    path: Path,
    store: Store,
    info: RunInfo,
    sample: Sequence[_Answer],
    known: dict[Any, bool],
    grader: str,
) -> None:
    check_place(path)
    texts = _texts(store, info, sample)
    file = io.StringIO(newline="")
    rows = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
    rows.writerow(_COLUMNS)
    for one in sample:
        label = known.get(one.label(grader, passed=None).key)
        word = "" if label is None else "pass" if label else "fail"
        shown = (one.case.input, one.case.expect, texts[one.digest])
        cells = ("" if value is None else inert(_as_text(value)) for value in shown)
        rows.writerow([*one.place, word, *cells])
    write_whole(path, file.getvalue())
    talk(f"Wrote {path}: fill in the column `label` with pass or fail, then read it with --import")


def _read_csv(path: Path, answers: Sequence[_Answer], grader: str) -> Iterator[Label]:
    """The labels of a file; RequestError lists every row that cannot be used."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {path}: {error}") from error
    # Quoted cells may hold line breaks, and other characters that Python takes for them.
    rows = csv.DictReader(io.StringIO(text, newline=""))
    missing = {"case", "label"} - set(rows.fieldnames or ())
    if missing:
        raise RequestError(f"{path}: no column {quoted(sorted(missing))}", hint=_HINT)
    by_place = {one.place: one for one in answers}
    first: dict[str, list[_Answer]] = {}
    for one in answers:
        first.setdefault(one.place[0], []).append(one)
    found, problems = [], []
    for row in rows:
        word = (row["label"] or "").strip().lower()
        if not word:
            continue
        where = f"{path}:{rows.line_num}"
        place = (row["case"] or "", row.get("variant") or "", row.get("repeat") or "1")
        answer = by_place.get(place)
        if answer is None and "variant" not in row and len(first.get(place[0], ())) == 1:
            answer = first[place[0]][0]
        if word not in _PASS | _FAIL:
            problems.append(f"{where}: the label '{one_line(word, 40)}' is neither pass nor fail")
        elif answer is None:
            which = one_line(" · ".join(filter(None, place)), 120)
            problems.append(f"{where}: grader '{grader}' has no verdict on {which}")
        else:
            found.append(answer.label(grader, passed=word in _PASS))
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        tail = [f"and {more:,} more rows"] if more > 0 else []
        raise RequestError("\n".join([*problems[:_MOST_PROBLEMS], *tail]), hint=_HINT)
    return iter(found)


_HINT = "write a file in the right form with: paraval label RUN --export labels.csv"
