"""`paraval import`: a suite, or a run, from the files of another program."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from paraval.cli.error_messages import talk
from paraval.cli.help import SuggestingGroup, example
from paraval.cli.options import store_option
from paraval.cli.output import own_name
from paraval.cli.progress.progress import RunOutput
from paraval.cli.suites import suite_from
from paraval.errors import RequestError, SuiteError
from paraval.importers.imported import CHECK_FILE, SUITE_FILE, ImportedSuite, write_suite
from paraval.importers.results import ImportedTrial, store_run
from paraval.records import Outcome
from paraval.report.reasons import reason
from paraval.report.report import Report
from paraval.runner.run import load_suite
from paraval.settings import Options, Selection, default_store
from paraval.text.tables import Column, Page, Table, TableRow, table_lines
from paraval.text.terminal import one_line
from paraval.text.words import counted

SHOWN = 20
"""Left-out keys that are printed; all are in the suite's head."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group("import", cls=SuggestingGroup)
def import_command() -> None:
    """Write a suite from what you have.

    Each format writes a folder with a suite.yaml that you can read and edit. Every key of the
    source is honored, or listed by name as not honored, in the terminal and at the head of the
    suite. The source is only read; importing again gives the same files.
    """


def writing_options(command: _Command) -> _Command:
    """The options of every format that writes a suite: --to and --replace."""
    to = click.option(
        "--to",
        "-o",
        "folder",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        help="Write the suite here. [default: a new folder, named after the source]",
    )
    replace = click.option("--replace", is_flag=True, help="Overwrite files that differ.")
    return to(replace(command))


agent_option = click.option(
    "--agent",
    default="claude-code",
    show_default=True,
    metavar="NAME",
    help="The agent of the suite; change it there later.",
)
results_option = click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Also store the results in this file as a run, to compare new runs with.",
)


@import_command.command("repo-search")
@click.argument("cases", type=click.Path(path_type=Path), required=False)
@click.option(
    "--repo",
    "repository",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="The repository that the cases ask about.",
)
@results_option
@store_option
@writing_options
def repo_search_command(
    cases: Path | None,
    repository: Path,
    results: tuple[Path, ...],
    store: Path,
    folder: Path | None,
    replace: bool,
) -> None:
    """Import CASES of repo-search-eval or codetect-eval: a folder of .jsonl files, or one file.

    By default, CASES is the folder that these programs would use: .codetect/evals/cases in the
    repository, else .repo_search/evals/cases, else evals/cases.
    """
    from paraval.importers import repo_search  # noqa: PLC0415 - each format is loaded when used

    source = cases or repo_search.find_cases(repository)
    folder = folder or Path("repo-search")
    settings = repo_search.settings_in(results[0]) if results else None
    imported = repo_search.read_repo_search(
        source, repository=repository, folder=folder, settings=settings
    )
    write_and_tell(imported, folder, replace=replace)
    for path in results:
        _store_results(repo_search.read_results(path, imported), imported, path, store)


@import_command.command("augbench")
@click.argument("settings", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--repo",
    "repository",
    type=click.Path(path_type=Path, file_okay=False),
    help="A clone of the repository, if the settings name a URL.",
)
@results_option
@store_option
@writing_options
def augbench_command(
    settings: Path,
    repository: Path | None,
    results: tuple[Path, ...],
    store: Path,
    folder: Path | None,
    replace: bool,
) -> None:
    """Import the SETTINGS of augbench (settings.json), of its first or second generation.

    Settings that recreate pull requests need a clone of their repository: see --repo, and `paraval
    import pull-requests`.
    """
    from paraval.importers import augbench  # noqa: PLC0415 - as above

    folder = folder or Path("augbench")
    imported = augbench.read_augbench(settings, folder=folder, repository=repository)
    write_and_tell(imported, folder, replace=replace)
    for path in results:
        _store_results(augbench.read_results(path, imported), imported, path, store)


def _store_results(
    found: tuple[list[ImportedTrial], float | None],
    imported: ImportedSuite,
    path: Path,
    store: Path,
) -> None:
    """Store what a results file has as a run of the imported suite."""
    trials, when = found
    name = imported.suite["name"]
    store_and_tell(trials, name=name, source=str(path), when=when, store=store)


@import_command.command("pull-requests")
@click.option(
    "--repo",
    "repository",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="The repository, with its history.",
)
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="The newest N pull requests.",
)
@click.option("--since", metavar="DATE", help="Only those merged since then: 2026-01-31, 6.months.")
@click.option(
    "--branch", default="HEAD", show_default=True, help="The branch that they were merged into."
)
@click.option(
    "--test-command",
    metavar="COMMAND",
    help="How tests run; {tests} stands for the test files. [default: pytest, go test, npm test or"
    " cargo test, by what the repository has]",
)
@agent_option
@writing_options
def pull_requests_command(
    repository: Path, folder: Path | None, replace: bool, **given: Any
) -> None:
    """Make cases from a repository's merged pull requests.

    They are found in its git history: merge commits, and subjects that end in (#123). Each case
    starts at the commit before, asks for what the description says, and is graded by the tests that
    came with the change, which are hidden until the attempt has ended. How similar the attempt's
    changes are to the merged ones is recorded. Pull requests that changed only one file, or only
    tests, are left out.
    """
    from paraval.importers import pull_requests  # noqa: PLC0415 - as above

    folder = folder or Path("pull-requests")
    asked = pull_requests.PullRequestOptions(**given)
    imported = pull_requests.read_pull_requests(repository, folder=folder, asked=asked)
    write_and_tell(imported, folder, replace=replace)


def write_and_tell(imported: ImportedSuite, folder: Path, *, replace: bool) -> None:
    """Write the suite, check that it loads, and print what was left out and what to do next."""
    changed = write_suite(imported, folder, replace=replace)
    suite_file = folder / SUITE_FILE
    talk(f"{suite_file}: {'written' if changed else 'unchanged'}.")
    if imported.not_honored:
        talk(f"Not honored ({counted(len(imported.not_honored), 'key')}):")
        for one in imported.not_honored[:SHOWN]:
            talk(f"  {one_line(one.key, 100)}: {one_line(one.why, 200)}")
        if len(imported.not_honored) > SHOWN:
            talk(f"  ... all are listed at the head of {suite_file}")
    for note in imported.notes:
        talk(note)
    try:
        load_suite(suite_file)
    except SuiteError as error:
        talk(f"Before it runs, change this:\n{error}")
        return
    command = shlex.join([own_name(), "plan", os.path.relpath(suite_file)])
    talk(f"Next: {command}")


def store_and_tell(
    trials: Sequence[ImportedTrial], *, name: str, source: str, when: float | None, store: Path
) -> None:
    """Store another program's results as a run, and print how to read it."""
    found = store_run(trials, name=name, source=source, when=when, store=store)
    results = counted(found.run.trials, "result")
    done = "stored as" if found.is_new else "already stored as"
    talk(f"{source}: {results} {done} run {found.run.id}.")
    command = [own_name(), "report", found.run.id]
    if store != default_store().absolute():
        command += ["--store", os.path.relpath(store)]
    talk(f"Read it: {shlex.join(command)}")


# ---- benchmarks of agents: suites with a second one, which checks their reference solutions

check_option = click.option(
    "--check-solutions",
    is_flag=True,
    help="Then run check.yaml: the tests must pass with the reference solution, and fail without.",
)


def check_solutions(suite_file: Path) -> int:
    """Run the suite that checks reference solutions; print a table, and return the exit code."""
    # Imported late: only this runs anything.
    from paraval.cli.commands.run import report_and_code  # noqa: PLC0415 - see above

    showing = RunOutput(text=_solutions_text)
    return report_and_code(suite_from(suite_file), Selection(), Options(), showing)[1]


def _solutions_text(report: Report, page: Page) -> str:
    ends: dict[str, dict[str, Outcome]] = {}
    for trial in report.trials:
        ends.setdefault(trial.case_id, {})[str(trial.variant["solution"])] = trial.outcome
    swapped = {Outcome.PASSED: "fails", Outcome.FAILED: "passes"}

    def row(case_id: str, found: Mapping[str, Outcome]) -> TableRow:
        reference, empty = found.get("reference"), found.get("empty")
        is_sound = reference is empty is Outcome.PASSED
        is_graded = {reference, empty} <= swapped.keys()
        cells = (
            "not run" if reference is None else str(reference.value),
            "not run" if empty is None else swapped.get(empty, str(empty.value)),
            "ok" if is_sound else "check its tests" if is_graded else "error",
        )
        return TableRow(label=page.quote(case_id), cells=cells, style="" if is_sound else "red")

    headings = ("reference solution", "no change", "verdict")
    columns: list[Column[str]] = [
        Column(heading=heading, cell=str, is_left=True) for heading in headings
    ]
    rows = [row(case_id, found) for case_id, found in ends.items()]
    lines = list(table_lines(Table(label="task", columns=columns, rows=rows), page))
    for trial in report.trials:
        if trial.outcome is not Outcome.PASSED:
            text = f"{trial.case_id} · {trial.variant['solution']}: {reason(trial.result)}"
            lines += ["", *page.wrapped(page.quote(text, 1000), "")]
    command = f"{own_name()} show {report.run.id} --case ID"
    return "\n".join([*lines, "", f"To see more of one: {command}"])


@import_command.command("swe-bench", epilog=example("paraval import swe-bench verified.jsonl"))
@click.argument("file", type=click.Path(path_type=Path))
@writing_options
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N.")
@click.option("--instance", default="*", metavar="GLOB", help="Only instances whose id matches.")
@agent_option
@click.option(
    "--repos",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="The folder of clones, each named owner__name. [default: repos in the suite's folder]",
)
@click.option("--clone", is_flag=True, help="Clone repositories that are missing there.")
@click.option(
    "--host", default="https://github.com/", show_default=True, help="Where to clone from."
)
@click.option(
    "--image",
    metavar="TEMPLATE",
    help="Run each instance in a container of this image: 'swebench/sweb.eval.x86_64.{image_id}'. "
    "Fields are the columns of the file, and image_id.",
)
@click.option(
    "--test-command",
    metavar="TEMPLATE",
    help="How to run tests: {tests} are their files, {modules} the same with dots. [default: "
    "python -m pytest -rA {tests}; django and sympy have their own]",
)
@click.option(
    "--predictions",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Grade these patches instead of an agent: {instance_id, model_name_or_path, model_patch}, "
    "as .jsonl or .json. Each model is a variant.",
)
@check_option
def swe_bench_command(file: Path, folder: Path | None, **given: Any) -> int:
    """Write a suite from a FILE of SWE-bench: .jsonl, .json or .parquet.

    Each instance becomes a case in a worktree of its repository at its base commit. Its tests are
    hidden until the agent has ended; all tests of FAIL_TO_PASS and PASS_TO_PASS must pass.
    """
    from paraval.importers import swe_bench  # noqa: PLC0415 - few imports need it

    folder = folder or Path(file.stem)
    repos: Path = given["repos"] or folder / "repos"
    choices = ("limit", "instance", "agent", "image", "test_command", "predictions")
    options = swe_bench.SweBenchOptions(
        repos=os.path.relpath(repos, folder), **{name: given[name] for name in choices}
    )
    imported, instances = swe_bench.read_swe_bench(file, options)
    missing = partial(swe_bench.missing_clones, instances, repos, given["host"])
    if given["clone"]:
        # Commits that a clone does not have are known, and fetched, only after it.
        for command in (command for _ in range(2) for command in missing()):
            talk(shlex.join(command))
            swe_bench.run_clone(command)
    notes = [shlex.join(command) for command in missing()]
    if notes:
        notes.insert(0, "Get what is missing, or add --clone:")
    imported = replace(imported, notes=(*imported.notes, *notes))
    write_and_tell(imported, folder, replace=given["replace"])
    return check_solutions(folder / CHECK_FILE) if given["check_solutions"] else 0


@import_command.command("harbor", epilog=example("paraval import harbor tasks/"))
@click.argument("source", type=click.Path(path_type=Path))
@writing_options
@agent_option
@check_option
def harbor_command(source: Path, folder: Path | None, **given: Any) -> int:
    """Write a suite from Harbor or Terminal-Bench tasks: a task's folder, or a folder of tasks.

    Each task becomes a case in a container of its own image. Its tests are hidden until the agent
    has ended; its reward is the score. The suite refers to the tasks' folders.
    """
    from paraval.importers import harbor  # noqa: PLC0415 - few imports need it

    folder = folder or Path(f"{source.absolute().name}-suite")
    imported = harbor.read_harbor(source, folder, given["agent"])
    write_and_tell(imported, folder, replace=given["replace"])
    if not given["check_solutions"]:
        return 0
    if CHECK_FILE not in imported.files:
        raise RequestError(f"no task of {source} has a solution to check")
    return check_solutions(folder / CHECK_FILE)


# ---- prompts and models


@import_command.command(
    "promptfoo", epilog=example("paraval import promptfoo promptfooconfig.yaml --to suite")
)
@click.argument(
    "config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default="promptfooconfig.yaml",
)
@writing_options
def promptfoo_command(config: Path, folder: Path | None, replace: bool) -> None:
    """Write a suite from a promptfoo CONFIG: YAML or JSON, by default promptfooconfig.yaml.

    Prompts, providers, tests and assertions, with the files that they name. Scripts stay where they
    are; the suite calls them there.
    """
    # Imported late: only this needs it.
    from paraval.importers.promptfoo.config import read_promptfoo  # noqa: PLC0415 - see above

    folder = folder or Path(config.stem)
    write_and_tell(read_promptfoo(config, folder), folder, replace=replace)


@import_command.command("inspect", epilog=example("paraval import inspect logs/*.eval"))
@click.argument("logs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--scorer", metavar="NAME", help="Decides which samples passed. [default: the first]")
@click.option(
    "--pass-at",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="The lowest passing score.",
)
@store_option
def inspect_command(
    logs: tuple[Path, ...], scorer: str | None, pass_at: float, store: Path
) -> None:
    """Store the results in LOGS of inspect-ai (.eval or .json) as runs, one for each task.

    Samples become cases, epochs repeats, and the model an axis. Errors and limits are never wrong
    answers. A folder stands for all logs in it.
    """
    from paraval.importers import inspect_logs  # noqa: PLC0415 - each format is loaded when used

    tasks: dict[str, list[inspect_logs.Log]] = {}
    for path in inspect_logs.find_logs(logs):
        log = inspect_logs.read_log(path)
        tasks.setdefault(log.task, []).append(log)
        if not log.is_complete:
            talk(f"{path}: the eval did not end well; its samples so far are imported.")
    for task, found in tasks.items():
        trials = inspect_logs.trials_of_task(found, scorer=scorer, pass_at=pass_at)
        source = f"{', '.join(str(log.path) for log in found)} (inspect-ai)"
        store_and_tell(trials, name=task, source=source, when=found[0].when, store=store)
