"""A scenario's file as data, with the line of every key."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from paraval.errors import Problem, ScenarioError
from paraval.strict_json import parse_strictly

Steps = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
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


def read(path: Path) -> Written:
    """The data of a file: JSON where its name says so, and else YAML."""
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return Written(data=parse_strictly(text), file=file)
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
        self._written = Written(data=None, file=file)
        self._loader: _Loader

    def read(self, text: str) -> Written:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_Loader)):
            # Aliases of aliases grow without bounds.
            raise ValueError("aliases (*name) are not allowed; write it out")
        self._loader = _Loader(text)
        try:
            node = self._loader.get_single_node()
            data = {} if node is None else self._value(node, ())
        finally:
            self._loader.dispose()
        return Written(data=data, file=self._written.file, lines=self._written.lines)

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
