"""Checking a mapping of a suite file against its form, with problems in plain words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from paraval.plan.form_types import Form
from paraval.plan.places import Spot, Step, shown, suggestion

F = TypeVar("F", bound=Form)


Locate = Callable[[tuple[Step, ...]], Spot]
"""Where a key stands, given the steps to it."""


def check(form: type[F], written: Any, spot: Spot, locate: Locate | None = None) -> F | None:
    """The form filled in, after telling every problem of it.

    With problems, what is right is still filled in where that can be, so that the checks that
    follow find theirs too. `locate` is for mappings put together from several places.
    """
    find: Locate = locate or (lambda steps: spot.at(*steps))
    if not isinstance(written, Mapping):
        spot.report(f"must be a mapping, not {shown(written)}")
        return None
    given = {key: value for key, value in written.items() if value is not None or key == "value"}
    try:
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


def keys_of(form: type[Form]) -> list[str]:
    """The keys of a form, as they are written in files."""
    return [field.alias or name for name, field in form.model_fields.items()]


def _report(detail: ErrorDetails, form: type[Form], locate: Locate) -> None:
    steps: tuple[Step, ...] = tuple(step for step in detail["loc"] if step != "[key]")
    key = locate(steps)
    value = detail["input"]
    match detail["type"]:
        case "extra_forbidden":
            key.report(unknown_key(str(steps[-1]), form))
        case "missing":
            key.report("is missing")
        case "words":
            key.report(f"must be {detail['msg']}, not {shown(value)}")
        case "dict_type" | "model_type" | "model_attributes_type":
            key.report(f"must be a mapping, not {shown(value)}")
        case "list_type":
            key.report(f"must be a list, not {shown(value)}")
        case _:
            key.report(f"{detail['msg']}, not {shown(value)}")


def unknown_key(name: str, form: type[Form]) -> str:
    return f"unknown key '{name}'{suggestion(name, keys_of(form))}"
