"""`paraval init` and `paraval demo`: for newcomers."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import click

import paraval
from paraval.cli.commands.run import progress_option, report_and_code, verbose_option
from paraval.cli.options import output_option, store_option
from paraval.cli.output import own_name
from paraval.cli.progress.progress import RunOutput
from paraval.errors import RequestError
from paraval.runner.run import load_suite
from paraval.settings import Options, Selection

STARTER = Path(__file__).parents[1] / "starter"
DEMO_SUITE = Path(paraval.__file__).parent / "demo" / "suite.yaml"


# ---- init


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


# ---- demo


@click.command("demo")
@click.option("-j", "--parallel", type=click.IntRange(min=1), default=10, show_default=True)
@output_option
@progress_option
@store_option
@verbose_option
def demo_command(parallel: int, store: Path | None, **given: Any) -> int:
    """Run a bundled suite: no key, no network.

    Three simulated models, different in speed, accuracy, price and rate limit, answer twenty
    questions. Some answers are wrong, one never comes, one request is refused: see how each is told
    apart.
    """
    click.echo(
        "Three simulated models answer twenty questions: no key, no network.",
        err=True,
    )
    report, code = report_and_code(
        load_suite(DEMO_SUITE),
        Selection(parallel=parallel),
        Options(store=store),
        RunOutput.from_options(given),
    )
    click.echo(
        f"\nNext: {own_name()} report {report.run.id} -o report.html, or {own_name()} init",
        err=True,
    )
    return code
