"""Check when a suite is loaded that the templates of targets, graders and workspaces fit the
cases.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.problems import Location, Step, shown
from paraval.models.messages import MessageError, read_messages
from paraval.plan.cases.case_list import CaseList
from paraval.plan.cases.fields import COMMON_NAMES
from paraval.plan.matrix import lone_field
from paraval.plan.prompts.texts import Prompt
from paraval.plan.suite_folder import SUITE_FIELD
from paraval.plan.targets import VariantTarget
from paraval.records import (
    AgentTarget,
    Case,
    ChatTarget,
    CommandTarget,
    FunctionTarget,
    Target,
    Variant,
)
from paraval.templates.jinja import JinjaError
from paraval.templates.shell import names_of_parts, used_variables, variable_of
from paraval.templates.template import (
    FIXED_FIELDS,
    JINJA,
    JINJA_NAMES,
    TemplateError,
    as_text,
    field_names,
    fields_of_case,
    fill,
    is_jinja,
    part_of,
)
from paraval.text.suggest import nearest, suggestion

ARGUMENT_LIMIT_BYTES = 131_071
"""The limit on Linux for one argument or variable (MAX_ARG_STRLEN)."""

LONGEST_NAME = 60
_UP_TO_LONE_BRACE = re.compile(r"(?:[^{}]++|\{\{|\}\}|\{[^{}]*\})*+")


class Carrier(Enum):
    """How a filled template is passed on."""

    ARGUMENT = auto()
    """Also as a variable or a path: bounded length, no NUL."""
    SCRIPT = auto()
    """To a shell, with variables in place of fields; each value is an argument."""
    PROMPT = auto()
    """To an agent, as an argument, on stdin or in a file: no NUL, any length."""
    STDIN = auto()
    MESSAGE = auto()
    """To a model, in JSON: any content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A template of a target, and its location."""

    prompt: Prompt
    carrier: Carrier = Carrier.ARGUMENT
    fields: tuple[str, ...] = FIXED_FIELDS
    """Allowed fields, in addition to axes and parts of the input."""
    unset: tuple[str, ...] = ()
    """Target keys that are not set, so their fields have no value, even if an axis has the name."""

    @property
    def text(self) -> str:
        return self.prompt.text

    def problem_of(self, text: str) -> str | None:
        """Return why a value cannot be passed on, if it cannot."""
        if self.carrier is Carrier.MESSAGE:
            return None
        if "\0" in text and self.carrier is not Carrier.STDIN:
            return "contains a NUL character, which cannot be passed to a command"
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            return "contains half of a surrogate pair, which is not valid text"
        if size <= ARGUMENT_LIMIT_BYTES or self.carrier in (Carrier.PROMPT, Carrier.STDIN):
            return None
        return f"is {size:,} bytes long, too long for a command; pass it through stdin"

    def report(self, message: str, offset: int = 0) -> None:
        self.prompt.spot_at(offset).report(message)

    def offset_of(self, field: str) -> int:
        found = re.search(rf"(?<!\{{)\{{\s*{re.escape(field)}\s*\}}", self.text)
        return found.start() if found else 0


CHAT_FIELDS = ("input", "case.id", "repeat")
"""A model has no use for local paths, and they would defeat the cache."""


def templates_of(target: VariantTarget) -> Iterator[Template]:
    record = target.record
    if isinstance(record, ChatTarget):
        for prompt in _sources(target):
            yield Template(prompt=prompt, carrier=Carrier.MESSAGE, fields=CHAT_FIELDS)
        return
    fields = FIXED_FIELDS
    if not isinstance(record, FunctionTarget):
        fields = (*FIXED_FIELDS, SUITE_FIELD, *(("workspace",) if target.has_workspace else ()))

    def template(text: str, *steps: Step) -> Template:
        prompt = Prompt(text=text, spot=target.locate(steps))
        carrier = Carrier.STDIN if steps == ("stdin",) else Carrier.ARGUMENT
        return Template(prompt=prompt, carrier=carrier, fields=fields)

    for name, value in record.env.items():
        yield template(value, "env", name)
    match record:
        case CommandTarget():
            yield from _of_command(record, template)
        case AgentTarget():
            for prompt in _sources(target):
                yield Template(prompt=prompt, carrier=Carrier.PROMPT, fields=fields)
            yield from _of_agent(record, template)


def _sources(target: VariantTarget) -> list[Prompt]:
    return [source for prompt in target.prompts for source in prompt.sources]


Make = Callable[..., Template]


def _of_agent(record: AgentTarget, template: Make) -> Iterator[Template]:
    for number, item in enumerate(record.program):
        yield template(item, "program", number)
    for number, item in enumerate(record.arguments):
        yield template(item, "arguments", number)
    for server in record.mcp:
        for number, item in enumerate(server.command):
            yield template(item, "mcp", server.name, "command", number)
        for name, value in server.env.items():
            yield template(value, "mcp", server.name, "env", name)
        if server.url is not None:
            yield template(server.url, "mcp", server.name, "url")
    if record.custom is None:
        return
    for number, item in enumerate(record.custom.command):
        yield _of_custom(template(item, "command", number), record)
    if record.custom.stdin is not None:
        yield _of_custom(template(record.custom.stdin, "stdin"), record)


def _of_custom(template: Template, record: AgentTarget) -> Template:
    """A template with the agent's own fields, which take precedence over axes."""
    given = {
        "model": record.model is not None or record.model_name is not None,
        "max_turns": record.max_turns is not None,
    }
    return replace(
        template,
        fields=(*template.fields, "prompt", "workspace", "mcp_config", *given),
        unset=tuple(name for name, is_given in given.items() if not is_given),
    )


def _of_command(record: CommandTarget, template: Make) -> Iterator[Template]:
    if record.shell:
        yield replace(template(record.command[0], "command"), carrier=Carrier.SCRIPT)
    else:
        for number, item in enumerate(record.command):
            yield template(item, "command", number)
    if record.stdin is not None:
        yield template(record.stdin, "stdin")
    if record.output_file is not None:
        yield template(record.output_file, "output")


def check_templates(targets: Sequence[VariantTarget], axes: Sequence[str], cases: CaseList) -> None:
    """Report every field that some trial lacks, and every value that cannot be passed on."""
    checked: set[tuple[Any, ...]] = set()
    seen: set[int] = set()
    for target in targets:
        if id(target.record) in seen:
            continue
        seen.add(id(target.record))
        for template in templates_of(target):
            spot = template.prompt.spot
            kind = (template.carrier, template.fields, template.unset)
            mark = (template.text, spot.file, spot.path, kind)
            if mark not in checked:
                checked.add(mark)
                check_template(template, axes, cases)


def check_template(template: Template, axes: Sequence[str], cases: CaseList) -> None:
    """Report every field of one template that some trial lacks."""
    if is_jinja(template.text):
        _check_jinja_names(template, axes, cases)
        return
    if template.carrier is Carrier.SCRIPT:
        _check_script(template, axes, cases)
        return
    try:
        names = field_names(template.text)
    except TemplateError as error:
        hint = f"; {error.hint}" if error.hint else ""
        sound = _UP_TO_LONE_BRACE.match(template.text)
        message = f"{error.message} in {shown(template.text)}{hint}"
        template.report(message, sound.end() if sound else 0)
        return
    if problem := template.problem_of(template.text):
        template.report(problem)
    known = (*template.fields, *axes)
    for name in names:
        if name in template.unset:
            message = f"{{{name}}} stands for the target's {name}, which is not set; add {name}:"
            template.report(message, template.offset_of(name))
        elif "input" in template.fields and is_part_of_case(name):
            _check_part_of_case(name, template, cases)
        elif name not in known:
            template.report(_unknown(name, template, known, cases), template.offset_of(name))


_BRACED = re.compile(r"(?<!\$)\{\s*([\w.-]+)\s*\}")


def _check_script(template: Template, axes: Sequence[str], cases: CaseList) -> None:
    """A script has variables in place of fields; of the parts of cases, each case must have
    them."""
    script, known = template.text, (*template.fields, *axes)
    if problem := template.problem_of(script):
        template.report(problem)
    for found in _BRACED.finditer(script):
        if found[1] in known or is_part_of_case(found[1]):
            variable = f'"${variable_of(found[1])}"'
            message = f"{found[0]} is not filled in by a shell; write {variable}"
            template.report(message, found.start())
    for name in used_variables(script):
        root, _, part = name.partition("_")
        if name == "input" or (root in ("input", "metadata") and part):
            _check_variable(name, template, cases)


def _check_variable(name: str, template: Template, cases: CaseList) -> None:
    of_input, problems = name.startswith("input"), []
    if of_input:
        _check_that_there_is_input(name, cases)
    for case in cases.cases:
        if of_input and case.input is None:
            continue
        names = names_of_parts(case.input if of_input else case.metadata, name.partition("_")[0])
        if name == "input":
            problem = template.problem_of(as_text(case.input))
            problems += [(case, f"the value {problem}")] if problem else []
        elif name not in names:
            problems.append((case, f"there is no such variable{suggestion(name, names)}"))
    if problems:
        case, problem = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        at = template.text.find(f"${name}")
        template.report(f"${name} for case '{case.id}'{more}: {problem}", max(at, 0))


def _meant(name: str, cases: CaseList) -> str | None:
    """Return the field of the cases that an unknown name stands for: perhaps the whole input, under
    the name of its column."""
    has_input = bool(cases.cases) and cases.cases[0].input is not None
    is_input = has_input and name in COMMON_NAMES["input"]
    return part_named(name, cases) or ("input" if is_input else None)


def _unknown(name: str, template: Template, known: Sequence[str], cases: CaseList) -> str:
    part = _meant(name, cases) if "input" in template.fields else None
    hint = f", did you mean {{{part}}}?" if part else suggestion(name, known)
    if f"${{{name}}}" in template.text:
        hint = f"; for a shell's or another program's variable, write ${{{{{name}}}}}"
    elif name.startswith("%"):
        hint = "; for Jinja templates, use a file that ends in .j2"
    elif name == "workspace":
        hint = "; it needs workspace: in the suite"
    elif not hint.endswith("?"):
        hint += "; write {{ and }} for literal braces"
    # Braces of JSON look like long names.
    field = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
    return f"unknown field {{{field}}}{hint}"


def _check_jinja_names(template: Template, axes: Sequence[str], cases: CaseList) -> None:
    try:
        names = field_names(template.text)
    except JinjaError as error:
        template.prompt.spot_at_line(error.line or 1).report(error.message)
        return
    known = (*JINJA_NAMES, *axes)
    for name in names:
        if name not in known:
            part = _meant(name, cases)
            near = f", did you mean {part}?" if part else suggestion(name, known)
            found = re.compile(rf"\b{re.escape(name)}\b").search(template.text, len(JINJA))
            template.report(f"unknown name '{name}'{near}", found.start() if found else 0)


# ---- fields of cases


def is_part_of_case(name: str) -> bool:
    """Whether a name is the input, or a part of the input or of the metadata."""
    root, _, path = name.partition(".")
    return name == "input" or (root in ("input", "metadata") and path != "")


def part_named(name: str, cases: CaseList) -> str | None:
    """Return the field that has this name in the first case, if it needs `input.` or `metadata.`
    before it."""
    if not cases.cases or not name:
        return None
    first = cases.cases[0]
    for root, given in (("input", first.input), ("metadata", first.metadata)):
        if isinstance(given, Mapping) and name.partition(".")[0] in given:
            return f"{root}.{name}"
    return None


def _check_part_of_case(name: str, template: Template, cases: CaseList) -> None:
    """Report one problem for all cases that lack the field: the first is named, the others are
    counted."""
    of_input = not name.startswith("metadata.")
    takes_any = name == "input" and template.carrier is Carrier.MESSAGE
    if of_input:
        _check_that_there_is_input(name, cases)
    first: tuple[Case, str] | None = None
    others = 0
    for case in cases.cases:
        if of_input and (case.input is None or (takes_any and type(case.input) is str)):
            continue
        if name == "input" and isinstance(case.input, list | tuple):
            problem = _messages_problem(case.input, template, str(cases.around.folder))
        else:
            problem = _value_problem(case.input if of_input else case.metadata, name, template)
        if problem is None:
            continue
        if first is None:
            first = (case, problem)
        else:
            others += 1
    if first is not None:
        more = f" (and {others} more)" if others else ""
        message = f"{{{name}}} for case '{first[0].id}'{more}: {first[1]}"
        template.report(message, template.offset_of(name))


def _check_that_there_is_input(name: str, cases: CaseList) -> None:
    without = [index for index, case in enumerate(cases.cases) if case.input is None]
    if without and "input" not in cases.unmapped:
        case = f"case '{cases.cases[without[0]].id}'"
        who = f"{case} has" if len(without) == 1 else f"{case} and {len(without) - 1} more have"
        cases.spot(without[0]).at("input").report(f"{who} no input, but {{{name}}} is used")


def _value_problem(given: Any, name: str, template: Template) -> str | None:
    try:
        value = part_of(given, name)
    except TemplateError:
        return _missing_part(given, name)
    problem = template.problem_of(as_text(value))
    return None if problem is None else f"the value {problem}"


def _messages_problem(messages: Any, template: Template, folder: str) -> str | None:
    """Whether a list of messages can be sent where a template names it."""
    if template.carrier is Carrier.PROMPT:
        return "its input is a list of messages, which only chat targets can send"
    if template.carrier is not Carrier.MESSAGE:
        return template.problem_of(as_text(messages))
    if lone_field(template.text) != "input":
        return "its input is a list of messages; {input} must be a message of its own"
    try:
        read_messages(messages, folder)
    except MessageError as error:
        return str(error)
    return None


def _missing_part(given: Any, name: str) -> str:
    if isinstance(given, str):
        return "its input is text and has no keys; use {input}"
    if isinstance(given, list | tuple):
        return "its input is a list of messages; use {input}"
    root, _, path = name.partition(".")
    keys = [str(key) for key in given]
    if not keys and root == "metadata":
        return "it has no metadata"
    near = nearest(path, keys)
    if near:
        return f"no such key, did you mean {{{root}.{near[0]}}}?"
    return f"no such key{suggestion(path, keys)}"


# ---- files that trials would share


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFile:
    """A file that several trials would write."""

    path: str
    trials: int
    variant: int
    """Position of the first variant whose trials write it."""
    others: int
    """Number of other shared files."""

    @property
    def message(self) -> str:
        more = f" (and {self.others:,} more like this)" if self.others else ""
        return (
            f"{self.trials:,} trials would write the same file '{self.path}'{more}; use"
            " {folder}, or {case.id}, {repeat} and every axis, in its path"
        )


def find_shared_file(
    variants: Sequence[tuple[Variant, Target]], cases: Sequence[Case], repeats: int
) -> SharedFile | None:
    """Return the first file that two trials would write, if any."""
    trials: Counter[str] = Counter()
    first: dict[str, int] = {}
    for position, (variant, target) in enumerate(variants):
        if not isinstance(target, CommandTarget) or target.output_file is None:
            continue
        if not Path(target.cwd).is_absolute() and _is_in_workspace(target.output_file):
            continue
        names = names_or_none(target.output_file) or ()
        if "folder" in names:
            continue
        # Without the field, each repeat writes the same file as the first.
        filled, times = (repeats, 1) if "repeat" in names else (1, repeats)
        for path in _filled(target, variant, cases, filled):
            trials[path] += times
            first.setdefault(path, position)
    shared = [path for path, count in trials.items() if count > 1]
    if not shared:
        return None
    path = shared[0]
    return SharedFile(path=path, trials=trials[path], variant=first[path], others=len(shared) - 1)


def find_unfit_id(target: Target, cases: Sequence[Case]) -> str | None:
    """Return an id that would lead the target's file to another folder, if any."""
    output = target.output_file if isinstance(target, CommandTarget) else None
    if output is None or "case.id" not in (names_or_none(output) or ()):
        return None
    return next((case.id for case in cases if "/" in case.id or case.id in (".", "..")), None)


def _is_in_workspace(output: str) -> bool:
    """Whether each attempt has its own file, because it has its own workspace."""
    return not output.startswith("/")


def names_or_none(template: str) -> tuple[str, ...] | None:
    try:
        return field_names(template)
    except (TemplateError, JinjaError):
        return None


def _filled(
    target: CommandTarget, variant: Variant, cases: Sequence[Case], repeats: int
) -> Iterator[str]:
    assert target.output_file is not None
    for case, repeat in itertools.product(cases, range(1, repeats + 1)):
        fields = fields_of_case(case, variant, repeat=repeat)
        try:
            name = fill(target.output_file, fields)
        except TemplateError:
            continue
        yield os.path.normpath(os.path.join(target.cwd, name))  # noqa: PTH118 - Path is slow here


# Templates of other commands: graders and a workspace's setup.

GRADER_FIELDS = ("input", "case.id", "repeat", "python", SUITE_FIELD)
"""Without the attempt's folder: graders look at the answer and the workspace."""
SETUP_FIELDS = ("input", "case.id", "python", SUITE_FIELD)
"""A worktree is prepared for a case, and used for all its repeats."""


def check_grader_templates(
    written: Any, spot: Location, *, axes: Sequence[str], cases: CaseList, has_workspace: bool
) -> None:
    """Report every field in grader commands that some trial lacks."""
    fields = (*GRADER_FIELDS, "workspace") if has_workspace else GRADER_FIELDS
    for options, at in graders_of_kind("command", written, spot):
        if isinstance(options, Mapping):
            texts = [*_items(options.get("command"), "command"), *_items(options.get("env"), "env")]
        else:
            texts = list(_items(options))
        for text, steps in texts:
            prompt = Prompt(text=text, spot=at.at(*steps))
            check_template(Template(prompt=prompt, fields=fields), axes, cases)


def graders_of_kind(kind: str, written: Any, spot: Location) -> Iterator[tuple[Any, Location]]:
    """Yield the options of these graders, also of combined ones, with their locations."""
    if isinstance(written, list | tuple):
        for number, grader in enumerate(written):
            yield from graders_of_kind(kind, grader, spot.at(number))
    elif isinstance(written, Mapping):
        for key in ("replace", "not", "any", "all", "of"):
            if key in written:
                yield from graders_of_kind(kind, written[key], spot.at(key))
        if kind in written:
            yield written[kind], spot.at(kind)


def check_setup_templates(
    written: Any, spot: Location, axes: Sequence[str], cases: CaseList
) -> None:
    """The same for a workspace's setup."""
    setup = written.get("setup") if isinstance(written, Mapping) else None
    for text, steps in _items(setup, "setup"):
        prompt = Prompt(text=text, spot=spot.at(*steps))
        check_template(Template(prompt=prompt, fields=SETUP_FIELDS), axes, cases)


def _items(written: Any, *steps: Step) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Yield the texts in a list or a mapping, each with the steps to it."""
    pairs: list[tuple[Step, Any]]
    if isinstance(written, Mapping):
        pairs = [(str(name), value) for name, value in written.items()]
    elif isinstance(written, list | tuple):
        pairs = list(enumerate(written))
    else:
        return
    for step, text in pairs:
        if isinstance(text, str):
            yield text, (*steps, step)
