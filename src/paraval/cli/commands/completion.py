"""`paraval completion`: prints a shell's completion script, or installs it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from paraval.cli.completion import PROGRAM, VARIABLE, refresh
from paraval.errors import RequestError

SHELLS = ("bash", "zsh", "fish")
MARK = "# paraval completion"
_COMPINIT = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }; "
"""zsh completes nothing before this, and not every .zshrc has it."""


EXAMPLE = "\b\nExample:\n  paraval completion install\n  paraval completion zsh > _paraval"


@click.command("completion", epilog=EXAMPLE)
@click.argument("what", type=click.Choice(["install", *SHELLS]))
@click.option(
    "--shell", type=click.Choice(SHELLS), help="Install for this shell. [default: from $SHELL]"
)
def completion_command(what: str, shell: str | None) -> None:
    """Complete commands in your shell with Tab.

    Completes commands, options, run ids, the cases, tags and models of a suite, and the endings of
    report files. `install` writes the script and, for bash and zsh, adds one line to your .bashrc
    or .zshrc; the name of a shell prints its script.
    """
    if what != "install":
        click.echo(_script(what))
        return
    shell = shell or _shell_of_user()
    try:
        done = _install(shell)
    except OSError as error:
        raise RequestError(
            f"cannot install the completion: {error}",
            hint=f"print the script and put it where {shell} finds it: paraval completion {shell}",
        ) from error
    refresh(click.get_current_context().find_root().command)
    for line in done:
        click.echo(line, err=True)


def _shell_of_user() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        what = f"'{name}' is not supported" if name else "$SHELL is not set"
        raise RequestError(
            f"cannot tell which shell to install for: {what}",
            hint=f"name it: paraval completion install --shell {'|'.join(SHELLS)}",
        )
    return name


def _script(shell: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None, "click has all of these"
    return kind(click.Group(PROGRAM), {}, PROGRAM, VARIABLE).source()


def _install(shell: str) -> list[str]:
    """Write the script where the shell loads it; return what was done, and how to undo it."""
    if shell == "fish":
        script = _folder("XDG_CONFIG_HOME", ".config") / "fish/completions/paraval.fish"
        _write(script, shell)
        return [f"wrote {script}", "Open a new fish to use it.", f"To undo, delete {script}."]
    script = _folder("XDG_DATA_HOME", ".local/share") / f"paraval/completion.{shell}"
    _write(script, shell)
    startup = _startup_file(shell)
    quoted = shlex.quote(str(script))
    line = f"[ -r {quoted} ] && . {quoted}  {MARK}"
    is_new = _add_line(startup, f"{_COMPINIT if shell == 'zsh' else ''}{line}")
    return [
        f"wrote {script}",
        f"{'added a line to' if is_new else 'found its line in'} {startup}",
        f"Open a new {shell} to use it, or run: . {shlex.quote(str(startup))}",
        f"To undo, delete {script} and the line in {startup} that ends in '{MARK}'.",
    ]


def _startup_file(shell: str) -> Path:
    if shell == "zsh":
        return Path(os.environ.get("ZDOTDIR") or Path.home(), ".zshrc")
    return Path.home() / ".bashrc"


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default)


def _write(script: Path, shell: str) -> None:
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_script(shell) + "\n")


def _add_line(file: Path, line: str) -> bool:
    """Whether the file had no such line yet; an old one is replaced."""
    content = file.read_text(errors="surrogateescape") if file.exists() else ""
    lines = content.splitlines(keepends=True)
    old = [number for number, one in enumerate(lines) if one.rstrip().endswith(MARK)]
    if old:
        lines[old[0]] = f"{line}\n"
    else:
        lines += ["" if content.endswith("\n") or not content else "\n", f"{line}\n"]
    made = "".join(lines)
    if made != content:
        file.write_text(made, errors="surrogateescape")
    return not old
