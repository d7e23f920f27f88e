"""Read graders into records, and check that they fit the cases."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.forms import check, pattern_problem
from paraval.documents.problems import Location, shown
from paraval.documents.scalars import plain, scalar_text
from paraval.functions import GRADER_PARAMETERS
from paraval.plan.cases.case_list import CaseList
from paraval.plan.chat_settings import read_schema
from paraval.plan.matrix import Axis
from paraval.plan.prompts.texts import read_prompt
from paraval.plan.schema.grader_forms import (
    DIFF_CHECKS,
    GRADER_FORMS,
    MAIN_KEYS,
    CombinationForm,
    CommandGraderForm,
    ContainsForm,
    DiffForm,
    FunctionGraderForm,
    GraderForm,
    JsonForm,
    JudgeForm,
    LatencyForm,
    MentionsForm,
    NotForm,
    PairwiseForm,
    RegexForm,
    SimilarityForm,
    StartsWithForm,
    ToolCallForm,
)
from paraval.plan.schema.judge_presets import (
    NEEDS_CONTEXT,
    NEEDS_EXPECT,
    PRESETS,
    USES_CONTEXT,
)
from paraval.plan.suite_folder import (
    SuiteFolder,
    check_executable,
    check_in_container,
    placed,
    search_path,
)
from paraval.plan.targets import check_function
from paraval.records import GraderSpec, Grading, Model, Provider
from paraval.templates.template import DEFAULT_CONTEXT, JINJA, context_of, is_jinja, literal
from paraval.text.suggest import quoted, suggestion
from paraval.text.words import without_separators

# What `mentions` looks for: in the grader's options, or in a case's `expect`.

LOOKED_FOR = ("files", "symbols", "lines", "content")


def check_mentions(form: MentionsForm, spot: Location) -> None:
    """Report blank items, which every answer would match."""
    for key in ("files", "symbols", "content"):
        for number, text in enumerate(getattr(form, key)):
            if not text.strip():
                spot.at(key, number).report("is empty, so every answer would match")


def mentions_problem(options: Mapping[str, Any], expect: Any) -> str | None:
    """Return the problem with a case's `expect` for this grader, if any."""
    has_its_own = any(options.get(key) for key in LOOKED_FOR)
    truth = expect
    if isinstance(truth, Mapping) and isinstance(truth.get("ground_truth"), Mapping):
        truth = truth["ground_truth"]
    if not isinstance(truth, Mapping):
        return None if has_its_own else _needed(_WANTED, expect)
    for key in LOOKED_FOR:
        problem = _part_problem(key, truth.get(key))
        if problem:
            return problem
    if has_its_own or any(truth.get(key) for key in LOOKED_FOR):
        return None
    return f"needs {_WANTED}, but {shown(expect)} has none of them"


_WANTED = "a mapping of files, symbols, lines or content"


def _part_problem(key: str, value: Any) -> str | None:
    if value is None:
        return None
    if key != "lines":
        fits = isinstance(value, list | tuple) and all(_is_text(item) for item in value)
        return None if fits else f"needs a list of strings in '{key}', not {shown(value)}"
    fits = isinstance(value, Mapping) and all(
        _is_text(path) and isinstance(lines, list | tuple) and all(map(_is_line, lines))
        for path, lines in value.items()
    )
    wanted = "a mapping of files to lists of line numbers in 'lines'"
    return None if fits else f"needs {wanted}, not {shown(value)}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_line(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_JUDGE = "judge: {model: ..., rubric: ...}"
FOREIGN_GRADERS = {
    "not-contains": "not: {contains: ...}",
    "not-equals": "not: {equals: ...}",
    "not-regex": "not: {regex: ...}",
    "contains-any": "any: [{contains: ...}, {contains: ...}]",
    "contains-all": "contains: [..., ...]",
    "icontains": "contains: {value: ..., ignore_case: true}",
    "llm-rubric": _JUDGE,
    "model-graded-closedqa": _JUDGE,
    "model-graded-qa": _JUDGE,
    "model-graded-fact": "judge: {model: ..., preset: factuality}",
    "factuality": "judge: {model: ..., preset: factuality}",
    "context-faithfulness": "judge: {model: ..., preset: faithfulness}",
    "answer-relevance": "judge: {model: ..., preset: relevance}",
    "javascript": "command: [node, grade.js], or python: module:function",
    "similar": "similarity: {value: ..., model: ...}",
    "is-json": "json",
}
"""What other tools call a grader -> how to write it here."""
MOST_UNITLESS_S = 600
"""A longer `latency` without a unit was probably meant in milliseconds."""
LISTED_CASES = 10
"""The first cases that don't fit a grader are reported one by one; the rest as a number."""


def read_graders(
    written: Any, spot: Location, around: SuiteFolder, before: tuple[GraderSpec, ...] = ()
) -> tuple[GraderSpec, ...]:
    """Read the graders, in order, each with a unique name; `before`: others that come first."""
    if written is None:
        return before
    if not isinstance(written, list | tuple):
        spot.report(f"must be a list of graders, not {shown(written)}")
        return before
    specs = list(before)
    for number, item in enumerate(written):
        spec = _read_grader(item, spot.at(number), around)
        if spec is not None:
            specs.append(_named(spec, specs, spot.at(number)))
    weighted = [spec for spec in specs if spec.weight is not None]
    if weighted and len(weighted) < len(specs):
        without = quoted(spec.name for spec in specs if spec.weight is None)
        spot.report(f"no weight for {without}; give every grader a weight, or none")
    return tuple(specs)


def read_case_graders(
    cases: CaseList, suite: tuple[GraderSpec, ...], around: SuiteFolder
) -> dict[str, tuple[GraderSpec, ...]]:
    """Read the graders of cases that have their own: the suite's and theirs, or only theirs."""
    own: dict[str, tuple[GraderSpec, ...]] = {}
    for index, case in enumerate(cases.cases):
        if not case.graders:
            continue
        written, spot, before = case.graders, cases.spot(index).at("graders"), suite
        if isinstance(written, Mapping):
            if set(written) != {"replace"} or not written["replace"]:
                spot.report(
                    f"must be a list of graders, or {{replace: [...]}}, not {shown(written)}"
                )
                continue
            written, spot, before = written["replace"], spot.at("replace"), ()
        own[case.id] = read_graders(written, spot, around, before)
        if any(
            one.kind == "exit_code" for spec in own[case.id][len(before) :] for one in spec.flat()
        ):
            spot.report(
                "'exit_code' belongs in the suite's graders: it decides for all cases whether other"
                " codes than 0 are crashes"
            )
    return own


def _named(spec: GraderSpec, others: Sequence[GraderSpec], spot: Location) -> GraderSpec:
    """Return the grader with a name: its own, its function's, its preset's, or its kind."""
    taken = {other.name for other in others}
    if spec.name:
        if spec.name in taken:
            spot.at(spec.kind, "name").report(f"duplicate grader name '{spec.name}'")
        return spec
    match spec.kind:
        case "python":
            name = str(spec.options["function"]).rpartition(":")[2].rpartition(".")[2]
        case "judge":
            name = str(spec.options.get("preset", spec.kind))
        case _:
            return replace(spec, name=_unused(spec.kind, taken))
    # Trial keys have the name that earlier versions gave it.
    earlier = _unused(spec.kind, {other.key_name or other.name for other in others})
    name = _unused(name, taken)
    return replace(spec, name=name, key_name="" if name == earlier else earlier)


def _unused(name: str, taken: set[str]) -> str:
    """`contains`, `contains#2`, and so on."""
    free, number = name, 2
    while free in taken:
        free = f"{name}#{number}"
        number += 1
    return free


def _read_grader(written: Any, spot: Location, around: SuiteFolder) -> GraderSpec | None:
    asked = _kind_and_options(written, spot)
    if asked is None:
        return None
    kind, options = asked
    found = len(spot.problems)
    form = check(GRADER_FORMS[kind], options, spot.at(kind))
    if form is None or len(spot.problems) > found:
        return None
    if isinstance(form, LatencyForm):
        _check_latency(options["max"], spot.at(kind, "max"))
    read = _options_of(form)
    model: Model | None = None
    if isinstance(form, JudgeForm):
        model = _judge(form, read, spot.at(kind), around)
    elif isinstance(form, SimilarityForm) and form.model is not None:
        model = _embedder(read, spot.at(kind, "model"), around)
    _check_contents(form, read, spot.at(kind), around)
    return GraderSpec(
        # For a tool call, it is the tool's name.
        name="" if isinstance(form, ToolCallForm) else form.name or "",
        kind=kind,
        options=read,
        weight=None if form.weight is None else float(form.weight),
        folder=str(around.folder),
        model=model,
        parts=_read_parts(form, written, spot.at(kind), around),
    )


def _check_latency(written: Any, spot: Location) -> None:
    if not isinstance(written, str) and written > MOST_UNITLESS_S:
        number = f"{written:g}"
        spot.report(f"add a unit: {number}ms or {number}s; a number alone counts as seconds")


def _read_parts(
    form: GraderForm, written: Any, spot: Location, around: SuiteFolder
) -> tuple[GraderSpec, ...]:
    """Read the graders in `not`, `any` and `all`."""
    if not isinstance(form, NotForm | CombinationForm):
        return ()
    found = len(spot.problems)
    parts: tuple[GraderSpec, ...]
    [value] = written.values()
    if isinstance(value, Mapping) and "of" in value:
        spot = spot.at("of")
    if isinstance(form, NotForm):
        part = _read_grader(form.of, spot, around)
        parts = () if part is None else (_named(part, (), spot),)
    else:
        parts = read_graders(form.of, spot, around)
        if not parts and len(spot.problems) == found:
            spot.report("is empty; add at least one grader")
    if any(part.weight is not None for part in parts):
        spot.report("has a grader with a weight; only the graders of the suite or a case have one")
    return parts


def _embedder(options: dict[str, Any], spot: Location, around: SuiteFolder) -> Model | None:
    model = around.registry.find(options.pop("model"), spot)
    if model is not None and model.provider is Provider.ANTHROPIC:
        spot.report(f"'{model.name}' has no embeddings; use a model with provider: openai")
    return model


def _judge(
    form: JudgeForm, options: dict[str, Any], spot: Location, around: SuiteFolder
) -> Model | None:
    """The judge's model; preset and rubric become one text in the options."""
    rubrics = [] if form.preset is None else [PRESETS[form.preset]]
    if form.rubric is not None:
        read = read_prompt(form.rubric, spot.at("rubric"), around.folder)
        rubric = "" if read is None else read.text
        if is_jinja(rubric):
            rubrics = [f"{JINJA}{literal(preset)}" for preset in rubrics]
        rubrics.append(rubric)
    options["rubric"] = "\n\n".join(rubrics)
    if not rubrics:
        spot.report(f"needs a 'rubric' or a 'preset' ({', '.join(PRESETS)})")
    if form.context is not None:
        options["context"] = form.context.strip("{}")
    elif form.preset in USES_CONTEXT:
        options["context"] = DEFAULT_CONTEXT
    if form.preset in NEEDS_EXPECT and not form.reference:
        spot.at("reference").report(f"the preset '{form.preset}' compares with it; remove this key")
    return around.registry.find(options.pop("model"), spot.at("model"))


BETTER = """\
The better answer serves the person who asked better: it is correct, complete, clear and to the \
point. Correctness comes first. Length by itself is no merit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise:
    """How a judge compares the answers of two variants."""

    grader: GraderSpec
    against: str | None = None
    """The variant that all others are compared with: `model=small`."""


def read_pairwise(
    written: Any, spot: Location, around: SuiteFolder, axes: Sequence[Axis] | None = None
) -> Pairwise | None:
    """Read the key `pairwise`; report its problems. Without `axes`, `against` is checked later."""
    if written is None:
        return None
    form = check(PairwiseForm, written, spot)
    if form is None:
        return None
    model = around.registry.find(form.model, spot.at("model"))
    text = BETTER
    if form.rubric is not None:
        rubric = read_prompt(form.rubric, spot.at("rubric"), around.folder)
        text = "" if rubric is None else rubric.text
    if form.against is not None and axes is not None:
        _check_against(form.against, axes, spot.at("against"))
    # Every verdict passes: the score tells which answer is better.
    options = {"pairwise": True, "rubric": text, "reference": form.reference, "pass_at": 0.0}
    grader = GraderSpec(
        name="pairwise", kind="judge", options=options, folder=str(around.folder), model=model
    )
    return Pairwise(grader=grader, against=form.against)


def _check_against(against: str, axes: Sequence[Axis], spot: Location) -> None:
    """Report a variant that is written wrong, before anything is spent on the others."""
    by_name = {axis.name: axis for axis in axes}
    for item in re.split(f",(?=(?:{'|'.join(map(re.escape, by_name))})=)", against):
        name, equals, value = item.partition("=")
        if not equals:
            spot.report(f"must be a variant such as 'model=small', not {shown(item)}")
        elif name not in by_name:
            what_there_is = suggestion(name, by_name) or "; the suite has no matrix"
            spot.report(f"unknown axis '{name}'{what_there_is}")
        elif value not in (values := by_name[name].texts()):
            spot.report(f"axis '{name}' has no value '{value}'{suggestion(value, values)}")


def _kind_and_options(written: Any, spot: Location) -> tuple[str, Mapping[str, Any]] | None:
    kinds = list(GRADER_FORMS)
    if isinstance(written, str):
        written = {written: None}
    if not isinstance(written, Mapping) or len(written) != 1:
        spot.report(
            f"must be one of {quoted(kinds)}, with or without options, not {shown(written)}"
        )
        return None
    [(kind, value)] = written.items()
    if kind not in GRADER_FORMS:
        instead = FOREIGN_GRADERS.get(str(kind).replace("_", "-"))
        hint = f"; write {instead}" if instead else suggestion(str(kind), kinds)
        spot.report(f"unknown grader '{kind}'{hint}")
        return None
    if value is None:
        return kind, {}
    if isinstance(value, Mapping) and not (kind == "not" and "of" not in value):
        return kind, value
    if kind not in MAIN_KEYS:
        example = GRADER_FORMS[kind].example and f", as in {GRADER_FORMS[kind].example}"
        spot.at(kind).report(f"must be a mapping{example}, not {shown(value)}")
        return None
    return kind, {MAIN_KEYS[kind]: value}


def _options_of(form: GraderForm) -> dict[str, Any]:
    """Return the options as written, with the defaults that matter; without name and weight."""
    dumped = form.model_dump(by_alias=True, exclude={"name", "weight", "of"})
    # Only JSON has a null to compare with; elsewhere null means not set.
    given = form.model_fields_set if isinstance(form, JsonForm) else set()
    return {key: plain(value) for key, value in dumped.items() if value is not None or key in given}


def _check_contents(
    form: GraderForm, options: dict[str, Any], spot: Location, around: SuiteFolder
) -> None:
    match form:
        case RegexForm(pattern=str() as pattern):
            problem = pattern_problem(pattern)
            if problem:
                spot.at("pattern").report(problem)
        case JsonForm(schema_=str() | dict() as schema):
            options["schema"] = read_schema(schema, spot.at("schema"), around.folder)
        case FunctionGraderForm():
            check_function(
                form.function, ("output", "case"), around, spot.at("function"), GRADER_PARAMETERS
            )
        case CommandGraderForm():
            _check_program(form, spot.at("command"), around)
        case MentionsForm():
            check_mentions(form, spot)
        case ToolCallForm():
            if form.name is not None:
                options["name"] = form.name
            if problem := _call_problem({"name": "", **options}):
                spot.report(problem)
        case DiffForm():
            _check_diff(options, spot, around)
        case ContainsForm() | StartsWithForm() if _is_blank(options.get("value")):
            spot.at("value").report("is empty, so every answer would pass")


def _check_program(form: CommandGraderForm, spot: Location, around: SuiteFolder) -> None:
    program = placed(form.command[0], str(around.folder))
    if around.in_container:
        check_in_container(form.command[0], spot)
        return
    # Relative programs are checked when an attempt has its workspace.
    if not (around.has_workspace and "/" in program and not Path(program).is_absolute()):
        check_executable(program, str(around.folder), search_path(form.env), spot)


def _check_diff(options: Mapping[str, Any], spot: Location, around: SuiteFolder) -> None:
    if not around.has_workspace:
        spot.report("needs a workspace; add workspace: to the suite")
    if not options:
        spot.report(f"checks nothing; set at least one of {quoted(DIFF_CHECKS)}")
    if options.get("empty") and options.get("max_files", options.get("max_lines")) is not None:
        spot.at("empty").report("already allows no changes; remove max_files and max_lines")


def _is_blank(value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return any(isinstance(text, str) and not text.strip() for text in texts)


# ---- the `expect` of cases


def check_expectations(grading: Grading, cases: CaseList) -> None:
    """Report cases whose `expect` a grader without its own value cannot use, or that lack the
    context that a judge is to see."""
    for grader, indexes in _uses(grading, cases):
        problem_of = _expectation_check(grader)
        if problem_of is None or "expect" in cases.unmapped:
            continue
        wrong = 0
        for index in indexes:
            case = cases.cases[index]
            problem = problem_of(case.expect)
            if problem is None:
                continue
            wrong += 1
            if wrong <= LISTED_CASES:
                needs = f"grader '{grader.name}' {problem}"
                message = f"'expect' is missing ({needs})" if case.expect is None else needs
                cases.spot(index).at("expect").report(f"case '{case.id}': {message}")
        if wrong > LISTED_CASES:
            Location(problems=cases.problems).report(
                f"{wrong - LISTED_CASES} more cases have no suitable 'expect' for grader"
                f" '{grader.name}'"
            )
    _check_contexts(grading, cases)


def _check_contexts(grading: Grading, cases: CaseList) -> None:
    """Report cases without the context that a judge is to see."""
    uses = ((one, at) for grader, at in _uses(grading, cases) for one in grader.flat())
    for grader, indexes in uses:
        asked = grader.options.get("context") if grader.kind == "judge" else None
        if asked is None:
            continue
        without = [at for at in indexes if context_of(cases.cases[at], asked) is None]
        is_default = asked == DEFAULT_CONTEXT
        is_needed = not is_default or grader.options.get("preset") in NEEDS_CONTEXT
        if not without or (not is_needed and len(without) == len(indexes)):
            continue
        for number in without[:LISTED_CASES]:
            where = " or ".join(asked.split("|"))
            hint = "; name another field with 'context'" if is_default else ""
            cases.spot(number).report(
                f"case '{cases.cases[number].id}': no context for grader '{grader.name}' in"
                f" {where}{hint}"
            )
        if len(without) > LISTED_CASES:
            Location(problems=cases.problems).report(
                f"{len(without) - LISTED_CASES} more cases have no context for grader"
                f" '{grader.name}'"
            )


def compares_text(grader: GraderSpec) -> bool:
    """Whether a grader compares the answer with a case's `expect` as text."""
    if "value" in grader.options or "pattern" in grader.options:
        return False
    return grader.kind in _TEXT_GRADERS or any(map(compares_text, grader.parts))


_TEXT_GRADERS = ("equals", "contains", "regex", "starts_with", "similarity")


def _uses(grading: Grading, cases: CaseList) -> Iterable[tuple[GraderSpec, Sequence[int]]]:
    """Return each grader with the positions of the cases that it grades."""
    if not grading.by_case:
        return [(grader, range(len(cases.cases))) for grader in grading.graders]
    uses: dict[int, tuple[GraderSpec, list[int]]] = {}
    for index, case in enumerate(cases.cases):
        for grader in grading.of(case.id):
            uses.setdefault(id(grader), (grader, []))[1].append(index)
    return uses.values()


def _expectation_check(grader: GraderSpec) -> Callable[[Any], str | None] | None:
    """Return a check of a case's `expect` for a grader; None if the grader doesn't use it."""
    if "value" in grader.options or "pattern" in grader.options:
        return None
    match grader.kind:
        case "tool_call" if "name" not in grader.options:
            return _tool_call_problem
        case "not" | "any" | "all":
            checks = [one for one in map(_expectation_check, grader.parts) if one is not None]
            return lambda expect: next(filter(None, (check(expect) for check in checks)), None)
        case "equals" | "starts_with" | "similarity":
            return lambda expect: _unless(_is_scalar(expect), "text", expect)
        case "contains":
            return _contains_problem
        case "regex":
            return _regex_problem
        case "number":
            fits = _has_number if grader.options.get("take") in ("first", "last") else _is_number
            return lambda expect: _unless(fits(expect), "a number", expect)
        case "json" if "path" in grader.options:
            return lambda expect: _unless(expect is not None, "a value", expect)
        case "mentions":
            return lambda expect: mentions_problem(grader.options, expect)
        case "diff" if "similar" in grader.options:
            return lambda expect: _unless(_is_patch(expect), "a patch", expect)
        case "judge" if grader.options.get("preset") in NEEDS_EXPECT:
            return lambda expect: _unless(expect is not None, "the correct answer", expect)
    return None


def _unless(fits: bool, wanted: str, expect: Any) -> str | None:
    return None if fits else _needed(wanted, expect)


def _needed(wanted: str, expect: Any) -> str:
    return f"needs {wanted}" if expect is None else f"needs {wanted}, not {shown(expect)}"


def _is_patch(expect: Any) -> bool:
    found = expect.get("patch") if isinstance(expect, Mapping) else expect
    return isinstance(found, str) and re.search("^@@ ", found, re.MULTILINE) is not None


def _contains_problem(expect: Any) -> str | None:
    if type(expect) is str and expect.strip():
        return None  # As in very many cases.
    texts = expect if isinstance(expect, list | tuple) and expect else [expect]
    fits = all(_is_scalar(text) and str(text).strip() for text in texts)
    return _unless(fits, "text, or a list of strings", expect)


def _tool_call_problem(expect: Any) -> str | None:
    calls = expect if isinstance(expect, list | tuple) and expect else [expect]
    return next(filter(None, map(_call_problem, calls)), None)


def _call_problem(call: Any) -> str | None:
    if isinstance(call, str) and call:
        return None
    wanted = "the name of a tool, or a mapping with name and arguments"
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        return _needed(wanted, call)
    if not isinstance(call.get("arguments"), Mapping | None):
        return f"needs a mapping in 'arguments', not {shown(call['arguments'])}"
    return next(filter(None, map(pattern_problem, _patterns_in(call.get("arguments")))), None)


def _patterns_in(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and [*value] == ["regex"]:
        yield str(value["regex"])
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _patterns_in(inner)


def _regex_problem(expect: Any) -> str | None:
    if not _is_scalar(expect):
        return _needed("text", expect)
    problem = pattern_problem(scalar_text(expect))
    return None if problem is None else f"cannot run: {problem}"


def _is_scalar(value: Any) -> bool:
    """Whether it is text, or a number or a boolean, which count as their text."""
    return isinstance(value, str | int | float)


def _has_number(value: Any) -> bool:
    return _is_number(value) or (isinstance(value, str) and any(map(str.isdigit, value)))


def _is_number(value: Any) -> bool:
    """Whether it is a number, or text that is one: a CSV file has only text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        return math.isfinite(float(without_separators(str(value))))
    except (ValueError, OverflowError):
        return False
