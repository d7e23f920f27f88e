"""A run's badge: the pass rate with its interval, sample size and cost; as a JSON file, with the
fields that shields.io requires of an endpoint.

Callers pass only complete runs, never an outage. shields.io accepts only its own fields: a badge
with more is drawn as "invalid properties". So a file named `.shields.json` has only those; any
other `.json` has all, for programs, and for badges drawn from one field of a file.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import partial
from statistics import fmean
from typing import Any

import yaml

from paraval.codec import finite
from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import RunInfo, value_text
from paraval.report.formats.json import moment
from paraval.report.summary.costs import seconds
from paraval.report.summary.summary import Summary
from paraval.text.terminal import one_line, well_formed
from paraval.text.words import percent, percent_range

MODEL_AXIS = "model"
SHIELDS_ENDING = ".shields.json"
_LONGEST_LABEL = 60
_COLORS = (
    (0.95, "brightgreen"),
    (0.9, "green"),
    (0.85, "yellowgreen"),
    (0.7, "yellow"),
    (0.5, "orange"),
)
"""Minimum pass rates of the colors; below all, red."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadgeFigures:
    """The latest figures of a suite, or of one of its variants."""

    run: RunInfo
    summary: Summary
    """Of judged trials, at least one."""
    choice: Mapping[str, str] = field(default_factory=dict)
    """Axis -> value, if a variant was selected."""

    @property
    def rate(self) -> float:
        assert self.summary.pass_rate is not None, "something was judged"
        return self.summary.pass_rate

    @property
    def interval(self) -> tuple[float, float]:
        assert self.summary.pass_rate_interval is not None, "something was judged"
        return self.summary.pass_rate_interval

    @property
    def message(self) -> str:
        """`92% (85–96%)`."""
        return f"{percent(self.rate)} ({percent_range(*self.interval)})"

    @property
    def cost_usd(self) -> float | None:
        """Judges included; None if some of it is unknown: a part is not the cost."""
        summary = self.summary
        partly = summary.target.is_partly_unknown or summary.judging.is_partly_unknown
        return None if partly else summary.total_cost_usd

    @property
    def model(self) -> str | None:
        """If there is only one."""
        chosen = self.choice.get(MODEL_AXIS)
        if chosen is not None:
            return chosen
        models = {
            value_text(one.variant[MODEL_AXIS]) if MODEL_AXIS in one.variant else None
            for one in self.summary.variants
        }
        return models.pop() if len(models) == 1 else None

    @property
    def day(self) -> str:
        """`2026-01-31`, in UTC."""
        return f"{datetime.fromtimestamp(self.run.started_at, UTC):%Y-%m-%d}"


def points(share: float) -> float:
    """In percent, to one decimal; 0 and 100 only if exact."""
    value = round(share * 100, 1)
    return value if share in (0, 1) else min(max(value, 0.1), 99.9)


def mean_of(accuracies: Sequence[float]) -> float:
    """Of percentages, with the same rule."""
    return points(fmean(accuracies) / 100)


# ---- as a JSON file


def badge_json(figures: BadgeFigures, *, for_shields: bool) -> str:
    told = shields_fields(figures)
    if not for_shields:
        told |= _figures(figures)
    return json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def shields_fields(figures: BadgeFigures) -> dict[str, Any]:
    """As https://shields.io/badges/endpoint-badge defines them."""
    colors = (color for least, color in _COLORS if figures.rate >= least)
    return {
        "schemaVersion": 1,
        "label": one_line(figures.run.suite, _LONGEST_LABEL) or "pass rate",
        "message": figures.message,
        "color": next(colors, "red"),
    }


def is_badge(text: str) -> bool:
    """Whether a file is a badge that may be replaced by another."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("schemaVersion") == 1 and "message" in told


def _figures(figures: BadgeFigures) -> dict[str, Any]:
    summary = figures.summary
    return {
        "suite": well_formed(figures.run.suite),
        "run": well_formed(figures.run.id),
        "variant": {well_formed(axis): well_formed(v) for axis, v in figures.choice.items()},
        "last_tested": moment(figures.run.started_at),
        "pass_rate": figures.rate,
        "pass_rate_interval": figures.interval,
        "cases": summary.cases,
        "trials": summary.trials,
        "passed": summary.passed,
        "failed": summary.failed,
        "errors": summary.errors,
        "rate_if_errors_failed": summary.rate_if_errors_failed,
        "rate_if_errors_passed": summary.rate_if_errors_passed,
        "cost_usd": finite(figures.cost_usd),
        "median_s": seconds(summary.median_s),
        "model": None if figures.model is None else well_formed(figures.model),
    }


# YAML front matter between two lines of `---`: read, and edited in place.

MOST_CHARACTERS = 32_000
"""Maximum length of front matter; anything longer is not, and would be slow to read."""
_START = re.compile(r"---[ \t]*(?:\r?\n|\Z)")
_END = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE)
_FIRST_LINE_END = re.compile(r"\r?\n")
_VALUE = (
    r"""([ \t]*?)(?:'[^'\r\n]*'|"[^"\r\n]*"|[^\s#'"][^\r\n#'"]*?)?([ \t]+\#[^\r\n]*)?"""
    r"""(?:\r?\n(?:[ \t]+[^\s\#]|-[ \t])[^\r\n]*)*(?=\r?$)"""
)
"""On the key's line, with its comment, and on following lines that are indented or list items."""
_NULL = "tag:yaml.org,2002:null"
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """A text in three parts."""

    name: str
    """The file's name, for messages."""
    head: str
    """Up to the front matter; empty if there is none yet."""
    yaml: str
    tail: str
    """From the line that ends it on; the whole text if there is none."""
    newline: str

    @property
    def body(self) -> str:
        """The text below."""
        return _END.sub("", self.tail, count=1) if self.head else self.tail

    @property
    def is_there(self) -> bool:
        return bool(self.head)


def read_front_matter(text: str, name: str) -> FrontMatter:
    """RequestError if it begins and does not end, or is too long."""
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    rest = text.removeprefix(mark)
    line_end = _FIRST_LINE_END.search(rest)
    newline = "\n" if line_end is None else line_end[0]
    start = _START.match(rest)
    if start is None:
        return FrontMatter(name=name, head="", yaml="", tail=text, newline=newline)
    end = _END.search(rest, start.end())
    if end is None:
        raise RequestError(
            f"{name}: its front matter starts in line 1 and has no end",
            hint="end it with a line of three dashes (---), or start the text with another line",
        )
    if end.start() - start.end() > MOST_CHARACTERS:
        most = f"{MOST_CHARACTERS:,} characters"
        raise RequestError(f"{name}: its front matter is longer than {most}")
    return FrontMatter(
        name=name,
        head=mark + start[0],
        yaml=rest[start.end() : end.start()],
        tail=rest[end.start() :],
        newline=newline,
    )


Value = str | float | None | Sequence[float]
Told = str | None | list[str] | dict[str, str]
"""A value as written: a scalar's text, None for null, a list of such texts. Of mappings only their
presence is known, since our keys never have one."""


def values_in(front: FrontMatter, keys: Collection[str]) -> dict[str, Told]:
    """The values of these keys, if present."""
    return {key: _told(value) for key, value in _items(front).items() if key in keys}


def with_values(front: FrontMatter, values: Mapping[str, Value]) -> str:
    """The text with these values at these keys; unchanged values are left alone."""
    there = _items(front)
    edited = front.yaml
    for key, value in values.items():
        if key not in there:
            edited += f"{key}: {_in_yaml(value)}{front.newline}"
        elif not _is_same(_told(there[key]), value):
            line = re.compile(rf"^{re.escape(key)}:{_VALUE}", re.MULTILINE)
            edited = line.sub(partial(_exchanged, key, _in_yaml(value)), edited, count=1)
    new = replace(front, yaml=edited)
    if not front.is_there:
        mark = _BYTE_ORDER_MARK if front.tail.startswith(_BYTE_ORDER_MARK) else ""
        line_of_dashes = f"---{front.newline}"
        tail = line_of_dashes + front.tail.removeprefix(mark)
        new = replace(new, head=mark + line_of_dashes, tail=tail)
    _check(front, new, values)
    return new.head + new.yaml + new.tail


def _exchanged(key: str, value: str, line: re.Match[str]) -> str:
    return f"{key}:{line[1] or ' '}{value}{line[2] or ''}"


def _in_yaml(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        # One line, quoted if necessary; the dumper ends plain ones with a line of dots.
        text = well_formed(value)
        dumped = yaml.safe_dump(text, allow_unicode=text.isprintable(), width=math.inf)
        return dumped.removesuffix("...\n").rstrip("\n")
    if isinstance(value, int | float):
        return repr(value)
    return f"[{', '.join(map(repr, value))}]"


def _is_same(told: Told, value: Value) -> bool:
    """Equal, however they are written."""
    if value is None or isinstance(value, str):
        return told == value
    numbers = [value] if isinstance(value, int | float) else list(value)
    texts = [told] if isinstance(told, str) else told
    try:
        return isinstance(texts, list) and [float(text) for text in texts] == numbers
    except ValueError:
        return False


# ---- the YAML


def _items(front: FrontMatter) -> dict[str, yaml.Node]:
    """The keys of the mapping, with their values."""
    try:
        root = yaml.compose(front.yaml, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        # Lines are counted from the line of dashes.
        place = "" if mark is None else f", line {mark.line + 2}"
        problem = getattr(error, "problem", None) or "it is not valid YAML"
        raise _wrong(front, f"{problem}{place}") from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise _wrong(front, "it must be lines of `key: value`")
    items = {str(name.value): value for name, value in root.value}
    if len(items) < len(root.value):
        raise _wrong(front, "it has a duplicate key")
    # Markdown may begin with a rule, and a line of prose with a colon in it parses as a key.
    if items and all(len(key.split()) > 1 for key in items):
        raise _wrong(front, "it reads as prose between two rules (write the first as ***)")
    return items


def _wrong(front: FrontMatter, what: str) -> RequestError:
    return RequestError(
        f"{front.name}: its front matter cannot be used: {what}",
        hint="fix it by hand; nothing was changed",
    )


def _told(node: yaml.Node) -> Told:
    if isinstance(node, yaml.SequenceNode):
        return [one.value if isinstance(one, yaml.ScalarNode) else "" for one in node.value]
    if not isinstance(node, yaml.ScalarNode):
        return {}
    return None if node.tag == _NULL else str(node.value)


def _check(front: FrontMatter, new: FrontMatter, values: Mapping[str, Value]) -> None:
    """Check the edit, whatever YAML features the file uses (anchors, quoted keys, blocks): our keys
    must read as intended, and all others as before."""
    before, after = _items(front), _items(new)
    is_meant = all(key in after and _is_same(_told(after[key]), values[key]) for key in values)
    others = [
        {key: yaml.serialize(node) for key, node in items.items() if key not in values}
        for items in (before, after)
    ]
    if not is_meant or others[0] != others[1]:
        raise _wrong(front, "our keys cannot be written without changing others")


# The latest figures in a prompt file's front matter, with the keys that pflow's users know.

MOST_RUNS = 10
_KEYS = ("prompt_hash", "test_run", "test_runs", "average_accuracy", "last_test_cost", "test_model")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFigures:
    """What a file records of earlier runs."""

    prompt_hash: str | None
    """None: not recorded."""
    test_run: str | None
    test_runs: tuple[float, ...]
    """In percent."""
    average: float | None
    optional: frozenset[str]
    """Keys that it has, and that are not written without a value."""


def known_in(front: FrontMatter) -> RecordedFigures:
    """RequestError if a key of ours has another kind of value."""
    told = values_in(front, _KEYS)
    average = _figure_numbers(front, "average_accuracy", told.get("average_accuracy"))
    return RecordedFigures(
        prompt_hash=_text(told.get("prompt_hash")),
        test_run=_text(told.get("test_run")),
        test_runs=_figure_numbers(front, "test_runs", told.get("test_runs")),
        average=average[0] if average else None,
        optional=frozenset(told) & {"last_test_cost", "test_model"},
    )


def prompt_hash(front: FrontMatter) -> str:
    """A digest of the text below the front matter, ignoring space around lines and empty lines."""
    lines = (line.strip() for line in front.body.split("\n"))
    text = "\n".join(line for line in lines if line)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8]


def has_new_text(front: FrontMatter, known: RecordedFigures) -> bool:
    return known.prompt_hash is not None and known.prompt_hash != prompt_hash(front)


def has_known_text(front: FrontMatter, known: RecordedFigures) -> bool:
    """Whether the file's figures belong to its current text. If no digest was recorded, they
    may."""
    return known.prompt_hash == prompt_hash(front)


def with_figures(
    front: FrontMatter, figures: BadgeFigures, new_runs: Sequence[BadgeFigures]
) -> str:
    """The file's text with these figures. `new_runs`: those since the last one it records, oldest
    first; the figures' own run is the last of them."""
    known = known_in(front)
    is_new = has_new_text(front, known)
    if is_new and known.test_run == figures.run.id:
        raise RequestError(
            f"{front.name}: its text has changed since run {figures.run.id}, which was made before",
            hint="run the suite again: the figures belong to the old text",
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
        # An empty value is written only to replace one that would be wrong now.
        if value is not None or key in known.optional:
            values[key] = value
    values["test_run"] = figures.run.id
    return with_values(front, values)


def _text(told: Told) -> str | None:
    return told if isinstance(told, str) and told else None


def _figure_numbers(front: FrontMatter, key: str, told: Told) -> tuple[float, ...]:
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
            hint="fix or remove it by hand; nothing was changed",
        )
    return numbers
