"""`{suite}`, the folder that a suite is in: filled in when a plan is made, not for each attempt.

Only the plan knows the folder, and a trial's key must not hold it: a moved checkout keeps its keys.
So records carry the field until their keys are made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from paraval.isolation import McpServer, Workspace
from paraval.records import AgentTarget, CommandTarget, CustomAgent, GraderSpec, Grading, Target
from paraval.templates import TemplateFields, fill

SUITE_FIELD = "suite"

Place = Callable[[str], str]

_SUITE = re.compile(r"\{\{|\}\}|\{\s*suite\s*\}")


def placed(template: str, folder: str) -> str:
    """A template with the suite's folder in it; it is still a template."""
    return _filled(template, folder.replace("{", "{{").replace("}", "}}"))


def place_target(target: Target, folder: str) -> Target:
    """A target whose templates hold the suite's folder."""

    def place(text: str) -> str:
        return placed(text, folder)

    match target:
        case CommandTarget():
            return _place_command(target, place, folder)
        case AgentTarget():
            return _place_agent(target, place)
    return target


def place_grading(grading: Grading, folder: str) -> Grading:
    """Graders whose commands hold the suite's folder."""
    return replace(grading, graders=tuple(_place_grader(spec, folder) for spec in grading.graders))


def _place_grader(spec: GraderSpec, folder: str) -> GraderSpec:
    if spec.kind != "command":
        return spec
    options = dict(spec.options)
    options["command"] = [placed(argument, folder) for argument in options["command"]]
    options["env"] = _values(options.get("env") or {}, lambda text: placed(text, folder))
    return replace(spec, options=options)


def place_workspace(workspace: Workspace, folder: str) -> Workspace:
    """A workspace whose setup is filled in: it has no other fields than a plan knows."""
    nothing = TemplateFields(input=None, case_id="", repeat=0, folder="")
    setup = (fill(placed(argument, folder), nothing) for argument in workspace.setup)
    return replace(workspace, setup=tuple(setup))


def _filled(template: str, folder: str) -> str:
    if SUITE_FIELD not in template:
        return template
    return _SUITE.sub(
        lambda found: found[0] if found[0] in ("{{", "}}") else folder,
        template,
    )


def _place_command(target: CommandTarget, place: Place, folder: str) -> CommandTarget:
    return replace(
        target,
        # No value becomes text of a script: there, the folder is one of the values.
        command=target.command if target.shell else tuple(map(place, target.command)),
        folder=folder if target.shell else "",
        env=_values(target.env, place),
        stdin=_or_none(target.stdin, place),
        output_file=_or_none(target.output_file, place),
    )


def _place_agent(target: AgentTarget, place: Place) -> AgentTarget:
    return replace(
        target,
        prompt=place(target.prompt),
        system=_or_none(target.system, place),
        mcp=tuple(_place_server(server, place) for server in target.mcp),
        arguments=tuple(map(place, target.arguments)),
        custom=None if target.custom is None else _place_custom(target.custom, place),
        env=_values(target.env, place),
    )


def _place_server(server: McpServer, place: Place) -> McpServer:
    return replace(
        server,
        command=tuple(map(place, server.command)),
        env=_values(server.env, place),
        url=_or_none(server.url, place),
    )


def _place_custom(custom: CustomAgent, place: Place) -> CustomAgent:
    return replace(
        custom,
        command=tuple(map(place, custom.command)),
        stdin=_or_none(custom.stdin, place),
    )


def _values(texts: Mapping[str, str], place: Place) -> dict[str, str]:
    return {name: place(text) for name, text in texts.items()}


def _or_none(text: str | None, place: Place) -> str | None:
    return None if text is None else place(text)
