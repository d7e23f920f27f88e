"""Names that axes tell: `{model}` and `{agent}` in a target, spelled out for one variant."""

from __future__ import annotations

from dataclasses import dataclass

from paraval.plan.matrix import Choice, Comparison, variant_of
from paraval.plan.places import Spot, shown, suggestion
from paraval.templates import Field, TemplateError, TemplateFields, field_names, fill, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisText:
    """A name, and where it is spelled out: that is where it would be wrong."""

    text: str
    spot: Spot


def lone_field(template: str) -> str | None:
    """The name of the one field that a template is, as in `{model}`."""
    try:
        pieces = parse(template)
    except TemplateError:
        return None
    return pieces[0].name if len(pieces) == 1 and isinstance(pieces[0], Field) else None


def spelled_out(
    template: str, spot: Spot, choice: Choice, comparison: Comparison, what: str
) -> AxisText | None:
    """A template over axes, for one choice of their values; None after telling what is wrong."""
    try:
        names = field_names(template)
    except TemplateError as error:
        spot.report(f"{error.message} in {shown(template)}")
        return None
    for name in names:
        if name not in comparison.names:
            near = suggestion(name, comparison.names)
            spot.report(f"there is no axis '{name}'{near}; {what} is told by axes alone")
    axes = [axis.name for axis in comparison.axes]
    if not set(names) <= set(axes):
        return None
    axis = lone_field(template)
    if axis is not None:
        spot = choice[axes.index(axis)].spot
    variant = variant_of(comparison.axes, choice)
    fields = TemplateFields(input=None, case_id="", repeat=1, folder="", variant=variant)
    return AxisText(text=fill(template, fields), spot=spot)
