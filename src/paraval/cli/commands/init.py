"""`paraval init`: a first suite."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from paraval.errors import RequestError

STARTER = Path(__file__).parents[1] / "starter"


def own_name() -> str:
    """How this program is called from here: by name, or by path where the name is not found."""
    if shutil.which("paraval") or not sys.argv[0].endswith("paraval"):
        return "paraval"
    return os.path.relpath(sys.argv[0])


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
def init_command(folder: Path) -> None:
    """Write a suite that runs, and the little program it tests, into a FOLDER."""
    files = {name: folder / name for name in ("suite.yaml", "agent.py")}
    for path in files.values():
        if path.exists():
            raise RequestError(
                f"{path} is there already; nothing was written",
                hint="name another folder: paraval init FOLDER",
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in files.items():
            shutil.copyfile(STARTER / name, path)
            click.echo(f"wrote {path}", err=True)
    except OSError as error:
        raise RequestError(f"cannot write into {folder}: {error.strerror}") from error
    suite = shlex.quote(str(files["suite.yaml"]))
    click.echo(f"now: {own_name()} run {suite}", err=True)
