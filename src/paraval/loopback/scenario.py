"""Scenarios: found by name, read from a file or taken as a mapping, and checked as a whole."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from paraval.documents.json import parse_strictly
from paraval.errors import Problem, ScenarioError
from paraval.loopback.scenario_forms import Behaviour, ScenarioAccount, ScenarioForm, ScenarioPart
from paraval.text.suggest import suggestion

# A scenario's file as data, with the line of every key.

Steps = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSource:
    """What someone wrote, and where."""

    data: Any
    file: str | None = None
    lines: dict[Steps, int] = field(default_factory=dict)

    def problem(self, message: str, steps: Steps = ()) -> Problem:
        line = next((self.lines[inner] for inner in _outwards(steps) if inner in self.lines), None)
        return Problem(message=message, file=self.file, line=line, key=key_of(steps) or None)


def _outwards(steps: Steps) -> Iterator[Steps]:
    return (steps[:length] for length in range(len(steps), -1, -1))


def key_of(steps: Steps) -> str:
    """`answers[2].text`."""
    key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return key.removeprefix(".")


def read(path: Path) -> ScenarioSource:
    """The data of a file: JSON where its name says so, and else YAML."""
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return ScenarioSource(data=parse_strictly(text), file=file)
        return _Yaml(file).read(text)
    except OSError as error:
        problem = Problem(file=file, message=f"cannot be read: {error.strerror}")
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        problem = Problem(file=file, line=line, message=f"not valid YAML: {error.problem}")
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        told = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        problem = Problem(file=file, message=told.splitlines()[0])
    raise ScenarioError([problem])


class _Loader(yaml.CSafeLoader):
    """Plain scalars by the rules of YAML 1.2: `no` and `12:30:00` are text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own, laid empty


for _tag, _pattern, _firsts in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), _firsts
    )


class _Yaml:
    """Turns nodes into data and notes their lines."""

    def __init__(self, file: str) -> None:
        self._written = ScenarioSource(data=None, file=file)
        self._loader: _Loader

    def read(self, text: str) -> ScenarioSource:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_Loader)):
            # Aliases of aliases grow without bounds.
            raise ValueError("aliases (*name) are not allowed; write it out")
        self._loader = _Loader(text)
        try:
            node = self._loader.get_single_node()
            data = {} if node is None else self._value(node, ())
        finally:
            self._loader.dispose()
        return ScenarioSource(data=data, file=self._written.file, lines=self._written.lines)

    def _value(self, node: yaml.Node, steps: Steps) -> Any:
        self._written.lines.setdefault(steps, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, steps))
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*steps, index)) for index, item in enumerate(node.value)]
        return self._loader.construct_object(node)

    def _pairs(self, node: yaml.MappingNode, steps: Steps) -> Iterator[tuple[Hashable, Any]]:
        seen: set[str] = set()
        for name_node, value_node in node.value:
            # Names are text as written, whatever they look like.
            name = str(name_node.value)
            line = name_node.start_mark.line + 1
            if name in seen:
                raise ValueError(f"line {line}: the key '{name}' is there twice")
            seen.add(name)
            self._written.lines[(*steps, name)] = line
            yield name, self._value(value_node, (*steps, name))


BUNDLED = Path(__file__).parent / "scenarios"
SHOWN_CHARACTERS = 60


def bundled_names() -> tuple[str, ...]:
    """The scenarios that come with paraval."""
    return tuple(sorted(path.stem for path in BUNDLED.glob("*.yaml")))


class Scenario(ScenarioForm):
    """How the model server behaves."""

    @classmethod
    def load(
        cls, source: str | os.PathLike[str] | Mapping[str, Any] | None = None, **overrides: Any
    ) -> Self:
        """From the name of a bundled one, a file or a mapping, with keys laid over it.

        Without a source: echo, at once. Raises ScenarioError with every problem.
        """
        written = _written(source)
        if overrides and isinstance(written.data, Mapping):
            data = {**written.data, **overrides}
            written = ScenarioSource(data=data, file=written.file, lines=written.lines)
        if not isinstance(written.data, Mapping):
            raise ScenarioError([written.problem(f"must be a mapping, not {_shown(written.data)}")])
        try:
            return cls.model_validate(dict(written.data))
        except ValidationError as error:
            details = error.errors(include_url=False)
        raise ScenarioError([_problem(detail, written) for detail in details])

    @cached_property
    def identity(self) -> str:
        """The same for scenarios that behave the same, wherever they stand."""
        text = self.model_dump_json(exclude={"about"}, warnings=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def behaviour(self, model: str) -> Behaviour:
        """What holds for a model: its own words over the scenario's."""
        own = self.models.get(model)
        if own is None:
            return self
        said = {name: getattr(own, name) for name in own.model_fields_set}
        return self.model_copy(update=said)

    @cached_property
    def accounts_by_key(self) -> Mapping[str, tuple[str, ScenarioAccount]]:
        """API key -> the account's name, and what holds for it."""
        return {
            name if account.key is None else account.key: (name, account)
            for name, account in self.accounts.items()
        }

    @cached_property
    def accepted_keys(self) -> frozenset[str] | None:
        """None: any, and none."""
        return None if self.keys is None else frozenset((*self.keys, *self.accounts_by_key))


def _written(source: str | os.PathLike[str] | Mapping[str, Any] | None) -> ScenarioSource:
    if source is None or isinstance(source, Mapping):
        return ScenarioSource(data=source or {})
    if source in bundled_names():
        return read(BUNDLED / f"{source}.yaml")
    path = Path(source)
    if os.path.exists(path) or path.suffix:  # noqa: PTH110 - False for a name that is too long
        return read(path)
    hint = suggestion(str(source), bundled_names())
    raise ScenarioError([Problem(message=f"there is no scenario '{source}'{hint}")])


# ---- problems in plain words


def _problem(detail: ErrorDetails, written: ScenarioSource) -> Problem:
    steps = _steps_as_written(detail["loc"], written.data)
    return written.problem(_sentence(detail, steps), steps)


def _steps_as_written(found: Steps, data: Any) -> Steps:
    """Where it stands in the file: a single rule may be written without the list around it."""
    steps: list[str | int] = []
    for step in found:
        if isinstance(step, int) and not isinstance(data, list):
            continue
        steps.append(step)
        with suppress(LookupError, TypeError):
            data = data[step]
    return tuple(steps)


def _sentence(detail: ErrorDetails, steps: Steps) -> str:
    shown = _shown(detail["input"])
    match detail["type"]:
        case "extra_forbidden":
            name = str(steps[-1]) if steps else ""
            return f"unknown key '{name}'{suggestion(name, _keys_at(steps[:-1]))}"
        case "missing":
            return "is missing"
        case "value_error":
            return str(detail["ctx"]["error"])
        case "pattern_regex" | "pattern_type":
            return f"must be a regular expression, not {shown}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"must be a mapping, not {shown}"
        case "too_short":
            return "must not be empty"
        case "list_type":
            return f"must be a list, not {shown}"
        case "string_type":
            return f"must be text, not {shown}"
        case "bool_type":
            return f"must be true or false, not {shown}"
        case "int_type" | "int_from_float":
            return f"must be a whole number, not {shown}"
        case "float_type":
            return f"must be a number, not {shown}"
    said = detail["msg"].removeprefix("Input should be ")
    return f"must be {said}, not {shown}"


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _keys_at(steps: Steps) -> list[str]:
    """The keys of the form that stands at a place."""
    form: Any = ScenarioForm
    for step in steps:
        if isinstance(step, int) or not _is_form(form):
            continue
        # Other steps are names of accounts and models.
        if step in form.model_fields:
            form = _form_inside(form.model_fields[step].annotation)
    return list(form.model_fields) if _is_form(form) else []


def _is_form(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, BaseModel)


def _form_inside(annotation: Any) -> type[ScenarioPart] | None:
    """The form in `list[Answer]`, `Storm | None` or `dict[str, Account]`."""
    if _is_form(annotation):
        found: type[ScenarioPart] = annotation
        return found
    inner = (_form_inside(part) for part in getattr(annotation, "__args__", ()))
    return next((form for form in inner if form is not None), None)
