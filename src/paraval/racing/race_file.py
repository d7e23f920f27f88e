"""Turns race files, flags and Python arguments into valid requests.

All three patch the same keys and go through the same checks, and one error reports every problem.
`candidates.given` finds the candidates.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.files import read_document
from paraval.documents.forms import check
from paraval.documents.problems import Location, Path as Steps, Step, shown
from paraval.documents.variables import References
from paraval.errors import ParavalError, RequestError
from paraval.git.repositories import Repository, find_repository, resolve
from paraval.git.run_git import run_git
from paraval.models.secrets import names_a_secret
from paraval.plan.prompts.texts import read_prompt
from paraval.plan.registry import Registry, read_registry
from paraval.plan.schema.suite_form import EditorSchema
from paraval.plan.suite_folder import check_executable, search_path
from paraval.processes.sandbox import why_no_sandbox
from paraval.racing.candidates.names import is_commit, near_misses, path_of
from paraval.racing.candidates.reply import FORMAT
from paraval.racing.request import (
    NO_TESTS,
    STDOUT,
    ProposeSpec,
    RaceFile,
    RaceKeys,
    RaceRequest,
    RepoSpec,
)
from paraval.records import AccountLimits, account_need
from paraval.templates.template import Field, TemplateError, is_jinja, parse
from paraval.text.suggest import suggestion

MAIN_KEYS = {"repo": "git", "test": "command", "bench": "command", "propose": "command"}
"""Parts that may be written as the value of one key."""
TOP_KEYS = ("name", "models")
"""Those of a race file that do not stand below `race`."""
_ADDRESS = re.compile(r"[a-z][a-z+]*://|[\w.-]+@[\w.-]+:")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagValue:
    """A flag's value, which overrides the file's."""

    flag: str
    """`--metric`."""
    steps: tuple[str, ...]
    """Below `race`: `("bench", "metric")`."""
    value: Any


def is_race_file(path: Path) -> bool:
    """Whether a file is a race and no suite."""
    document = read_document(path, Location(problems={}))
    return document is not None and isinstance(document.data, Mapping) and "race" in document.data


def load_race(
    path: Path, flags: Iterable[FlagValue] = (), *, has_function: bool = False
) -> RaceRequest:
    """Read a race from a .yaml, .yml, .json or .toml file, overridden by flags. `has_function`: a
    Python function proposes candidates."""
    spot = Location(problems={}, file=str(path))
    document = read_document(path, spot)
    if document is None:
        raise _refused(spot)
    if isinstance(document.data, Mapping) and "race" not in document.data:
        hint = "its keys stand below `race:`"
        if {"cases", "target"} & document.data.keys():
            hint = f"it is a suite; run it with: paraval run {shlex.quote(str(path))}"
        raise RequestError(f"{path} is not a race: it has no key `race`", hint=hint)
    whole = Path(os.path.normpath(Path.cwd() / path))
    reader = _RaceReader(document.data, document.spot, whole.parent, str(whole))
    return reader.read(flags, has_function=has_function)


def race_of(
    keys: Mapping[str, Any],
    folder: Path,
    flags: Iterable[FlagValue] = (),
    *,
    has_function: bool = False,
) -> RaceRequest:
    """A race from the keys of a race file, `name` and `models` among them; paths are relative to
    the folder."""
    data: dict[str, Any] = {"race": {}}
    for key, value in keys.items():
        (data if key in TOP_KEYS else data["race"])[key] = as_in_a_file(value)
    reader = _RaceReader(data, Location(problems={}), folder, None)
    return reader.read(flags, has_function=has_function)


def as_in_a_file(value: Any) -> Any:
    """Turn tuples into lists and paths into strings, as in a file."""
    match value:
        case Mapping():
            return {str(key): as_in_a_file(inner) for key, inner in value.items()}
        case list() | tuple():
            return [as_in_a_file(inner) for inner in value]
        case os.PathLike():
            return os.fspath(value)
    return value


def _refused(spot: Location) -> RequestError:
    problems = sorted(spot.problems, key=lambda one: (one.file is None, one.line or 0))
    return RequestError("\n".join(map(str, problems)))


class _RaceReader:
    """Reads one race."""

    def __init__(self, data: Any, spot: Location, folder: Path, source: str | None) -> None:
        self._data = data
        self._spot = spot
        self._folder = folder
        self._source = source
        self._flags: dict[Steps, str] = {}
        """Where each value that a flag sets is in the keys."""

    def read(self, flags: Iterable[FlagValue], *, has_function: bool) -> RaceRequest:
        """Raises RequestError, with every problem."""
        data = self._data
        race = data.get("race") if isinstance(data, Mapping) else data
        if not isinstance(race or {}, Mapping):
            self._spot.at("race").report(f"must be a mapping, not {shown(race)}")
            raise _refused(self._spot)
        data = {**data, "race": {**(data["race"] or {})}}
        for flag in flags:
            self._lay(data, flag)
        self._complete_comparison(data["race"])
        form = check(RaceFile, data, self._spot, lambda steps: self._at(*steps))
        if form is None:
            raise _refused(self._spot)
        propose = form.race.propose
        if propose is not None and propose.is_function and not has_function:
            self._at("race", "propose").report("needs a command or models")
        request = self._resolved(form)
        if self._spot.problems:
            raise _refused(self._spot)
        return request

    def _lay(self, data: dict[str, Any], flag: FlagValue) -> None:
        """Set the key that a flag overrides."""
        is_top = flag.steps[0] in TOP_KEYS
        place = data if is_top else data["race"]
        for step in flag.steps[:-1]:
            inner = place.get(step)
            if not isinstance(inner, Mapping):
                inner = {} if inner is None else {MAIN_KEYS[step]: inner}
            place[step] = {**inner}
            place = place[step]
        place[flag.steps[-1]] = flag.value
        self._flags[flag.steps if is_top else ("race", *flag.steps)] = flag.flag

    def _at(self, *steps: Step) -> Location:
        for length in range(len(steps), 0, -1):
            if (flag := self._flags.get(steps[:length])) is not None:
                return replace(self._spot, file=None, root=None, path=(flag,))
        return self._spot.at(*steps)

    def _complete_comparison(self, race: dict[str, Any]) -> None:
        """What a comparison of two refs needs and leaves out, besides `repo.head`."""
        repo = race.get("repo")
        if not isinstance(repo, Mapping) or repo.get("head") is None:
            return
        for name in ("candidates", "propose"):
            if race.get(name) is not None:
                self._at("race", name).report("cannot be combined with repo.head")
        if repo.get("uncommitted"):
            self._at("race", "repo", "head").report("cannot be combined with uncommitted: true")
        if race.get("test") is None:
            race["test"] = {"command": list(NO_TESTS), "canary": False}
        given = race.get("accept")
        race["accept"] = {"speedup": 1, **(given if isinstance(given, Mapping) else {})}
        race["accept"].setdefault("unseen_results", True)
        race["accept"].setdefault("caches", True)

    def _resolved(self, form: RaceFile) -> RaceRequest:
        keys = form.race
        path, repository = self._repository(keys.repo)
        self._check_programs(keys)
        spot = self._spot.at("models")
        filled = References(names_a_secret=names_a_secret).filled(form.models, spot)
        registry = read_registry(filled, spot, self._folder)
        name = form.name or (Path(self._source).stem if self._source else Path(path).name)
        request = RaceRequest(
            name=name or "race",
            source=self._source,
            folder=str(self._folder),
            repo=path,
            keys=keys.model_copy(update={"candidates": self._candidates(keys, repository)}),
            is_fenced=keys.sandbox is None and why_no_sandbox() is None,
            models=registry.models,
        )
        if keys.propose is None or repository is None:
            return request
        return self._with_models(request, keys.propose, registry, repository)

    # ---- the repository

    def _repository(self, repo: RepoSpec) -> tuple[str, Repository | None]:
        """The repository's path, and the repository if it is usable."""
        if repo.ref != "HEAD" and repo.uncommitted:
            self._at("race", "repo", "ref").report(
                "cannot be combined with uncommitted: true; remove one of them"
            )
        spot = self._at("race", "repo", "git")
        path = os.path.normpath(self._folder / repo.git) if "\0" not in repo.git else ""
        if not os.path.isdir(path):  # noqa: PTH112 - False for a name that is too long
            if _ADDRESS.match(repo.git):
                spot.report(f"{shown(repo.git)} is a URL; clone it first and give the folder")
            else:
                spot.report(f"folder '{path or ascii(repo.git)}' does not exist")
            return path, None
        try:
            repository = find_repository(path)
        except ParavalError as error:
            spot.report(error.message)
            return path, None
        for key, ref in (("ref", repo.ref), ("head", repo.head)):
            try:
                resolve(repository, ref or "HEAD")
            except ParavalError as error:
                where = f"of the repository {repository.top}"
                words = f"'{ref}' is not a branch, tag or commit {where}"
                self._at("race", "repo", key).report(error.message if ref == "HEAD" else words)
                break
        return path, repository

    def _candidates(self, keys: RaceKeys, repository: Repository | None) -> tuple[str, ...]:
        """The candidates as written, with paths made absolute."""
        found = []
        for number, text in enumerate(keys.candidates):
            path = path_of(text, self._folder)
            if path is None and repository is not None and not is_commit(repository, text):
                self._at("race", "candidates", number).report(
                    f"{shown(text)} is not a file, folder or glob in {self._folder}, nor a branch,"
                    f" tag or commit of {repository.top}"
                    f"{near_misses(text, self._folder, repository)}"
                )
            found.append(text if path is None else path)
        return tuple(found)

    def _check_programs(self, keys: RaceKeys) -> None:
        """Check that programs exist. In a worktree, relative paths may not exist yet."""
        path = search_path(keys.env)
        within = {"test": keys.test.command, "bench": keys.bench.command, "setup": keys.setup}
        for name, command in within.items():
            if command and ("/" not in command[0] or Path(command[0]).is_absolute()):
                spot = self._at("race", name, "command" if name in MAIN_KEYS else name)
                check_executable(command[0], str(self._folder), path, spot)
        if keys.propose is not None and keys.propose.command is not None:
            spot = self._at("race", "propose", "command")
            check_executable(keys.propose.command[0], str(self._folder), search_path({}), spot)
        for place, name in enumerate(keys.compare):
            is_word = name != STDOUT and not set(name) & set("./")
            if is_word:
                self._at("race", "compare", place).report(
                    f"must be 'stdout', or a file with a '.' or '/' in its path, not {shown(name)}"
                )

    # ---- models that propose

    def _with_models(
        self, request: RaceRequest, spec: ProposeSpec, registry: Registry, repository: Repository
    ) -> RaceRequest:
        spot = self._at("race", "propose")
        if spec.command is not None and spec.models:
            spot.report("has both a command and models; remove one of them")
        if not spec.models:
            return request
        if not spec.files:
            spot.report("models need `files`: those that they are shown and may edit")
        models = [registry.find(name, spot.at("models")) for name in dict.fromkeys(spec.models)]
        needs = sorted({account_need(model.account) for model in models if model is not None})
        files = self._shown_files(spec, request.keys.repo, repository)
        return replace(
            request,
            account_limits={need: registry.limits.get(need, AccountLimits()) for need in needs},
            files=files,
            prompt=self._prompt(spec, files),
        )

    def _shown_files(
        self, spec: ProposeSpec, repo: RepoSpec, repository: Repository
    ) -> dict[str, str]:
        """The texts of the files where the race starts, by path in the repository."""
        texts: dict[str, str] = {}
        for file in spec.files:
            path = posixpath.normpath(posixpath.join(repository.prefix, file))
            try:
                if repo.uncommitted:
                    content = Path(repository.top, path).read_bytes()
                else:
                    at = f"{repo.ref}:{path}"
                    found = run_git([f"--git-dir={repository.git_dir}", "cat-file", "blob", at])
                    if not found.is_well:
                        raise FileNotFoundError(path)
                    content = found.stdout
                texts[path] = content.decode()
            except (OSError, UnicodeDecodeError, ValueError):
                where = "the working tree" if repo.uncommitted else f"commit {repo.ref}"
                self._at("race", "propose", "files").report(
                    f"{shown(file)} is not a text file in {where} of {repository.top}"
                )
        return texts

    def _prompt(self, spec: ProposeSpec, files: Mapping[str, str]) -> str:
        """The whole prompt, as a template with {attempt} only."""
        spot = self._at("race", "propose", "prompt")
        prompt = read_prompt(spec.prompt or _PROMPT, spot, self._folder)
        if prompt is None:
            return ""
        if is_jinja(prompt.text):
            prompt.spot.report("cannot be a .j2 file; use {files}, {n} and {attempt}")
            return ""
        try:
            pieces = parse(prompt.text)
        except TemplateError as error:
            prompt.spot.report(error.message)
            return ""
        for one in pieces:
            if isinstance(one, Field) and one.name not in _FIELDS:
                hint = suggestion(one.name, _FIELDS)
                prompt.spot.report(f"unknown field {{{one.name}}}{hint}")
        values = {"files": literal(_listing(files)), "n": str(spec.n), "attempt": "{attempt}"}
        filled = "".join(
            literal(one) if isinstance(one, str) else values.get(one.name, "") for one in pieces
        )
        if Field("files") not in pieces:
            filled = f"{filled.rstrip()}\n\n{values['files']}"
        return f"{filled.rstrip()}\n\n{literal(FORMAT)}"


_PROMPT = """\
Make this code faster. For the same inputs it must have the same results and raise the same
exceptions. The fastest correct answer wins: this is attempt {attempt}, so look for an idea of its
own.
"""
_FIELDS = ("files", "n", "attempt")


def literal(text: str) -> str:
    """The text as a template without fields."""
    return text.replace("{", "{{").replace("}", "}}")


def _listing(files: Mapping[str, str]) -> str:
    """Each file as a reply should have it: its path, then a code block."""
    parts = []
    for path, text in files.items():
        fences = re.findall(r"^ {0,3}(`{3,})", text, re.MULTILINE)
        fence = "`" * max(3, *(len(one) + 1 for one in fences), 3)
        parts.append(f"{path}\n{fence}\n{text.removesuffix(chr(10))}\n{fence}\n")
    return "\n".join(parts).rstrip("\n")


def race_schema() -> dict[str, Any]:
    """The JSON Schema of race files, for editors."""
    schema = RaceFile.model_json_schema(schema_generator=EditorSchema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "paraval race",
    }
