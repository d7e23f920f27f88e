"""Turns race files, flags and Python mappings into valid requests.

All three go through the same checks, and one error reports every problem. `proposals` finds the
candidates.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.files import read_document
from paraval.documents.forms import check
from paraval.documents.problems import Location, shown
from paraval.documents.variables import References
from paraval.errors import ParavalError, RequestError
from paraval.git.repositories import Repository, find_repository, resolve
from paraval.git.run_git import run_git
from paraval.models.secrets import names_a_secret
from paraval.plan.prompts.texts import read_prompt
from paraval.plan.registry import Registry, read_registry
from paraval.plan.suite_folder import check_executable, search_path
from paraval.processes.sandbox import why_no_sandbox
from paraval.racing.candidates.names import is_commit, near_misses, path_of
from paraval.racing.candidates.reply import FORMAT
from paraval.racing.file.race_form import (
    AcceptForm,
    BenchForm,
    ComparedFileForm,
    GenerateForm,
    HookForm,
    ModelCandidatesForm,
    ProfileForm,
    RaceForm,
    RaceLimitsForm,
    RepoForm,
    TestForm,
)
from paraval.racing.file.short_forms import (
    FlagValue,
    WrittenRace,
    in_long_form,
    is_suite_file,
    lay_over,
)
from paraval.racing.request import (
    NO_TESTS,
    PROTECTED,
    Accept,
    BenchMetric,
    BenchSpec,
    ComparedOutput,
    HookSpec,
    ModelCandidates,
    Profile,
    ProfileSpec,
    RaceLimits,
    RaceRequest,
    TestSpec,
)
from paraval.records import AccountLimits, account_need
from paraval.templates.template import Field, TemplateError, is_jinja, parse
from paraval.text.suggest import suggestion

# Commands as people write them: a list, or one string that is split like a shell would.

PYTHON = "{python}"
"""An argument that stands for the Python that paraval runs with."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_OPERATOR = re.compile(r"\|+|&+|;+|<+|>+")
_EXPANSION = re.compile(r"\$(\w+|\{[^}]*\}?|[(@*#?$!-])|`")
"""Shell expansions, which also happen within double quotes."""
_UNQUOTED = re.compile(r"[\"'$`\\!]")
"""Characters that need escaping within double quotes."""


class NeedsShellError(ValueError):
    """The command line needs a shell, and none is used."""

    def __init__(self, syntax: str, line: str) -> None:
        quoted = f'"{line}"' if not _UNQUOTED.search(line) else f"'{line}'"
        super().__init__(self._message(syntax, f"[sh, -c, {quoted}]"))
        self._syntax, self._line = syntax, line

    def message_for_flag(self, flag: str) -> str:
        """The message for a flag, quoted as one would type it in a shell."""
        line = f'sh -c "{self._line}"'
        if _UNQUOTED.search(self._line):
            line = f"sh -c {shlex.quote(self._line)}"
        return self._message(self._syntax, f"{flag} {shlex.quote(line)}")

    def _message(self, syntax: str, instead: str) -> str:
        return f"{syntax!r} needs a shell, and none is used; put it in quotes, or write {instead}"


def arguments_of(written: str | Sequence[str]) -> tuple[str, ...]:
    """The program and its arguments. Raises ValueError for an invalid command."""
    arguments = _split(written) if isinstance(written, str) else list(written)
    if not arguments or not arguments[0].strip():
        raise ValueError("names no program")
    if any("\0" in argument for argument in arguments):
        raise ValueError("contains a NUL character")
    return tuple(sys.executable if one == PYTHON else one for one in arguments)


def _split(line: str) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError:
        raise ValueError(f"unclosed quote or trailing backslash in {line!r}") from None
    syntax = next(_shell_syntax(line), None)
    if syntax is not None:
        raise NeedsShellError(syntax, line)
    if words and _ASSIGNMENT.match(words[0]):
        raise ValueError(f"{words[0]!r} needs a shell, and none is used; put env before it")
    return words


def _shell_syntax(line: str) -> Iterator[str]:
    """The parts of a command line that a shell would interpret."""
    quote, place = "", 0
    while place < len(line):
        character = line[place]
        if character == "\\" and quote != "'":
            place += 2
            continue
        if character in ("'", '"') and quote in ("", character):
            quote = "" if quote else character
        elif quote != "'" and (expansion := _EXPANSION.match(line, place)):
            yield expansion[0]
        elif not quote and (operator := _OPERATOR.match(line, place)):
            yield operator[0]
        place += 1


ENDINGS = (".yaml", ".yml", ".json", ".toml")
"""File endings of race files."""
_ADDRESS = re.compile(r"[a-z][a-z+]*://|[\w.-]+@[\w.-]+:")
_PATH = re.compile(r"[./]")


def load_race(path: Path, flags: Iterable[FlagValue] = ()) -> RaceRequest:
    """Read a race from a .yaml, .yml, .json or .toml file, overridden by flags."""
    spot = Location(problems={}, file=str(path))
    document = read_document(path, spot)
    if document is None:
        raise _refused(spot)
    whole = Path(os.path.normpath(Path.cwd() / path))
    around = _RaceSettings(folder=whole.parent, source=str(whole))
    try:
        return _read(document.data, document.spot, flags, around)
    except RequestError:
        if is_suite_file(path):
            raise RequestError(
                f"{path} is a suite, not a race",
                hint=f"run it with: paraval run {shlex.quote(str(path))}",
            ) from None
        raise


def race_of_flags(flags: Iterable[FlagValue]) -> RaceRequest:
    """A race in the current folder, from flags alone."""
    return _read({}, Location(problems={}), flags, _RaceSettings(folder=Path.cwd()))


def request_from_mapping(
    mapping: Mapping[str, Any], folder: Path, source: str | None = None
) -> RaceRequest:
    """A race from the keys of a race file; paths are relative to the folder."""
    around = _RaceSettings(folder=Path(os.path.normpath(folder.absolute())), source=source)
    return _read(_as_in_a_file(mapping), Location(problems={}), (), around)


def _as_in_a_file(value: Any) -> Any:
    """Turn tuples into lists and paths into strings, as in a file."""
    match value:
        case Mapping():
            return {str(key): _as_in_a_file(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_as_in_a_file(inner) for inner in value]
        case os.PathLike():
            return os.fspath(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _RaceSettings:
    """The folder and file that a race is defined in."""

    folder: Path
    source: str | None = None


def _refused(spot: Location) -> RequestError:
    problems = sorted(spot.problems, key=lambda one: (one.file is None, one.line or 0))
    return RequestError("\n".join(map(str, problems)))


def _read(
    written: Any, spot: Location, flags: Iterable[FlagValue], around: _RaceSettings
) -> RaceRequest:
    if not isinstance(written, Mapping):
        spot.report(f"must be a mapping, not {shown(written)}")
        raise _refused(spot)
    words = in_long_form(written, spot)
    lay_over(words, flags)
    _complete_comparison(words)
    form = check(RaceForm, words.data, spot, lambda steps: words.at(*steps))
    path, repository, repo = _repository(words, around.folder)
    env = {} if form is None else dict(form.env)
    programs = _Programs(words=words, folder=around.folder, env=env)
    registry = _registry(words, around.folder)
    request = RaceRequest(
        name=_name(form, around, path),
        source=around.source,
        folder=str(around.folder),
        repo=path,
        ref=repo.ref or "HEAD",
        head=repo.head,
        uncommitted=repo.uncommitted,
        setup=() if form is None or form.setup is None else programs.within(form.setup, "setup"),
        sandbox=form is not None and form.sandbox is True,
        is_fenced=(form is None or form.sandbox is None) and why_no_sandbox() is None,
        test=_test(words, programs),
        compare=_comparisons(words),
        bench=_bench(words, programs),
        candidates=_candidates(words, around.folder, repository),
        models=registry.models,
        generate=_hook(words, "generate", GenerateForm, programs)
        or _asking(words, registry, around, (repository, repo)),
        repair=_hook(words, "repair", HookForm, programs),
        refine=_hook(words, "refine", HookForm, programs),
        profile=_profile(words),
        accept=_accept(words),
        limits=_limits(words),
        protect=PROTECTED if form is None else _protected(form.protect),
        env=env,
        pass_env=() if form is None else tuple(form.pass_env),
    )
    if spot.problems:
        raise _refused(spot)
    return request


def _name(form: RaceForm | None, around: _RaceSettings, repo: str) -> str:
    if form is not None and form.name is not None:
        return form.name
    return Path(around.source).stem if around.source else Path(repo).name or "race"


def _protected(written: list[str] | bool) -> tuple[str, ...]:
    if isinstance(written, bool):
        return PROTECTED if written else ()
    return tuple(written)


# ---- the repository


def _complete_comparison(words: WrittenRace) -> None:
    """What a comparison of two refs needs and leaves out, besides `repo.head`."""
    repo = words.data.get("repo")
    if not isinstance(repo, Mapping) or repo.get("head") is None:
        return
    for name in ("candidates", "generate", "repair", "refine"):
        if words.data.get(name) is not None:
            words.at(name).report("cannot be combined with repo.head, the only candidate")
    if repo.get("uncommitted"):
        words.at("repo", "head").report("cannot be combined with uncommitted: true")
    if words.data.get("test") is None:
        words.data["test"] = {"command": list(NO_TESTS), "junit": "off"}
    for name, key, value in (("test", "canary", False), ("accept", "speedup", 1)):
        part = words.data.get(name) or {}
        if isinstance(part, Mapping):
            words.data[name] = {key: value, **part}


def _repository(words: WrittenRace, folder: Path) -> tuple[str, Repository | None, RepoForm]:
    """The repository's path, the repository if it is usable, and its settings."""
    form = words.part("repo", RepoForm) or RepoForm.model_validate({})
    if form.ref is not None and form.uncommitted:
        words.at("repo", "ref").report(
            "cannot be combined with uncommitted: true; remove one of them"
        )
    spot = words.at("repo", "git")
    path = os.path.normpath(folder / form.git) if "\0" not in form.git else ""
    if not os.path.isdir(path):  # noqa: PTH112 - False for a name that is too long
        if _ADDRESS.match(form.git):
            spot.report(f"{shown(form.git)} is a URL; clone it first and give the folder")
        else:
            spot.report(f"folder '{path or ascii(form.git)}' does not exist")
        return path, None, form
    try:
        repository = find_repository(path)
    except ParavalError as error:
        spot.report(error.message)
        return path, None, form
    for key, ref in (("ref", form.ref), ("head", form.head)):
        try:
            resolve(repository, ref or "HEAD")
        except ParavalError as error:
            if ref is None:
                spot.report(error.message)
                break
            where = f"of the repository {repository.top}"
            words.at("repo", key).report(f"'{ref}' is not a branch, tag or commit {where}")
    return path, repository, form


# ---- commands


@dataclass(frozen=True, slots=True, kw_only=True)
class _Programs:
    """Reads commands, and checks that their programs exist."""

    words: WrittenRace
    folder: Path
    env: Mapping[str, str]

    def within(self, written: str | list[str], *steps: str) -> tuple[str, ...]:
        """Check a command that runs in a worktree, where relative paths may not exist yet."""
        command = self._arguments(written, *steps)
        if command and ("/" not in command[0] or Path(command[0]).is_absolute()):
            path = search_path(self.env)
            check_executable(command[0], str(self.folder), path, self.words.at(*steps))
        return command

    def beside(self, written: str | list[str], *steps: str) -> tuple[str, ...]:
        """Check a command that runs in the race's folder."""
        command = self._arguments(written, *steps)
        if command:
            check_executable(command[0], str(self.folder), search_path({}), self.words.at(*steps))
        return command

    def _arguments(self, written: str | list[str], *steps: str) -> tuple[str, ...]:
        spot = self.words.at(*steps)
        try:
            return arguments_of(written)
        except NeedsShellError as error:
            flag = str(spot.path[0]) if spot.path else ""
            spot.report(error.message_for_flag(flag) if flag.startswith("--") else str(error))
        except ValueError as error:
            spot.report(str(error))
        return ()


def _test(words: WrittenRace, programs: _Programs) -> TestSpec:
    form = words.part("test", TestForm)
    if form is None:
        return TestSpec(command=())
    return TestSpec(
        command=programs.within(form.command, "test", "command"),
        timeout=None if form.timeout is None else float(form.timeout),
        junit=_file_or_word(form.junit, ("auto", "off"), words.at("test", "junit")),
        canary=form.canary,
    )


def _bench(words: WrittenRace, programs: _Programs) -> BenchSpec:
    form = words.part("bench", BenchForm)
    if form is None:
        return BenchSpec(command=())
    metric, file = _metric(form.metric, words.at("bench", "metric"))
    return BenchSpec(
        command=programs.within(form.command, "bench", "command"),
        timeout=None if form.timeout is None else float(form.timeout),
        metric=metric,
        file=file,
        blocks=None if form.blocks is None else int(form.blocks),
        quiet_s=float(form.quiet),
        cpus=None if form.cpus is None else int(form.cpus),
    )


def _metric(written: str | ComparedFileForm, spot: Location) -> tuple[BenchMetric, str | None]:
    if isinstance(written, ComparedFileForm):
        return BenchMetric.FILE, written.file
    text = _file_or_word(written, ("wall", "cpu"), spot)
    return (BenchMetric(text), None) if text in ("wall", "cpu") else (BenchMetric.FILE, text)


def _hook(
    words: WrittenRace, name: str, kind: type[GenerateForm], programs: _Programs
) -> HookSpec | None:
    form = words.part(name, kind)
    if form is None:
        return None
    hook = HookSpec(
        command=programs.beside(form.command, name, "command"),
        timeout=float(form.timeout),
        usd=None if form.usd is None else float(form.usd),
    )
    if not isinstance(form, HookForm):
        return hook
    return replace(hook, depth=int(form.depth), calls=int(form.calls))


# ---- candidates that models write

_PROMPT = """\
Make this code faster. For the same inputs it must have the same results and raise the same
exceptions. You are asked {n} times, and the fastest correct answer wins: this is attempt {attempt},
so look for an idea of its own.
"""
_FIELDS = ("target", "n", "attempt")


def _registry(words: WrittenRace, folder: Path) -> Registry:
    spot = words.at("models")
    references = References(names_a_secret=names_a_secret)
    return read_registry(references.filled(words.data.get("models"), spot), spot, folder)


def _asking(
    words: WrittenRace,
    registry: Registry,
    around: _RaceSettings,
    start: tuple[Repository | None, RepoForm],
) -> HookSpec | None:
    """The models that write candidates, with what they are asked."""
    repository, repo = start
    given = words.data.get("candidates")
    asking = [
        (item, words.at("candidates", number))
        for number, item in enumerate(given if isinstance(given, list) else ())
        if isinstance(item, Mapping)
    ]
    if not asking:
        return None
    item, spot = asking[0]
    if len(asking) > 1:
        asking[1][1].report("only one mapping can be given; list several models in its model")
    if words.data.get("generate") is not None:
        spot.report("cannot be combined with generate; use one or the other")
    form = check(ModelCandidatesForm, item, spot)
    if form is None or repository is None:
        return None
    names = [form.model] if isinstance(form.model, str) else form.model
    models = [registry.find(name, spot.at("model")) for name in dict.fromkeys(names)]
    files = _shown_files(form, spot.at("target"), repository, repo)
    prompt = _prompt(form, spot.at("prompt"), around.folder, files)
    found = tuple(model for model in models if model is not None)
    if not found or prompt is None:
        return None
    needs = {account_need(model.account) for model in found}
    asks = ModelCandidates(
        models=found,
        limits={need: registry.limits.get(need, AccountLimits()) for need in sorted(needs)},
        n=int(form.n),
        prompt=prompt,
        files=files,
        temperature=None if form.temperature is None else float(form.temperature),
        max_tokens=None if form.max_tokens is None else int(form.max_tokens),
    )
    return HookSpec(asks=asks)


def _shown_files(
    form: ModelCandidatesForm, spot: Location, repository: Repository, repo: RepoForm
) -> dict[str, str]:
    """The texts of the target files where the race starts, by path in the repository."""
    texts: dict[str, str] = {}
    for target in [form.target] if isinstance(form.target, str) else form.target:
        path = posixpath.normpath(posixpath.join(repository.prefix, target))
        try:
            if repo.uncommitted:
                content = Path(repository.top, path).read_bytes()
            else:
                at = f"{repo.ref or 'HEAD'}:{path}"
                found = run_git([f"--git-dir={repository.git_dir}", "cat-file", "blob", at])
                if not found.is_well:
                    raise FileNotFoundError(path)
                content = found.stdout
            texts[path] = content.decode()
        except (OSError, UnicodeDecodeError, ValueError):
            where = "the working tree" if repo.uncommitted else f"commit {repo.ref or 'HEAD'}"
            spot.report(f"{shown(target)} is not a text file in {where} of {repository.top}")
    return texts


def _prompt(
    form: ModelCandidatesForm, spot: Location, folder: Path, files: Mapping[str, str]
) -> str | None:
    """The whole prompt, as a template with {attempt} only."""
    prompt = read_prompt(_PROMPT if form.prompt is None else form.prompt, spot, folder)
    if prompt is None:
        return None
    if is_jinja(prompt.text):
        prompt.spot.report("a race's prompt cannot be a .j2 file; use {target}, {n} and {attempt}")
        return None
    try:
        pieces = parse(prompt.text)
    except TemplateError as error:
        prompt.spot.report(error.message)
        return None
    unknown = [one.name for one in pieces if isinstance(one, Field) and one.name not in _FIELDS]
    for name in unknown:
        prompt.spot.report(f"unknown field {{{name}}}{suggestion(name, _FIELDS)}")
    values = {"target": literal(_listing(files)), "n": str(form.n), "attempt": "{attempt}"}
    filled = "".join(
        literal(one) if isinstance(one, str) else values.get(one.name, "") for one in pieces
    )
    if Field("target") not in pieces:
        filled = f"{filled.rstrip()}\n\n{values['target']}"
    return f"{filled.rstrip()}\n\n{literal(FORMAT)}"


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


def _file_or_word(text: str, known: tuple[str, ...], spot: Location) -> str:
    """Check a keyword or path, so that a misspelled keyword is not taken for a file."""
    if text not in known and not _PATH.search(text):
        must = " or ".join(f"'{word}'" for word in known)
        spot.report(
            f"must be {must}, or a file with a '.' or '/' in its path, not {shown(text)}"
            f"{_near(text, known)}"
        )
    return text


def _near(text: str, known: tuple[str, ...]) -> str:
    near = suggestion(text, known)
    return near if near.endswith("?") else ""


# ---- comparisons, candidates, acceptance and limits


def _comparisons(words: WrittenRace) -> tuple[ComparedOutput, ...]:
    written = words.data.get("compare")
    if written is None:
        return ()
    if not isinstance(written, list):
        words.at("compare").report(f"must be a list of 'stdout' and files, not {shown(written)}")
        return ()
    found: list[ComparedOutput] = []
    for number, item in enumerate(written):
        spot = words.at("compare", number)
        comparison = _comparison(item, spot)
        if comparison is None:
            continue
        if comparison in found:
            spot.report(f"duplicate '{comparison.name}'")
        found.append(comparison)
    return tuple(found)


def _comparison(item: Any, spot: Location) -> ComparedOutput | None:
    if item == "stdout":
        return ComparedOutput()
    if isinstance(item, str):
        _file_or_word(item, ("stdout",), spot)
        form = check(ComparedFileForm, {"file": item}, spot, lambda _steps: spot)
    elif isinstance(item, Mapping):
        form = check(ComparedFileForm, item, spot)
    else:
        form = None
        spot.report(f"must be 'stdout', or a mapping with file, not {shown(item)}")
    return None if form is None else ComparedOutput(file=os.path.normpath(form.file))


def _candidates(words: WrittenRace, folder: Path, repository: Repository | None) -> tuple[str, ...]:
    """The candidates as written, with paths made absolute."""
    written = words.data.get("candidates")
    if written is None:
        return ()
    if not isinstance(written, list) or not all(isinstance(one, str | Mapping) for one in written):
        words.at("candidates").report(
            "must be a path, a glob or a git ref, a mapping with model, or a list of them, not"
            f" {shown(written)}"
        )
        return ()
    found = []
    for number, text in enumerate(written):
        if isinstance(text, Mapping):
            continue
        path = path_of(text, folder)
        if path is None and repository is not None and not is_commit(repository, text):
            words.at("candidates", number).report(
                f"{shown(text)} is not a file, folder or glob in {folder}, nor a branch, tag or"
                f" commit of {repository.top}{near_misses(text, folder, repository)}"
            )
        found.append(text if path is None else path)
    return tuple(found)


def _profile(words: WrittenRace) -> ProfileSpec:
    form = words.part("profile", ProfileForm)
    if form is None:
        return ProfileSpec()
    if form.kind == "none" and form.functions:
        words.at("profile", "functions").report("cannot be combined with profile: none")
    return ProfileSpec(kind=Profile(form.kind), functions=tuple(form.functions))


def _accept(words: WrittenRace) -> Accept:
    form = words.part("accept", AcceptForm)
    if form is None:
        return Accept()
    return Accept(
        speedup=float(form.speedup),
        confidence=float(form.confidence),
        each=None if form.each is None else float(form.each),
    )


def _limits(words: WrittenRace) -> RaceLimits:
    form = words.part("limits", RaceLimitsForm)
    if form is None:
        return RaceLimits()
    return RaceLimits(
        parallel=None if form.parallel in (None, "auto") else int(form.parallel),
        candidates=int(form.candidates),
        seconds=None if form.seconds is None else float(form.seconds),
        usd=None if form.usd is None else float(form.usd),
    )
