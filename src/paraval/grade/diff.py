"""The grader of an attempt's changes in its workspace: by amount, by path and glob, and by
similarity to a patch.

If the changes are not fully known, the known part may exceed a limit, but never proves that it is
kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from paraval.grade.grader import CannotGrade, Subject
from paraval.records import Change, Grade, GraderSpec
from paraval.text.words import some

# Matching of paths against globs, by the rules of git's ignore files.


def fits_any(path: str, globs: Iterable[str]) -> bool:
    return any(fits(path, glob) for glob in globs)


def fits(path: str, glob: str) -> bool:
    """Whether the path, or a folder that contains it, matches the glob."""
    parts = path.split("/")
    written = glob.removeprefix("./")
    # A pattern that ends in a slash is a folder, so never the last part of a file's path.
    below = parts[:-1] if written.endswith("/") else parts
    steps = [step for step in written.split("/") if step]
    if steps and "/" not in written.rstrip("/"):
        steps = ["**", *steps]
    return bool(steps) and _leads_into(below, steps)


def _leads_into(parts: Sequence[str], steps: Sequence[str]) -> bool:
    """Whether the steps match a beginning of the parts.

    The reached positions are a set, so many `**` on a long path cost no more than a table.
    """
    reached = {0}
    for number, step in enumerate(steps):
        if step == "**":
            # At the end, it matches everything in the folder, but not the folder itself.
            least = min(reached) + (number == len(steps) - 1)
            reached = set(range(least, len(parts) + 1))
        else:
            reached = {
                place + 1
                for place in reached
                if place < len(parts) and fnmatchcase(parts[place], step)
            }
        if not reached:
            return False
    return True


# Patches, compared by their lines.

PATCH_CHARACTERS = 20_000_000
"""Of a longer patch, the beginning is compared."""


def patch_in(expect: Any) -> str:
    """The patch in a case's `expect`; empty if there is none."""
    found = expect.get("patch") if isinstance(expect, Mapping) else expect
    return found if isinstance(found, str) else ""


def changed_lines(patch: str) -> Counter[tuple[str, str, str]]:
    """Count a patch's added and deleted lines, by file and sign; whitespace does not matter."""
    lines: Counter[tuple[str, str, str]] = Counter()
    path, is_hunk = "", False
    for line in patch.split("\n"):
        if line.startswith("diff --git "):
            is_hunk = False
        elif line.startswith("@@"):
            is_hunk = True
        elif not is_hunk and line.startswith(("--- a/", "+++ b/")):
            path = line[6:].strip()
        elif is_hunk and line[:1] in ("+", "-") and (words := " ".join(line[1:].split())):
            lines[path, line[0], words] += 1
    return lines


def similarity(one: str, other: str) -> float:
    """The share of two patches' changed lines that both have, from 0 to 1."""
    first, second = changed_lines(one), changed_lines(other)
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 1.0


def _text_of(patch: str | None) -> str:
    if patch is None:
        return ""
    with open(patch, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a str
        return file.read(PATCH_CHARACTERS)


LISTED_PATHS = 3


class DiffGrader:
    """The change is within its limits, and `.git` was not touched."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options

    async def grade(self, subject: Subject) -> Grade:
        change = subject.change
        if change is None:
            raise CannotGrade("no changes to check: the attempt had no workspace")
        problems = [*_tampering(change), *_amounts(change, self._options)]
        problems += _places(change, self._options, is_decided=bool(problems))
        if change.unknown is not None and not problems:
            raise CannotGrade(f"its changes are not fully known: {change.unknown}")
        score, least = 0.0 if problems else 1.0, self._options.get("similar")
        reason = "; ".join(problems) or _summary(change)
        if least is not None and not problems:
            score = similarity(patch_in(subject.case.expect), _text_of(subject.patch))
            reason = f"similarity {score:.2f}, needs {least:g}; {reason}"
        passed = not problems and (least is None or score >= least)
        return Grade(score=score, passed=passed, reason=reason, grader=self.name)


def _tampering(change: Change) -> Iterator[str]:
    if change.tampering:
        yield f"it tampered with .git: {_listed(change.tampering)}"


def _amounts(change: Change, options: Mapping[str, Any]) -> Iterator[str]:
    files, lines = change.files_in_all, change.lines_added + change.lines_deleted
    most_files, most_lines = options.get("max_files"), options.get("max_lines")
    if most_files is not None and files > most_files:
        yield f"{_count(files, 'file')} changed, at most {most_files} allowed"
    if most_lines is not None and lines > most_lines:
        yield f"{_count(lines, 'line')} added and deleted, at most {most_lines} allowed"
    if options.get("empty") is True and files:
        yield f"{_count(files, 'file')} changed, none allowed: {_first_paths(change)}"
    if options.get("empty") is False and not files and change.unknown is None:
        yield "nothing changed"
    if options.get("flagged") is False and change.flagged:
        yield f"it touched files of the grading: {_listed(change.flagged)}"
    if options.get("binary") is False and change.binary_files:
        binary = [file.path for file in change.files if file.binary]
        names = f": {_listed(binary)}" if binary else ""
        yield f"{_count(change.binary_files, 'binary file')} changed, none allowed{names}"


def _places(change: Change, options: Mapping[str, Any], *, is_decided: bool) -> Iterator[str]:
    """Yield violations of path rules. Only the first of very many files are listed: then there is
    no verdict, unless there is one already."""
    only, never = options.get("only"), options.get("not")
    paths = [file.path for file in change.files]
    outside = [path for path in paths if only is not None and not fits_any(path, only)]
    forbidden = [path for path in paths if never is not None and fits_any(path, never)]
    if outside:
        yield f"changed {_listed(outside)}, but may change only {_listed(only or ())}"
    if forbidden:
        yield f"changed {_listed(forbidden)}, which is not allowed"
    if (only or never) and not (outside or forbidden or is_decided):
        unseen = change.files_in_all - len(paths)
        if unseen > 0:
            raise CannotGrade(
                f"{change.files_in_all} files changed, and the last {unseen} are not listed, so"
                " they cannot be checked; max_files would have failed this"
            )


def _summary(change: Change) -> str:
    if not change.files_in_all:
        return "nothing changed"
    added, deleted = change.lines_added, change.lines_deleted
    return f"{_count(change.files_in_all, 'file')} changed, +{added} -{deleted}"


def _first_paths(change: Change) -> str:
    return _listed([file.path for file in change.files])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(items: Sequence[str]) -> str:
    return some(items, LISTED_PATHS)
