"""Encodes records as plain data and decodes them, based on their dataclass annotations.

Used for the store, reports, tests and races. Decoding uses only pydantic's core: pydantic itself
takes as long again to load, and longer still to inspect the records. Encoding needs neither.

Numbers and texts come from users and may contain NaN or lone surrogates. Only the SHOWN form is
guaranteed to be valid JSON in any encoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum, auto
from functools import cache, partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from paraval.records import FileChange, GraderSpec, ToolUse
from paraval.text.terminal import well_formed

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator, ValidationError

T = TypeVar("T")
ALWAYS = "always"
"""In a field's metadata: store it even if it has its default value."""
LARGEST_AMOUNT = 10**30
"""The largest count of tokens, bytes or dollars: a larger integer does not fit elsewhere."""
_ROWS = (ToolUse, FileChange)
_RECURSIVE = (GraderSpec,)
"""Records that hold others of their kind."""
_SHOWN = 40


class Style(Enum):
    """How records are encoded."""

    PLAIN = auto()
    STORED = auto()
    """Without default values, and as lists instead of objects for records that come by the
    thousand."""
    SHOWN = auto()
    """For reports: valid JSON, rounded as the annotations specify."""


class Digits(NamedTuple):
    """In an annotation: number of decimal places to write."""

    number: int


class Bounds(NamedTuple):
    """In an annotation: the valid range when reports are read."""

    least: float = 0
    most: float | None = None

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        told = {"minimum": self.least} | ({} if self.most is None else {"maximum": self.most})
        return handler(schema) | told


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Field -> its annotation."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def picked(kind: Callable[..., T], source: object, /, **others: Any) -> T:
    """A record with the source's fields of the same names, and these others."""
    same = {name: getattr(source, name) for name in hints_of(kind) if name not in others}
    return kind(**same, **others)


# ---- writing

_Encoder = Callable[[Any], Any] | None
"""None: the value is written unchanged."""


def to_data(record: Any, style: Style = Style.PLAIN) -> dict[str, Any]:
    """Lists, objects, texts, numbers; a field of type Any is left unchanged."""
    kind: Any = type(record)
    return cast("dict[str, Any]", record_encoder(kind, style)(record))


@cache
def record_encoder(
    kind: Any, style: Style, without: frozenset[str] = frozenset()
) -> Callable[[Any], Any]:
    """Generated as source code, as dataclasses do it: a loop over the fields takes four times as
    long, and the store encodes each attempt."""
    if style is Style.STORED and kind in _ROWS:
        return _row_encoder(kind)
    lines, names = ["def encode(record):", " data = {}"], dict[str, Any]()
    for field in fields(kind):
        name = field.name
        if name in without or not field.metadata.get("told", True):
            continue
        default = names[f"default_{name}"] = _default_of(field)
        encode = names[f"encode_{name}"] = _encoder(hints_of(kind)[name], style)
        value = "value" if encode is None else f"None if value is None else encode_{name}(value)"
        is_omitted = (
            style is Style.STORED and default is not MISSING and ALWAYS not in field.metadata
        )
        test = "is not None" if default is None else f"!= default_{name}"
        lines.append(f" value = record.{name}")
        lines.append(f" if value {test}:" if is_omitted else " if True:")
        lines.append(f"  data['{name}'] = {value}")
    exec("\n".join([*lines, " return data"]), names)  # noqa: S102 - only field names
    return cast("Callable[[Any], Any]", names["encode"])


def _row_encoder(kind: Any) -> Callable[[Any], Any]:
    values_of = attrgetter(*hints_of(kind))

    def encode(record: Any) -> tuple[Any, ...]:
        values: tuple[Any, ...] = values_of(record)
        return values[:-1] if values[-1] is False else values

    return encode


def _default_of(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _encoder(hint: Any, style: Style) -> _Encoder:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        digits = [one.number for one in arguments[1:] if isinstance(one, Digits)]
        return partial(rounded, digits=digits[0]) if digits else _encoder(arguments[0], style)
    if origin in (Union, UnionType):
        return _union_encoder([one for one in arguments if one is not NoneType], style)
    if origin is tuple:
        each = _encoder(arguments[0], style)
        return list if each is None else lambda value: list(map(each, value))
    if origin is Mapping:
        of_key, of_value = (_encoder(one, style) or _same for one in arguments)
        if of_key is _same and of_value is _same:
            return dict
        return lambda value: {of_key(key): of_value(one) for key, one in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: value.value
    if style is Style.SHOWN and hint in (str, float):
        return well_formed if hint is str else finite
    if not _is_record(hint):
        return None
    return record_encoder(hint, style) if hint not in _RECURSIVE else partial(to_data, style=style)


def _union_encoder(members: list[Any], style: Style) -> _Encoder:
    if len(members) > 1:
        return scalar_shown if style is Style.SHOWN else None
    return _encoder(members[0], style)


def _is_record(hint: Any) -> bool:
    return is_dataclass(hint)


def _same(value: Any) -> Any:
    return value


def finite(value: object) -> float | None:
    """A finite number; None for NaN, infinity, and anything that is not a number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer beyond what a float can hold
        return None


def rounded(value: float | None, digits: int) -> float | None:
    """Without accumulated rounding errors; None if it is not a number."""
    number = finite(value)
    return None if number is None else round(number, digits)


def scalar_shown(value: Any) -> Any:
    """Axis values name variants: one that JSON cannot write as a number becomes text."""
    if isinstance(value, str):
        return well_formed(value)
    return value if isinstance(value, bool) or finite(value) is not None else str(value)


def shown(value: Any) -> Any:
    """Plain data that JSON can represent: no infinity, no lone surrogates, tuples as lists."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {well_formed(str(key)): shown(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [shown(inner) for inner in value]
    return value


# ---- reading


def from_data(kind: Callable[..., T], data: object) -> T:
    """Decode a record. Unknown fields are ignored, and null counts as missing; raises
    ValidationError, a ValueError, if something is wrong."""
    return cast("T", _reader(kind).validate_python(data))


@cache
def _reader(kind: Any) -> SchemaValidator:
    from pydantic_core import SchemaValidator  # noqa: PLC0415 - slow to load, and not for writing

    read = _Forms(Style.PLAIN)
    return SchemaValidator(read.record(kind) if kind in _RECURSIVE else read.of(kind))


def object_reader(
    hints: Mapping[str, Any], *, allows_more: bool = False, measured: Collection[str] = ()
) -> SchemaValidator:
    """Decode a JSON object of the store: its members by name, all optional.

    Other members are ignored, or, if it `allows_more`, kept unchanged. Invalid `measured` members
    are dropped.
    """
    from pydantic_core import SchemaValidator, core_schema as forms  # noqa: PLC0415 - as above

    members = {name: _Forms(Style.STORED).of(hint) for name, hint in hints.items()}
    for name in measured:
        members[name] = forms.with_default_schema(members[name], on_error="omit")
    extra: forms.ExtraBehavior = "allow" if allows_more else "ignore"
    optional = {
        name: forms.typed_dict_field(form, required=False) for name, form in members.items()
    }
    return SchemaValidator(forms.typed_dict_schema(optional, extra_behavior=extra))


class _Forms:
    """Annotations as schemas of pydantic's core: strict about values, lenient about containers."""

    def __init__(self, style: Style) -> None:
        from pydantic_core import core_schema  # noqa: PLC0415 - as above

        self._forms = core_schema
        self._is_stored = style is Style.STORED

    def of(self, hint: Any, bounds: Bounds | None = None) -> Any:
        forms, origin, arguments = self._forms, get_origin(hint), get_args(hint)
        if origin is Annotated:
            found = [one for one in arguments[1:] if isinstance(one, Bounds)]
            return self.of(arguments[0], *found)
        if origin in (Union, UnionType):
            return self._union([one for one in arguments if one is not NoneType], hint, bounds)
        if origin is tuple and arguments[-1] is ...:
            return forms.tuple_variable_schema(self.of(arguments[0]))
        if origin is tuple:
            return forms.tuple_schema([self.of(one) for one in arguments])
        if origin is list:
            return forms.list_schema(self.of(arguments[0]))
        if origin is Literal:
            return forms.literal_schema(list(arguments))
        if origin is Mapping:
            return forms.dict_schema(*map(self.of, arguments))
        if hint in (int, float):
            return self._number(bounds, is_whole=hint is int)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return self._enum(hint)
        if _is_record(hint):
            return self._inner_record(hint)
        if hint is bool:
            return forms.bool_schema(strict=True)
        return forms.str_schema(strict=True) if hint is str else forms.any_schema()

    def _inner_record(self, kind: type) -> Any:
        if kind in _RECURSIVE:
            return self._forms.no_info_plain_validator_function(partial(from_data, kind))
        return self._row(kind) if self._is_stored and kind in _ROWS else self.record(kind)

    def _enum(self, kind: Any) -> Any:
        forms = self._forms
        form = forms.enum_schema(kind, list(kind), sub_type="str")
        if not self._is_stored and hasattr(kind, "UNKNOWN"):
            return forms.with_default_schema(form, default=kind.UNKNOWN, on_error="default")
        return forms.custom_error_schema(
            form, "no_member", custom_error_message=kind.__name__.lower()
        )

    def _union(self, members: list[Any], hint: Any, bounds: Bounds | None) -> Any:
        form = self.of(members[0], bounds)
        if len(members) > 1:
            words = ", ".join(dict.fromkeys(_KINDS.get(one, str(one)) for one in members))
            form = self._either([self.of(one) for one in members], words)
        return self._forms.nullable_schema(form) if NoneType in get_args(hint) else form

    def _either(self, choices: list[Any], words: str) -> Any:
        return self._forms.union_schema(
            list(choices), custom_error_type="wrong", custom_error_message=words
        )

    def _number(self, bounds: Bounds | None, *, is_whole: bool) -> Any:
        least, most = bounds or (None, None)
        whole = self._forms.int_schema(
            strict=True,
            ge=-LARGEST_AMOUNT if least is None else math.ceil(least),
            le=LARGEST_AMOUNT if most is None else math.floor(most),
        )
        if is_whole:
            return whole
        words = "number" if least is None else "number from 0 on" if most is None else _SHARE
        # Integers stay integers: reports show them as they came.
        return self._either(
            [whole, self._forms.float_schema(strict=True, ge=least, le=most)], words
        )

    def record(self, kind: type) -> Any:
        forms, hints = self._forms, hints_of(kind)
        arguments = []
        for field in fields(kind):
            form = self.of(hints[field.name])
            if field.default is not MISSING:
                form = forms.with_default_schema(form, default=field.default)
            elif field.default_factory is not MISSING:
                form = forms.with_default_schema(form, default_factory=field.default_factory)
            arguments.append(forms.dataclass_field(field.name, form, kw_only=True))
        extra: Any = "forbid" if self._is_stored else "ignore"
        form = forms.dataclass_schema(
            kind,
            forms.dataclass_args_schema(kind.__name__, arguments, extra_behavior=extra),
            list(hints),
            slots=True,
            frozen=True,
        )
        if self._is_stored:
            return form
        nullable = {name for name, hint in hints.items() if _is_nullable(hint)}

        def without_nulls(data: Any) -> Any:
            if not isinstance(data, dict):
                return data
            return {k: value for k, value in data.items() if value is not None or k in nullable}

        return forms.no_info_before_validator_function(without_nulls, form)

    def _row(self, kind: type) -> Any:
        names, items = list(hints_of(kind)), [self.of(hint) for hint in hints_of(kind).values()]
        is_last_optional = hints_of(kind)[names[-1]] is bool
        row = self._forms.tuple_schema(
            items, variadic_item_index=len(items) - 1 if is_last_optional else None
        )
        return self._forms.no_info_after_validator_function(
            lambda values: kind(**dict(zip(names, values, strict=False))), row
        )


def _is_nullable(hint: Any) -> bool:
    arguments = get_args(hint)
    inner = get_args(arguments[0]) if get_origin(hint) is Annotated else arguments
    return NoneType in inner or hint is Any


_SHARE = "number from 0 to 1"
_KINDS = {str: "text", int: "number", float: "number", bool: "true or false"}
_NO_OBJECT = ("dataclass_type", "dict_type", "dataclass_exact_type")
_WRONG = {
    "string_type": "text",
    "int_type": "whole number",
    "less_than_equal": "number",
    "greater_than_equal": "number from 0 on",
    "bool_type": "true or false",
    "tuple_type": "list",
}


def in_words(error: ValidationError, what: str = "it") -> str:
    """A message about the first thing that does not fit. `what` names what was read: `a trial`."""
    first = error.errors(include_url=False, include_context=False)[0]
    *place, name = first["loc"] or (None,)
    kind, found = first["type"], first["input"]
    holder = _named(place[-1], place[:-1]) if place else what
    if kind == "missing":
        return f"{holder} has no '{name}'"
    if kind in _NO_OBJECT:
        return f"{what if name is None else _named(name, place)} is no object"
    if kind == "no_member":
        return f"'{str(found)[:_SHOWN]}' is no {first['msg']}"
    expected = first["msg"] if kind == "wrong" else _WRONG.get(kind)
    if expected is None or name is None:
        return first["msg"]
    return f"{_named(name, place)} of {holder} is not a {expected}"


def _named(name: Any, place: list[Any]) -> str:
    is_entry = isinstance(name, int) and place
    return f"an entry of '{place[-1]}'" if is_entry else f"'{str(name)[:_SHOWN]}'"
