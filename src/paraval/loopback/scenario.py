"""Scenarios: looked up by name, read from a file or taken as a mapping, and validated as a
whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from paraval.documents.files import read_document
from paraval.documents.problems import Document, Location, shown
from paraval.documents.scalars import plain
from paraval.errors import Problem, ScenarioError
from paraval.loopback.scenario_forms import Behavior, ScenarioAccount, ScenarioForm, ScenarioPart
from paraval.text.suggest import suggestion

Steps = tuple[str | int, ...]

BUNDLED = Path(__file__).parent / "scenarios"


def bundled_names() -> tuple[str, ...]:
    """The bundled scenarios."""
    return tuple(sorted(path.stem for path in BUNDLED.glob("*.yaml")))


class Scenario(ScenarioForm):
    """How the model server behaves."""

    @classmethod
    def load(
        cls, source: str | os.PathLike[str] | Mapping[str, Any] | None = None, **overrides: Any
    ) -> Self:
        """Load a bundled scenario by name, a file or a mapping, with `keys` overriding its values.

        Without a source: echo without delay. Raises ScenarioError with every problem.
        """
        written = _written(source)
        spot, data = written.spot, plain(written.data)
        if isinstance(data, Mapping):
            data = {**data, **overrides}
            try:
                return cls.model_validate(data)
            except ValidationError as error:
                for detail in error.errors(include_url=False):
                    steps = _steps_as_written(detail["loc"], data)
                    spot.at(*steps).report(_sentence(detail, steps))
        else:
            spot.report(f"must be a mapping, not {shown(data)}")
        raise ScenarioError(list(spot.problems))

    @cached_property
    def identity(self) -> str:
        """A hash of the scenario's behavior: equal for scenarios that behave the same, wherever
        they are stored."""
        text = self.model_dump_json(exclude={"about"}, warnings=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def behavior(self, model: str) -> Behavior:
        """A model's behavior: its own settings over the scenario's."""
        own = self.models.get(model)
        if own is None:
            return self
        own_values = {name: getattr(own, name) for name in own.model_fields_set}
        return self.model_copy(update=own_values)

    @cached_property
    def accounts_by_key(self) -> Mapping[str, tuple[str, ScenarioAccount]]:
        """API key -> the account's name and settings."""
        return {
            name if account.key is None else account.key: (name, account)
            for name, account in self.accounts.items()
        }

    @cached_property
    def accepted_keys(self) -> frozenset[str] | None:
        """The accepted keys; None: any key, or none at all."""
        return None if self.keys is None else frozenset((*self.keys, *self.accounts_by_key))


def _written(source: str | os.PathLike[str] | Mapping[str, Any] | None) -> Document:
    spot = Location(problems={})
    if source is None or isinstance(source, Mapping):
        return Document(data=source or {}, spot=spot)
    path = BUNDLED / f"{source}.yaml" if source in bundled_names() else Path(source)
    if not os.path.exists(path) and not path.suffix:  # noqa: PTH110 - False for a name too long
        hint = suggestion(str(source), bundled_names())
        raise ScenarioError([Problem(message=f"unknown scenario '{source}'{hint}")])
    spot = replace(spot, file=str(path))
    document = read_document(path, spot)
    if document is None:
        raise ScenarioError(list(spot.problems))
    return document


# ---- problems in plain words


def _steps_as_written(found: Steps, data: Any) -> Steps:
    """Position in the file: a single rule may be written without the list around it."""
    steps: list[str | int] = []
    for step in found:
        if isinstance(step, int) and not isinstance(data, list):
            continue
        steps.append(step)
        with suppress(LookupError, TypeError):
            data = data[step]
    return tuple(steps)


def _sentence(detail: ErrorDetails, steps: Steps) -> str:
    value = shown(detail["input"])
    match detail["type"]:
        case "extra_forbidden":
            name = str(steps[-1]) if steps else ""
            return f"unknown key '{name}'{suggestion(name, _keys_at(steps[:-1]))}"
        case "missing":
            return "is missing"
        case "value_error":
            return str(detail["ctx"]["error"])
        case "pattern_regex" | "pattern_type":
            return f"must be a regular expression, not {value}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"must be a mapping, not {value}"
        case "too_short":
            return "must not be empty"
        case "list_type":
            return f"must be a list, not {value}"
        case "string_type":
            return f"must be text, not {value}"
        case "bool_type":
            return f"must be true or false, not {value}"
        case "int_type" | "int_from_float":
            return f"must be a whole number, not {value}"
        case "float_type":
            return f"must be a number, not {value}"
    expected = detail["msg"].removeprefix("Input should be ")
    return f"must be {expected}, not {value}"


def _keys_at(steps: Steps) -> list[str]:
    """The keys of the form at a position."""
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
