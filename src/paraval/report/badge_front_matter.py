"""The YAML at the top of a text, between two lines of `---`: read, and edited where it stands.

Values are exchanged in their places and new keys are added at the end. All else, the order of keys,
comments, line ends and the text below, stays byte for byte as it is.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import yaml

from paraval.errors import RequestError
from paraval.report.badge import BadgeFigures, mean_of, points
from paraval.text.terminal import well_formed

MOST_CHARACTERS = 32_000
"""Of front matter; more is no such thing, and would take long to read."""
_START = re.compile(r"---[ \t]*(?:\r?\n|\Z)")
_END = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE)
_FIRST_LINE_END = re.compile(r"\r?\n")
_VALUE = (
    r"""([ \t]*?)(?:'[^'\r\n]*'|"[^"\r\n]*"|[^\s#'"][^\r\n#'"]*?)?([ \t]+\#[^\r\n]*)?"""
    r"""(?:\r?\n(?:[ \t]+[^\s\#]|-[ \t])[^\r\n]*)*(?=\r?$)"""
)
"""On the key's line, with its comment, and on lines below that are indented or items of a list."""
_NULL = "tag:yaml.org,2002:null"
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """A text in three parts."""

    name: str
    """Of the file, for messages."""
    head: str
    """Up to the front matter; empty where there is none yet."""
    yaml: str
    tail: str
    """From the line on that ends it; all of the text where there is none."""
    newline: str

    @property
    def body(self) -> str:
        """The text below."""
        return _END.sub("", self.tail, count=1) if self.head else self.tail

    @property
    def is_there(self) -> bool:
        return bool(self.head)


def read_front_matter(text: str, name: str) -> FrontMatter:
    """RequestError where it begins and does not end, or is too long to be any."""
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
            f"{name}: its front matter begins in line 1 and has no end",
            hint="end it with a line of three dashes, ---; or begin the text with another line",
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
"""A value as it is written: a scalar's text, None for null, a list of such texts. Mappings are none
of ours: of one, nothing is told but that."""


def values_in(front: FrontMatter, keys: Collection[str]) -> dict[str, Told]:
    """What these keys have as values, of those that are there."""
    return {key: _told(value) for key, value in _items(front).items() if key in keys}


def with_values(front: FrontMatter, values: Mapping[str, Value]) -> str:
    """The text with these values at these keys; those that are there already are left alone."""
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
        # One line, quoted where it needs to be; the dumper ends plain ones with a line of dots.
        text = well_formed(value)
        dumped = yaml.safe_dump(text, allow_unicode=text.isprintable(), width=math.inf)
        return dumped.removesuffix("...\n").rstrip("\n")
    if isinstance(value, int | float):
        return repr(value)
    return f"[{', '.join(map(repr, value))}]"


def _is_same(told: Told, value: Value) -> bool:
    """Whatever way it is written."""
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
        # Lines are counted from the line of dashes on.
        place = "" if mark is None else f", line {mark.line + 2}"
        problem = getattr(error, "problem", None) or "it is not valid YAML"
        raise _wrong(front, f"{problem}{place}") from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise _wrong(front, "it must be lines of `key: value`")
    items = {str(name.value): value for name, value in root.value}
    if len(items) < len(root.value):
        raise _wrong(front, "a key is there twice")
    # Markdown may begin with a rule, and a line of prose with a colon in it reads as a key.
    if items and all(len(key.split()) > 1 for key in items):
        raise _wrong(front, "it reads as prose between two rules (write the first as ***)")
    return items


def _wrong(front: FrontMatter, what: str) -> RequestError:
    return RequestError(
        f"{front.name}: its front matter cannot be used: {what}",
        hint="mend it by hand; nothing was changed",
    )


def _told(node: yaml.Node) -> Told:
    if isinstance(node, yaml.SequenceNode):
        return [one.value if isinstance(one, yaml.ScalarNode) else "" for one in node.value]
    if not isinstance(node, yaml.ScalarNode):
        return {}
    return None if node.tag == _NULL else str(node.value)


def _check(front: FrontMatter, new: FrontMatter, values: Mapping[str, Value]) -> None:
    """Whatever YAML allows (anchors, keys in quotes, blocks): ours must read as meant, and nothing
    else otherwise than before."""
    before, after = _items(front), _items(new)
    is_meant = all(key in after and _is_same(_told(after[key]), values[key]) for key in values)
    others = [
        {key: yaml.serialize(node) for key, node in items.items() if key not in values}
        for items in (before, after)
    ]
    if not is_meant or others[0] != others[1]:
        raise _wrong(front, "our keys cannot be written without touching others")


# The latest figures in a prompt file's front matter, by the keys that pflow's users know.

MOST_RUNS = 10
_KEYS = ("prompt_hash", "test_run", "test_runs", "average_accuracy", "last_test_cost", "test_model")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFigures:
    """What a file tells of the runs before."""

    prompt_hash: str | None
    """None: nobody noted it."""
    test_run: str | None
    test_runs: tuple[float, ...]
    """In percent."""
    average: float | None
    optional: frozenset[str]
    """Keys that it has, and that are not written where there is nothing to say."""


def known_in(front: FrontMatter) -> RecordedFigures:
    """RequestError where a key of ours holds something else."""
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
    """Of the text below the front matter: space around lines and empty lines don't count."""
    lines = (line.strip() for line in front.body.split("\n"))
    text = "\n".join(line for line in lines if line)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8]


def has_new_text(front: FrontMatter, known: RecordedFigures) -> bool:
    return known.prompt_hash is not None and known.prompt_hash != prompt_hash(front)


def has_known_text(front: FrontMatter, known: RecordedFigures) -> bool:
    """Whether what the file tells is of the text as it is. Where nobody noted the text, it may be
    of any."""
    return known.prompt_hash == prompt_hash(front)


def with_figures(
    front: FrontMatter, figures: BadgeFigures, new_runs: Sequence[BadgeFigures]
) -> str:
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
            hint="mend or remove it by hand; nothing was changed",
        )
    return numbers
