"""Help texts: an example for each command, and suggestions for a command that does not exist."""

from __future__ import annotations

import click

from paraval.text.suggest import nearest


def example(command_line: str) -> str:
    """The epilog of a command's help, which click must not wrap."""
    return f"\b\nExample:\n  {command_line}"


_HABITS = {
    "eval": ["run"],
    "view": ["report"],
    "show": ["report"],
    "list": ["runs"],
    "ls": ["runs"],
}
"""Names of commands in similar programs."""


class SuggestingGroup(click.Group):
    """A group that answers an unknown command with the ones most like it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        habits = [name for name in _HABITS.get(args[0], ()) if name in known]
        near = [] if args[0] in known else habits or nearest(args[0], known)
        if near and not ctx.resilient_parsing:
            meant = " or ".join(f"'{name}'" for name in near)
            ctx.fail(f"No such command '{args[0]}'. Did you mean {meant}?")
        return super().resolve_command(ctx, args)
