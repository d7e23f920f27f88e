"""Check prompts when a suite is loaded: a mistake in one would be paid for with every trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paraval.documents.problems import Location, shown
from paraval.plan.cases.case_list import CaseList
from paraval.plan.matrix import Axis, AxisValue, lone_field
from paraval.plan.prompts.texts import Prompt, names_a_file, read_prompt
from paraval.plan.targets import VariantTarget
from paraval.plan.template_checks import (
    Carrier,
    Template,
    check_template,
    graders_of_kind,
    is_part_of_case,
    names_or_none,
    part_named,
    templates_of,
)
from paraval.records import AgentTarget, Case, ChatTarget, Variant
from paraval.templates.jinja import JinjaError
from paraval.templates.template import (
    JINJA_NAMES,
    PLAIN_FIELD,
    TemplateFields,
    as_text,
    escaped_names,
    fill,
    is_jinja,
)


def check_prompts(
    variants: Sequence[tuple[Variant, VariantTarget]], axes: Sequence[Axis], cases: CaseList
) -> None:
    """Report prompts that would send something unintended: a field in double braces, the name of a
    file, or the same text for all cases."""
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
            if not _tell_double_braces(target, names, cases):
                _check_case_is_used(target, names, cases)


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


def _tell_double_braces(target: VariantTarget, axes: Sequence[str], cases: CaseList) -> bool:
    """Report fields in double braces; whether there were any."""
    found = False
    for template in templates_of(target):
        if template.carrier not in (Carrier.MESSAGE, Carrier.PROMPT) or is_jinja(template.text):
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
    instead = "did you mean {input}?"
    if not any(case.input is not None for case in cases.cases):
        if target.has_workspace:
            return  # The cases may differ in what graders look for in the workspace.
        key = next(iter(cases.cases[0].metadata), None)
        instead = "use {case.id}, or repeats of one case"
        if key is not None:
            instead = f"did you mean {{metadata.{key}}}?"
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


def check_rubrics(
    written: Any,
    spot: Location,
    variants: Sequence[tuple[Variant, VariantTarget]],
    cases: CaseList,
    folder: Path,
) -> None:
    """The same for judges' rubrics."""
    axes = list(variants[0][0]) if variants else []
    for options, at in graders_of_kind("judge", written, spot):
        rubric = options.get("rubric") if isinstance(options, Mapping) else None
        if not isinstance(rubric, str) or not rubric.endswith(".j2"):
            continue
        prompt = read_prompt(rubric, at.at("rubric"), folder)
        if prompt is None:
            continue
        check_template(Template(prompt=prompt), axes, cases)
        names = names_or_none(prompt.text)
        if names is not None and {*JINJA_NAMES, *axes}.issuperset(names):
            seen = {tuple(variant.get(name) for name in names): variant for variant, _ in variants}
            for variant in seen.values():
                _render_all(prompt, variant, cases)


def _render_all(prompt: Prompt, variant: Variant, cases: CaseList) -> None:
    first: tuple[Case, JinjaError] | None = None
    others = 0
    for case in cases.cases:
        fields = TemplateFields(
            input=case.input,
            case_id=case.id,
            repeat=1,
            folder="",
            variant=variant,
            metadata=case.metadata,
        )
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
