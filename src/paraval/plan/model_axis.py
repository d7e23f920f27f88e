"""The axis whose values are models, found or created when a suite is loaded; and a check that such
axes have an effect.

A suite keeps every model of its registry as a possible value of that axis. By default the models
that the matrix lists run, or else the first one in the registry.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.problems import Location
from paraval.documents.scalars import scalar_text
from paraval.errors import RequestError
from paraval.plan.matrix import RESERVED, Axis, AxisValue, lone_field
from paraval.plan.registry import Registry
from paraval.plan.schema.suite_form import AXIS_NAME
from paraval.records import AgentTarget, Target, Variant
from paraval.templates.template import TemplateError, field_names
from paraval.text.suggest import nearest, quoted

# Whether axes that list models or agents have any effect.

USUAL_AXIS = "model"


def check_axes_are_asked(
    target: Any, axes: Sequence[Axis], registry: Registry, spot: Location
) -> None:
    """Report axes that list models or agents which the target does not use."""
    if not isinstance(target, Mapping):
        return
    if target.get("agent") is not None:
        _check_agents(target, axes, spot)
        _check_models_of_agent(target, axes, registry, spot)
    elif isinstance(target.get("chat"), Mapping):
        _check_models(target["chat"].get("model"), "chat.model", axes, registry, spot)


def _check_models(
    template: Any, key: str, axes: Sequence[Axis], registry: Registry, spot: Location
) -> None:
    asked = _fields(template)
    if asked is None:
        return  # Reported where the model is looked up.
    overlay = key.partition(".")[0]
    for axis in axes:
        if lists_models(axis, registry) and not _has(axis, overlay) and axis.name not in asked:
            spot.at(axis.name).report(
                f"lists models, but {key} is '{template}' and does not use them; write"
                f' model: "{{{axis.name}}}" there, or give each value its own {key}'
            )


def _check_models_of_agent(
    target: Mapping[Any, Any], axes: Sequence[Axis], registry: Registry, spot: Location
) -> None:
    if target.get("model") is not None:
        _check_models(target["model"], "model", axes, registry, spot)
        return
    words = json.dumps(target, default=str)
    for axis in axes:
        is_one = axis.name == USUAL_AXIS or lists_models(axis, registry)
        if is_one and not _has(axis, "model") and f"{{{axis.name}}}" not in words:
            spot.at(axis.name).report(
                f'lists models, but the target does not use them; write model: "{{{axis.name}}}"'
                " there"
            )


def _check_agents(target: Mapping[Any, Any], axes: Sequence[Axis], spot: Location) -> None:
    from paraval.agents.catalog import AGENTS  # noqa: PLC0415 - most suites have no agents

    asked = _fields(target["agent"])
    if asked is None:
        return
    for axis in axes:
        lists_agents = all(value.text in AGENTS for value in axis.values)
        if lists_agents and not _has(axis, "agent") and axis.name not in asked:
            spot.at(axis.name).report(
                f"lists agents, but the target's agent is '{target['agent']}'; write"
                f' agent: "{{{axis.name}}}" there'
            )


def lists_models(axis: Axis, registry: Registry) -> bool:
    known = [value.text in registry.spots for value in axis.values]
    return all(known) or (any(known) and bool(nearest(axis.name, [USUAL_AXIS])))


def _has(axis: Axis, key: str) -> bool:
    return any(key in value.overlay for value in axis.values)


def _fields(template: Any) -> tuple[str, ...] | None:
    try:
        return field_names(template) if isinstance(template, str) else None
    except TemplateError:
        return None


ALL = ("all",)
VariantTargets = Sequence[tuple[Variant, Target]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAxis:
    """Which axis selects the model, and which of its values run by default."""

    name: str | None = None
    usual: tuple[str, ...] = ()
    """The models that the matrix lists, or the first in the registry; as text."""
    is_made: bool = False
    """True: the matrix lists no models, so the first in the registry runs."""
    overlays: bool = False
    """True: the matrix gives each value its own keys, so no other value can be selected."""
    why_none: str = ""
    """Why models cannot be selected, if there is no such axis."""

    def runs(self, variant: Variant) -> bool:
        """Whether a variant runs by default."""
        return self.name is None or scalar_text(variant[self.name]) in self.usual

    def only_offered(self, axes: tuple[Axis, ...]) -> tuple[str, frozenset[str]] | None:
        """Return the axis, and its values that run only when selected."""
        for axis in axes:
            if axis.name == self.name:
                return axis.name, frozenset(axis.texts()).difference(self.usual)
        return None

    def usual_of(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Return the axes without the models that only `--models` selects."""
        return _narrowed(axes, self.name, lambda value: value.text in self.usual)


def find_model_axis(
    written: Mapping[str, Any], axes: tuple[Axis, ...], registry: Registry, spot: Location
) -> tuple[ModelAxis, tuple[Axis, ...]]:
    """Return the axis of models, and all axes with every model that may be selected."""
    matrix = written.get("matrix")
    matrix = matrix if isinstance(matrix, Mapping) else {}
    template = _asked_model(written.get("target"))
    check_axes_are_asked(written.get("target"), axes, registry, spot.at("matrix"))
    name = lone_field(template) if template is not None else USUAL_AXIS
    by_name = {axis.name: axis for axis in axes}
    if name is None or (template is None and name not in by_name):
        return ModelAxis(why_none=_why_none(template)), axes
    if name in by_name:
        overlays = isinstance(matrix.get(name), Mapping)
        chosen = ModelAxis(name=name, usual=tuple(by_name[name].texts()), overlays=overlays)
        return chosen, axes if overlays else _extended(axes, name, registry)
    is_told = name in matrix or not re.fullmatch(AXIS_NAME, name) or name in RESERVED
    # A name close to another is a typo, which is reported where the model is looked up.
    is_told = is_told or bool(nearest(name, list(by_name)))
    if is_told or not registry.models:
        return ModelAxis(), axes
    made = Axis(name=name, values=_values(registry, taken=()))
    return ModelAxis(name=name, usual=(made.values[0].text,), is_made=True), (made, *axes)


def _asked_model(target: Any) -> str | None:
    """Return the target's model as written; None if it has none."""
    if not isinstance(target, Mapping):
        return None
    asks = target if target.get("agent") is not None else target.get("chat")
    model = asks.get("model") if isinstance(asks, Mapping) else None
    return model if isinstance(model, str) else None


def _why_none(template: str | None) -> str:
    if template is None:
        return f"its target uses no model, and its matrix has no axis '{USUAL_AXIS}'"
    if "{" in template:
        return f"its target's model name has several parts, {template}; choose them with --variant"
    return f"its target always uses '{template}'; to choose, write model: \"{{model}}\" there"


def _values(registry: Registry, taken: Sequence[str]) -> tuple[AxisValue, ...]:
    return tuple(
        AxisValue(value=name, overlay={}, spot=registry.spots[name])
        for name in registry.models
        if name not in taken
    )


def _extended(axes: tuple[Axis, ...], name: str, registry: Registry) -> tuple[Axis, ...]:
    return tuple(
        replace(axis, values=axis.values + _values(registry, axis.texts()))
        if axis.name == name
        else axis
        for axis in axes
    )


# ---- selection of models


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableVariants:
    """Every variant that can run, whichever models are selected."""

    registry: Registry
    model_axis: ModelAxis
    axes: tuple[Axis, ...]
    variants: tuple[tuple[Variant, Target], ...]
    judges: frozenset[str]
    """Models used by graders."""

    @property
    def contestants(self) -> list[str]:
        """The models selected by `all`: the registry without models that only judge."""
        usual = self.model_axis.usual
        return [name for name in self.registry.models if name in usual or name not in self.judges]


def choose_models(
    offer: RunnableVariants, patterns: Sequence[str]
) -> tuple[tuple[Axis, ...], VariantTargets]:
    """Return the axes and variants with only the models that match, in the registry's order."""
    axis = offer.model_axis.name
    if not offer.registry.models:
        raise RequestError(
            "the suite has no models to choose from",
            hint="add models: to the suite, or remove --models and TEST_MODELS",
        )
    if tuple(patterns) == ALL:
        names = offer.contestants
    else:
        names = fitting_models(list(offer.registry.models), patterns)
    if axis is None:
        raise RequestError(f"models cannot be chosen in this suite: {offer.model_axis.why_none}")
    if not names:
        raise RequestError(
            "no model to run: all models in the registry are only judges",
            hint="to run one anyway, name it: --models NAME",
        )
    _check_listed(offer.model_axis, names)
    axes = _in_order(_narrowed(offer.axes, axis, lambda value: value.text in names), axis, names)
    variants = [pair for pair in offer.variants if scalar_text(pair[0][axis]) in names]
    present = {scalar_text(variant[axis]) for variant, _ in variants}
    has_agents = any(isinstance(target, AgentTarget) for _, target in offer.variants)
    _check_left(patterns, present, has_agents=has_agents)
    places = {each.name: {text: place for place, text in enumerate(each.texts())} for each in axes}
    return axes, sorted(
        variants,
        key=lambda pair: [places[name][scalar_text(value)] for name, value in pair[0].items()],
    )


def fitting_models(names: list[str], patterns: Sequence[str]) -> list[str]:
    """Return the models that match the patterns; all of them for `all`."""
    if tuple(patterns) == ALL:
        return names
    chosen: set[str] = set()
    for pattern in patterns:
        found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            near = nearest(pattern.strip("*"), names)
            hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {quoted(names)}"
            raise RequestError(f"no model in the registry matches '{pattern}'", hint=hint)
        chosen.update(found)
    return [name for name in names if name in chosen]


def _check_listed(model_axis: ModelAxis, names: Sequence[str]) -> None:
    others = [name for name in names if name not in model_axis.usual]
    if model_axis.overlays and others:
        raise RequestError(
            f"axis '{model_axis.name}' of the matrix has keys only for {quoted(model_axis.usual)},"
            f" so {quoted(others)} cannot be chosen",
            hint="add them to the matrix, or choose from those it lists",
        )


def _check_left(patterns: Sequence[str], present: set[str], *, has_agents: bool) -> None:
    for name in patterns:
        if name != "all" and not set("*?[") & set(name) and name not in present:
            agents = ", or none of its agents can use that model" if has_agents else ""
            raise RequestError(f"the suite excludes every variant with the model '{name}'{agents}")


def _narrowed(
    axes: tuple[Axis, ...], name: str | None, keeps: Callable[[AxisValue], bool]
) -> tuple[Axis, ...]:
    return tuple(
        replace(axis, values=tuple(value for value in axis.values if keeps(value)))
        if axis.name == name
        else axis
        for axis in axes
    )


def _in_order(axes: tuple[Axis, ...], name: str, order: list[str]) -> tuple[Axis, ...]:
    return tuple(
        replace(axis, values=tuple(sorted(axis.values, key=lambda value: order.index(value.text))))
        if axis.name == name
        else axis
        for axis in axes
    )
