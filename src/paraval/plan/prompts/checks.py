"""Check prompts when a suite is loaded: a mistake in one would be paid for with every trial."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from paraval.documents.problems import Location, shown
from paraval.plan.cases.case_list import CaseList
from paraval.plan.matrix import Axis, AxisValue, lone_field
from paraval.plan.prompts.texts import Prompt, names_a_file, read_prompt
from paraval.plan.targets import VariantTarget
from paraval.plan.template_checks import (
    CHAT_FIELDS,
    Carrier,
    Template,
    check_template,
    graders_of_kind,
    is_part_of_case,
    names_or_none,
    part_named,
    templates_of,
)
from paraval.records import AgentTarget, Case, ChatTarget, GraderSpec, Variant
from paraval.templates.jinja import JinjaError
from paraval.templates.template import (
    JINJA_NAMES,
    PLAIN_FIELD,
    as_text,
    escaped_names,
    fields_of_case,
    fill,
    is_jinja,
)
from paraval.text.suggest import quoted


def check_prompts(
    variants: Sequence[tuple[Variant, VariantTarget]], axes: Sequence[Axis], cases: CaseList
) -> None:
    """Report prompts that would send something unintended: a field in the wrong braces, the name
    of a file, the same text for all cases, or an empty question."""
    asking = [
        (variant, target)
        for variant, target in variants
        if isinstance(target.record, ChatTarget | AgentTarget)
    ]
    reported = _check_axis_texts(asking, axes)
    names = [axis.name for axis in axes]
    _check_rendering(asking, names, cases)
    for _, target in asking:
        if id(target.record) not in reported:
            reported.add(id(target.record))
            if not _tell_wrong_braces(target, names, cases):
                _check_case_is_used(target, names, cases)
                _check_inputs_are_not_empty(target, cases)


def check_axes_have_effect(
    written: Mapping[str, Any],
    spot: Location,
    variants: Sequence[tuple[Variant, VariantTarget]],
    axes: Sequence[Axis],
    graders: Sequence[GraderSpec],
) -> list[str]:
    """Report axes that change nothing: every value would send the same and cost as much. Return
    notices about those that may have been meant."""
    notices = [
        f"matrix.{axis.name}: {quoted(names)} have the same text"
        for axis in axes
        for names in _names_by_text(axis).values()
        if len(names) > 1
    ]
    targets = {id(target.record): target for _, target in variants}.values()
    if not all(isinstance(target.record, ChatTarget | AgentTarget) for target in targets):
        return notices  # A function gets the variant, and a command may be free.
    parts = [part for grader in graders for part in grader.flat()]
    rubrics = [str(part.options.get("rubric", "")) for part in parts]
    texts = [template.text for target in targets for template in templates_of(target)]
    names = {name for text in (*texts, *rubrics) for name in names_or_none(text) or ()}
    sections = [written.get(key) for key in ("target", "matrix", "workspace")]
    words = json.dumps([sections, [part.options for part in parts]], default=str)
    for axis in axes:
        is_named = axis.name in names or re.search(rf"\{{\s*{axis.name}\s*\}}", words)
        has_keys = any(value.overlay or value.workspace for value in axis.values)
        if is_named or len(axis.values) < 2 or has_keys:
            continue
        problem = f"is not used: nothing in the target names {{{axis.name}}}"
        if any(part.kind in ("python", "command") for part in parts):
            notices.append(f"matrix.{axis.name} {problem}; it can only matter to your graders")
        elif not spot.problems:  # A misspelled name is reported already.
            spot.at("matrix", axis.name).report(
                f"{problem}, so every value would send the same; write {{{axis.name}}} where it"
                " belongs, or use repeats for several answers"
            )
    return notices


def _names_by_text(axis: Axis) -> dict[str, list[str]]:
    """The names of an axis's files, by their texts."""
    found: dict[str, list[str]] = {}
    for value in axis.values:
        if value.prompt is not None:
            found.setdefault(value.prompt.text, []).append(value.text)
    return found


def _check_axis_texts(
    asking: Sequence[tuple[Variant, VariantTarget]], axes: Sequence[Axis]
) -> set[int]:
    """Report prompts that are axis values but look like files or templates, once per axis; return
    the ids of their targets."""
    by_name = {axis.name: axis for axis in axes}
    mistaken: dict[tuple[str, str], list[AxisValue]] = {}
    wrapped: dict[tuple[str, str], str] = {}
    reported: set[int] = set()
    for variant, target in asking:
        for key, prompt in _keyed_prompts(target):
            name = lone_field(prompt.text)
            axis = None if name is None else by_name.get(name)
            value = None if axis is None else axis.find(as_text(variant[axis.name]))
            if axis is None or value is None or value.prompt is not None:
                continue
            if not _is_prompt_of_its_own(value.text):
                continue
            reported.add(id(target.record))
            found = mistaken.setdefault((axis.name, key), [])
            if value not in found:
                found.append(value)
            is_chat = isinstance(target.record, ChatTarget)
            wrapped[axis.name, key] = "{chat: {%s: %s}}" if is_chat else "{%s: %s}"
    for (name, key), values in mistaken.items():
        first = values[0]
        more = f" (and {len(values) - 1} more)" if len(values) > 1 else ""
        is_file = names_a_file(first.text)
        label, text = (Path(first.text).stem, first.text) if is_file else ("NAME", "TEXT")
        form = f"{name}: {{{label}: {wrapped[name, key] % (key, text)}}}"
        first.spot.report(
            f"{shown(first.text)}{more} would be sent as the {key}: axis values are inserted"
            f" literally; write {form}"
        )
    return reported


def _keyed_prompts(target: VariantTarget) -> Iterator[tuple[str, Prompt]]:
    if isinstance(target.record, ChatTarget):
        for message, prompt in zip(target.record.messages, target.prompts, strict=True):
            yield "system" if message.role == "system" else "prompt", prompt
    else:
        yield from zip(("prompt", "system"), target.prompts, strict=False)


def _is_prompt_of_its_own(text: str) -> bool:
    """Whether a text would be a prompt file or a template if it were in the target."""
    return names_a_file(text) or any(map(_is_of_case, names_or_none(text) or ()))


def _tell_wrong_braces(target: VariantTarget, axes: Sequence[str], cases: CaseList) -> bool:
    """Report fields in double braces, in Jinja files those in single ones; whether there were
    any."""
    prompts = [
        template
        for template in templates_of(target)
        if template.carrier in (Carrier.MESSAGE, Carrier.PROMPT)
    ]
    return _tell_wrong_braces_in(prompts, axes, cases)


def _tell_wrong_braces_in(
    templates: Iterable[Template], axes: Sequence[str], cases: CaseList
) -> bool:
    found = False
    for template in templates:
        if is_jinja(template.text):
            for field in _SINGLE_BRACES.finditer(template.text):
                if field[1] in axes or _is_of_case(field[1]):
                    found = True
                    template.report(
                        f"{field[0]} is literal text in a .j2 file; write {{{{ {field[1]} }}}}",
                        field.start(),
                    )
            continue
        for name, offset in escaped_names(template.text):
            meant: str | None = name
            if not (name in template.fields or name in axes or is_part_of_case(name)):
                meant = part_named(name, cases)
            if meant is not None:
                found = True
                written = template.text[offset : template.text.index("}}", offset) + 2]
                template.report(
                    f"{written} is literal text and is not filled in; did you mean {{{meant}}}?",
                    offset,
                )
    return found


_SINGLE_BRACES = re.compile(r"""(?<![{%#"'])\{\s*([\w.-]+)\s*\}(?![}"'])""")
"""Not in quotes: `{{ "{input}" }}` is how Jinja writes a literal `{input}`."""


def _check_inputs_are_not_empty(target: VariantTarget, cases: CaseList) -> None:
    """Report empty cells of tables; in other formats, an empty text is written on purpose."""
    texts = [template.text for template in templates_of(target)]
    if not any("input" in (names_or_none(text) or ()) for text in texts):
        return
    empty = [
        index
        for index, case in enumerate(cases.cases)
        if isinstance(case.input, str)
        and not case.input.strip()
        and (cases.addresses[index][0].file or "").lower().endswith((".csv", ".tsv"))
    ]
    if empty:
        ids = quoted([cases.cases[index].id for index in empty], 3)
        who = f"case {ids} has" if len(empty) == 1 else f"cases {ids} have"
        cases.spot(empty[0]).at("input").report(
            f"{who} an empty input, which would be sent; fill in the cell or remove the row"
            ' (if it is meant to be empty, use JSONL: "input": "")'
        )


def _check_case_is_used(target: VariantTarget, axes: Sequence[str], cases: CaseList) -> None:
    """Whether a target uses the case in any message; for an agent also in its arguments or
    environment. An unknown field, already reported, may have been meant for it."""
    if len(cases.cases) < 2 or not target.prompts:
        return
    for template in templates_of(target):
        constant = {*template.fields, *axes} - {"input", "case.id"}
        names = names_or_none(template.text)
        if names is None or not constant.issuperset(names):
            return
    prompt = target.prompts[-1 if isinstance(target.record, ChatTarget) else 0].sources[-1]
    field = "{{ %s }}" if is_jinja(prompt.text) else "{%s}"
    instead = f"did you mean {field % 'input'}?"
    if not any(case.input is not None for case in cases.cases):
        if target.has_workspace:
            return  # The cases may differ in what graders look for in the workspace.
        key = next(iter(cases.cases[0].metadata), None)
        instead = "use {case.id}, or repeats of one case"
        if key is not None:
            instead = f"did you mean {field % f'metadata.{key}'}?"
    prompt.spot_at(0).report(
        f"the prompt uses nothing of the case: all {len(cases.cases):,} cases would send the same"
        f" text; {instead}"
    )


def _is_of_case(name: str) -> bool:
    return name == "case.id" or is_part_of_case(name)


# ---- Jinja templates


def _check_rendering(
    asking: Sequence[tuple[Variant, VariantTarget]], axes: Sequence[str], cases: CaseList
) -> None:
    """Fill in every Jinja prompt for every case: what its conditions and loops reach is not known
    before."""
    checked: set[tuple[object, ...]] = set()
    for variant, target in asking:
        for prompt in target.prompts:
            names = names_or_none(prompt.text) if is_jinja(prompt.text) else None
            if names is None or not {*JINJA_NAMES, PLAIN_FIELD, *axes}.issuperset(names):
                continue  # Already reported.
            used = [name for name in variant if name in names or PLAIN_FIELD in names]
            mark = (prompt.text, *((name, as_text(variant[name])) for name in used))
            if mark not in checked:
                checked.add(mark)
                _render_all(prompt, variant, cases)


# ---- texts of graders

_TEXT_KEYS = {
    "equals": ("value",),
    "contains": ("value",),
    "starts_with": ("value",),
    "similarity": ("value",),
    "json": ("value",),
    "tool_call": ("name", "arguments"),
    "mentions": ("files", "symbols", "content"),
}
"""The keys of graders that are templates; commands are checked with other commands."""


def check_grader_texts(
    written: Any,
    spot: Location,
    variants: Sequence[tuple[Variant, VariantTarget]],
    cases: CaseList,
    folder: Path,
) -> None:
    """The same for graders' texts and judges' rubrics, which would be paid for, too."""
    axes = list(variants[0][0]) if variants else []
    rubrics = (_rubric(*one, folder) for one in graders_of_kind("judge", written, spot))
    _check_texts([*chain(*rubrics), *_texts_of_graders(written, spot)], axes, variants, cases)
    for options, at in graders_of_kind("regex", written, spot):
        pattern = options.get("pattern") if isinstance(options, Mapping) else options
        for field in _BRACED.finditer(pattern if isinstance(pattern, str) else ""):
            if field[1] in axes or _is_of_case(field[1]):
                at.report(
                    f"{field[0]} is not filled in, since braces have a meaning of their own in a"
                    " pattern; use contains, or a pattern in the case's expect"
                )


def check_pairwise_rubric(written: Any, spot: Location, cases: CaseList, folder: Path) -> None:
    """The same for the rubric by which pairs of answers are compared: it has no variant."""
    _check_texts([*_rubric(written, spot, folder)], [], [], cases)


def _check_texts(
    texts: Sequence[Prompt],
    axes: Sequence[str],
    variants: Sequence[tuple[Variant, VariantTarget]],
    cases: CaseList,
) -> None:
    templates = [Template(prompt=text, carrier=Carrier.STDIN, fields=CHAT_FIELDS) for text in texts]
    _tell_wrong_braces_in(templates, axes, cases)
    for template in templates:
        check_template(template, axes, cases)
        names = names_or_none(template.text) if is_jinja(template.text) else None
        if names is not None and {*JINJA_NAMES, *axes}.issuperset(names):
            seen = {tuple(variant.get(name) for name in names): variant for variant, _ in variants}
            for variant in seen.values():
                _render_all(template.prompt, variant, cases)


_BRACED = re.compile(r"\{+\s*([\w.-]+)\s*\}+")


def _rubric(written: Any, spot: Location, folder: Path) -> Iterator[Prompt]:
    rubric = written.get("rubric") if isinstance(written, Mapping) else None
    prompt = read_prompt(rubric, spot.at("rubric"), folder) if isinstance(rubric, str) else None
    if prompt is not None:
        yield prompt


def _texts_of_graders(written: Any, spot: Location) -> Iterator[Prompt]:
    for kind, keys in _TEXT_KEYS.items():
        for options, at in graders_of_kind(kind, written, spot):
            if not isinstance(options, Mapping):
                yield from _texts_in(options, at)
                continue
            for key in keys:
                yield from _texts_in(options.get(key), at.at(key))


def _texts_in(value: Any, at: Location) -> Iterator[Prompt]:
    match value:
        case str():
            yield Prompt(text=value, spot=at)
        case list() | tuple():
            for number, one in enumerate(value):
                yield from _texts_in(one, at.at(number))
        case Mapping():
            for key, one in value.items():
                if key != "regex":
                    yield from _texts_in(one, at.at(key))


def _render_all(prompt: Prompt, variant: Variant, cases: CaseList) -> None:
    first: tuple[Case, JinjaError] | None = None
    others = 0
    for case in cases.cases:
        fields = fields_of_case(case, variant)
        try:
            fill(prompt.text, fields)
        except JinjaError as error:
            if first is None:
                first = (case, error)
            else:
                others += 1
    if first is None:
        return
    at, why = first
    more = f" (and {others} more)" if others else ""
    source = prompt.sources[-1]
    is_exact = why.line is not None and prompt.text.endswith(source.text)
    spot = source.spot_at_line(why.line or 1) if is_exact else prompt.spot
    spot.report(f"cannot be filled in for case '{at.id}'{more}: {why.message}")
