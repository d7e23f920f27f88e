"""Jinja templates: for prompts with loops and conditions, in files that end in `.j2`.

They run in Jinja's sandbox, and a name that is not defined is an error. Loading the library takes
long, so it is imported for the first such template.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from paraval.errors import ParavalError

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.runtime import Context
    from jinja2.sandbox import SandboxedEnvironment

MARK = "{#jinja#}"
"""How the text of such a file begins in records: to Jinja a comment, in a plain template an
error."""


MOST_STEPS = 500_000
LONGEST_TEXT = 50_000_000
MOST_BITS = 100_000
WIDEST = 1_000_000
_WIDE = re.compile(r"%[^a-zA-Z%]*(?:\d{6}|\*)")
"""A format with a width of a million, or one that is given with the values."""
_WIDE_FIELD = re.compile(r"\{[^}]*\d{7}")


class JinjaError(ParavalError):
    """A template that is not valid, or that cannot be filled in."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def render(source: str, values: Mapping[str, Any], show: Callable[[Any], str]) -> str:
    """Fill in a template; `show` returns a mapping, a list or another plain value as text."""
    limits = _Limits()
    try:
        return limits.joined(_template(source, show).generate({"range": limits.range, **values}))
    except JinjaError:
        raise
    except Exception as error:  # noqa: BLE001 - a template may call anything that its values have
        steps = traceback.extract_tb(error.__traceback__)
        lines = [step.lineno for step in steps if step.filename == "<template>"]
        message = str(error) or type(error).__name__
        raise JinjaError(message.removesuffix("."), lines[-1] if lines else None) from None


class _Limits:
    """How far a template may go: without limits, a line of a stranger's fills the memory, or never
    ends."""

    def __init__(self) -> None:
        self._left = MOST_STEPS

    def range(self, *bounds: int) -> range:
        """Jinja's, with a limit on the sum of all."""
        from jinja2.sandbox import safe_range  # noqa: PLC0415 - slow to load

        numbers = safe_range(*bounds)
        self._left -= len(numbers)
        if self._left < 0:
            raise OverflowError(f"its loops take more than {MOST_STEPS:,} steps")
        return numbers

    def joined(self, pieces: Iterable[str]) -> str:
        parts, length = [], 0
        for piece in pieces:
            parts.append(piece)
            length += len(piece)
            if length > LONGEST_TEXT:
                raise JinjaError(f"its text is longer than {LONGEST_TEXT:,} characters", None)
        return "".join(parts)


def _is_small(sign: str, left: Any, right: Any) -> bool:
    """Whether `left * right`, `left ** right` or `left % right` cannot fill the memory."""
    if sign == "%":
        return not isinstance(left, str) or _WIDE.search(left) is None
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if sign == "**" else left.bit_length()
        return bits <= MOST_BITS
    sized, times = (left, right) if isinstance(left, Sized) else (right, left)
    if isinstance(sized, Sized) and isinstance(times, int):
        return len(sized) * times <= LONGEST_TEXT
    return True


def _is_narrow(function: Any, arguments: Iterable[Any]) -> bool:
    """Whether a call doesn't fill a text up to a width that fills the memory."""
    # Jinja wraps `str.format`.
    text = getattr(getattr(function, "__wrapped__", None), "__self__", "")
    is_wide = isinstance(text, str) and _WIDE_FIELD.search(text) is not None
    return not (is_wide or any(isinstance(value, int) and value > WIDEST for value in arguments))


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
        intercepted_binops = frozenset({"*", "**", "%"})

        def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
            if not _is_small(operator, left, right):
                raise OverflowError(f"the result of {operator} is too large")
            return super().call_binop(context, operator, left, right)

        def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not _is_narrow(obj, (*args, *kwargs.values())):
                raise OverflowError("a text would be too wide")
            return super().call(context, obj, *args, **kwargs)

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
    for name in ("center", "indent"):
        environment.filters[name] = _narrow(environment.filters[name])
    return environment


def _narrow(a_filter: Callable[..., str]) -> Callable[..., str]:
    def checked(*args: Any, **kwargs: Any) -> str:
        if not _is_narrow(a_filter, (*args, *kwargs.values())):
            raise OverflowError("a text would be too wide")
        return a_filter(*args, **kwargs)

    return checked


def dump(value: Any, indent: int | None = None) -> str:
    """A filter of Nunjucks: JSON as JavaScript writes it; `tojson` escapes HTML."""
    separators = None if indent else (",", ":")
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
