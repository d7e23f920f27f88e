"""SWE-bench: issues of real repositories, each with the tests that its fix must pass.

Reads the published files (JSONL, JSON, Parquet, or a saved dataset) of SWE-bench and of sets with
the same columns.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.files import read_text
from paraval.documents.json import read_json
from paraval.documents.problems import Location, shown
from paraval.errors import Problem, RequestError, SuiteError
from paraval.git.run_git import run_git
from paraval.importers.imported import (
    CHECK_FILE,
    FLAGGED_NOTE,
    ImportedSuite,
    NotHonored,
    SourceFiles,
    check_text,
    jsonl_text,
)
from paraval.plan.cases.case_list import CaseList
from paraval.plan.cases.fields import FieldMap
from paraval.plan.cases.files import CaseFiles
from paraval.plan.suite_folder import SuiteFolder
from paraval.processes.quick import run_quickly
from paraval.text.words import counted

DEFAULT_HOST = "https://github.com/"
DEFAULT_TEST_COMMAND = "python -m pytest -rA {tests}"
TEST_COMMANDS = {
    "django/django": (
        "python tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 {modules}"
    ),
    "sympy/sympy": "bin/test -C --verbose {tests}",
}
"""The repositories of SWE-bench that don't use pytest."""
CLONE_TIMEOUT_S = 3600.0
_SCRIPT = "swe_bench_check.py"
_TIMEOUT_S = 1800
"""Of an attempt, and of its tests; the latter as in SWE-bench."""
_NEEDED = ("repo", "base_commit", "problem_statement", "patch", "test_patch", "FAIL_TO_PASS")
_TESTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
_KEPT = ("hints_text", "version", "created_at", "difficulty", "environment_setup_commit")
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_REPO = re.compile(r"[\w.][\w.-]*/[\w.][\w.-]*")
_REF = re.compile(r"[\w.][\w./+-]*")
"""A commit, branch or tag: nothing that git would take for an option or a refspec."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]|^[.-]")
_CHANGED_FILE = re.compile(r"^\+\+\+ b/(.+?)\t?$", re.MULTILINE)
_PROMPT = """\
The current folder is a checkout of a repository. Resolve the issue below by changing its code. Do
not change its tests: other tests, which you cannot see, check the result.

{input.problem}
"""
_APPLY_FILE = "predictions/apply.sh"
_APPLY = """\
# Applies a prediction, as SWE-bench's harness does; the grader reads what this prints.
if ! command -v git >/dev/null; then echo "there is no git to apply patches with" >&2; exit 127
elif [ ! -s "$1" ]; then echo "the prediction has no patch"
elif why=$(git apply "$1" 2>&1) || patch --batch --fuzz=5 -p1 -i "$1" >/dev/null 2>&1
then echo applied
else echo "the patch does not apply: $why"; fi
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweBenchOptions:
    """How the suite is written."""

    repos: str = "repos"
    """The folder of clones, relative to the suite's folder or absolute."""
    limit: int | None = None
    instance: str = "*"
    agent: str = "claude-code"
    image: str | None = None
    """A template over the columns, such as `registry/{instance_id}:latest`; None: no containers."""
    test_command: str | None = None
    """None: each repository's default."""
    predictions: tuple[Path, ...] = ()
    """Files of patches to grade, in the harness's shape; without any, an agent makes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A row of the file."""

    id: str
    repo: str
    base: str
    row: Mapping[str, Any]
    tests: Mapping[str, list[str]]

    @property
    def clone(self) -> str:
        """`owner__name`: the name of the clone's folder."""
        return self.repo.replace("/", "__")


def read_instances(path: Path, options: SweBenchOptions) -> list[Instance]:
    """The selected rows; SuiteError with every problem of the file."""
    problems: dict[Problem, None] = {}
    spot = Location(problems=problems, file=str(path))
    around = SuiteFolder(folder=path.absolute().parent, functions={})
    rows = CaseList(around=around, problems=problems)
    mapped = FieldMap(paths={"id": "instance_id", "input": "problem_statement"})
    CaseFiles(into=rows, mapped=mapped).read(path, spot)
    found: list[Instance] = []
    columns = {_column(key) for case in rows.cases for key in case.metadata}
    needed = [column for column in _NEEDED if column in {*columns, "problem_statement"}]
    for column in _NEEDED if rows.cases else ():
        if column not in needed:
            count = counted(len(rows.cases), "instance")
            spot.at(column).report(f"this column is missing (in {count})")
    for number, case in enumerate(rows.cases):
        if fnmatch.fnmatchcase(case.id, options.instance):
            row = {**case.metadata, "problem_statement": case.input}
            instance = _instance(case.id, row, needed, rows.spot(number))
            found += [] if instance is None else [instance]
    if problems:
        raise SuiteError(list(problems))
    if not found:
        raise RequestError(
            f"no instance of {path} matches {options.instance!r}",
            hint=f"it has {counted(len(rows.cases), 'instance')}, such as {rows.cases[0].id}",
        )
    return found[: options.limit]


def _column(key: str) -> str:
    """The published name: some sets write those of tests in lower case."""
    return next((one for one in _TESTS if one.lower() == key), key)


def _instance(
    identity: str, row: Mapping[str, Any], needed: Sequence[str], spot: Location
) -> Instance | None:
    before = len(spot.problems)
    row = {_column(key): row[key] for key in row}
    if not _ID.fullmatch(identity):
        spot.at("instance_id").report(f"must be usable as a file name, not {shown(identity)}")
    for column in needed:
        if row.get(column) in (None, "", []):
            spot.at(column).report(f"{identity}: missing; every instance needs it")
    repo, base = str(row.get("repo")), str(row.get("base_commit"))
    if row.get("repo") and not _REPO.fullmatch(repo):
        spot.at("repo").report(f"{identity}: must be 'owner/name', not {shown(row['repo'])}")
    if row.get("base_commit") and not _REF.fullmatch(base):
        where = f"{identity}: must be a commit, branch or tag"
        spot.at("base_commit").report(f"{where}, not {shown(row['base_commit'])}")
    tests = {name: _test_names(row.get(name), spot.at(name)) for name in _TESTS}
    if len(spot.problems) > before:
        return None
    return Instance(id=identity, repo=repo, base=base, row=row, tests=tests)


def _test_names(written: Any, spot: Location) -> list[str]:
    """A list, or as published the JSON text of one."""
    if isinstance(written, str) and written:
        try:
            written = json.loads(written)
        except json.JSONDecodeError as error:
            spot.report(f"must be a JSON list of test names: {error}")
            return []
    if not isinstance(written or [], list) or not all(
        isinstance(one, str) for one in written or ()
    ):
        spot.report(f"must be a list of test names, not {shown(written)}")
        return []
    return written or []


def read_swe_bench(path: Path, options: SweBenchOptions) -> tuple[ImportedSuite, list[Instance]]:
    """The suite of a file, with hidden tests and reference solutions; and its instances."""
    instances = read_instances(path, options)
    files: dict[str, str] = {
        "cases.jsonl": jsonl_text(_case(one, options) for one in instances),
        _SCRIPT: Path(__file__).with_name(_SCRIPT).read_text(),
        CHECK_FILE: _check_text(options),
    }
    for one in instances:
        files[f"hidden/{one.id}/test.patch"] = _patch(one.row["test_patch"])
        files[f"solutions/{one.id}.patch"] = _patch(one.row["patch"])
    predicted = read_predictions(options.predictions, instances)
    if options.predictions:
        files |= {_APPLY_FILE: _APPLY, **predicted.files}
    imported = ImportedSuite(
        source=path.name,
        suite={
            "name": path.stem,
            "cases": "cases.jsonl",
            **(_patching(predicted, options) if options.predictions else _solving(options)),
        },
        files=files,
        not_honored=(*_not_honored(instances, options), *predicted.not_honored),
        notes=(*predicted.notes, *_notes(instances, options)),
    )
    return imported, instances


def _solving(options: SweBenchOptions) -> dict[str, Any]:
    """The keys of a suite in which an agent resolves issues."""
    target = {
        "agent": options.agent,
        "prompt": _PROMPT,
        "timeout": _TIMEOUT_S,
        "errors": {"timeout": "fail"},
    }
    return {"target": target, **_common(options)}


def _notes(instances: Sequence[Instance], options: SweBenchOptions) -> Iterator[str]:
    lacking = sum("PASS_TO_PASS" not in one.row for one in instances)
    if lacking:
        count = counted(lacking, "instance")
        yield f"PASS_TO_PASS is missing in {count}: only FAIL_TO_PASS decides there."
    if options.image is not None:
        also = "git" if options.predictions else "git for check.yaml, and the agent's own program"
        yield f"Images need sh, bash, python3 (for {_SCRIPT}), what runs the tests, {also}."
    elif any("-m pytest" in _test_command(one, options) for one in instances):
        yield (
            "Tests run with `python -m pytest`: the python on PATH needs pytest and what the"
            " repository needs, or workspace a setup that installs them."
        )
    yield FLAGGED_NOTE


# ---- predictions


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Patches that models made for instances, as files of the suite."""

    models: tuple[str, ...] = ()
    """Each is the name of its folder: `/` is written as `__`."""
    files: Mapping[str, str] = field(default_factory=dict)
    not_honored: tuple[NotHonored, ...] = ()
    notes: tuple[str, ...] = ()


def read_predictions(paths: Sequence[Path], instances: Sequence[Instance]) -> Predictions:
    """Patches from files of the harness; SuiteError with every problem."""
    source = SourceFiles()
    patches: dict[str, dict[str, str]] = {}
    keys: dict[str, None] = {}
    for path in paths:
        for row, spot in _prediction_rows(source, path):
            keys |= dict.fromkeys(map(str, row))
            identity, model = row.get("instance_id"), row.get("model_name_or_path")
            patch = row.get("model_patch") or ""
            for name, value in (("instance_id", identity), ("model_name_or_path", model)):
                if not isinstance(value, str) or not value:
                    spot.at(name).report(f"must be a text, not {shown(value)}")
            if not isinstance(patch, str):
                spot.at("model_patch").report(f"must be the text of a patch, not {shown(patch)}")
                patch = ""
            made = patches.setdefault(_UNSAFE.sub("_", str(model).replace("/", "__")), {})
            if str(identity) in made:
                spot.report(f"{model} has another prediction for {identity}")
            made[str(identity)] = _patch(patch) if patch.strip() else ""
    source.check()
    known = [one.id for one in instances]
    if paths and not any(one in made for made in patches.values() for one in known):
        where = " or ".join(map(str, paths))
        raise RequestError(f"no prediction in {where} is for a chosen instance, such as {known[0]}")
    empty = {model: sum(not made.get(one) for one in known) for model, made in patches.items()}
    others = {one for made in patches.values() for one in made if one not in known}
    return Predictions(
        models=tuple(patches),
        files={
            f"predictions/{model}/{one}.patch": made.get(one, "")
            for model, made in patches.items()
            for one in known
        },
        not_honored=tuple(
            NotHonored(key=f"predictions: {key}", why="not needed to grade a patch")
            for key in keys
            if key not in ("instance_id", "model_name_or_path", "model_patch")
        ),
        notes=(
            *(
                f"{model} has no patch for {number} of {counted(len(known), 'instance')}: failed."
                for model, number in empty.items()
                if number
            ),
            *(
                [f"Left out: predictions for {counted(len(others), 'other instance')}."]
                * bool(others)
            ),
        ),
    )


def _prediction_rows(source: SourceFiles, path: Path) -> Iterator[tuple[dict[str, Any], Location]]:
    """Of JSONL, of a JSON list, or of a JSON object by instance."""
    if path.suffix == ".jsonl":
        yield from source.lines(path)
        return
    text = read_text(path, source.spot(path))
    document = None if text is None else read_json(text, source.spot(path))
    if document is None:
        return
    data = document.data
    if not isinstance(data, list | dict):
        document.spot.report("must be a list of predictions, or an object by instance")
        return
    for key, row in data.items() if isinstance(data, dict) else enumerate(data):
        spot = document.spot.at(key)
        if isinstance(row, dict):
            yield {"instance_id": key, **row} if isinstance(key, str) else row, spot
        else:
            spot.report("must be a JSON object")


def _patching(predicted: Predictions, options: SweBenchOptions) -> dict[str, Any]:
    """The keys of a suite that grades predictions."""
    common = _common(options, "prediction")
    if options.image is not None:
        common["workspace"]["readable"] = ["predictions"]
    patch = "{suite}/predictions/{model}/{case.id}.patch"
    return {
        "matrix": {"model": list(predicted.models)},
        "target": {"command": ["sh", f"{{suite}}/{_APPLY_FILE}", patch]},
        **common,
    }


def _patch(text: str) -> str:
    """git refuses a patch without its last line break."""
    return text if text.endswith("\n") else f"{text}\n"


def _case(one: Instance, options: SweBenchOptions) -> dict[str, Any]:
    row = one.row
    given = {
        "repo": os.path.join(options.repos, one.clone),  # noqa: PTH118 - text, as it is written
        "base": one.base,
        "problem": row["problem_statement"],
    }
    if options.image is not None:
        given["image"] = _image(options.image, one)
    kept = {name: row[name] for name in _KEPT if row.get(name) not in (None, "")}
    return {
        "id": one.id,
        "input": given,
        "expect": one.tests,
        "tags": [one.repo, *([str(row["difficulty"])] if row.get("difficulty") else [])],
        "metadata": {**kept, "test_command": _test_command(one, options)},
    }


def _image(template: str, one: Instance) -> str:
    # Image names have no double underscores; SWE-bench's own have `_1776_` instead.
    fields = {**one.row, "instance_id": one.id, "image_id": one.id.lower().replace("__", "_1776_")}
    try:
        return template.format_map(fields)
    except (KeyError, ValueError, IndexError) as error:
        raise RequestError(
            f"--image {template}: {error} is not a column of {one.id}",
            hint="use {instance_id}, {image_id}, {repo}, {version} or another column",
        ) from error


def _test_command(one: Instance, options: SweBenchOptions) -> str:
    """The command that runs the files of the tests: ids may be cut, and there may be thousands."""
    ids = [name for names in one.tests.values() for name in names if "::" in name]
    changed = _CHANGED_FILE.findall(one.row["test_patch"])
    files = list(dict.fromkeys([name.partition("::")[0] for name in ids] or changed))
    modules = [
        file.removeprefix("tests/").removesuffix(".py").replace("/", ".")
        for file in files
        if file.endswith(".py")
    ]
    command = options.test_command or TEST_COMMANDS.get(one.repo, DEFAULT_TEST_COMMAND)
    return command.replace("{tests}", shlex.join(files)).replace("{modules}", shlex.join(modules))


def _common(options: SweBenchOptions, *arguments: str) -> dict[str, Any]:
    """The keys that the suite and the one that checks solutions share."""
    workspace: dict[str, Any] = {"git": "{input.repo}", "ref": "{input.base}"}
    if options.image is not None:
        workspace["container"] = {"image": "{input.image}", "path": "/testbed"}
    grader = {
        # Isolated: an attempt may have left modules beside the script.
        "command": ["python3", "-I", _SCRIPT, "{metadata.test_command}", *arguments],
        "timeout": _TIMEOUT_S,
        "on_timeout": "fail",
        "failing": [1],
    }
    return {
        "workspace": workspace,
        "hidden": ["hidden/{case.id}/test.patch", _SCRIPT],
        "graders": [{"command": {"name": "resolved", **grader}}],
    }


def _check_text(options: SweBenchOptions) -> str:
    common = _common(options, "{solution}")
    patch = "{suite}/solutions/{case.id}.patch"
    if options.image is not None:
        common["workspace"]["readable"] = ["solutions"]
    solutions = {
        "reference": {"command": ["git", "apply", patch]},
        "empty": {"command": ["true"]},
    }
    return check_text(
        {
            "cases": "cases.jsonl",
            "matrix": {"solution": solutions},
            "target": {"command": ["true"]},
            **common,
        }
    )


def _not_honored(instances: Sequence[Instance], options: SweBenchOptions) -> Iterator[NotHonored]:
    columns = dict.fromkeys(column for one in instances for column in one.row)
    known = {"instance_id", *_NEEDED, *_TESTS, *_KEPT}
    if "hints_text" in columns:
        yield NotHonored(
            key="hints_text",
            why="SWE-bench does not show hints; to do so, add {metadata.hints_text} to the prompt",
        )
    if "environment_setup_commit" in columns and options.image is None:
        yield NotHonored(
            key="environment_setup_commit",
            why="no environment is built: tests run with what is installed here; add a setup to"
            " workspace, or import with --image",
        )
    for column in columns:
        if column not in known:
            yield NotHonored(key=column, why="no part of a suite")


# ---- clones


def missing_clones(
    instances: Sequence[Instance], repos: Path, host: str = DEFAULT_HOST
) -> list[list[str]]:
    """The commands that clone missing repositories and fetch missing commits."""
    commands: list[list[str]] = []
    for repo in dict.fromkeys(one.repo for one in instances):
        of_repo = [one for one in instances if one.repo == repo]
        folder = repos / of_repo[0].clone
        if not folder.exists():
            # Attempts see a clone's tags, and with them the commits that fixed the issue.
            address = f"{host.rstrip('/')}/{repo}"
            commands.append(["git", "clone", "--no-tags", "--", address, str(folder)])
            continue
        asked = "".join(f"{one.base}^{{commit}}\n" for one in of_repo)
        answers = run_git(["-C", str(folder), "cat-file", "--batch-check"], stdin=asked.encode())
        lines = answers.stdout.decode(errors="replace").splitlines()
        answered = zip(of_repo, lines, strict=False)
        lost = [one.base for one, line in answered if line.endswith(" missing")]
        if lost or not answers.is_well:
            commits = list(dict.fromkeys(lost))
            commands.append(["git", "-C", str(folder), "fetch", "--", "origin", *commits])
    return commands


def run_clone(command: Sequence[str]) -> None:
    """Clone or fetch, with the user's own configuration of git."""
    ended = run_quickly(command, env=os.environ, timeout=CLONE_TIMEOUT_S)
    if not ended.is_well:
        raise RequestError(f"{shlex.join(command)}: {ended.stderr or 'failed'}")
