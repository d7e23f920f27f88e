"""The matrix: axes, their variants, exclusions, and names made from axis values."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.problems import Location, shown
from paraval.documents.scalars import loses_digits, plain, scalar_text
from paraval.plan.prompts.axis_files import AxisFile, check_use, read_axis_files, use_in_prompts
from paraval.plan.prompts.texts import Prompt
from paraval.plan.schema.suite_form import AXIS_NAME
from paraval.records import Scalar, Variant
from paraval.templates.template import (
    Field,
    TemplateError,
    TemplateFields,
    field_names,
    fill,
    parse,
)
from paraval.text.suggest import suggestion

VARIANT_LIMIT = 100_000
RESERVED = frozenset(
    ("input", "case", "repeat", "folder", "python", "parallel", "suite", "workspace")
)
"""Names with another meaning in templates and limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisValue:
    """One value of an axis, and the target keys that it overrides."""

    value: Scalar
    overlay: Mapping[str, Any]
    spot: Location
    workspace: Mapping[str, Any] | None = None
    """Keys of the suite's workspace that it overrides."""
    prompt: Prompt | None = None
    """If the value is a file: its text, which templates get instead of the name."""

    @property
    def text(self) -> str:
        return scalar_text(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What to compare: a name and its values."""

    name: str
    values: tuple[AxisValue, ...]

    def find(self, text: str) -> AxisValue | None:
        """Find a value by its text, also in Python's spelling, or as an equal number."""
        for value in self.values:
            if text in (value.text, str(value.value)):
                return value
        number = _number(text)
        for value in self.values:
            if not isinstance(value.value, str | bool) and number == _number(value.text):
                return value
        return None

    def texts(self) -> list[str]:
        return [value.text for value in self.values]


def _number(text: str) -> Decimal | None:
    """Compare as decimals: 0.1 is 0.10, and 2**53 + 1 is not 2**53."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


Choice = tuple[AxisValue, ...]
"""One value of every axis, in the order of the axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The axes, the choices that are not excluded, and the names of the axes."""

    axes: tuple[Axis, ...]
    choices: list[Choice]
    names: tuple[str, ...]
    """As written, including axes with problems."""
    offered: tuple[str, frozenset[str]] | None = None
    """The axis of models, and its values that run only when selected."""

    def is_only_offered(self, choice: Choice) -> bool:
        """Whether a choice is not part of the suite's own plan."""
        if self.offered is None:
            return False
        name, texts = self.offered
        pairs = zip(self.axes, choice, strict=True)
        return any(axis.name == name and value.text in texts for axis, value in pairs)


def variant_of(axes: Sequence[Axis], choice: Choice) -> Variant:
    return {axis.name: value.value for axis, value in zip(axes, choice, strict=True)}


def files_of(axes: Sequence[Axis], choice: Choice) -> dict[str, Prompt]:
    """Return the texts that axes stand for in one choice."""
    pairs = zip(axes, choice, strict=True)
    return {axis.name: value.prompt for axis, value in pairs if value.prompt is not None}


def read_matrix(written: Any, spot: Location, target: Any, folder: Path) -> tuple[Axis, ...]:
    """Read the axes, in order; report invalid ones and leave them out.

    `target`: as written, because a list of files has another meaning in its prompts.
    """
    if written is None:
        return ()
    if not isinstance(written, Mapping):
        spot.report(f"must be a mapping of axes to values, not {shown(written)}")
        return ()
    axes: list[Axis | None] = []
    for key, values in written.items():
        name, at = str(key), spot.at(str(key))
        prompts = use_in_prompts(name, target, written, folder)
        files = read_axis_files(values, at, folder, prompts)
        found = None if files is None else [_file_value(file) for file in files]
        if files and not prompts:
            check_use(name, target, written, at)
        axes.append(_read_axis(name, values, at, found))
    return tuple(axis for axis in axes if axis is not None)


def _file_value(file: AxisFile) -> AxisValue:
    return AxisValue(value=file.name, overlay={}, spot=file.spot, prompt=file.prompt)


def _read_axis(
    name: str, written: Any, spot: Location, files: list[AxisValue] | None
) -> Axis | None:
    if not re.fullmatch(AXIS_NAME, name):
        spot.report("axis names consist of letters, digits, '_' and '-', and start with a letter")
        return None
    if name in RESERVED:
        spot.report(f"'{name}' is reserved; rename the axis")
        return None
    values = _read_values(written, spot) if files is None else files
    if values is None:
        return None
    by_text: dict[str, AxisValue] = {}
    for value in values:
        if value.text in by_text:
            value.spot.report(f"duplicate value '{value.text}'")
        by_text.setdefault(value.text, value)
    if not values and files is None:
        spot.report("the axis has no values")
    return Axis(name=name, values=tuple(by_text.values())) if by_text else None


def _read_values(written: Any, spot: Location) -> list[AxisValue] | None:
    match written:
        case list() | tuple():
            read = [_read_value(item, spot.at(n)) for n, item in enumerate(written)]
        case Mapping():
            read = [
                _read_overlay(value, overlay, spot.at(scalar_text(value)))
                for value, overlay in written.items()
            ]
        case _:
            spot.report(
                "must be a list of values, a mapping of values to target keys, or text files"
                f" such as prompts/*.md, not {shown(written)}"
            )
            return None
    values = [value for value in read if value is not None]
    return values if len(values) == len(read) else None


def _read_value(written: Any, spot: Location) -> AxisValue | None:
    if not isinstance(written, str | int | float):
        spot.report(f"a value must be text, a number, true or false, not {shown(written)}")
        return None
    if loses_digits(written):
        text = scalar_text(written)
        spot.report(f"{text} is read as the number {plain(written)}; write '{text}' for the text")
        return None
    if isinstance(written, float) and not math.isfinite(written):
        spot.report(f"{written} is not a usable number")
        return None
    if isinstance(written, str) and (not written.strip() or not written.isprintable()):
        spot.report(f"a value must be printable text on one line, not {shown(written)}")
        return None
    return AxisValue(value=plain(written), overlay={}, spot=spot)


def _read_overlay(value: Any, overlay: Any, spot: Location) -> AxisValue | None:
    if overlay is not None and not isinstance(overlay, Mapping):
        spot.report(f"must be a mapping of target keys, not {shown(overlay)}")
        return None
    read = _read_value(value, spot)
    if read is None:
        return None
    keys = dict(overlay or {})
    workspace = keys.pop("workspace", None)
    if workspace is not None and not isinstance(workspace, Mapping):
        spot.at("workspace").report(f"must be a mapping, not {shown(workspace)}")
        return None
    return AxisValue(value=read.value, overlay=keys, spot=spot, workspace=workspace)


# ---- variants


def read_choices(axes: Sequence[Axis], exclude: Any, spot: Location) -> list[Choice]:
    """Return every combination that is not excluded; the first axis changes slowest."""
    count = math.prod(len(axis.values) for axis in axes)
    if count > VARIANT_LIMIT:
        spot.at("matrix").report(f"makes {count:,} variants; the limit is {VARIANT_LIMIT:,}")
        return []
    choices = list(itertools.product(*(axis.values for axis in axes)))
    rules = _read_rules(axes, exclude, spot.at("exclude"))
    kept = [choice for choice in choices if not any(_fits(rule, choice) for rule in rules)]
    if choices and not kept:
        spot.at("exclude").report("leaves no variant to run")
    return kept


Rule = tuple[AxisValue | None, ...]
"""For each axis the excluded value; None: any."""


def _read_rules(axes: Sequence[Axis], exclude: Any, spot: Location) -> list[Rule]:
    if exclude is None:
        return []
    if not isinstance(exclude, list | tuple):
        spot.report(f"must be a list of mappings of axes to values, not {shown(exclude)}")
        return []
    rules = [_read_rule(axes, item, spot.at(number)) for number, item in enumerate(exclude)]
    return [rule for rule in rules if rule is not None]


def _read_rule(axes: Sequence[Axis], written: Any, spot: Location) -> Rule | None:
    if not isinstance(written, Mapping) or not written:
        spot.report(f"must be a mapping of axes to values, not {shown(written or None)}")
        return None
    by_name = {axis.name: axis for axis in axes}
    rule: dict[str, AxisValue] = {}
    for name, value in written.items():
        found = find_value(by_name, str(name), scalar_text(value), spot.at(str(name)))
        if found is not None:
            rule[name] = found
    if len(rule) < len(written):
        return None
    return tuple(rule.get(axis.name) for axis in axes)


def find_value(axes: Mapping[str, Axis], name: str, text: str, spot: Location) -> AxisValue | None:
    """Return the value of an axis that a suite names elsewhere; report unknown ones."""
    if name not in axes:
        spot.report(f"unknown axis '{name}'{suggestion(name, axes)}")
        return None
    found = axes[name].find(text)
    if found is None:
        spot.report(f"axis '{name}' has no value '{text}'{suggestion(text, axes[name].texts())}")
    return found


def _fits(rule: Rule, choice: Choice) -> bool:
    return all(wanted is None or wanted is got for wanted, got in zip(rule, choice, strict=True))


# Names from axes: `{model}` and `{agent}` in a target, filled in for one variant.


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisText:
    """A name, and the location to report if it is wrong."""

    text: str
    spot: Location


def lone_field(template: str) -> str | None:
    """Return the field of a template that is just one field, as in `{model}`."""
    try:
        pieces = parse(template)
    except TemplateError:
        return None
    return pieces[0].name if len(pieces) == 1 and isinstance(pieces[0], Field) else None


def spelled_out(
    template: str, spot: Location, choice: Choice, comparison: Matrix, what: str
) -> AxisText | None:
    """Fill in a template over axes for one choice; report problems and return None."""
    try:
        names = field_names(template)
    except TemplateError as error:
        spot.report(f"{error.message} in {shown(template)}")
        return None
    for name in names:
        if name not in comparison.names:
            near = suggestion(name, comparison.names)
            spot.report(f"unknown axis '{name}' (only axes can select {what}){near}")
    axes = [axis.name for axis in comparison.axes]
    if not set(names) <= set(axes):
        return None
    axis = lone_field(template)
    if axis is not None:
        spot = choice[axes.index(axis)].spot
    variant = variant_of(comparison.axes, choice)
    fields = TemplateFields(input=None, case_id="", repeat=1, folder="", variant=variant)
    return AxisText(text=fill(template, fields), spot=spot)
