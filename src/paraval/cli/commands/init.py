"""`paraval init`: a folder to start from, one template per kind of eval."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

import paraval
from paraval.cli.error_messages import talk
from paraval.cli.output import own_name
from paraval.errors import RequestError
from paraval.text.suggest import suggestion
from paraval.text.words import some

BUNDLED = Path(paraval.__file__).parent / "demo"
DEFAULT = "models"
README = "README.md"
REPOSITORY = "repository"
"""The folder of a race that must be a git repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A bundled folder, and what to type in its copy."""

    about: str
    folder: str
    run: str = "paraval run"
    look: str = "paraval run -o report.html"


TEMPLATES = {
    "models": Template(about="questions in a CSV × two models, with a judge", folder="models"),
    "prompts": Template(about="two prompt files × two models, from a CSV", folder="prompts"),
    "agents": Template(about="two agents × three prompts fix a bug", folder="agents"),
    "mcp": Template(about="an agent with and without an MCP server", folder="mcp"),
    "command": Template(about="a program of yours, with two settings", folder="command"),
    "pytest": Template(
        about="a pytest suite that calls models",
        folder="pytest",
        run="pytest --parallel 15 --models all --paraval-store",
        look="paraval report last -o report.html",
    ),
    "race": Template(
        about="eight code changes: which is correct and fastest?",
        folder="../race",
        run="paraval race race.yaml",
        look="paraval report last -o race.md",
    ),
}


def _template(_context: click.Context, _option: click.Parameter, name: str) -> Template:
    if name not in TEMPLATES:
        raise click.BadParameter(f"unknown template '{name}'{suggestion(name, TEMPLATES)}")
    return TEMPLATES[name]


_WIDTH = max(map(len, TEMPLATES))
_LISTED = "\n".join(f"{name:{_WIDTH}}  {one.about}" for name, one in TEMPLATES.items())


@click.command(
    "init",
    help="Write a folder that runs at once: no key, no network. FOLDER is the current one by "
    "default; existing files are never overwritten. The models in it are simulated, and comments "
    f"show how to use real ones.\n\n\b\nTemplates:\n{_LISTED}",
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option(
    "-t",
    "--template",
    default=DEFAULT,
    callback=_template,
    metavar="NAME",
    show_default=True,
    help="What to write.",
)
def init_command(folder: Path, template: Template) -> None:
    source = BUNDLED / "templates" / template.folder
    files = bundled_files(source)
    existing = [str(folder / file) for file in files if os.path.lexists(folder / file)]
    if kept := [name for name in existing if name == str(folder / README)]:
        files = [file for file in files if file != Path(README)]
    if others := [name for name in existing if name not in kept]:
        raise RequestError(
            f"{some(others, 3)} already exist{'s' * (len(others) == 1)}; nothing was written",
            hint=f"name another folder: {own_name()} init FOLDER",
        )
    write_bundled(source, files, folder)
    for file in files:
        talk(f"wrote {folder / file}")
    for name in kept:
        talk(f"note: {name} already exists, and was left as it is")
    _print_next(folder, template)


def _print_next(folder: Path, template: Template) -> None:
    talk("Next:")
    name = own_name()
    if folder.absolute() != Path.cwd():
        talk(f"  cd {shlex.quote(str(folder))}")
        name = os.path.abspath(name) if os.sep in name else name  # noqa: PTH100 - without `..`
    for line in (template.run, template.look):
        talk(f"  {line.replace('paraval ', f'{name} ', 1)}")


def bundled_files(source: Path) -> list[Path]:
    """The files of a bundled folder, relative to it; not what running it has left there."""
    found = (path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file())
    return [
        file
        for file in found
        if not any(part == "__pycache__" or part.startswith(".") for part in file.parts)
    ]


def write_bundled(source: Path, files: Sequence[Path], folder: Path) -> None:
    """Copy files of a bundled folder; a race's repository becomes one of git."""
    is_race = (source / REPOSITORY).is_dir()
    if is_race and shutil.which("git") is None:
        raise RequestError(
            "a race needs git, which is not on PATH", hint="install it: https://git-scm.com"
        )
    try:
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file, folder / file)
    except OSError as error:
        raise RequestError(f"cannot write to {folder}: {error.strerror}") from error
    if is_race:
        # Only here: most templates need nothing of it.
        from paraval.git.run_git import must_git  # noqa: PLC0415 - see above

        at = ["-C", str(folder / REPOSITORY)]
        identity = ["-c", "user.name=paraval", "-c", "user.email=paraval@localhost"]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "The slow one"]):
            must_git([*at, *identity, *command], doing="making the race's repository")
