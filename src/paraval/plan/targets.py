"""Read the target, with every variant's overlays, into records.

Whether its templates fit the cases is checked in `template_checks`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.forms import Form, Locate, check, keys_of
from paraval.documents.problems import Location, Step, shown
from paraval.errors import ParavalError, Problem
from paraval.functions import load_function, positional_arguments
from paraval.plan.agents import (
    AgentDraft,
    AgentRequest,
    check_shared_keys,
    read_agent,
    resolve_agent,
)
from paraval.plan.chat import ChatDraft, read_chat, resolve
from paraval.plan.limits import read_errors, read_target_limits
from paraval.plan.matrix import AxisValue, Choice, Matrix, files_of
from paraval.plan.prompts.texts import Prompt, insert_into
from paraval.plan.schema.agent_forms import AgentTargetForm
from paraval.plan.schema.target_forms import ChatTargetForm, CommandTargetForm, FunctionTargetForm
from paraval.plan.suite_folder import (
    SuiteFolder,
    check_executable,
    check_started_in_workspace,
    placed,
    search_path,
)
from paraval.records import CommandTarget, FunctionTarget, Home, OutputForm, SuiteTarget
from paraval.text.suggest import nearest, suggestion

MERGED = ("env", "mcp", "chat")
"""Target keys that an overlay merges; any other key it replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTarget:
    """A target's keys, each with its location: the target, or the overlay it came from."""

    keys: Mapping[str, Any]
    spot: Location
    moved: Mapping[tuple[Step, ...], Location] = field(default_factory=dict)

    def locate(self, steps: tuple[Step, ...]) -> Location:
        for length in (2, 1):
            if len(steps) >= length and steps[:length] in self.moved:
                return self.moved[steps[:length]].at(*steps[length:])
        return self.spot.at(*steps)

    def under(self, value: AxisValue) -> WrittenTarget:
        """Return this target with the overlay of an axis value."""
        keys, moved = dict(self.keys), dict(self.moved)
        for key, given in value.overlay.items():
            name = str(key)
            if (
                name in MERGED
                and isinstance(given, Mapping)
                and isinstance(keys.get(name), Mapping)
            ):
                keys[name] = {**keys[name], **given}
                for inner in given:
                    moved[name, str(inner)] = value.spot.at(name, str(inner))
            else:
                keys[name] = given
                moved = {steps: spot for steps, spot in moved.items() if steps[0] != name}
                moved[name,] = value.spot.at(name)
        return WrittenTarget(keys=keys, spot=self.spot, moved=moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTarget:
    """A target as used by one or more variants, and the locations of its keys."""

    record: SuiteTarget
    locate: Locate
    prompts: tuple[Prompt, ...] = ()
    """For a chat target: the templates of its messages with locations; for an agent: its prompt,
    then its system text."""
    has_workspace: bool = False
    absent: tuple[Problem, ...] = ()
    """Why it cannot be started here, if it cannot."""


_ReadTarget = VariantTarget | ChatDraft | AgentDraft | None


def read_targets(
    written: Any, spot: Location, comparison: Matrix, around: SuiteFolder
) -> list[VariantTarget | None]:
    """Return the target of every choice, in order; choices with the same overlays share one, unless
    each has its own model."""
    if not isinstance(written, Mapping):
        if written is not None:
            spot.report(f"must be a mapping with {_KINDS}, not {shown(written)}")
        return [None] * len(comparison.choices)
    base = WrittenTarget(keys=written, spot=spot)
    made: dict[tuple[int, ...], _ReadTarget] = {(): _read_target(base, around)}
    targets = []
    agents: dict[tuple[tuple[int, ...], str], tuple[AgentRequest, str]] = {}
    for choice in comparison.choices:
        overlays = tuple(value for value in choice if value.overlay)
        mark = tuple(id(value) for value in overlays)
        if mark not in made:
            laid = base
            for value in overlays:
                laid = laid.under(value)
            made[mark] = _read_target(laid, around)
        read = made[mark]
        if files := files_of(comparison.axes, choice):
            with_files = (*mark, *map(id, files.values()))
            if with_files not in made:
                made[with_files] = _inserting(read, files)
            read = made[with_files]
        target = _of_choice(read, choice, comparison, around)
        if isinstance(read, AgentDraft) and target is not None:
            agent = getattr(target.record, "agent", "")
            agents[mark, agent] = (read.asked, agent)
        targets.append(target)
    if agents:
        check_shared_keys(agents.values())
    return targets


def _inserting(read: _ReadTarget, files: Mapping[str, Prompt]) -> _ReadTarget:
    """Return a target for variants whose axes stand for the texts of files."""
    if not isinstance(read, VariantTarget):
        return None if read is None else read.inserting(files)
    record = read.record
    if not isinstance(record, CommandTarget | FunctionTarget):
        return read
    env = {
        name: insert_into(text, read.locate(("env", name)), files)
        for name, text in record.env.items()
    }
    record = replace(record, env=env)
    if isinstance(record, CommandTarget):
        spot = read.locate(("command",))
        words = record.command
        if not record.shell:
            words = tuple(insert_into(word, spot, files) for word in words)
        stdin = record.stdin
        if stdin is not None:
            stdin = insert_into(stdin, read.locate(("stdin",)), files)
        record = replace(record, command=words, stdin=stdin)
    return replace(read, record=record)


def _of_choice(
    read: _ReadTarget, choice: Choice, comparison: Matrix, around: SuiteFolder
) -> VariantTarget | None:
    """Return the target with the model and the agent of one choice."""
    match read:
        case ChatDraft():
            return VariantTarget(
                record=resolve(read, choice, comparison, around.registry),
                locate=read.locate,
                prompts=tuple(turn.prompt for turn in read.turns),
            )
        case AgentDraft():
            record = resolve_agent(read, choice, comparison, around)
            if record is None:
                return None
            return VariantTarget(
                record=record,
                locate=read.locate,
                prompts=read.prompts,
                has_workspace=around.has_workspace,
                absent=tuple(read.asked.absent.get(record.agent, ())),
            )
    return read


FORMS: Mapping[str, type[Form]] = {
    "command": CommandTargetForm,
    "python": FunctionTargetForm,
    "chat": ChatTargetForm,
    "agent": AgentTargetForm,
}
"""Forms of targets, by the key that identifies the kind."""
_KINDS = "command, python, chat or agent"


def _read_target(written: WrittenTarget, around: SuiteFolder) -> _ReadTarget:
    kinds = [kind for kind in FORMS if written.keys.get(kind) is not None]
    if "agent" in kinds and "command" in kinds:
        kinds.remove("command")  # For a custom agent.
    known = _known_keys(kinds if len(kinds) == 1 else list(FORMS))
    unknown = [str(key) for key in written.keys if key not in known]
    for key in unknown:
        # An overlay may be meant to change the kind, so suggest keys of both.
        near = nearest(key, [*known, *FORMS])
        written.locate((key,)).report(f"unknown key '{key}'{suggestion(key, near or known)}")
    if len(kinds) != 1:
        _report_kinds(kinds, [nearest(key, known)[:1] for key in unknown], written)
        return None
    keys = {key: value for key, value in written.keys.items() if key in known}
    if kinds == ["chat"]:
        return read_chat(keys, written.locate, around)
    if kinds == ["agent"]:
        return read_agent(keys, written.locate, around)
    read = _read_command if kinds == ["command"] else _read_function
    record = read(replace(written, keys=keys), around)
    if record is None:
        return None
    return VariantTarget(record=record, locate=written.locate, has_workspace=around.has_workspace)


def _known_keys(kinds: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(key for kind in kinds for key in keys_of(FORMS[kind])))


def _report_kinds(
    kinds: Sequence[str], slips: Sequence[Sequence[str]], written: WrittenTarget
) -> None:
    if not kinds and any([kind] in slips for kind in FORMS):
        return  # `comand` was reported, which is enough.
    has = f"has both {' and '.join(kinds)}" if kinds else f"has none of {', '.join(FORMS)}"
    overlays = [written.moved[kind,] for kind in FORMS if (kind,) in written.moved]
    (overlays[-1] if overlays else written.spot).report(f"the target {has}; give exactly one")


# ---- commands


def _read_command(written: WrittenTarget, around: SuiteFolder) -> CommandTarget | None:
    form = check(CommandTargetForm, written.keys, written.spot, written.locate)
    if form is None:
        return None
    command = form.command
    at_command = written.locate(("command",))
    if isinstance(command, str) and not form.shell:
        at_command.report(f"must be a list such as {_as_list(command)}; or set shell: true")
        return None
    if not isinstance(command, str) and form.shell:
        at_command.report("must be one line of text with shell: true, not a list")
        return None
    cwd = _cwd(form.cwd, written.locate(("cwd",)), around)
    argv = (command,) if isinstance(command, str) else tuple(command)
    if not form.shell and around.has_workspace:
        check_started_in_workspace(argv[0], search_path(form.env), at_command, around)
    elif not form.shell:
        check_executable(
            placed(argv[0], str(around.folder)), cwd, search_path(form.env), at_command
        )
    is_file = form.output not in ("stdout", "json")
    return CommandTarget(
        command=argv,
        shell=form.shell,
        env=form.env,
        pass_env=tuple(form.pass_env),
        cwd=cwd,
        stdin=form.stdin,
        output=OutputForm.FILE if is_file else OutputForm(form.output),
        output_file=form.output if is_file else None,
        timeout=None if form.timeout is None else float(form.timeout),
        grace=float(form.grace),
        home=Home(form.home),
        limits=read_target_limits(written.keys.get("limits"), written.locate),
        fails_on=read_errors(written.keys.get("errors"), written.locate),
    )


def _as_list(line: str) -> str:
    return f"[{', '.join(line.split())}]"


def _cwd(cwd: str, spot: Location, around: SuiteFolder) -> str:
    """Return an absolute folder; with a workspace, one relative to where attempts start."""
    if not around.has_workspace:
        return _folder(cwd, spot, around.folder)
    path = os.path.normpath(cwd)
    if "\0" in cwd or Path(path).is_absolute() or Path(path).parts[:1] == ("..",):
        spot.report(f"must be a folder in the workspace, relative to its start, not {shown(cwd)}")
    return path


def _folder(cwd: str, spot: Location, folder: Path) -> str:
    # normpath instead of resolve: links in the path stay as the author wrote them.
    path = os.path.normpath(folder / cwd)
    if not os.path.isdir(path):  # noqa: PTH112 - False for a name that is too long
        spot.report(f"no such folder: '{path}'")
        return str(folder)
    return path


# ---- functions


def _read_function(written: WrittenTarget, around: SuiteFolder) -> FunctionTarget | None:
    form = check(FunctionTargetForm, written.keys, written.spot, written.locate)
    if form is None:
        return None
    isolate = form.isolate == "process"
    for key in ("env", "pass_env"):
        if not isolate and written.keys.get(key):
            written.locate((key,)).report(
                "needs isolate: process; a function in this process shares its environment"
            )
    spot = written.locate(("python",))
    check_function(form.python, ("case",), around, spot)
    if isolate and form.python in around.functions:
        _check_importable(form.python, around.functions[form.python], spot)
    return FunctionTarget(
        reference=form.python,
        folder=str(around.folder),
        isolate=isolate,
        env=form.env,
        pass_env=tuple(form.pass_env),
        timeout=None if form.timeout is None else float(form.timeout),
        grace=float(form.grace),
        fails_on=read_errors(written.keys.get("errors"), written.locate),
    )


def check_function(
    reference: str,
    given: tuple[str, ...],
    around: SuiteFolder,
    spot: Location,
    by_name: tuple[str, ...] = (),
) -> None:
    """Report a function that cannot be loaded, or called with these arguments and, if it takes
    them, the variant and those `by_name`."""
    function = around.function(reference, spot)
    if function is None:
        return
    call = f"function({', '.join(given)})"
    longer_call = f"{call} or function({', '.join((*given, 'variant'))})"
    if positional_arguments(function) < len(given):
        spot.report(f"'{reference}' takes too few arguments; it is called as {call}")
        return
    positional, keywords = (
        [name for name in names if name not in by_name] for names in _required_arguments(function)
    )
    if len(positional) > len(given) + 1:
        needs = f"{len(positional)} arguments"
    elif keywords:
        needs = f"the keyword argument '{keywords[0]}'"
    else:
        return
    spot.report(f"'{reference}' needs {needs}; it is called as {longer_call}")


def _required_arguments(function: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Return the names of parameters without a default: positional, and keyword-only."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return [], []
    required = [each for each in parameters if each.default is each.empty]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return (
        [each.name for each in required if each.kind in positional],
        [each.name for each in required if each.kind is each.KEYWORD_ONLY],
    )


def _check_importable(reference: str, function: Callable[..., Any], spot: Location) -> None:
    """A worker process imports the function again, so its name must lead to it."""
    found: Any = None
    module = reference.partition(":")[0]
    if module != "__main__":
        try:
            found = load_function(reference, os.fspath(Path.cwd()))
        except ParavalError:
            found = None
    if found is not function:
        spot.report(
            f"'{reference}' cannot be imported by a worker process; with isolate: process, use a"
            " function at the top level of its own module"
        )
