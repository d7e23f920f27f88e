"""Scripts for /bin/sh: fields are variables of the shell, `grep "$input" notes.txt`.

A value never becomes part of the script, whatever it contains. A script has no `{fields}`: braces
mean what they mean to a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paraval.templates.template import TemplateFields, as_text

SHELL = "/bin/sh"
_USED = re.compile(r"\$\{?([A-Za-z_]\w*)", re.ASCII)
_UNFIT = re.compile(r"\W", re.ASCII)


def variable_of(field: str) -> str:
    """`input.question` -> `input_question`."""
    return _UNFIT.sub("_", field)


def used_variables(script: str) -> tuple[str, ...]:
    """Each once, in order; most are the shell's own."""
    return tuple(dict.fromkeys(_USED.findall(script)))


def shell_command(script: str, fields: TemplateFields) -> tuple[str, ...]:
    """The arguments that run a script, with the values of the variables that it uses."""
    known = dict(_variables(fields))
    values = {name: as_text(known[name]) for name in used_variables(script) if name in known}
    if not values:
        return (SHELL, "-c", script)
    given = " ".join(f"{name}=${{{number}}}" for number, name in enumerate(values, start=1))
    return (SHELL, "-c", f"{given}; shift {len(values)}; {script}", SHELL, *values.values())


def _variables(fields: TemplateFields) -> Iterator[tuple[str, Any]]:
    yield from _parts("metadata", fields.metadata)
    if fields.input is not None:
        yield "input", fields.input
        yield from _parts("input", fields.input)
    yield from ((variable_of(axis), value) for axis, value in fields.variant.items())
    yield "case_id", fields.case_id
    yield "repeat", fields.repeat
    yield "folder", fields.folder
    yield "python", fields.python
    if fields.workspace is not None:
        yield "workspace", fields.workspace
    yield from fields.extra.items()


def _parts(name: str, given: Any) -> Iterator[tuple[str, Any]]:
    """`input_a` and `input_a_b` for an input with an `a` that has a `b`."""
    if isinstance(given, Mapping):
        for key, value in given.items():
            yield f"{name}_{variable_of(str(key))}", value
            yield from _parts(f"{name}_{variable_of(str(key))}", value)


def names_of_parts(given: Any, name: str = "input") -> list[str]:
    """The variables that a case's input, or its metadata, has."""
    return [variable for variable, _ in _parts(name, given)]
