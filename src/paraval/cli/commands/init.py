"""`paraval init`: a folder to start from. `paraval demo`: a bundled suite, or a bundled race."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import paraval
from paraval.cli.commands.run import report_and_code
from paraval.cli.error_messages import talk
from paraval.cli.options import files_option, progress_option, store_option, verbose_option
from paraval.cli.output import own_name
from paraval.cli.progress.progress import RunOutput, can_show_bar
from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.runner.run import load_suite, open_store
from paraval.settings import Options, Selection, default_store
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
    needs_pytest: bool = False


TEMPLATES = {
    "models": Template(about="questions in a CSV × two models, with a judge", folder="models"),
    "prompts": Template(about="two prompt files × two models, from a CSV", folder="prompts"),
    "agents": Template(about="two agents × three prompts fix a bug", folder="agents"),
    "mcp": Template(about="an agent with and without an MCP server", folder="mcp"),
    "command": Template(about="a program of yours, with two settings", folder="command"),
    "pytest": Template(
        about="a pytest suite that calls models",
        folder="pytest",
        run="python -m pytest --parallel 15 --models all --paraval-store",
        look="paraval report last -o report.html",
        needs_pytest=True,
    ),
    "race": Template(
        about="eight code changes: which is correct and fastest?",
        folder="../race",
        run="paraval race race.yaml",
        look="paraval report last -o race.md",
        needs_pytest=True,
    ),
}


class _Name(click.Choice):  # type: ignore[type-arg]  # click 8.1 cannot subscript it
    """A template's name: shells complete it, and a misspelled one is suggested."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in TEMPLATES:
            self.fail(f"unknown template '{value}'{suggestion(value, TEMPLATES)}", param, ctx)
        return value


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
    type=_Name(list(TEMPLATES)),
    metavar="NAME",
    show_default=True,
    help="What to write.",
)
def init_command(folder: Path, template: str) -> None:
    chosen = TEMPLATES[template]
    source = BUNDLED / "templates" / chosen.folder
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
    _print_next(folder, chosen)


def _print_next(folder: Path, template: Template) -> None:
    talk("Next:")
    name = own_name()
    if folder.absolute() != Path.cwd():
        talk(f"  cd {shlex.quote(str(folder))}")
        name = os.path.abspath(name) if os.sep in name else name  # noqa: PTH100 - without `..`
    python = _python()
    if template.needs_pytest and importlib.util.find_spec("pytest") is None:
        talk(f"  {_install_pytest()}  # missing here; in a clone: pip install '.[demo]'")
    for line in (template.run, template.look):
        words = line.replace("paraval ", f"{name} ", 1)
        talk(f"  {words.replace('python ', f'{python} ', 1)}")


def _python() -> str:
    """How to call this interpreter: `python` if that is the one, or its path."""
    found = shutil.which("python")
    ours = Path(sys.executable)
    # Both: virtual environments of one Python link to the same file.
    if found and Path(found).parent == ours.parent and ours.samefile(found):
        return "python"
    return shlex.quote(sys.executable)


def _install_pytest() -> str:
    return f"{_python()} -m pip install pytest"


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


# ---- demo

PAGES = (".html", ".htm")
SUITE_PARALLEL = 10
EXAMPLE = "\b\nExample:\n  paraval demo -o demo.html\n  paraval demo race"


@click.command("demo", epilog=EXAMPLE)
@click.argument("what", type=click.Choice(["suite", "race"]), default="suite")
@click.option("-j", "--parallel", type=click.IntRange(min=1), help="How many run in parallel.")
@files_option("the report, e.g. demo.html (of a race: .json .md .txt .patch)")
@progress_option
@store_option
@verbose_option
def demo_command(what: str, parallel: int | None, store: Path, **given: Any) -> int:
    """See paraval at work: no key, no network.

    \b
    suite  Three simulated models answer twenty questions (the default; 6 seconds).
           They differ in speed, accuracy, price and rate limit; one answer never
           arrives, and one request is refused.
    race   Eight changes to a slow function: which are correct, and which is
           fastest? Takes more than a minute; needs git and pytest.

    With --progress auto, the suite's progress is shown only on a terminal.
    """
    showing = RunOutput.from_options(given)
    if what == "race":
        return _race(parallel, store, showing)
    return _suite(parallel, store, showing)


# ---- demo: the suite


def _suite(parallel: int | None, store: Path, showing: RunOutput) -> int:
    _print("Three simulated models answer twenty questions: no key, no network.")
    if showing.progress == "auto" and not can_show_bar(sys.stderr):
        showing = replace(showing, progress="none")
    report, code = report_and_code(
        load_suite(BUNDLED / "suite.yaml"),
        Selection(parallel=parallel or SUITE_PARALLEL),
        Options(store=store),
        showing,
    )
    if report.run.interrupted:
        return code
    pages = [path for path in showing.outputs if path.suffix.lower() in PAGES]
    run, name, at = report.run.id, own_name(), _store_flag(store)
    if pages:
        first = (f"{name} compare model=swift model=sage{at}", "compare two of the models")
    else:
        first = (f"{name} report {run} -o demo.html{at}", "write the report as a page")
    _print("")
    _print_commands(
        first,
        (f"{name} demo race{at}", "race eight code changes"),
        (f"{name} init my-evals", "start a suite of your own"),
    )
    return code


def _store_flag(store: Path) -> str:
    """The option that a later command needs to find this store."""
    if store == default_store().absolute():
        return ""
    return f" --store {shlex.quote(os.path.relpath(store))}"


def _print_commands(*commands: tuple[str, str]) -> None:
    """Print what to type next, each command with its purpose."""
    width = max(len(command) for command, _ in commands)
    _print("Next:")
    for command, purpose in commands:
        _print(f"  {command:{width}}  # {purpose}")


def _print(line: str) -> None:
    click.echo(line, err=True)


# ---- demo: the race


def _race(parallel: int | None, store: Path, showing: RunOutput) -> int:
    # Only here: the suite needs nothing of it.
    from paraval.cli.race_report import (  # noqa: PLC0415 - see above
        exit_code_after,
        race_and_show,
    )
    from paraval.racing.race_file import FlagValue, load_race  # noqa: PLC0415
    from paraval.racing.run import run_race_stoppably  # noqa: PLC0415

    _check_tools()
    folder = _copy_of_race(store)
    _print(
        "Eight changes to a slow function: tested in parallel, then timed one at a time.\n"
        f"They are in {os.path.relpath(folder)}.\n"
    )
    flags = []
    if parallel is not None:
        flags = [FlagValue(flag="--parallel", steps=("limits", "parallel"), value=parallel)]
    request = load_race(folder / "race.yaml", flags)
    options = Options(store=store)
    report = race_and_show(
        lambda observer: run_race_stoppably(request, options=options, observer=observer),
        showing,
    )
    code = exit_code_after(report, showing)
    if not report.run.interrupted:
        _print("")
        _print_commands((f"{own_name()} race --help", "race changes to your own code"))
    return code


def _check_tools() -> None:
    """RequestError if git or pytest is missing."""
    if shutil.which("git") is None:
        raise RequestError(
            "the demo race needs git, which is not on PATH", hint="install it: https://git-scm.com"
        )
    if importlib.util.find_spec("pytest") is None:
        raise RequestError(
            f"the demo race needs pytest, which {sys.executable} does not have",
            hint=f"install it: {_install_pytest()}",
        )


def _copy_of_race(store: Path) -> Path:
    """A copy of the race in the store, as a git repository; one per version of its files.

    It stays there: a race that was interrupted needs it to be resumed.
    """
    original = BUNDLED / "race"
    folder = open_store(Options(store=store)).root / "demo" / f"race-{_digest(original)}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as new:
            made = Path(new, "race")
            write_bundled(original, bundled_files(original), made)
            if not folder.is_dir():  # Another process may have been quicker.
                made.rename(folder)
    except OSError as error:
        raise RequestError(f"cannot copy the demo race to {folder}: {error}") from error
    return folder


def _digest(folder: Path) -> str:
    """A short name for the contents of a folder."""
    digest = hashlib.sha256()
    for file in bundled_files(folder):
        digest.update(f"{file}\0".encode() + (folder / file).read_bytes())
    return digest.hexdigest()[:8]
