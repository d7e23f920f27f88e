"""Which programs of a suite are looked for in the workspace: those named by a relative path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from paraval.plan.places import Spot
from paraval.plan.standing import ProgramWithin
from paraval.plan.target import VariantTarget
from paraval.plan.workspace import AskedWorkspace
from paraval.records import AgentTarget, CommandTarget, Variant


def programs_within(
    workspace: AskedWorkspace, targets: Iterable[tuple[Variant, VariantTarget]]
) -> Iterator[ProgramWithin]:
    """Those of the setup, of commands, and of agents of one's own and their tool servers. Not those
    of graders: what they start may be what an attempt was asked to make."""
    if workspace.record.setup:
        at = workspace.spot.at("setup")
        yield from _within(workspace.record.setup[0], at, after_setup=False)
    seen: set[int] = set()
    for _, target in targets:
        if id(target.record) not in seen:
            seen.add(id(target.record))
            yield from _of_target(target)


def _of_target(target: VariantTarget) -> Iterator[ProgramWithin]:
    match target.record:
        case CommandTarget(shell=False) as record:
            yield from _within(record.command[0], target.locate(("command",)), cwd=record.cwd)
        case AgentTarget() as record:
            if record.custom is not None:
                yield from _within(record.custom.command[0], target.locate(("command",)))
            for server in record.mcp:
                if server.command:
                    at = target.locate(("mcp", server.name, "command"))
                    yield from _within(server.command[0], at)


def _within(
    program: str, spot: Spot, *, cwd: str = ".", after_setup: bool = True
) -> Iterator[ProgramWithin]:
    if "/" in program and not program.startswith("/") and "{" not in program:
        path = os.path.join(cwd, program)  # noqa: PTH118 - text
        yield ProgramWithin(written=program, path=path, spot=spot, after_setup=after_setup)
