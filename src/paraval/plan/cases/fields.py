"""Which field of a record becomes which part of a case: as the suite maps them, or by common names.

Records that have the same keys have the same shape, which is found out once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.problems import Location
from paraval.plan.schema.suite_form import CaseForm, CaseSourceForm
from paraval.templates.template import TemplateError, part_of
from paraval.text.suggest import nearest, quoted
from paraval.text.words import counted

KEYS = tuple(CaseForm.model_fields)
COMMON_NAMES = {
    "input": ("question", "query", "prompt"),
    "expect": (
        *("answer", "expected", "expected_output", "target", "ideal", "reference"),
        "ground_truth",
    ),
}
"""What data sets call the parts of a case. Exactly one of them must be there."""
NEAR_MISS = 0.8
"""`anwser` and `tag` are typos; `stage` and `expectation` are fields in their own right."""
_NEAR_OTHERWISE = ("id", "input", "expect", "tags")
"""For the other keys only a missing or surplus `s` is a typo: `block` is not `lock`."""
_ID_NAME = re.compile(r"(?i:(?:\b|_)(?:id|idx|index|number)$|^[a-z]{1,2}id$)|[a-z]I[dD]$")
"""Such a field is not suggested as the input."""
_GRADING = ("assert", "asserts", "assertions", "evaluators", "scorer", "scorers")
"""What other tools call the graders of a case ..."""
_VARIABLES = "vars"
"""... and the mapping of its variables."""
_ASSERTIONS = "__expected"
"""How promptfoo's columns of assertions start."""
_FLAGS = {"": False, "false": False, "true": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldMap:
    """The fields that a suite maps to parts of a case, by paths such as `answers.text.0`."""

    paths: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    """id, input, expect or description -> the field, or for a mapping its keys -> their fields."""
    tags: tuple[str, ...] = ()
    after: str = ""
    """If not empty: only what comes after its last occurrence in `expect`."""

    @classmethod
    def from_form(cls, form: CaseSourceForm) -> FieldMap:
        paths: dict[str, str | Mapping[str, str]] = {}
        for part, written in (
            ("id", form.id),
            ("input", form.input),
            ("expect", form.expect),
            ("description", form.description),
        ):
            if isinstance(written, list):
                paths[part] = {path.rpartition(".")[2]: path for path in written}
            elif isinstance(written, str | Mapping):
                paths[part] = written
            elif written is not None:
                paths[part] = written.field
        tags = [form.tags] if isinstance(form.tags, str) else form.tags or []
        after = getattr(form.expect, "after", "")
        return cls(paths=paths, tags=tuple(tags), after=after)

    def has(self, part: str) -> bool:
        return bool(self.tags) if part == "tags" else part in self.paths

    def fields(self) -> list[str]:
        """All fields but those of tags, which stay in metadata, too."""
        return [path for _, path in self.pairs()]

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield every part of a case with a field it is made of, except tags."""
        for part, path in self.paths.items():
            yield from ((part, one) for one in ([path] if isinstance(path, str) else path.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What is wrong with all records of a shape."""

    key: str | None
    phrase: str
    """After "20 lines have": `the unknown key 'anwser', did you mean 'answer'?`."""

    def message(self, count: int, noun: str) -> str:
        if count > 1:
            return f"{counted(count, noun)} have {self.phrase}"
        return self.phrase.removeprefix("the ") if self.key else f"has {self.phrase}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How to read the records that have certain keys."""

    parts: Mapping[str, str]
    """Part of a case -> key of the record."""
    others: tuple[str, ...]
    """Keys of the record that go to metadata."""
    mistakes: tuple[Mistake, ...]
    is_plain: bool
    """True: the record already is a case."""


@dataclass(slots=True, kw_only=True)
class FieldReader:
    """Turns the records of one file or list into cases."""

    mapped: FieldMap = field(default_factory=FieldMap)
    mapped_at: Location | None = None
    """Where the suite maps them."""
    is_table: bool = False
    """True: every value is the text of a cell."""
    records: int = 0
    _shapes: dict[tuple[Any, ...], Shape] = field(default_factory=dict)
    _found: set[str] = field(default_factory=set)
    """Mapped fields that some record has."""
    _first: Mapping[str, Any] = field(default_factory=dict)

    def shape(self, keys: tuple[Any, ...]) -> Shape:
        shape = self._shapes.get(keys)
        if shape is None:
            shape = self._shapes[keys] = self._shape_of(keys)
        return shape

    def read(self, record: dict[str, Any], shape: Shape) -> dict[str, Any]:
        """Return a record with the keys of a case."""
        self.records += 1
        self._first = self._first or record
        if shape.is_plain:
            return _from_cells(dict(record)) if self.is_table else record
        case = {part: record[key] for part, key in shape.parts.items()}
        for part, path in self.mapped.paths.items():
            if isinstance(path, str):
                case[part] = self._value(record, path)
            else:
                case[part] = {name: self._value(record, inner) for name, inner in path.items()}
        if self.mapped.tags:
            case["tags"] = list(_tags(self._value(record, path) for path in self.mapped.tags))
        if self.mapped.after and isinstance(case["expect"], str):
            case["expect"] = case["expect"].rpartition(self.mapped.after)[2].strip()
        if shape.others:
            others = {str(key): record[key] for key in shape.others}
            own = case.get("metadata")
            case["metadata"] = {**others, **own} if isinstance(own, Mapping) else own or others
        return _from_cells(case) if self.is_table else case

    def never_found(self, file: str | None) -> Iterator[tuple[str, str]]:
        """The parts that are mapped to a field that no record has, with a message."""
        if not self.records:
            return
        known = list(dict.fromkeys(str(key) for keys in self._shapes for key in keys))
        nested = [path for path in _paths_in(self._first) if path not in known]
        noun = "column" if self.is_table else "field"
        for part, path in (*self.mapped.pairs(), *(("tags", tag) for tag in self.mapped.tags)):
            if path not in self._found:
                near = nearest(path, [*known, *nested])
                meant = f"; did you mean '{near[0]}'?" if near else ""
                where = f"{file} has" if file else "the cases have"
                yield part, f"{where} no {noun} '{path}', only {quoted(known)}{meant}"

    def notice(self) -> str | None:
        """`input from 'question', expect from 'answer'; 3 other fields are in metadata`."""
        taken: dict[str, dict[str, None]] = {}
        others: dict[str, None] = {}
        for shape in self._shapes.values():
            others.update(dict.fromkeys(shape.others))
            for part, key in shape.parts.items():
                if part != key:
                    taken.setdefault(part, {})[key] = None
        if not taken:
            return None
        text = ", ".join(f"{part} from {quoted(keys)}" for part, keys in taken.items())
        noun = "column" if self.is_table else "field"
        are = "is" if len(others) == 1 else "are"
        more = f"; {counted(len(others), f'other {noun}')} {are} in metadata" if others else ""
        return f"{text}{more}"

    def _value(self, record: Mapping[str, Any], path: str) -> Any:
        """Return the value of a field; a key that contains dots wins over a path."""
        try:
            value = record[path] if path in record else part_of(record, f".{path}")
        except TemplateError:
            return None
        self._found.add(path)
        return value

    def _shape_of(self, keys: tuple[Any, ...]) -> Shape:
        folded = {str(key).strip().casefold(): key for key in reversed(keys)}
        folded |= {key: key for key in keys if key in KEYS}
        parts = {
            part: folded[part] for part in KEYS if part in folded and not self.mapped.has(part)
        }
        mistakes: list[Mistake] = []
        for part, names in COMMON_NAMES.items():
            if part in parts or self.mapped.has(part):
                continue
            there = [folded[name] for name in names if name in folded]
            if len(there) == 1:
                parts[part] = there[0]
            elif there:
                example = f"cases: {{file: ..., {part}: {there[0]}}}"
                phrase = f"{quoted(there)}, of which one is '{part}'; say which: {example}"
                mistakes.append(Mistake(key=None, phrase=phrase))
        taken = {*parts.values(), *self.mapped.fields()}
        others = tuple(key for key in keys if key not in taken)
        mistakes += self._of_other_tools(others)
        reported = {mistake.key for mistake in mistakes}
        mistakes += self._typos([key for key in others if str(key) not in reported], parts)
        if others and not (parts or mistakes or self.mapped.paths):
            called = quoted(("input", *COMMON_NAMES["input"]), word="or")
            named = (key for key in others if not _ID_NAME.search(str(key)))
            example = f"cases: {{file: ..., input: {next(named, 'FIELD')}}}"
            phrase = f"no field called {called}; say which one is the input: {example}"
            mistakes.append(Mistake(key=None, phrase=phrase))
        is_plain = not (others or self.mapped.paths or self.mapped.tags) and parts == {
            key: key for key in keys
        }
        return Shape(
            parts=parts, others=others, mistakes=tuple(mistakes), is_plain=is_plain and not mistakes
        )

    def _of_other_tools(self, others: Sequence[Any]) -> Iterator[Mistake]:
        """Keys that mean grading or variables elsewhere, and would do nothing here."""
        mapped = {path.partition(".")[0] for path in self.mapped.fields()}
        for key in others:
            name = str(key).strip().casefold()
            if key in mapped:
                continue  # a part of it is used
            if self.is_table:
                if not name.startswith(_ASSERTIONS):
                    continue
                phrase = (
                    f"the column '{key}', but it holds promptfoo assertions: write graders, and"
                    f" cases: {{file: ..., expect: {key}}} if it holds plain answers"
                )
            elif name in _GRADING:
                phrase = f"the unknown key '{key}'; write graders: [{{contains: ...}}] to grade"
            elif name == _VARIABLES and not self.mapped.has("input"):
                phrase = f"the unknown key '{key}'; write input: {{name: value}} for variables"
            else:
                continue
            yield Mistake(key=str(key), phrase=phrase)

    def _typos(self, others: Sequence[Any], parts: Mapping[str, str]) -> Iterator[Mistake]:
        """Keys that are almost certainly a misspelled known one, which is missing."""
        missing = [part for part in KEYS if part not in parts and not self.mapped.has(part)]
        names = [
            name
            for part in ("input", "expect", "tags")
            if part in missing
            for name in (part, *COMMON_NAMES.get(part, ()))
        ]
        for key in others:
            start, dot, rest = str(key).partition(".")
            words = "".join(start.casefold().split())
            if str(key).strip().casefold() in names:
                continue  # one of several: reported already
            near = nearest(words, ["input"] if dot and "input" in missing else names, NEAR_MISS)
            if near and (not dot or near[0] == "input"):
                yield _typo(key, f"{near[0]}{dot}{rest}")
            elif not dot:
                for part in missing:
                    if part not in _NEAR_OTHERWISE and words in (
                        f"{part}s",
                        part.removesuffix("s"),
                    ):
                        yield _typo(key, part)


def _typo(key: Any, known: str) -> Mistake:
    return Mistake(key=str(key), phrase=f"the unknown key '{key}', did you mean '{known}'?")


def _paths_in(record: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the paths of all fields of a record: `q`, `q.text`."""
    for key, value in record.items():
        yield f"{before}{key}"
        if isinstance(value, Mapping):
            yield from _paths_in(value, f"{before}{key}.")


def _tags(values: Iterator[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        elif value is not None and value != "":
            yield value


def _from_cells(case: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table as a case: several tags in a cell, and no expectation if empty."""
    for name in ("tags", "lock"):
        if name in case:
            cells = [case[name]] if isinstance(case[name], str) else case[name]
            case[name] = [one.strip() for cell in cells for one in cell.split(";") if one.strip()]
    if "exclusive" in case:
        case["exclusive"] = _FLAGS.get(case["exclusive"].strip().casefold(), case["exclusive"])
    for name in ("id", "expect", "description"):
        if case.get(name) == "":
            case[name] = None
    return case
