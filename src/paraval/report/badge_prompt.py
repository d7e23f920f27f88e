"""The latest figures in a prompt file's front matter, by the keys that pflow's users know.

`prompt_hash` tells versions of the text apart: with another text the runs begin anew, and what the
version before came to is kept beside them; so they do where nobody noted the text. `test_run` tells
which run was written last, so that no run counts twice.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from paraval.errors import RequestError
from paraval.report.badge_figures import Figures, mean_of, points
from paraval.report.badge_front_matter import FrontMatter, Told, Value, values_in, with_values

MOST_RUNS = 10
_KEYS = ("prompt_hash", "test_run", "test_runs", "average_accuracy", "last_test_cost", "test_model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a file tells of the runs before."""

    prompt_hash: str | None
    """None: nobody noted it."""
    test_run: str | None
    test_runs: tuple[float, ...]
    """In percent."""
    average: float | None
    optional: frozenset[str]
    """Keys that it has, and that are not written where there is nothing to say."""


def known_in(front: FrontMatter) -> Known:
    """RequestError where a key of ours holds something else."""
    told = values_in(front, _KEYS)
    average = _numbers(front, "average_accuracy", told.get("average_accuracy"))
    return Known(
        prompt_hash=_text(told.get("prompt_hash")),
        test_run=_text(told.get("test_run")),
        test_runs=_numbers(front, "test_runs", told.get("test_runs")),
        average=average[0] if average else None,
        optional=frozenset(told) & {"last_test_cost", "test_model"},
    )


def prompt_hash(front: FrontMatter) -> str:
    """Of the text below the front matter: space around lines and empty lines don't count."""
    lines = (line.strip() for line in front.body.split("\n"))
    text = "\n".join(line for line in lines if line)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8]


def has_new_text(front: FrontMatter, known: Known) -> bool:
    return known.prompt_hash is not None and known.prompt_hash != prompt_hash(front)


def has_known_text(front: FrontMatter, known: Known) -> bool:
    """Whether what the file tells is of the text as it is. Where nobody noted the text, it may be
    of any."""
    return known.prompt_hash == prompt_hash(front)


def with_figures(front: FrontMatter, figures: Figures, new_runs: Sequence[Figures]) -> str:
    """The file's text with these figures. `new_runs`: those since the last that it knows, the
    oldest first; the figures' own is the last of them."""
    known = known_in(front)
    is_new = has_new_text(front, known)
    if is_new and known.test_run == figures.run.id:
        raise RequestError(
            f"{front.name}: its text changed since run {figures.run.id}, which was made before",
            hint="run the suite again: its figures are of the text as it was",
        )
    before = known.test_runs if has_known_text(front, known) else ()
    runs = [*before, *(points(one.rate) for one in new_runs)][-MOST_RUNS:]
    values: dict[str, Value] = {
        "latest_accuracy": points(figures.rate),
        "accuracy_interval": [points(bound) for bound in figures.interval],
        "test_runs": runs,
        "average_accuracy": mean_of(runs),
        "test_count": figures.summary.cases,
        "errors": figures.summary.errors,
    }
    if is_new and known.average and known.test_runs:
        values["previous_version_accuracy"] = known.average
    values |= {"last_tested": figures.day, "prompt_hash": prompt_hash(front)}
    optional: dict[str, Value] = {
        "last_test_cost": None if figures.cost_usd is None else round(figures.cost_usd, 6),
        "test_model": figures.model,
    }
    for key, value in optional.items():
        # Nothing to say is said only in the place of what would be wrong now.
        if value is not None or key in known.optional:
            values[key] = value
    values["test_run"] = figures.run.id
    return with_values(front, values)


def _text(told: Told) -> str | None:
    return told if isinstance(told, str) and told else None


def _numbers(front: FrontMatter, key: str, told: Told) -> tuple[float, ...]:
    if told is None:
        return ()
    texts = [told] if isinstance(told, str) else told
    try:
        numbers = tuple(float(text) for text in texts)
    except ValueError:
        numbers = (math.nan,)
    if isinstance(told, dict) or not all(map(math.isfinite, numbers)):
        what = "a list of numbers" if key == "test_runs" else "a number"
        raise RequestError(
            f"{front.name}: '{key}' in its front matter is not {what}",
            hint="mend or remove it by hand; nothing was changed",
        )
    return numbers
