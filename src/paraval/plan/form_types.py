"""What values in a suite file may be, in plain words: the parts that forms are made of.

The words here are used three times: in the messages about a wrong suite, in the JSON Schema that
editors use, and in the reference page.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from paraval.plan.scalars import scalar_text
from paraval.plan.sizes import read_size


class Words:
    """What a value must be, in plain words, instead of the validator's own."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(source), custom_error_type="words", custom_error_message=self.text
        )


class Told:
    """The same for the reference page alone, where the parts of a value have words of their own."""

    def __init__(self, text: str) -> None:
        self.text = text


class Shorthand:
    """A form that may be written as the value of its main key alone: `contains: hello`."""

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


def _item_text(value: Any) -> Any:
    return scalar_text(value) if isinstance(value, bool | int | float) else value


def _bytes(value: Any) -> Any:
    return read_size(scalar_text(value)) if isinstance(value, str | int | float) else value


Text = Annotated[str, Words("text")]
Name = Annotated[
    str,
    Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,100}$"),
    Words("1 to 100 characters on one line"),
]
Flag = Annotated[bool, Words("true or false")]
Number = Annotated[float, Field(allow_inf_nan=False), Words("a number")]
Seconds = Annotated[
    float, Field(gt=0, allow_inf_nan=False), Words("a number of seconds greater than 0")
]
Delay = Annotated[float, Field(ge=0, allow_inf_nan=False), Words("a number of seconds, 0 or more")]
Count = Annotated[int, Field(ge=1), Words("a whole number, 1 or more")]
Share = Annotated[float, Field(ge=0, le=1), Words("a number from 0 to 1")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), Words("a number greater than 0")]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), Words("a number, 0 or more")]
Item = Annotated[str, BeforeValidator(_item_text, json_schema_input_type=str | int | float | bool)]
Prompt = Annotated[str, Field(min_length=1), Words("text, or the path of a file")]
TextOrNumber = Annotated[Item, Words("text or a number")]
FunctionName = Annotated[
    str,
    Field(pattern=r"^[^\s:]+:[^\s:]+$"),
    Words("the name of a function: 'module:function'"),
]
VariableName = Annotated[
    str, Field(pattern=r"^[^=\x00\s]+$"), Words("the name of an environment variable")
]
Memory = Annotated[
    int,
    BeforeValidator(_bytes, json_schema_input_type=int | str),
    Words("an amount of memory such as 500MB, 2GB or 1.5GiB"),
]
FileSize = Annotated[
    int,
    BeforeValidator(_bytes, json_schema_input_type=int | str),
    Words("an amount such as 500MB, 2GB or 1.5GiB"),
]
AtOnce = Annotated[
    Annotated[int, Field(ge=1)] | Literal["auto"], Words("a whole number, 1 or more, or 'auto'")
]
Texts = Annotated[list[Annotated[str, Field(min_length=1)]], Words("a list of texts")]
Environment = dict[VariableName, TextOrNumber]
Arguments = Annotated[list[Item], Field(min_length=1)]


class Form(BaseModel):
    """A mapping in a suite file: only the keys named here, and nothing is guessed."""

    # Built when first used: most suites use few of the forms.
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)
