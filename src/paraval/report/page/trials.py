"""A trial on the page: its line, what unfolds below it, and what its attempts left on disk.

Templates read the records; this module has what they cannot say themselves.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, NamedTuple

from paraval.plain_files import PlainFileError, open_plain_file
from paraval.records import PATCH, AttemptResult, Outcome, TrialResult
from paraval.report.reasons import reason
from paraval.report.summary.attempt_lines import deeds_in_lines
from paraval.report.summary.costs import is_known, seconds_to_verdict, spend_of, told_usd
from paraval.text.words import counted, duration, money, size

# ---- how it ended

SIGNS = {"pass": "✓", "wrong": "✗", "error": "!", "skip": "\N{EN DASH}"}


def kind_of(outcome: Outcome | None) -> str:
    """pass, wrong, error or skip: a CSS class, which also selects the sign."""
    if outcome is Outcome.PASSED:
        return "pass"
    if outcome is Outcome.FAILED:
        return "wrong"
    return "skip" if outcome is Outcome.SKIPPED else "error"


def outcome_words(result: TrialResult) -> str:
    """Of a run in progress, trials without a result are not skipped."""
    error = result.result.error
    if result.outcome is Outcome.SKIPPED and error is not None:
        for start, word in (("still running", "running"), ("not run yet", "waiting")):
            if error.message.startswith(start):
                return word
    return result.outcome.value.replace("_", " ")


def figures(result: TrialResult) -> str:
    """`1.2 s · $0.012`: time and cost, as far as there are any."""
    spend = spend_of(result)
    cost, known = "", told_usd(spend)
    if spend is not None and known is not None:
        cached = " (cached)" if spend.cached and not spend.calls else ""
        cost = money(known) + "+" * (not is_known(spend)) + cached
    is_timed = result.outcome is not Outcome.SKIPPED or result.total_s
    took = duration(seconds_to_verdict(result) or result.time_s) if is_timed else ""
    return " · ".join(filter(None, (took, cost)))


def why(result: TrialResult) -> str:
    """Empty if it passed."""
    return "" if result.outcome is Outcome.PASSED else reason(result.result)


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"


# ---- texts, as much of them as a page shows

LONGEST_TEXT = 20_000
"""Characters of an answer, an input or a diff."""
LONGEST_LOG = 4_000
"""Bytes from the end, where errors are printed."""
_MOST_LOGS = 12
_STREAMS = ("stdout", "stderr")
_BESIDE = ("log", "traceback")


class Excerpt(NamedTuple):
    """Raw text: whatever displays it must escape it."""

    text: str
    left_out: str = ""
    """How much is left out; empty if nothing is."""


def excerpt(value: Any, most: int = LONGEST_TEXT) -> Excerpt:
    """The beginning of a text; of everything else, as JSON."""
    text = value
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    more = len(text) - most
    return Excerpt(text[:most], counted(more, "more character") if more > 0 else "")


def is_log(name: str) -> bool:
    """Streams of targets and graders (`tests.stdout`), and files that tests left beside them."""
    return name in _BESIDE or name.rpartition(".")[2] in _STREAMS


def logs_in(run_folder: str, artifacts: Mapping[str, str]) -> tuple[tuple[str, Excerpt], ...]:
    """The ends of those that are not empty, by name; the target's first, then the graders'."""
    names = [name for name in artifacts if is_log(name)]
    found = [
        (name, _read(run_folder, artifacts[name], LONGEST_LOG, from_end=True))
        for name in names[:_MOST_LOGS]
    ]
    return tuple((name, one) for name, one in found if one is not None and one.text)


def patch_in(run_folder: str, artifacts: Mapping[str, str]) -> Excerpt | None:
    if PATCH not in artifacts:
        return None
    return _read(run_folder, artifacts[PATCH], LONGEST_TEXT, from_end=False)


def _read(run_folder: str, path: str, most: int, *, from_end: bool) -> Excerpt | None:
    """None if there is no such readable file."""
    try:
        descriptor = open_plain_file(path, within=run_folder)
    except PlainFileError:
        return None
    try:
        whole = os.fstat(descriptor).st_size
        content = os.pread(descriptor, most, max(0, whole - most) if from_end else 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    left = whole - len(content)
    told = f"the last {size(most)}" if from_end else f"{size(left)} more"
    return Excerpt(content.decode(errors="replace"), told if left else "")


def own_logs(end: AttemptResult, run_folder: str) -> Iterator[tuple[str, Excerpt]]:
    """A program's answer is what it printed: once is enough."""
    answer = "" if end.output is None else end.output.text.strip()
    for name, log in logs_in(run_folder, end.artifacts):
        if not answer or log.text.strip() != answer:
            yield name, log


def deeds(end: AttemptResult) -> Iterator[str]:
    if end.node is not None:
        yield f"node: {end.node}"
    if end.exit_code:
        yield f"exit code: {end.exit_code}"
    yield from deeds_in_lines(end.activity, end.change)


# ---- what differs: lines of a patch, and words of an answer


class DiffPiece(NamedTuple):
    """Consecutive lines, or words, of the same kind."""

    kind: str
    """`add`, `del`, `head`, `at`; empty: unchanged."""
    text: str


_HEADS = ("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode")
MOST_WORDS = 5_000
_LEAST_ALIKE = 0.5
"""Share of words in common; texts with less differ everywhere, and marks would only be noise."""
_WORD = re.compile(r"\s*(?:\w+|[^\w\s])|\s+\Z")


def pieces(patch: str) -> Iterator[DiffPiece]:
    # Not by `splitlines`: in a changed file a form feed ends no line.
    for kind, group in groupby(re.findall(r"[^\n]*\n|[^\n]+", patch), key=_line_kind):
        yield DiffPiece(kind, "".join(group))


def _line_kind(line: str) -> str:
    if line.startswith(_HEADS):
        return "head"
    return "at" if line.startswith("@@") else {"+": "add", "-": "del"}.get(line[:1], "")


def marked_words(text: str, reference: str) -> tuple[DiffPiece, ...] | None:
    """The text in pieces: `add` is not in the reference, `del` is only there, the rest is in both.

    Empty if they are the same or have too little in common; None if they are too long to compare.
    """
    if text == reference:
        return ()
    new, old = _WORD.findall(text), _WORD.findall(reference)
    if max(len(new), len(old)) > MOST_WORDS:
        return None
    matcher = SequenceMatcher(None, [word.strip() for word in old], [word.strip() for word in new])
    if matcher.ratio() < _LEAST_ALIKE:
        return ()
    found: list[DiffPiece] = []
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag in ("delete", "replace"):
            found += _apart("del", "".join(old[start:end]))
        if new_start < new_end:
            found += _apart("" if tag == "equal" else "add", "".join(new[new_start:new_end]))
    return tuple(found)


def _apart(kind: str, text: str) -> Iterator[DiffPiece]:
    """The space before words is not marked with them."""
    words = text.lstrip()
    if space := text[: len(text) - len(words)]:
        yield DiffPiece("", space)
    if words:
        yield DiffPiece(kind, words)
