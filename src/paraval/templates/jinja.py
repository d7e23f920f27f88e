"""Jinja templates: for prompts with loops and conditions, in files that end in `.j2`.

They run in Jinja's sandbox, and a name that is not defined is an error. Loading the library takes
long, so it is imported for the first such template.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from paraval.errors import ParavalError

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

MARK = "{#jinja#}"
"""How the text of such a file begins in records: to Jinja a comment, in a plain template an
error."""


class JinjaError(ParavalError):
    """A template that is not valid, or that cannot be filled in."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def render(source: str, values: Mapping[str, Any], show: Callable[[Any], str]) -> str:
    """Fill in a template; `show` returns a mapping, a list or another plain value as text."""
    try:
        return _template(source, show).render(values)
    except JinjaError:
        raise
    except Exception as error:  # noqa: BLE001 - a template may call anything that its values have
        steps = traceback.extract_tb(error.__traceback__)
        lines = [step.lineno for step in steps if step.filename == "<template>"]
        message = str(error) or type(error).__name__
        raise JinjaError(message.removesuffix("."), lines[-1] if lines else None) from None


@lru_cache(maxsize=256)
def names_in(source: str) -> tuple[str, ...]:
    """Return the names that a template takes from its values, sorted."""
    from jinja2 import TemplateSyntaxError  # noqa: PLC0415 - slow to load
    from jinja2.meta import find_undeclared_variables  # noqa: PLC0415

    try:
        return tuple(sorted(find_undeclared_variables(_environment(str).parse(source))))
    except TemplateSyntaxError as error:
        message = (error.message or "not valid").removesuffix(".")
        raise JinjaError(f"not a valid Jinja template: {message}", error.lineno) from None


@lru_cache(maxsize=256)
def _template(source: str, show: Callable[[Any], str]) -> Template:
    names_in(source)
    return _environment(show).from_string(source)


@cache
def _environment(show: Callable[[Any], str]) -> SandboxedEnvironment:
    from jinja2 import StrictUndefined  # noqa: PLC0415 - slow to load
    from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415

    class Environment(SandboxedEnvironment):
        def getattr(self, obj: Any, attribute: str) -> Any:
            """Prefer a key to a method: `metadata.items` is what the case has under `items`."""
            if isinstance(obj, Mapping) and attribute in obj:
                return obj[attribute]
            return super().getattr(obj, attribute)

    def shown(value: Any) -> Any:
        if isinstance(value, str | StrictUndefined):
            return value
        if callable(value):
            raise TypeError("a method cannot be printed; call it, as in items()")
        return show(value)

    environment = Environment(
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["dump"] = dump
    return environment


def dump(value: Any, indent: int | None = None) -> str:
    """A filter of Nunjucks: JSON as JavaScript writes it; `tojson` escapes HTML."""
    separators = None if indent else (",", ":")
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
