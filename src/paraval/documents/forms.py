"""Validation of mappings against forms, with every problem reported in plain words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from paraval.documents.problems import Location, Step, shown
from paraval.documents.scalars import scalar_text
from paraval.text.suggest import suggestion

T = TypeVar("T")

# Amounts of memory: `500MB`, `2 GB`, `1.5GiB`, or plain bytes.

_UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", start=1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)},
}
_BY_FOLDED = {unit.casefold(): size for unit, size in _UNITS.items()}
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]{1,3})?")

LEAST_BYTES = 1_000_000
"""No process is smaller; `memory: 500` is a typo."""
LARGEST_BYTES = 1 << 60


def read_size(written: str | float) -> int | None:
    """Return a size in bytes; None if it is not a sensible amount of memory.

    A bare `M` or `G` is rejected: some tools mean powers of 1000, others of 1024.
    """
    found = _AMOUNT.fullmatch(str(written).strip())
    if found is None:
        return None
    unit = _BY_FOLDED.get((found[2] or "B").casefold())
    size = 0 if unit is None else round(float(found[1]) * unit)
    return size if LEAST_BYTES <= size <= LARGEST_BYTES else None


# The types of values in a suite file, each with a description for messages.


class PlainWords:
    """What a value must be, replacing the validator's own message."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(source), custom_error_type="words", custom_error_message=self.text
        )


class ReferenceNote:
    """The same for the reference page only, where the parts of a value have their own messages."""

    def __init__(self, text: str) -> None:
        self.text = text


class Shorthand:
    """A form that may be written as the value of its main key: `contains: hello`."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = handler(schema)
        key = handler.resolve_ref_schema(whole)["properties"][self.key]
        alone = {name: value for name, value in key.items() if name not in ("title", "default")}
        return {"anyOf": [alone, whole]}


if TYPE_CHECKING:
    Unchecked = Annotated[T, ...]
else:

    class Unchecked:
        """`Unchecked[X]`: a part of a form that is checked on its own, when it is read.

        Unlike pydantic's SkipValidation it inspects X only for the JSON Schema: building all forms
        took two thirds of the CPU of loading a small suite.
        """

        def __init__(self, kind: Any) -> None:
            self.kind = kind

        def __class_getitem__(cls, kind: Any) -> Any:
            return Annotated[kind, cls(kind)]

        def __get_pydantic_core_schema__(self, *_source: Any) -> CoreSchema:
            return core_schema.any_schema()

        def __get_pydantic_json_schema__(
            self, _schema: CoreSchema, handler: GetJsonSchemaHandler
        ) -> JsonSchemaValue:
            return handler(TypeAdapter(self.kind).core_schema)


def _item_text(value: Any) -> Any:
    return scalar_text(value) if isinstance(value, bool | int | float) else value


_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|min|m|h)")
_SECONDS_OF = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def read_duration(value: Any) -> Any:
    """A text such as `2s`, `500ms` or `1.5` in seconds; anything else unchanged."""
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(found[1]) * _SECONDS_OF[found[2]] if found else value


def _bytes(value: Any) -> Any:
    return read_size(scalar_text(value)) if isinstance(value, str | int | float) else value


Text = Annotated[str, PlainWords("text")]
Name = Annotated[
    str,
    Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,100}$"),
    PlainWords("1 to 100 characters on one line"),
]
Flag = Annotated[bool, PlainWords("true or false")]
Number = Annotated[float, Field(allow_inf_nan=False), PlainWords("a number")]
Seconds = Annotated[
    float, Field(gt=0, allow_inf_nan=False), PlainWords("a number of seconds greater than 0")
]
Duration = Annotated[
    float,
    BeforeValidator(read_duration, json_schema_input_type=float | str),
    Field(gt=0, allow_inf_nan=False),
    PlainWords("a duration such as 2s, 500ms or 1.5 (seconds), greater than 0"),
]
Delay = Annotated[
    float, Field(ge=0, allow_inf_nan=False), PlainWords("a number of seconds, 0 or more")
]
Count = Annotated[int, Field(ge=1), PlainWords("a whole number, 1 or more")]
Share = Annotated[float, Field(ge=0, le=1), PlainWords("a number from 0 to 1")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), PlainWords("a number greater than 0")]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), PlainWords("a number, 0 or more")]
Item = Annotated[str, BeforeValidator(_item_text, json_schema_input_type=str | int | float | bool)]
Prompt = Annotated[str, Field(min_length=1), PlainWords("text, or the path of a file")]
TextOrNumber = Annotated[Item, PlainWords("text or a number")]
FunctionName = Annotated[
    str,
    Field(pattern=r"^[^\s:]+:[^\s:]+$"),
    PlainWords("a function, written 'module:function'"),
]
VariableName = Annotated[
    str, Field(pattern=r"^[^=\x00\s]+$"), PlainWords("the name of an environment variable")
]
Memory = Annotated[
    int,
    BeforeValidator(_bytes, json_schema_input_type=int | str),
    PlainWords("an amount of memory such as 500MB, 2GB or 1.5GiB"),
]
FileSize = Annotated[
    int,
    BeforeValidator(_bytes, json_schema_input_type=int | str),
    PlainWords("an amount such as 500MB, 2GB or 1.5GiB"),
]
AtOnce = Annotated[
    Annotated[int, Field(ge=1)] | Literal["auto"],
    PlainWords("a whole number, 1 or more, or 'auto'"),
]
Texts = Annotated[list[Annotated[str, Field(min_length=1)]], PlainWords("a list of strings")]
Environment = dict[VariableName, TextOrNumber]
Arguments = Annotated[list[Item], Field(min_length=1)]


class Form(BaseModel):
    """A mapping in a suite file: strict types, and no unknown keys."""

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Keys that are often written here: where they belong."""
    example: ClassVar[str] = ""
    """How it may be written."""

    # Built when first used: most suites use few of the forms.
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


def pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"{shown(pattern)} is not a valid regular expression: {error}"
    return None


F = TypeVar("F", bound=Form)


Locate = Callable[[tuple[Step, ...]], Location]
"""Returns the location of a key, given the steps to it."""


def check(form: type[F], written: Any, spot: Location, locate: Locate | None = None) -> F | None:
    """Validate a mapping and return the form, after reporting every problem.

    Despite problems, the valid keys are returned if possible, so that later checks can find more.
    `locate` is for mappings merged from several places.
    """
    find: Locate = locate or (lambda steps: spot.at(*steps))
    if not isinstance(written, Mapping):
        example = form.example and f", as in {form.example}"
        spot.report(f"must be a mapping{example}, not {shown(written)}")
        return None
    given = {
        key: value
        for key, value in written.items()
        # An unknown key is an error even without a value: {metadata.fact} may lack its quotes.
        if value is not None or key == "value" or key not in keys_of(form)
    }
    try:
        with _no_plugins():
            return form.model_validate(given)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
    for detail in details:
        _report(detail, form, find)
    wrong = {detail["loc"][0] for detail in details}
    try:
        return form.model_validate({key: given[key] for key in given if key not in wrong})
    except ValidationError:
        return None


_PLUGINS_OFF = "PYDANTIC_DISABLE_PLUGINS"


@contextmanager
def _no_plugins() -> Iterator[None]:
    """Forms are built on first use, and pydantic would then search all installed packages for
    plugins, and load them. They are for users' models."""
    before = os.environ.get(_PLUGINS_OFF)
    os.environ[_PLUGINS_OFF] = "__all__"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PLUGINS_OFF]
        else:
            os.environ[_PLUGINS_OFF] = before


def keys_of(form: type[Form]) -> list[str]:
    """Return the keys of a form as written in files."""
    return [field.alias or name for name, field in form.model_fields.items()]


def _report(detail: ErrorDetails, form: type[Form], locate: Locate) -> None:
    steps: tuple[Step, ...] = tuple(step for step in detail["loc"] if step != "[key]")
    key = locate(steps)
    value = detail["input"]
    match detail["type"]:
        case "extra_forbidden":
            name = str(steps[-1])
            message = unknown_key(name, _form_at(form, steps[:-1]))
            if value is None and "did you mean" not in message:
                message = f"unknown key '{name}'; a field needs quotes: \"{{{name}}}\""
            key.report(message)
        case "missing":
            key.report("is missing")
        case "words":
            key.report(f"must be {detail['msg']}, not {shown(value)}")
        case "dict_type" | "model_type" | "model_attributes_type":
            key.report(f"must be a mapping, not {shown(value)}")
        case "literal_error":
            key.report(
                f"must be {detail['msg'].removeprefix('Input should be ')}, not {shown(value)}"
            )
        case "list_type":
            key.report(f"must be a list, not {shown(value)}")
        case _:
            key.report(f"{detail['msg']}, not {shown(value)}")


def _form_at(form: type[Form], steps: tuple[Step, ...]) -> type[Form]:
    """The form of a part of a mapping, or the innermost one around it."""
    for step in steps:
        field = form.model_fields.get(str(step))
        kinds = [] if field is None else [*_kinds_in(field.annotation)]
        form = next((kind for kind in kinds if issubclass(kind, Form)), form)
    return form


def _kinds_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for inner in get_args(annotation):
        yield from _kinds_in(inner)


def unknown_key(name: str, form: type[Form]) -> str:
    instead = form.elsewhere.get(name)
    hint = suggestion(name, keys_of(form)) if instead is None else f": {instead}"
    return f"unknown key '{name}'{hint}"
