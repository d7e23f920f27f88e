"""Whether the axes that list models and agents change anything.

One that does not would show one model's answers, or one agent's, as those of several.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paraval.plan.matrix import Axis
from paraval.plan.places import Spot, nearest
from paraval.plan.registry import Registry
from paraval.templates import TemplateError, field_names

USUAL_AXIS = "model"


def check_axes_are_asked(target: Any, axes: Sequence[Axis], registry: Registry, spot: Spot) -> None:
    """Tells which axes list models or agents that the target does not ask."""
    if not isinstance(target, Mapping):
        return
    if target.get("agent") is not None:
        _check_agents(target, axes, spot)
        _check_models_of_agent(target, axes, registry, spot)
    elif isinstance(target.get("chat"), Mapping):
        _check_models(target["chat"].get("model"), "chat.model", axes, registry, spot)


def _check_models(
    template: Any, key: str, axes: Sequence[Axis], registry: Registry, spot: Spot
) -> None:
    asked = _fields(template)
    if asked is None:
        return  # This is told where the model is looked for.
    overlay = key.partition(".")[0]
    for axis in axes:
        if lists_models(axis, registry) and not _has(axis, overlay) and axis.name not in asked:
            spot.at(axis.name).report(
                f"lists models, but {key} is '{template}' and does not ask them; write"
                f' model: "{{{axis.name}}}" there, or give the values a {key}'
            )


def _check_models_of_agent(
    target: Mapping[Any, Any], axes: Sequence[Axis], registry: Registry, spot: Spot
) -> None:
    if target.get("model") is not None:
        _check_models(target["model"], "model", axes, registry, spot)
        return
    words = json.dumps(target, default=str)
    for axis in axes:
        is_one = axis.name == USUAL_AXIS or lists_models(axis, registry)
        if is_one and not _has(axis, "model") and f"{{{axis.name}}}" not in words:
            spot.at(axis.name).report(
                f'lists models, but the target does not ask them; write model: "{{{axis.name}}}"'
                " there"
            )


def _check_agents(target: Mapping[Any, Any], axes: Sequence[Axis], spot: Spot) -> None:
    from paraval.agents.catalogue import AGENTS  # noqa: PLC0415 - most suites have no agents

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
