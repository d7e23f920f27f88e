"""The parameters of a chat target: values from axes, JSON Schemas and tools, and whether the
model's protocol has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paraval.documents.files import read_beside
from paraval.documents.forms import Locate, check
from paraval.documents.problems import Location, shown
from paraval.documents.scalars import plain
from paraval.plan.matrix import Choice, Matrix, lone_field
from paraval.plan.registry import check_options
from paraval.plan.schema.target_forms import ChatForm, ToolForm
from paraval.plan.suite_folder import SuiteFolder
from paraval.records import ChatSettings, Model, Provider, Tool
from paraval.text.suggest import suggestion

PARAMETERS = (
    "temperature",
    "max_tokens",
    "top_p",
    "stop",
    "seed",
    "reasoning_effort",
    "response_format",
    "tools",
)
"""Keys of `chat` that may be an axis."""
_NOT_IN = {Provider.ANTHROPIC: ("seed",), Provider.OPENAI_RESPONSES: ("seed", "stop")}
"""Parameters that a protocol does not have."""
_ANTHROPIC_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


def with_axis_values(
    form: ChatForm, choice: Choice, comparison: Matrix, locate: Locate
) -> ChatForm | None:
    """Return the form with values of axes in place of their fields; report problems and return
    None."""
    values: dict[str, Any] = {}
    names = [axis.name for axis in comparison.axes]
    is_wrong = False
    for key in PARAMETERS:
        written = getattr(form, key)
        name = lone_field(written) if isinstance(written, str) else None
        if name is None:
            continue
        if name not in names:
            if name not in comparison.names:
                near = suggestion(name, comparison.names)
                locate((key,)).report(f"unknown axis '{name}'{near}")
            return None
        value = choice[names.index(name)]
        # The same value may have been refused with another choice, and is told once.
        is_wrong |= not _is_fine(key, value.value, form, value.spot)
        values[key] = value.value
    if is_wrong:
        return None
    return form.model_copy(update=values) if values else form


def _is_fine(key: str, value: Any, form: ChatForm, spot: Location) -> bool:
    if isinstance(value, str) and lone_field(value) is not None:
        spot.report(f"{shown(value)} cannot be the {key}: axis values are not templates")
        return False
    checked = check(ChatForm, {"model": form.model, key: value}, spot, lambda _: spot)
    return checked is not None and getattr(checked, key) is not None


def read_settings(form: ChatForm, locate: Locate, around: SuiteFolder) -> ChatSettings:
    """Read the parameters except temperature and max_tokens; report problems."""
    stop = form.stop
    if form.options is not None:
        check_options(form.options, locate(("options",)))
        if "stream" in form.options:
            locate(("options", "stream")).report("belongs to the model's own options")
    schema = form.response_format
    return ChatSettings(
        top_p=None if form.top_p is None else float(form.top_p),
        stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        seed=None if form.seed is None else int(form.seed),
        reasoning_effort=form.reasoning_effort,
        response_format=(
            None
            if schema is None
            else read_schema(schema, locate(("response_format",)), around.folder)
        ),
        tools=() if form.tools is None else _read_tools(form.tools, locate(("tools",)), around),
        options=plain(form.options or {}),
    )


def check_protocol(settings: ChatSettings, model: Model, locate: Locate) -> None:
    """Report parameters that the model's protocol does not have, or that its options set too."""
    for key in ("top_p", "stop", "seed", "reasoning_effort", "response_format", "tools"):
        if getattr(settings, key) in (None, ()):
            continue
        spot = locate((key,))
        if key in _NOT_IN.get(model.provider, ()):
            spot.report(
                f"{model.provider} has no '{key}' (model '{model.name}'); set it for the other"
                " models only, in an overlay of the matrix"
            )
        elif key in model.options or key in settings.options:
            spot.report(f"'{key}' is also set in the options of model '{model.name}'; use one")
    effort = settings.reasoning_effort
    if (
        model.provider is Provider.ANTHROPIC
        and effort is not None
        and effort not in _ANTHROPIC_EFFORTS
    ):
        levels = ", ".join(_ANTHROPIC_EFFORTS)
        locate(("reasoning_effort",)).report(f"anthropic has no effort '{effort}'; use {levels}")


# ---- JSON Schemas


def read_schema(written: Any, spot: Location, folder: Path) -> Any:
    """Return a JSON Schema, or that of the file that it names; report problems."""
    if not isinstance(written, str):
        schema = plain(written)
        _check_schema(schema, spot)
        return schema
    found = len(spot.problems)
    document = read_beside(written, spot, folder)
    if document is None:
        return {}
    schema = plain(document.data)
    if isinstance(schema, dict):
        _check_schema(schema, document.spot)
    elif len(spot.problems) == found:
        spot.report(f"{shown(written)} must contain a JSON Schema, not {shown(schema)}")
    return schema


def _check_schema(schema: dict[str, Any], spot: Location) -> None:
    # Imported late: it is slow to import, and most suites have no schema.
    from paraval.plan.json_schemas import check_schema  # noqa: PLC0415 - see above

    if schema.get("type") in ("json_schema", "json_object"):
        spot.report("must be the JSON Schema itself; a provider's own format goes into options")
    else:
        check_schema(schema, spot)


# ---- tools


def _read_tools(written: Any, spot: Location, around: SuiteFolder) -> tuple[Tool, ...]:
    if isinstance(written, str):
        document = read_beside(written, spot, around.folder)
        if document is None:
            return ()
        written, spot = document.data, document.spot
    if not isinstance(written, list | tuple) or not written:
        spot.report(
            f"must be a list of tools, or a .json or .yaml file with one, not {shown(written)}"
        )
        return ()
    tools: dict[str, Tool] = {}
    for number, item in enumerate(written):
        tool = _read_tool(item, spot.at(number), around)
        if tool is not None and tool.name in tools:
            spot.at(number).report(f"duplicate tool '{tool.name}'")
        elif tool is not None:
            tools[tool.name] = tool
    return tuple(tools.values())


def _read_tool(written: Any, spot: Location, around: SuiteFolder) -> Tool | None:
    found = len(spot.problems)
    form = check(ToolForm, _in_our_form(written), spot)
    if form is None or len(spot.problems) > found:
        return None
    made = Tool(name="", parameters=_NO_ARGUMENTS)
    if form.python is not None:
        function = around.function(form.python, spot.at("python"))
        if function is None:
            return None
        made = _tool_of(function, form, spot)
    elif form.name is None:
        spot.at("name").report("is missing; a tool needs a name, or a Python function")
        return None
    parameters = made.parameters
    if form.parameters is not None:
        parameters = read_schema(form.parameters, spot.at("parameters"), around.folder)
    return Tool(
        name=form.name or made.name,
        description=made.description if form.description is None else form.description,
        parameters=parameters,
        python=form.python,
    )


def _in_our_form(written: Any) -> Any:
    """Accept a function's name, and the forms in which OpenAI and Anthropic take tools."""
    if isinstance(written, str):
        return {"python": written}
    if not isinstance(written, Mapping):
        return written
    tool = dict(written)
    if tool.get("type") == "function":
        del tool["type"]
        tool.pop("strict", None)
    if isinstance(tool.get("function"), Mapping):
        tool |= tool.pop("function")
    if "input_schema" in tool:
        tool["parameters"] = tool.pop("input_schema")
    return tool


def _tool_of(function: Callable[..., Any], form: ToolForm, spot: Location) -> Tool:
    """Describe a function as a tool: its name, its docstring, its annotated arguments."""
    parameters: dict[str, Any] = {}
    if form.parameters is None:
        # Imported late: only functions need it.
        from pydantic import PydanticUserError, TypeAdapter  # noqa: PLC0415 - see above
        from pydantic.errors import PydanticSchemaGenerationError  # noqa: PLC0415

        try:
            arguments: Any = function  # not a type, but pydantic takes functions too
            parameters = TypeAdapter(arguments).json_schema()
        except (PydanticUserError, PydanticSchemaGenerationError, NameError, TypeError) as error:
            reason = str(error).splitlines()[0]
            spot.report(
                f"cannot describe the arguments of '{form.python}': {reason}; set parameters"
            )
        for name, argument in parameters.get("properties", {}).items():
            parameters["properties"][name] = {
                key: value for key, value in argument.items() if key != "title"
            }
        if parameters and parameters.get("type") != "object":
            spot.report(f"'{form.python}' takes positional arguments only; use named ones")
    name = getattr(function, "__name__", "tool")
    return Tool(name=name, description=inspect.getdoc(function) or "", parameters=parameters)
