"""A promptfoo config as a suite: its prompts, providers and tests."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.problems import shown
from paraval.errors import RequestError
from paraval.importers.imported import ImportedSuite, yaml_text
from paraval.importers.promptfoo.assertions import (
    Assertions,
    compact,
    decides,
    from_text,
    is_harmless,
)
from paraval.importers.promptfoo.providers import Provider, read_provider
from paraval.importers.promptfoo.source import (
    FILE,
    PLAIN_FIELD,
    Source,
    as_list,
    messages_in,
    plain_template,
    rendered,
    with_environment,
    with_line_breaks,
    with_references,
)
from paraval.templates.jinja import JinjaError, names_in

CASES_FILE = "cases.yaml"
_CASES_IN_SUITE = 20
_LONG = 1000
"""Prompts that are longer become files."""
_KEYS = (
    "description prompts providers targets tests scenarios defaultTest evaluateOptions"
    " commandLineOptions env $schema assertionTemplates definitions"
)
_JUDGE = {"provider": "openai", "model": "gpt-5.5"}
_EMBEDDER = {"provider": "openai", "model": "text-embedding-3-large"}
_JINJA_GLOBALS = frozenset(("range", "dict", "lipsum", "cycler", "joiner", "namespace", "loop"))
_WHY = {
    "derivedMetrics": "paraval reports the graders' own scores",
    "outputPath": "use `paraval report last -o FILE`",
    "sharing": "use `paraval report last -o report.html`",
    "redteam": "paraval has no red teaming",
    "extensions": "paraval has no hooks",
    "tracing": "see `paraval export`",
    "nunjucksFilters": "write the filter's result into the prompt or the cases",
    "delay": "use limits of a model: requests_per_minute",
    "provider": "every variant runs every case; use `exclude`, or another suite",
    "providers": "every variant runs every case; use `exclude`, or another suite",
    "prompts": "every variant runs every case; use `exclude`, or another suite",
    "assertScoringFunction": "use one Python grader instead",
    "rubricPrompt": "the judge has its own prompt; write the criteria into the rubric",
    "prefix": "write it into the prompt",
    "suffix": "write it into the prompt",
    "storeOutputAs": "a case cannot use the answer of another; use a Python function",
}


def read_promptfoo(path: Path, to: Path) -> ImportedSuite:
    """Read a config for a suite in the folder `to`, from where its paths lead to the scripts."""
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise RequestError(
            f"{path}: paraval reads promptfoo configs in YAML and JSON",
            hint="of a script, write what it exports: node -e \"import('./promptfooconfig.js')"
            '.then(m => console.log(JSON.stringify(m.default)))" > promptfooconfig.json',
        )
    source = Source(path)
    config = source.data(path)
    if not isinstance(config, dict) and not source.problems:
        source.spot(path).report(f"must be a mapping with prompts and tests, not {shown(config)}")
    source.check()
    imported = _Config(config, source, path.name, to.resolve()).suite()
    source.check()
    return imported


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompt:
    name: str
    raw: str
    """A Nunjucks template: text, or messages as JSON."""
    messages: tuple[Mapping[str, str], ...] | None = None
    labels: tuple[str, ...] = ()
    """What a provider may call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """A test with its defaults, before lists of values are combined."""

    written: Any
    path: str


class _Config:
    def __init__(self, config: dict[str, Any], source: Source, origin: str, to: Path) -> None:
        config = with_references(config, config)
        own = config.pop("env", None)
        environment: Mapping[str, Any] = own if isinstance(own, dict) else {}
        self.written = with_environment(config, environment, "", source)
        for name in environment:
            if f"env.{name}" not in str(config):
                source.leave_out(f"env.{name}", "set it in the environment, or in .env beside it")
        self.source = source
        self.origin = origin
        self.to = to
        self.models: dict[str, Mapping[str, Any]] = {}
        self.used: dict[str, None] = {}
        """Variables of prompts without a default: empty in tests that don't have them."""
        self.printed: set[str] = set()
        """Variables that prompts insert as they are."""
        self.assertions = Assertions(
            source=source, to=to, judge=self._judge, embedder=self._embedder
        )

    def suite(self) -> ImportedSuite:
        own = [key for key in self.written if key.startswith("x-")]
        self.source.leave_out_rest(self.written, [*_KEYS.split(), *own], "", _WHY)
        prompts = self._prompts()
        providers = self._providers()
        target = self._target(prompts, providers)
        cases, graders, pass_at = self._cases()
        self.assertions.finish(self.origin)
        suite: dict[str, Any] = {
            "description": self.written.get("description"),
            "models": self.models,
            "cases": cases,
            **target,
            "graders": graders,
            "pass_at": pass_at,
            **self._options(),
        }
        if len(cases) > _CASES_IN_SUITE:
            self.source.files[CASES_FILE] = yaml_text(cases)
            suite["cases"] = CASES_FILE
        return ImportedSuite(
            source=self.origin,
            suite=_without_empty(suite),
            files=self.source.files,
            not_honored=self.source.all_not_honored(),
            notes=tuple(self.source.notes),
        )

    # Prompts.

    def _prompts(self) -> list[_Prompt]:
        written = self.written.get("prompts")
        if written is None and (self.written.get("tests") or self.written.get("scenarios")):
            written = ["{{prompt}}"]
        if isinstance(written, dict):
            written = [{"id": one, "label": label} for one, label in written.items()]
        found: list[_Prompt] = []
        for at, one in enumerate(as_list(written)):
            found += self._prompt(one, f"prompts[{at}]")
        if not found:
            reasons = [f"{one.key}: {one.why}" for one in self.source.not_honored]
            listed = [one for one in reasons if one.startswith("prompts[")]
            why = "; ".join(listed) or "there is none, and there are no tests"
            self.source.report("prompts", f"no prompt can be read: {why}")
        names = unique_names(prompt.name or f"prompt-{at + 1}" for at, prompt in enumerate(found))
        return [
            replace(one, name=name, labels=(*one.labels, name))
            for name, one in zip(names, found, strict=True)
        ]

    def _prompt(self, written: Any, path: str) -> list[_Prompt]:
        label = ""
        if isinstance(written, dict) and "role" not in written:
            self.source.leave_out_rest(written, ("id", "label", "raw", "content"), path, {})
            label = str(written.get("label") or "")
            identity = str(written.get("id") or "")
            written = written.get("raw") or written.get("content") or identity
            label = label or ("" if identity == written else identity)
        if isinstance(written, list):
            written = json.dumps(written)
        if not isinstance(written, str):
            self.source.leave_out(path, "not a prompt")
            return []
        if not _is_path(written):
            return self._texts(written, label, path, (label,) if label else ())
        found: list[_Prompt] = []
        for file in self.source.paths(written):
            found += self._prompt_file(file, label, path, written)
        return found

    def _prompt_file(self, file: Path, label: str, path: str, written: str) -> list[_Prompt]:
        labels = tuple(one for one in (label, written, file.name) if one)
        name = label or file.stem
        match file.suffix:
            case ".txt":
                texts = re.split(r"^[ \t]*---[ \t]*$", self.source.text(file), flags=re.MULTILINE)
            case ".jsonl":
                texts = self.source.text(file).splitlines()
            case ".md" | ".j2" | ".json":
                texts = [self.source.text(file)]
            case ".yaml" | ".yml":
                texts = [json.dumps(self.source.data(file), ensure_ascii=False)]
            case _:
                self.source.leave_out(path, f"{written}: prompts of scripts; write them as text")
                return []
        found: list[_Prompt] = []
        for text in texts:
            if text.strip():
                found += self._texts(text.strip(), name, path, labels)
        return found

    def _texts(self, raw: str, name: str, path: str, labels: tuple[str, ...]) -> list[_Prompt]:
        messages = messages_in(raw)
        if messages is not None and not messages:
            self.source.leave_out(path, "only messages with a role and text")
            return []
        if messages is None and re.match(r'\s*\[\s*\{.*"role"', raw, re.DOTALL):
            self.source.leave_out(path, "not valid JSON before it is filled in: write the messages")
            return []
        try:
            names = names_in(raw)
        except JinjaError as error:
            self.source.leave_out(path, f"{error}")
            return []
        if "_conversation" in names:
            self.source.leave_out(path, "_conversation: a case has no earlier answers")
        for one in names:
            if one not in _JINJA_GLOBALS and not re.search(rf"\b{one}\s*\|\s*default\b", raw):
                self.used[one] = None
        self.printed |= {found[1].partition(".")[0] for found in PLAIN_FIELD.finditer(raw)}
        return [_Prompt(name=_axis_value(name), raw=raw, messages=messages or None, labels=labels)]

    # Providers, and the target that prompts and providers make.

    def _providers(self) -> list[Provider]:
        written = self.written.get("providers") or self.written.get("targets")
        read = [
            read_provider(inner, f"providers[{at}]", self.source, self.to)
            for at, one in enumerate(as_list(written))
            for inner in self._provider_file(one)
        ]
        found = [one for one in read if one is not None]
        if not found:
            note = "No provider can be called: a simulated model stands in. Change `models`."
            self.source.notes[note] = None
            found = [Provider(name="stand-in", model={"provider": "loopback"})]
        for one in found:
            if (one.command is None) != (found[0].command is None):
                why = "a suite has models or commands, not both; import it into another suite"
                self.source.leave_out(f"providers: {one.name}", why)
        return [one for one in found if (one.command is None) == (found[0].command is None)]

    def _provider_file(self, written: Any) -> list[Any]:
        if isinstance(written, str) and re.match(r"file://.+\.(ya?ml|json)$", written):
            return as_list(self.source.value(written, "providers"))
        return [written]

    def _target(self, prompts: list[_Prompt], providers: list[Provider]) -> dict[str, Any]:
        names = unique_names(_model_name(provider.name) for provider in providers)
        for name, provider in zip(names, providers, strict=True):
            if provider.model is not None:
                self.models[name] = provider.model
        first = providers[0].command
        matrix: dict[str, Any] = {}
        if first is not None:
            axis, target = "provider", dict(first)
            files = {one.name: self._prompt_path(one) for one in prompts}
            matrix["prompt"] = {name: file for name, file in files.items() if file}
            overlays = {name: one.command or {} for name, one in zip(names, providers, strict=True)}
            matrix[axis] = overlays if len(providers) > 1 else list(names)
        else:
            axis, target = "model", {"chat": {"model": "{model}"}}
            if len(prompts) == 1:
                target["chat"].update(self._chat(prompts[0]))
            else:
                matrix["prompt"] = {one.name: {"chat": self._chat(one)} for one in prompts}
            tools = {
                name: {"chat": {"tools": list(one.tools)}} if one.tools else {}
                for name, one in zip(names, providers, strict=True)
            }
            matrix[axis] = tools if any(tools.values()) else list(names)
        exclude = [
            {"prompt": prompt.name, axis: name}
            for name, provider in zip(names, providers, strict=True)
            for prompt in prompts
            if provider.prompts and not _selected(prompt, provider.prompts)
        ]
        return {"matrix": matrix, "exclude": exclude, "target": target}

    def _chat(self, prompt: _Prompt) -> dict[str, Any]:
        if prompt.messages is None:
            return {"prompt": self._template(prompt.raw, prompt.name)}
        return {
            "messages": [
                {**one, "content": self._template(one["content"], f"{prompt.name}-{at}")}
                for at, one in enumerate(prompt.messages, start=1)
            ]
        }

    def _prompt_path(self, prompt: _Prompt) -> str | None:
        """Write a prompt to a file, for commands: an axis of files stands for their texts."""
        template = plain_template(prompt.raw, braces=True)
        if template is None:
            self.source.leave_out(f"prompts: {prompt.name}", "commands get prompts without {% %}")
            return None
        file = f"prompts/{_file_name(prompt.name)}.txt"
        self.source.files[file] = template + "\n"
        return file

    def _template(self, raw: str, name: str) -> str:
        template = plain_template(raw)
        if template is None:
            return self._jinja_file(raw, name)
        if len(template) <= _LONG:
            return template
        file = f"prompts/{_file_name(name)}.txt"
        self.source.files[file] = template + "\n"
        return file

    def _jinja_file(self, raw: str, name: str) -> str:
        file = f"prompts/{_file_name(name)}.j2"
        names = [one for one in names_in(raw) if one not in _JINJA_GLOBALS]
        head = "".join(f"{{% set {one} = input.{one} %}}\n" for one in names)
        self.source.files[file] = f"{head}{with_line_breaks(raw)}\n"
        return file

    # Tests.

    def _tests(self) -> list[_Test]:
        tests = list(self._listed(self.written.get("tests"), "tests"))
        scenarios = self.source.value(self.written.get("scenarios"), "scenarios")
        for at, one in enumerate(as_list(scenarios)):
            path = f"scenarios[{at}]"
            known = ("config", "tests", "description")
            scenario = self.source.leave_out_rest(self.source.value(one, path), known, path, {})
            inner = list(self._listed(scenario.get("tests"), f"{path}.tests"))
            configs = list(self._listed(scenario.get("config"), f"{path}.config"))
            for config, test in itertools.product(configs, inner):
                tests.append(_Test(written=_merged(config.written, test.written), path=test.path))
        if not tests and not self.written.get("tests"):
            self.source.notes["There are no tests: each prompt is sent once, as in promptfoo."] = (
                None
            )
            tests = [_Test(written={}, path="tests")]
        elif not tests:
            self.source.notes["No test can be read: write `cases`."] = None
        return tests

    def _listed(self, written: Any, path: str) -> Iterable[_Test]:
        for at, one in enumerate(as_list(written)):
            name = one.get("path") if isinstance(one, dict) and "path" in one else one
            if isinstance(name, str):
                yield from self._test_files(name, f"{path}[{at}]")
            elif isinstance(one, dict):
                yield _Test(written=one, path=f"{path}[{at}]")
            else:
                self.source.leave_out(f"{path}[{at}]", "not a test")

    def _test_files(self, name: str, path: str) -> Iterable[_Test]:
        suffixes = (".csv", ".tsv", ".yaml", ".yml", ".json", ".jsonl")
        if re.match(r"(https?|huggingface|az|sharepoint)://", name):
            self.source.leave_out(path, f"{name}: download it, and name the file in `cases`")
            return
        for file in self.source.paths(name):
            if file.suffix not in suffixes:
                self.source.leave_out(path, f"{name}: tests are read from CSV, YAML and JSON files")
                continue
            if file.suffix in (".csv", ".tsv"):
                text = io.StringIO(self.source.text(file).removeprefix("\ufeff"))
                delimiter = "\t" if file.suffix == ".tsv" else ","
                table = csv.DictReader(text, delimiter=delimiter)
                rows = [_from_row(row, file.name, self.source) for row in table]
            else:
                rows = as_list(self.source.data(file))
            for at, row in enumerate(rows):
                yield _Test(written=row, path=f"{file.name}[{at}]")

    def _cases(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], float | None]:
        """Return the cases, the graders of all of them, and the score that passes."""
        written = self.source.value(self.written.get("defaultTest"), "defaultTest")
        default = self._checked(_Test(written=written, path="defaultTest"))
        tests = [replace(test, written=self._checked(test)) for test in self._tests()]
        depends = [
            any(test.written.get("options") for test in tests) or _depends_on_case(one)
            for one in as_list(default.get("assert"))
        ]
        graders = self._default_graders(default, {}, [not one for one in depends])
        cases: list[dict[str, Any]] = []
        ungraded = 0
        for test in tests:
            merged = _merged(default, test.written)
            for variables in self._combinations(merged, test.path):
                self.assertions.reference = None
                own = self._default_graders(merged, variables, depends)
                own += self.assertions.graders(
                    test.written.get("assert"), variables, merged["options"], f"{test.path}.assert"
                )
                if any(map(decides, merged["assert"])) and not (graders or own):
                    ungraded += 1
                    own = [self.assertions.not_imported()]
                case = {
                    "id": _axis_value(str(test.written.get("description") or "")),
                    "input": {**dict.fromkeys(self.used, ""), **variables},
                    "expect": self.assertions.reference,
                    "metadata": merged["metadata"],
                    "graders": own,
                }
                cases.append(case)
        if ungraded:
            some = f"{ungraded} of {len(cases)}, all of whose assertions were left out"
            note = f"Cases without a grader: {some}. They are errors until you write `graders`."
            self.source.notes[note] = None
        names = unique_names(case["id"] or f"case-{at + 1}" for at, case in enumerate(cases))
        lists = [graders, *(case["graders"] for case in cases)]
        pass_at = self._threshold(tests, default) if any(lists) else None
        _weigh(lists, pass_at, self.source)
        _name_apart(lists)
        for case, name in zip(cases, names, strict=True):
            case |= {"id": name, "graders": [compact(one) for one in case["graders"]]}
        return [_without_empty(one) for one in cases], [compact(one) for one in graders], pass_at

    def _checked(self, test: _Test) -> dict[str, Any]:
        """List what a test has that is not honored."""
        known = ("vars", "assert", "options", "description", "metadata", "threshold")
        written = self.source.leave_out_rest(test.written, known, test.path, _WHY)
        honored = ("provider", "transform", "disableVarExpansion")
        options = written.get("options")
        options = self.source.leave_out_rest(options, honored, f"{test.path}.options", _WHY)
        if not is_harmless(options.get("transform")):
            why = "only javascript assertions apply it; the others are left out"
            self.source.leave_out(f"{test.path}.options.transform", why)
        return {**written, "options": options}

    def _default_graders(
        self, test: Mapping[str, Any], variables: Mapping[str, Any], chosen: Sequence[bool]
    ) -> list[dict[str, Any]]:
        written = as_list(test.get("assert"))[: len(chosen)]
        some = [one if used else None for one, used in zip(written, chosen, strict=True)]
        return self.assertions.graders(some, variables, test["options"], "defaultTest.assert")

    def _combinations(self, test: Mapping[str, Any], path: str) -> Iterable[dict[str, Any]]:
        """Return the variables of a test: every combination of those that are lists."""
        written = self.source.value(test.get("vars"), f"{path}.vars")
        written = written if isinstance(written, dict) else {}
        expand = not test["options"].get("disableVarExpansion")
        choices: dict[str, list[Any]] = {}
        for name, value in written.items():
            at = f"{path}.vars.{name}"
            if isinstance(value, str) and value.startswith(FILE) and "*" in value:
                choices[name] = [self.source.text(file) for file in self.source.paths(value)]
            elif isinstance(value, list) and expand and value:
                choices[name] = [self.source.value(one, at) for one in value]
            else:
                choices[name] = [self.source.value(value, at)]
        for values in itertools.product(*choices.values()):
            variables = dict(zip(choices, values, strict=True))
            for name in self.printed & variables.keys():
                if isinstance(variables[name], list | dict):
                    why = "a prompt inserts it as JSON, where promptfoo inserts a,b"
                    self.source.leave_out(f"{path}.vars.{name}", why)
            yield {
                name: rendered(value, variables)
                for name, value in variables.items()
                if value is not None
            }

    def _threshold(self, tests: list[_Test], default: Mapping[str, Any]) -> float | None:
        """Return the score that passes, if all tests have the same one."""
        found = {_number(test.written.get("threshold", default.get("threshold"))) for test in tests}
        if len(found) == 1:
            return found.pop()
        for test in (_Test(written=default, path="defaultTest"), *tests):
            if test.written.get("threshold") is not None:
                why = "a suite has one pass_at for all cases; now all graders of a case must pass"
                self.source.leave_out(f"{test.path}.threshold", why)
        return None

    # Models that grade, and options.

    def _judge(self, written: Any, path: str) -> str:
        return self._grading_model(written, path, "text", "judge", _JUDGE)

    def _embedder(self, written: Any, path: str) -> str:
        return self._grading_model(written, path, "embedding", "embedder", _EMBEDDER)

    def _grading_model(
        self, written: Any, path: str, kind: str, name: str, usual: Mapping[str, Any]
    ) -> str:
        if isinstance(written, dict) and "id" not in written:
            written = written.get(kind)
        elif kind == "embedding" and written is not None and "embedding" not in str(written):
            written = None
        provider = None
        if written is not None:
            for inner in self._provider_file(written):
                provider = read_provider(inner, path, self.source, self.to)
        model = usual if provider is None or provider.model is None else provider.model
        if model is usual:
            note = f"`{name}` is {model['model']} of OpenAI, as in promptfoo; see `models`."
            self.source.notes[note] = None
        for known, other in self.models.items():
            if other == model:
                return known
        name = next(one for one in _numbered(name) if one not in self.models)
        self.models[name] = model
        return name

    def _options(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in ("evaluateOptions", "commandLineOptions"):
            options = self.written.get(path)
            for key, value in (options if isinstance(options, dict) else {}).items():
                match key:
                    case "maxConcurrency":
                        found["limits"] = {"parallel": value}
                    case "repeat":
                        found["repeats"] = value
                    case "cache":
                        found["cache"] = "reuse" if value else "off"
                    case _:
                        why = _WHY.get(key, "has no equivalent")
                        self.source.leave_out(f"{path}.{key}", why)
        return found


# Pieces of a config.


def _is_path(text: str) -> bool:
    if text.startswith(FILE):
        return True
    return (
        "\n" not in text and re.fullmatch(r"[\w./*-]+\.(txt|md|j2|jsonl?|ya?ml)", text) is not None
    )


def _from_row(row: Mapping[str, Any], table: str, source: Source) -> dict[str, Any]:
    """Return a row of a table as a test; columns that nothing reads are listed once."""
    test: dict[str, Any] = {"vars": {}, "metadata": {}}
    expected: dict[str, dict[str, Any]] = {}
    for key, value in row.items():
        name, text = str(key or "").strip(), str(value or "")
        if name and not name.startswith("__"):
            test["vars"][name] = text
        elif not text.strip():
            continue
        elif name.startswith("__expected"):
            expected.setdefault(_assertion_of(name), {}).update(from_text(text))
        elif found := re.fullmatch(r"__config:(__expected\d*):threshold", name):
            expected.setdefault(_assertion_of(found[1]), {})["threshold"] = _number(text)
        elif name.startswith("__metadata:"):
            inner = name.removeprefix("__metadata:")
            parts = [one.strip().replace("\\,", ",") for one in re.split(r"(?<!\\),", text)]
            test["metadata"][inner.removesuffix("[]")] = parts if inner.endswith("[]") else text
        elif name == "__description":
            test["description"] = text
        elif name == "__threshold":
            test["threshold"] = _number(text)
        elif name != "__metric":
            source.leave_out(f"{table}: {name}", _WHY.get(name[2:], "has no equivalent"))
    metric = {"metric": row["__metric"]} if row.get("__metric") else {}
    test["assert"] = [{**one, **metric} for one in expected.values() if "type" in one]
    return test


def _assertion_of(column: str) -> str:
    """`__expected` and `__expected1` are the same."""
    return "__expected1" if column == "__expected" else column


def _merged(default: Mapping[str, Any], test: Mapping[str, Any]) -> dict[str, Any]:
    """Return a test over its defaults; assertions of both."""
    merged = {**default, **test}
    for key in ("vars", "options", "metadata"):
        under, over = default.get(key), test.get(key)
        if not isinstance(over, str):
            merged[key] = {
                **(under if isinstance(under, dict) else {}),
                **(over if isinstance(over, dict) else {}),
            }
    merged["assert"] = [*as_list(default.get("assert")), *as_list(test.get("assert"))]
    return merged


def _depends_on_case(assertion: Any) -> bool:
    """Whether a default assertion differs by case: it is then a grader of each."""
    text = json.dumps(assertion, default=str)
    return re.search(r"\{\{|\{%|factuality|faithfulness", text) is not None


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _selected(prompt: _Prompt, labels: Iterable[str]) -> bool:
    return any(
        label == name or (label.endswith(("*", ":*")) and name.startswith(label.rstrip("*:")))
        for label in labels
        for name in prompt.labels
    )


def _weigh(lists: Iterable[list[dict[str, Any]]], pass_at: float | None, source: Source) -> None:
    """With a threshold, every grader has a weight; without one, none has: all must pass."""
    for options in (one for graders in lists for grader in graders for one in grader.values()):
        if pass_at is not None:
            options.setdefault("weight", 1)
        elif options.pop("weight", None) is not None:
            why = "without one threshold for all cases, all must pass: it changes no result"
            source.leave_out("assert.weight", why)


def _name_apart(lists: Sequence[list[dict[str, Any]]]) -> None:
    """Number the graders of a case that have the same name; the first list is of all cases."""
    everywhere: set[str] = set()
    for at, own in enumerate(lists):
        taken = set(everywhere) if at else everywhere
        for options in (one for grader in own for one in grader.values() if "name" in one):
            names = _numbered(options["name"])
            options["name"] = next(one for one in names if one not in taken)
            taken.add(options["name"])


def _without_empty(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value not in (None, {}, [])}


def _axis_value(text: str) -> str:
    return " ".join(text.split())[:80].strip()


def _model_name(text: str) -> str:
    return re.sub(r"[^\w.:/@+-]+", "-", text, flags=re.ASCII).strip("-")[:80] or "model"


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:60] or "prompt"


def _numbered(name: str) -> Iterable[str]:
    yield name
    for number in itertools.count(2):
        yield f"{name}-{number}"


def unique_names(names: Iterable[str]) -> list[str]:
    """Return names in order, with numbers after those that occur again."""
    found: dict[str, None] = {}
    for name in names:
        found[next(one for one in _numbered(name) if one not in found)] = None
    return list(found)
