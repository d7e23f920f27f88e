"""Everything relative to a suite's folder: `{suite}`, its functions, the programs that it names."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.forms import check
from paraval.documents.problems import Location, shown
from paraval.errors import ParavalError
from paraval.functions import Functions, load_function
from paraval.plan.registry import Registry
from paraval.plan.schema.suite_form import ClusterForm
from paraval.records import (
    AgentTarget,
    CommandTarget,
    CustomAgent,
    GraderSpec,
    Grading,
    McpServer,
    Target,
    Workspace,
)
from paraval.templates.template import (
    NO_FIELDS,
    TemplateError,
    TemplateFields,
    field_names,
    fill,
    is_jinja,
)

# `{suite}`, the suite's folder: filled in when a plan is made, not for each attempt.

SUITE_FIELD = "suite"

Place = Callable[[str], str]

_SUITE = re.compile(r"\{\{|\}\}|\{\s*suite\s*\}")


def placed(template: str, folder: str) -> str:
    """Fill the suite's folder into a template; the result is still a template."""
    return _filled(template, folder.replace("{", "{{").replace("}", "}}"))


def place_target(target: Target, folder: str) -> Target:
    """Return a target with the suite's folder in its templates."""

    def place(text: str) -> str:
        return placed(text, folder)

    match target:
        case CommandTarget():
            return _place_command(target, place, folder)
        case AgentTarget():
            return _place_agent(target, place)
    return target


def place_grading(grading: Grading, folder: str) -> Grading:
    """Return graders with the suite's folder in their commands."""
    # Cases share the suite's graders, and still do so afterwards.
    tops = (grading.graders, *grading.by_case.values())
    placed = {id(spec): _place_grader(spec, folder) for top in tops for spec in top}

    def place(specs: tuple[GraderSpec, ...]) -> tuple[GraderSpec, ...]:
        return tuple(placed[id(spec)] for spec in specs)

    return replace(
        grading,
        graders=place(grading.graders),
        by_case={case: place(specs) for case, specs in grading.by_case.items()},
    )


def _place_grader(spec: GraderSpec, folder: str) -> GraderSpec:
    if spec.parts:
        return replace(spec, parts=tuple(_place_grader(part, folder) for part in spec.parts))
    if spec.kind != "command":
        return spec
    options = dict(spec.options)
    options["command"] = [placed(argument, folder) for argument in options["command"]]
    options["env"] = _values(options.get("env") or {}, lambda text: placed(text, folder))
    return replace(spec, options=options)


def place_workspace(
    workspace: Workspace, folder: str, fields: TemplateFields = NO_FIELDS
) -> Workspace:
    """Return a workspace with its setup filled in: a plan knows all its fields."""
    setup = (fill(placed(argument, folder), fields) for argument in workspace.setup)
    return replace(workspace, setup=tuple(setup))


def _filled(template: str, folder: str) -> str:
    if SUITE_FIELD not in template or is_jinja(template):
        return template
    return _SUITE.sub(
        lambda found: found[0] if found[0] in ("{{", "}}") else folder,
        template,
    )


def _place_command(target: CommandTarget, place: Place, folder: str) -> CommandTarget:
    return replace(
        target,
        # Values never become part of a script: the folder is one of the values.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFolder:
    """A suite's folder, absolute, its functions that were passed as objects, and its models."""

    folder: Path
    functions: Functions
    registry: Registry = field(default_factory=Registry)
    has_workspace: bool = False
    """True: attempts run in their own folder, not in the suite's."""
    in_container: bool = False
    """True: some run in containers, which have programs of their own."""

    def function(self, reference: str, spot: Location) -> Callable[..., Any] | None:
        """Return the function of a reference; report the problem and return None if that fails."""
        if reference in self.functions:
            return self.functions[reference]
        try:
            return load_function(reference, str(self.folder))
        except ParavalError as error:
            spot.report(error.message)
        return None


# Files that the nodes of a cluster get.


def read_sent_files(written: Any, spot: Location, folder: Path) -> tuple[str, ...]:
    """Return the paths and globs, each of which matches something in the suite's folder."""
    form = None if written is None else check(ClusterForm, written, spot)
    if form is None:
        return ()
    for number, pattern in enumerate(form.send):
        if (problem := _sent_problem(pattern, folder)) is not None:
            spot.at("send", number).report(f"{shown(pattern)} {problem}")
    return tuple(form.send)


def _sent_problem(pattern: str, folder: Path) -> str | None:
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        return (
            "is not within the suite's folder; copy the files there, or have them on every node"
            " at the same path"
        )
    try:
        found = next(folder.glob(pattern), None)
    except (ValueError, OSError) as error:
        return f"cannot be searched for: {error}"
    if found is None:
        kind = "matches no file" if glob.has_magic(pattern) else "does not exist"
        return f"{kind} in {folder}"
    return None


# Whether a suite's programs can be started: checked when it is loaded.


def search_path(env: Mapping[str, str]) -> str:
    """Return the PATH of a child process with this environment."""
    return env.get("PATH", os.environ.get("PATH", os.defpath))


def check_executable(program: str, cwd: str, path: str, spot: Location) -> None:
    """Report a program that cannot be found."""
    if not _can_be_checked(program, spot):
        return
    if "/" in program:
        if shutil.which(os.path.normpath(Path(cwd) / program)) is None:
            is_there = os.path.exists(Path(cwd) / program)  # noqa: PTH110 - not for a name too long
            state = "is not executable" if is_there else "not found"
            spot.report(f"program '{program}' {state} (looked in {cwd})")
    elif shutil.which(program, path=path) is None:
        beside = os.path.isfile(Path(cwd) / program)  # noqa: PTH113 - False for a name too long
        spot.report(f"program '{program}' not found on PATH{_program_hint(program, beside)}")


def check_started_in_workspace(
    program: str, path: str, spot: Location, around: SuiteFolder
) -> None:
    """The same for a program that starts where an attempt runs, not beside the suite."""
    named = placed(program, str(around.folder))
    if around.in_container:
        check_in_container(program, spot)
        return
    if not _can_be_checked(named, spot):
        return
    if "/" not in named or Path(named).is_absolute():
        check_executable(named, str(around.folder), path, spot)
    elif not around.has_workspace:
        # With a workspace, this is checked when an attempt has one.
        spot.report(
            f"'{program}' would be looked up in the attempt's empty folder; write"
            f" {{suite}}/{program.removeprefix('./')} for a file beside the suite"
        )


def check_in_container(program: str, spot: Location) -> None:
    """The same for a program in a container: only what cannot be there is known."""
    if _PYTHON_FIELD in program:
        spot.report("{python} is this machine's Python; write the container's, such as python3")
    else:
        _can_be_checked(program, spot)


_PYTHON_FIELD = "{python}"


def _can_be_checked(program: str, spot: Location) -> bool:
    try:
        if not program or "\0" in program:
            spot.report(f"must start with a program, not {shown(program)}")
            return False
        return not field_names(program)
    except TemplateError:
        return False


def _program_hint(program: str, beside: bool) -> str:
    if program.startswith("python"):
        return "; {python} is the Python that paraval runs with"
    if beside:
        return f"; write ./{program} for the file of that name"
    return "; install it, or give its path"
