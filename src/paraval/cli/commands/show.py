"""`paraval show`: a case with what was asked, what came back, and why it passed or failed."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import groupby
from shlex import quote
from typing import Any

import click

from paraval.cli.options import (
    axes_and_values,
    has_values,
    json_option,
    no_match,
    run_argument,
    store_option,
)
from paraval.cli.output import own_name, print_shown
from paraval.codec import shown
from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import PATCH, Case, Outcome, RunInfo, TrialResult
from paraval.report.page.trials import logs_in
from paraval.report.reasons import EMPTY_ANSWER, reason, without_text
from paraval.report.summary.attempt_lines import deeds_in_lines, end_as_dict
from paraval.report.summary.costs import seconds_to_verdict, spend_of, told_usd
from paraval.report.transcript import (
    Conversation,
    Turn,
    conversations_of,
    exchanges_data,
    main_text,
    stop_reason,
)
from paraval.runner.run import open_store
from paraval.settings import Options, is_race
from paraval.store.reader import RunReader
from paraval.text.tables import Page
from paraval.text.terminal import columns
from paraval.text.words import counted, duration, money, variant_label

MOST_LISTED = 40
MOST_CASES = 10
"""How many cases a pattern may match before a list is better."""
LINES_OF_A_TEXT = 20
LINES_OF_A_RESULT = 6
"""How much is shown without --full, of texts and of what tools returned."""
MOST_ERRORS = 5
"""Of retries, by how often they occurred."""
LINES_TO_REPEAT = 3
LONG_TEXT = 240
"""Lines, or characters, from which on a text is not repeated for each variant."""
_MARK = re.compile(r"\bdata-[0-9a-f]{16}\b")
"""Encloses what a judge judges: another one for each answer, also in the judge's instructions."""
_SIGNS = {Outcome.PASSED: "✓", Outcome.FAILED: "✗", Outcome.SKIPPED: "–"}
_STYLES = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.SKIPPED: "dim"}


@click.command("show")
@run_argument
@click.option("--case", "case", metavar="GLOB", help="The case to show, by its id.")
@click.option("--variant", "variants", multiple=True, metavar="AXIS=VALUE", help="Only this value.")
@click.option("--repeat", type=int, help="Only this repeat.")
@click.option("--full", is_flag=True, help="Don't shorten long texts.")
@store_option
@json_option
def show_command(run: str, *, full: bool, as_json: bool, **given: Any) -> None:
    """Show a case of a RUN: input and expectation, and for each variant the outcome with every
    grader's reason, what was sent, the answer, and an agent's transcript.

    Without --case, list the cases, those that did not pass first. RUN is an id, the start of an id,
    `last` (the default) or `last~1` for the one before it.
    """
    opened = open_store(Options(store=given["store"]))
    info = opened.find(run)
    if is_race(opened.selection(info)):
        raise RequestError(
            f"run {info.id} is a race: it has candidates, not cases",
            hint=f"see {own_name()} report {info.id}",
        )
    wanted = _TrialFilter(axes_and_values(given["variants"]), given["repeat"])
    pattern: str | None = given["case"]
    with opened.reader(info) as reader:
        found = list(_shown_cases(reader, pattern, wanted))
        if not found:
            raise no_match(reader, pattern, wanted.choices, "trial")
        if as_json:
            rows = [row for one in found for row in _as_rows(one, reader)]
            click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        elif pattern is None or len(found) > MOST_CASES:
            print_shown(lambda page: "\n".join(_list_lines(found, info, page)))
        else:
            print_shown(
                lambda page: "\n".join(
                    line for one in found for line in _CaseText(page, reader, full).case_lines(one)
                ).rstrip()
            )


@dataclass(frozen=True, slots=True)
class _TrialFilter:
    choices: tuple[tuple[str, str], ...]
    repeat: int | None

    def fits(self, trial: TrialResult) -> bool:
        return self.repeat in (None, trial.repeat) and has_values(trial.variant, self.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShownCase:
    case: Case
    trials: Sequence[TrialResult]


def _shown_cases(
    reader: RunReader, pattern: str | None, wanted: _TrialFilter
) -> Iterator[_ShownCase]:
    trials: dict[str, list[TrialResult]] = {}
    for trial in reader.results(case=pattern):
        if wanted.fits(trial):
            trials.setdefault(trial.case_id, []).append(trial)
    for case in reader.cases():
        if case.id in trials:
            yield _ShownCase(case=case, trials=trials[case.id])


def _as_rows(shown_case: _ShownCase, reader: RunReader) -> Iterator[dict[str, Any]]:
    case = shown_case.case
    for trial in shown_case.trials:
        yield {
            "index": trial.index,
            "case": trial.case_id,
            "input": shown(case.input),
            "expect": shown(case.expect),
            "tags": list(case.tags),
            "variant": dict(trial.variant),
            "repeat": trial.repeat,
            "outcome": trial.outcome,
            "reason": reason(trial.result),
            **end_as_dict(trial.result),
            "exchanges": exchanges_data(reader.exchanges(trial.index)),
        }


# ---- the list


def _list_lines(found: Sequence[_ShownCase], info: RunInfo, page: Page) -> Iterator[str]:
    def missed(one: _ShownCase) -> int:
        return sum(trial.outcome is not Outcome.PASSED for trial in one.trials)

    ordered = sorted(found, key=lambda one: -missed(one))
    names = [page.cut_middle(page.quote(one.case.id), 32) for one in ordered[:MOST_LISTED]]
    width = max(map(columns, names))
    for name, one in zip(names, ordered, strict=False):
        chips = " ".join(
            page.paint(f"{_sign(trial, page)} {_label(trial, page)}".rstrip(), _style(trial))
            for trial in one.trials[:6]
        )
        more = f" +{len(one.trials) - 6}" if len(one.trials) > 6 else ""
        snippet = page.quote(main_text(one.case.input), 60)
        yield f"{name}{' ' * (width - columns(name))}  {chips}{more}  {page.paint(snippet, 'dim')}"
    if (more_cases := len(ordered) - MOST_LISTED) > 0:
        yield f"and {counted(more_cases, 'more case')}; choose with --case GLOB"
    yield ""
    first = ordered[0].case.id
    yield page.quote(f"To see one: {own_name()} show {info.id} --case {quote(first)}", 300)


# ---- one case


@dataclass(frozen=True, slots=True)
class _CaseText:
    """Writes a case for a page."""

    page: Page
    reader: RunReader
    full: bool
    requests: dict[tuple[Turn, ...], str] = field(default_factory=dict)
    """Those that were written, with the variant that each was sent for."""
    long_turns: set[tuple[str, str]] = field(default_factory=set)
    """Role and text."""

    def case_lines(self, one: _ShownCase) -> Iterator[str]:
        case = one.case
        tags = f"  [{', '.join(case.tags)}]" if case.tags else ""
        yield self.page.paint(self.page.quote(f"{case.id}{tags}"), "bold")
        yield from self._titled("input", _text_of(case.input))
        if isinstance(case.input, str) and _is_long(case.input):
            self.long_turns.update((role, case.input) for role in ("user", "prompt", "stdin"))
        if case.expect is not None:
            yield from self._titled("expected", _text_of(case.expect))
        for _, repeats in groupby(one.trials, key=lambda trial: variant_label(trial.variant)):
            for trial in _folded(list(repeats), full=self.full):
                yield ""
                yield from self._trial_lines(trial)
        yield ""

    def _trial_lines(self, trial: TrialResult) -> Iterator[str]:
        page, result = self.page, trial.result
        spend = told_usd(spend_of(trial))
        head = [
            f"{_sign(trial, page)} {_label(trial, page) or trial.outcome}".strip(),
            *([str(trial.outcome)] if _label(trial, page) else []),
            duration(seconds_to_verdict(trial) or trial.time_s) if trial.attempts else "",
            "" if spend is None else money(spend),
            counted(trial.attempts, "attempt") if trial.attempts > 1 else "",
        ]
        yield page.paint(" · ".join(part for part in head if part), _style(trial) or "bold")
        if result.error is not None:
            yield from self._indented(result.error.message)
        for (kind, message), number in Counter(
            (str(error.kind).replace("_", " "), error.message) for error in trial.retry_errors
        ).most_common(MOST_ERRORS):
            yield from self._indented(f"retried: {number:,} × {kind}: {message}")
        conversations = conversations_of(self.reader.exchanges(trial.index), result)
        label = _label(trial, page) or "above"
        for conversation in conversations:
            if not conversation.by:
                yield from self._conversation_lines(conversation, label)
        for line in deeds_in_lines(result.activity, result.change):
            yield from self._indented(line)
        if PATCH in result.artifacts:
            command = f"{own_name()} diff {self.reader.info().id} --case {quote(trial.case_id)}"
            yield from self._indented(f"patch: {command}")
        if result.output is not None:
            why = stop_reason(result)
            text = result.output.text or without_text(result) or EMPTY_ANSWER
            yield from self._titled(f"answer{f' (stop reason: {why})' if why else ''}", text, "  ")
        yield from self._grade_lines(trial)
        for conversation in conversations:
            if conversation.by:
                yield from self._conversation_lines(conversation, label)

    def _grade_lines(self, trial: TrialResult) -> Iterator[str]:
        page, result = self.page, trial.result
        for grade in result.grades:
            sign, style = ("✓", "green") if grade.passed else ("✗", "red")
            score = "" if grade.score in (0.0, 1.0) else f" {grade.score:.3g}"
            start = f"  {page.paint(sign if page.unicode else '+-'[sign == '✗'], style)} "
            why = grade.reason or ("passed" if grade.passed else "failed")
            yield from page.wrapped(page.quote(f"{grade.grader}{score}: {why}", 2000), start)
        if trial.outcome in (Outcome.FAILED, Outcome.GRADER_ERROR):
            yield from self._grader_logs(trial)
        for note in result.notes:
            yield from self._indented(f"note: {note}")

    def _grader_logs(self, trial: TrialResult) -> Iterator[str]:
        """The end of what graders printed, unless they passed or printed only their reason."""
        passed = [grade.grader for grade in trial.result.grades if grade.passed]
        info, why = self.reader.info(), reason(trial.result)
        for name, log in logs_in(info.folder, trial.result.artifacts):
            grader = name.rpartition(".")[0]
            lines = log.text.strip().split("\n")
            if lines[-1].startswith('{"') or lines[-1].strip() in why:
                lines = "\n".join(lines[:-1]).rstrip().split("\n")
            if not grader or grader in passed or lines == [""]:
                continue
            all_of_it = f"{own_name()} logs {info.id} --case {quote(trial.case_id)}"
            yield from self._indented(f"end of {name} ({all_of_it})", "cyan")
            yield from self._text_lines("\n".join(lines[-LINES_OF_A_TEXT:]), "    ", len(lines))

    def _conversation_lines(self, told: Conversation, label: str) -> Iterator[str]:
        about = " · ".join(part for part in (told.to, told.options) if part)
        heading = f"sent to judge '{told.by}'" if told.by else "sent"
        heading += f" ({about})" if about else ""
        offered = [Turn(role="tools", text="\n".join(told.tools))] if told.tools else []
        sent = (*told.sent, *offered)
        if sent in self.requests:
            same = self.requests[sent]
            yield from self._indented(f"{heading}: the same as with {same}", "dim")
        else:
            self.requests[sent] = label
            yield f"  {self.page.paint(self.page.quote(heading, 500), 'cyan')}"
            for turn in sent:
                text = _MARK.sub("", turn.text)
                if (turn.role, text) in self.long_turns:
                    same = self.page.quote(f"{turn.role}: as above", 100)
                    yield f"    {self.page.paint(same, 'dim')}"
                    continue
                yield from self._turn_lines(turn)
                if _is_long(text):
                    self.long_turns.add((turn.role, text))
        if told.transcript:
            yield f"  {self.page.paint(told.transcript_title, 'cyan')}"
            for turn in told.transcript:
                yield from self._turn_lines(turn)

    def _turn_lines(self, turn: Turn) -> Iterator[str]:
        note = f" ({turn.note})" if turn.note else ""
        failed = " failed" if turn.failed else ""
        most = LINES_OF_A_RESULT if turn.role in ("result", "tool") else LINES_OF_A_TEXT
        role = self.page.quote(f"{turn.role}{note}{failed}", 100)
        lines = list(self._text_lines(turn.text, " " * 6, most))
        if len(lines) == 1 and columns(role) + columns(lines[0]) < self.page.width:
            yield f"    {self.page.paint(role, 'dim')} {lines[0].strip()}"
            return
        yield f"    {self.page.paint(role, 'dim')}"
        yield from lines

    def _titled(self, title: str, text: str, before: str = "") -> Iterator[str]:
        yield f"{before}{self.page.paint(self.page.quote(title), 'cyan')}"
        yield from self._text_lines(text, f"{before}  ", LINES_OF_A_TEXT)

    def _indented(self, text: str, style: str = "") -> Iterator[str]:
        for line in self.page.wrapped(self.page.quote(text, 4000), "  "):
            yield self.page.paint(line, style)

    def _text_lines(self, text: str, before: str, most: int) -> Iterator[str]:
        lines = [
            piece
            for line in (text.split("\n") if text else [""])
            for piece in self._broken(self.page.verbatim(line).expandtabs(4), before)
        ]
        cut = len(lines) > most + 1 and not self.full
        for line in lines[:most] if cut else lines:
            yield f"{before}{line}".rstrip()
        if cut:
            left = f"{self.page.ellipsis} {counted(len(lines) - most, 'more line')}; --full"
            yield f"{before}{self.page.paint(left, 'dim')}"

    def _broken(self, line: str, before: str) -> list[str]:
        """A line in pieces that fit; on a pipe, as it is."""
        if not sys.stdout.isatty() or columns(line) <= self.page.width - len(before):
            return [line]
        return [piece.strip() for piece in self.page.wrapped(line, before)]


def _folded(repeats: list[TrialResult], *, full: bool) -> list[TrialResult]:
    """Of repeats with the same outcome and reason, the first."""
    if full:
        return repeats
    kept: dict[tuple[Outcome, str], TrialResult] = {}
    for trial in repeats:
        kept.setdefault((trial.outcome, reason(trial.result)), trial)
    return list(kept.values())


def _sign(trial: TrialResult, page: Page) -> str:
    sign = _SIGNS.get(trial.outcome, "!")
    return sign if page.unicode else {"✓": "+", "✗": "x", "–": "-"}.get(sign, sign)


def _style(trial: TrialResult) -> str:
    return _STYLES.get(trial.outcome, "yellow")


def _label(trial: TrialResult, page: Page) -> str:
    repeat = f"#{trial.repeat}" if trial.repeat > 1 else ""
    name = " ".join(part for part in (variant_label(trial.variant), repeat) if part)
    return page.cut_middle(page.quote(name), 60)


def _is_long(text: str) -> bool:
    return text.count("\n") >= LINES_TO_REPEAT or len(text) >= LONG_TEXT


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
