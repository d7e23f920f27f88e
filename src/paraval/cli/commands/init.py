"""`paraval init`: a first suite."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import click

from paraval.cli.output import own_name
from paraval.errors import RequestError

STARTER = Path(__file__).parents[1] / "starter"


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
def init_command(folder: Path) -> None:
    """Write a suite that runs, and the small program it tests, into FOLDER (default: the current
    one)."""
    files = {name: folder / name for name in ("suite.yaml", "agent.py")}
    for path in files.values():
        if path.exists():
            raise RequestError(
                f"{path} already exists; nothing was written",
                hint=f"name another folder: {own_name()} init FOLDER",
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in files.items():
            shutil.copyfile(STARTER / name, path)
            click.echo(f"wrote {path}", err=True)
    except OSError as error:
        raise RequestError(f"cannot write to {folder}: {error.strerror}") from error
    suite = shlex.quote(str(files["suite.yaml"]))
    click.echo(f"Next: {own_name()} run {suite}", err=True)
