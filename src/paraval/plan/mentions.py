"""What `mentions` looks for: in the grader's own words, or in what a case expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paraval.plan.grader_forms import MentionsForm
from paraval.plan.places import Spot, shown

LOOKED_FOR = ("files", "symbols", "lines", "content")


def check_mentions(form: MentionsForm, spot: Spot) -> None:
    """Tells of what every answer mentions."""
    for key in ("files", "symbols", "content"):
        for number, text in enumerate(getattr(form, key)):
            if not text.strip():
                spot.at(key, number).report("is empty, and every answer mentions that")


def mentions_problem(options: Mapping[str, Any], expect: Any) -> str | None:
    """What is wrong with a case's `expect` for this grader."""
    has_its_own = any(options.get(key) for key in LOOKED_FOR)
    truth = expect
    if isinstance(truth, Mapping) and isinstance(truth.get("ground_truth"), Mapping):
        truth = truth["ground_truth"]
    if not isinstance(truth, Mapping):
        return None if has_its_own else f"{_WANTED} in expect, not {shown(expect)}"
    for key in LOOKED_FOR:
        problem = _part_problem(key, truth.get(key))
        if problem:
            return problem
    if has_its_own or any(truth.get(key) for key in LOOKED_FOR):
        return None
    return f"{_WANTED} in expect, and finds nothing to look for in {shown(expect)}"


_WANTED = "a mapping of files, symbols, lines or content"


def _part_problem(key: str, value: Any) -> str | None:
    if value is None:
        return None
    if key != "lines":
        fits = isinstance(value, list | tuple) and all(_is_text(item) for item in value)
        return None if fits else f"a list of texts in expect.{key}, not {shown(value)}"
    fits = isinstance(value, Mapping) and all(
        _is_text(path) and isinstance(lines, list | tuple) and all(map(_is_line, lines))
        for path, lines in value.items()
    )
    wanted = "a mapping of files to lists of line numbers in expect.lines"
    return None if fits else f"{wanted}, not {shown(value)}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_line(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
