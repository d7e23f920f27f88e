"""Excerpts of the files that attempts left in the run's folder, within a page's size limit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from paraval.dataclass import dataclass
from paraval.plain_files import PlainFileError, open_plain_file
from paraval.records import PATCH, Outcome, TrialResult
from paraval.text.words import counted, size

# Untrusted text, as much of it as a page shows, and a note on what is left out.

LONGEST_TEXT = 20_000
"""Characters of an answer, an input or a diff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """An excerpt of raw text: whatever displays it must escape it."""

    text: str
    left_out: str = ""
    """How much is left out; empty if nothing is."""


def beginning(text: str, most: int = LONGEST_TEXT) -> Excerpt:
    if len(text) <= most:
        return Excerpt(text=text)
    more = counted(len(text) - most, "more character")
    return Excerpt(text=text[:most], left_out=more)


def beginning_of_value(value: Any) -> Excerpt | None:
    """Text unchanged, everything else as JSON; None for nothing."""
    if value is None:
        return None
    if isinstance(value, str):
        return beginning(value)
    return beginning(json.dumps(value, ensure_ascii=False, indent=2, default=str))


LONGEST_LOG = 4_000
"""Bytes from the end, where errors are printed."""
_MOST_LOGS = 12
_STREAMS = ("stdout", "stderr")
_BESIDE = ("log", "traceback")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExcerpt:
    """The end of one output stream."""

    name: str
    excerpt: Excerpt


def logs_in(run_folder: str, artifacts: Mapping[str, str]) -> tuple[LogExcerpt, ...]:
    """Those that are not empty; the target's first, then the graders'."""
    names = [name for name in artifacts if is_log(name)]
    found = []
    for name in names[:_MOST_LOGS]:
        excerpt = _excerpt(run_folder, artifacts[name], LONGEST_LOG, from_end=True)
        if excerpt is not None and excerpt.text:
            found.append(LogExcerpt(name=name, excerpt=excerpt))
    return tuple(found)


def is_log(name: str) -> bool:
    """Streams of targets and graders (`tests.stdout`), and files that tests left beside them."""
    return name in _BESIDE or name.rpartition(".")[2] in _STREAMS


def patch_in(run_folder: str, artifacts: Mapping[str, str]) -> Excerpt | None:
    if PATCH not in artifacts:
        return None
    return _excerpt(run_folder, artifacts[PATCH], LONGEST_TEXT, from_end=False)


def _excerpt(run_folder: str, path: str, most: int, *, from_end: bool) -> Excerpt | None:
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
    return Excerpt(text=content.decode(errors="replace"), left_out=told if left else "")


# How much a page may contain, and what is left out if it does not fit.

LARGEST_PAGE = 25_000_000
"""Characters: what browsers still open."""
_SHARE_FOR_SHORT_FORMS = 0.2
"""Reserved for trials that are shown in one line."""
WEIGHT_OF_A_TRIAL = 1_000
"""Characters that an element counts as, however short its text: elements take browser time, too."""
_AROUND_A_TRIAL = 2_500
_HEADING_OF_A_CASE = 1_500
"""Size of a case's heading, without long inputs."""


def expected_size(result: TrialResult) -> int:
    """A trial's approximate size on the page, without reading its files."""
    end = result.result
    answer = 0 if end.output is None else min(len(end.output.text), LONGEST_TEXT)
    logs = sum(LONGEST_LOG for name in end.artifacts if is_log(name))
    patch = LONGEST_TEXT if PATCH in end.artifacts else 0
    return _AROUND_A_TRIAL + answer + patch + logs * max(result.attempts, 1)


def kept_for(result: TrialResult) -> int:
    """What is reserved for a trial that did not pass: itself, and its case if it is the first."""
    return _HEADING_OF_A_CASE + expected_size(result)


class PageBudget:
    """The space left on a page while trials are written to it."""

    def __init__(self, *, largest: int = LARGEST_PAGE, unpassed: int) -> None:
        """`unpassed`: reserved for all trials that did not pass."""
        self._left = largest
        self._for_short_forms = int(largest * _SHARE_FOR_SHORT_FORMS)
        self._unpassed = unpassed

    def take(self, size: int) -> None:
        self._left -= size

    def was_told_in_short(self, size: int) -> None:
        """Release a reservation."""
        self._for_short_forms = max(0, self._for_short_forms - size)

    def came_by(self, result: TrialResult) -> None:
        """An unpassed trial is no longer to come."""
        if result.outcome is not Outcome.PASSED:
            self._unpassed = max(0, self._unpassed - kept_for(result))

    def may_hold_trial(self, result: TrialResult, size: int) -> bool:
        """Whether this trial may be shown in full, in this many characters."""
        return self.may_hold(size, passed=result.outcome is Outcome.PASSED)

    def may_hold(self, size: int, *, passed: bool) -> bool:
        return size <= self._left - self._for_short_forms - self._kept(passed=passed)

    def may_hold_in_short(self, result: TrialResult, size: int) -> bool:
        return size <= self._left - self._kept(passed=result.outcome is Outcome.PASSED)

    def _kept(self, *, passed: bool) -> int:
        """What passed trials leave to those that did not pass."""
        return self._unpassed if passed else 0
