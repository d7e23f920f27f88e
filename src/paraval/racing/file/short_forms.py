"""Normalizes a race as written: expands short forms and applies flags. Also recognizes race files.

Each value keeps its location, in the file or as a flag, for error messages. `race_file` interprets
the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from paraval.dataclass import dataclass
from paraval.documents.files import read_document
from paraval.documents.forms import Form, check
from paraval.documents.problems import Location, Path as Steps, Step, shown

# Whether a file is a race or a suite, by its keys: a mix-up gets one clear error instead of one
# for each unknown key.

_OF_RACES = ("test", "bench", "candidates")
_OF_SUITES = ("cases", "target", "matrix", "graders")


def is_race_file(path: Path) -> bool:
    return _has_more_of(_OF_RACES, _OF_SUITES, path)


def is_suite_file(path: Path) -> bool:
    return _has_more_of(_OF_SUITES, _OF_RACES, path)


def _has_more_of(keys: tuple[str, ...], others: tuple[str, ...], path: Path) -> bool:
    document = read_document(path, Location(problems={}))
    if document is None or not isinstance(document.data, Mapping):
        return False
    return sum(key in document.data for key in keys) > sum(key in document.data for key in others)


F = TypeVar("F", bound=Form)

MAIN_KEYS = {
    "repo": "git",
    "test": "command",
    "bench": "command",
    "generate": "command",
    "repair": "command",
    "refine": "command",
    "profile": "kind",
}
"""Parts that may be written as just the value of one key."""
_COMMAND = "a command (a list, or one text), or a mapping with command"
_SHAPES = {
    "repo": "the path of a git repository, or a mapping with git",
    **dict.fromkeys(("test", "bench", "generate", "repair", "refine"), _COMMAND),
    "profile": "'line', 'none', or a mapping",
}
_LISTS = ("candidates", "compare")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagValue:
    """A flag's value, which overrides the file's."""

    flag: str
    """`--metric`."""
    steps: tuple[str, ...]
    """`("bench", "metric")`."""
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRace:
    """A race in its long form, and where each part is written."""

    data: dict[str, Any]
    spot: Location
    elsewhere: dict[Steps, Location]
    """Locations of values that are not written where their long form would be."""

    def at(self, *steps: Step) -> Location:
        for length in range(len(steps), 0, -1):
            if (other := self.elsewhere.get(steps[:length])) is not None:
                return other.at(*steps[length:])
        return self.spot.at(*steps)

    def part(self, name: str, form: type[F]) -> F | None:
        """A validated part; None if it is missing or invalid (then a problem is reported)."""
        written = self.data.get(name)
        if written is None:
            return None
        if not isinstance(written, Mapping):
            must_be = _SHAPES.get(name, "a mapping")
            self.at(name).report(f"must be {must_be}, not {shown(written)}")
            return None
        return check(form, written, self.at(name), lambda steps: self.at(name, *steps))


def in_long_form(written: Mapping[str, Any], spot: Location) -> WrittenRace:
    """Expand the short forms of a race file or of Python arguments."""
    words = WrittenRace(data=dict(written), spot=spot, elsewhere={})
    for name, key in MAIN_KEYS.items():
        value = words.data.get(name)
        if isinstance(value, str) or (key == "command" and isinstance(value, list | tuple)):
            words.data[name] = {key: list(value) if isinstance(value, tuple) else value}
            words.elsewhere[name, key] = spot.at(name)
        elif isinstance(value, Mapping):
            words.data[name] = dict(value)
    for name in _LISTS:
        value = words.data.get(name)
        if isinstance(value, tuple):
            words.data[name] = list(value)
        elif isinstance(value, str) or (name == "candidates" and isinstance(value, Mapping)):
            words.data[name] = [value]
            words.elsewhere[name, 0] = spot.at(name)
    _spell_out_profile(words)
    for name, part in (("ref", "repo"), ("uncommitted", "repo"), ("functions", "profile")):
        _move_into(words, name, part)
    return words


def lay_over(words: WrittenRace, flags: Iterable[FlagValue]) -> None:
    """Override values with flags; problems with them are reported for the flag."""
    for laid in flags:
        data = words.data
        for step in laid.steps[:-1]:
            if not isinstance(data.get(step), dict):
                data[step] = {}
            data = data[step]
        data[laid.steps[-1]] = laid.value
        spot = replace(words.spot, file=None, root=None, path=(laid.flag,))
        for steps in [known for known in words.elsewhere if known[: len(laid.steps)] == laid.steps]:
            del words.elsewhere[steps]
        words.elsewhere[laid.steps] = spot


def _spell_out_profile(words: WrittenRace) -> None:
    """Expand `{line: [module:function]}`."""
    profile = words.data.get("profile")
    if isinstance(profile, dict) and "line" in profile and not profile.keys() & {"kind"}:
        functions = profile.pop("line")
        if "functions" in profile:
            words.at("profile", "line").report(
                "is given together with functions; remove one of them"
            )
            return
        profile |= {"kind": "line", "functions": functions}
        words.elsewhere["profile", "functions"] = words.spot.at("profile", "line")


def _move_into(words: WrittenRace, name: str, part: str) -> None:
    """Move a key that may be written next to the part it belongs to."""
    value = words.data.pop(name, None)
    if value is None:
        return
    data = words.data.setdefault(part, {})
    if not isinstance(data, dict):
        return
    if data.get(name) is not None:
        words.spot.at(name).report(f"is given twice, here and in {part}; remove one of them")
        return
    data[name] = value
    words.elsewhere[part, name] = words.spot.at(name)
