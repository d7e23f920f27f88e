"""promptfoo's assertions, as graders.

`GRADERS` has the kinds that are graders of paraval; scripts, and kinds that a few lines of Python
can check, become functions in files beside the suite.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.importers.promptfoo.source import FILE, Source, as_list, rendered
from paraval.templates.template import escaped
from paraval.text.suggest import nearest

PYTHON_FILE = "assertions.py"
SCRIPT_FILE = "assertions.mjs"
Options = dict[str, Any]
_Built = tuple[str, Options]
"""A grader's kind and options."""


class NoEquivalentError(Exception):
    """An assertion that paraval has no grader for; its text is the reason."""


@dataclass(slots=True, kw_only=True)
class Assertions:
    """Makes the graders of one config, and the files that they need."""

    source: Source
    to: Path
    """The suite's folder."""
    judge: Callable[[Any, str], str]
    """The name of the model that grades: of a provider as written, and its path."""
    embedder: Callable[[Any, str], str]
    python: dict[str, str] = field(default_factory=dict)
    """Functions in the file of Python assertions: source -> name."""
    scripts: dict[str, str] = field(default_factory=dict)
    reference: str | None = None
    """What the current test's `factuality` compares with: the case's `expect`."""

    def graders(
        self, written: Any, variables: Mapping[str, Any], options: Mapping[str, Any], path: str
    ) -> list[Options]:
        """Return the graders of a list of assertions, each with the weight that it states."""
        found: list[Options] = []
        for at, assertion in enumerate(as_list(written)):
            if assertion is not None:
                found += self._grader(assertion, variables, options, f"{path}[{at}]")
        return found

    def _grader(
        self, written: Any, variables: Mapping[str, Any], options: Mapping[str, Any], path: str
    ) -> list[Options]:
        if isinstance(written, str):
            written = from_text(written)
        if not isinstance(written, dict) or not isinstance(written.get("type"), str):
            self.source.leave_out(path, "not an assertion")
            return []
        if written["type"] == "assert-set":
            return self._set(written, variables, options, path)
        known = "type value threshold weight metric provider config transform description"
        self.source.leave_out_rest(written, known.split(), path, {})
        if written.get("weight") == 0:
            self.source.leave_out(path, "weight 0: paraval has no grader that never decides")
            return []
        kind = written["type"]
        asked = {"transform": options.get("transform"), "provider": options.get("provider")}
        try:
            assertion = _Assertion(
                kind=kind.removeprefix("not-"),
                written={**{key: value for key, value in asked.items() if value}, **written},
                variables=variables,
                path=path,
            )
            name, made = self._built(assertion)
        except NoEquivalentError as error:
            self.source.leave_out(path, f"{kind}: {error}")
            return []
        if kind.startswith("not-"):
            name, made = "not", {"of": compact({name: made})}
        if metric := written.get("metric"):
            made["name"] = " ".join(str(rendered(metric, variables)).split())[:100]
        elif name in ("not", "any", "python", "command") or kind.startswith("icontains"):
            made["name"] = kind
        if written.get("weight") is not None:
            made["weight"] = written["weight"]
        return [{name: made}]

    def _built(self, assertion: _Assertion) -> _Built:
        builder = GRADERS.get(assertion.kind)
        if builder is None:
            near = nearest(assertion.kind, GRADERS, cutoff=0.85)
            typo = f"no such type, did you mean '{near[0]}'?" if near else "has no equivalent"
            raise NoEquivalentError(_NO_EQUIVALENT.get(assertion.kind, typo))
        transform = assertion.written.get("transform")
        if assertion.kind != "javascript" and not is_harmless(transform):
            raise NoEquivalentError("its transform has no equivalent, so the assertion is left out")
        assertion.value = self._value(assertion)
        if "config" in assertion.written and assertion.kind not in ("python", "javascript"):
            self.source.leave_out(f"{assertion.path}.config", "has no equivalent")
        return builder(self, assertion)

    def _value(self, assertion: _Assertion) -> Any:
        value = assertion.written.get("value")
        if isinstance(value, str) and value.startswith(FILE):
            if assertion.kind in ("python", "javascript"):
                return value
            if re.search(r"\.(py|[cm]?[jt]s)(:\w+)?$", value):
                raise NoEquivalentError(f"{value}: a script as the value has no equivalent")
            value = self.source.value(value, assertion.path)
        return rendered(value, assertion.variables)

    def _set(
        self,
        written: Mapping[str, Any],
        variables: Mapping[str, Any],
        options: Mapping[str, Any],
        path: str,
    ) -> list[Options]:
        known = ("type", "assert", "threshold")
        self.source.leave_out_rest(written, known, path, {})
        inner = self.graders(written.get("assert"), variables, options, f"{path}.assert")
        threshold = written.get("threshold")
        if threshold is None or not inner or threshold > 1 - 1e-9:
            return inner
        if threshold * len(inner) <= 1:
            return [{"any": {"of": [compact(one) for one in inner]}}]
        self.source.leave_out(f"{path}.threshold", "all or any of a set: all must pass")
        return inner

    def python_check(self, body: str, assertion: _Assertion) -> _Built:
        """Make a grader of the body of a Python function of `output` and `context`."""
        given = {key: assertion.written.get(key) for key in ("threshold", "config")}
        settings = "".join(
            f", {key}={value!r}" for key, value in given.items() if value is not None
        )
        inner = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
        code = (
            f"    def check(output, context):\n{inner}\n\n"
            f"    return _grade(check, output, case, variant{settings})\n"
        )
        name = self.python.setdefault(code, f"check_{len(self.python) + 1}")
        return "python", {"function": f"assertions:{name}"}

    def not_imported(self) -> Options:
        """Make the grader of a case that lost all of its assertions: it must not pass."""
        code = '    raise NotImplementedError("its assertions were not imported: write graders")\n'
        name = self.python.setdefault(code, "not_imported")
        return {"python": {"function": f"assertions:{name}"}}

    def script(self, name: str, path: str) -> str:
        """Return the path of a script from the suite's folder; a missing one is a problem."""
        file = self.source.folder / name
        if not file.is_file():
            self.source.report(path, f"no such file: {file}")
        return os.path.relpath(file, self.to)

    def finish(self, origin: str) -> None:
        """Write the files of functions, if there are any."""
        if self.python:
            functions = [
                f"def {name}(output, case, variant):\n{code}" for code, name in self.python.items()
            ]
            self.source.files[PYTHON_FILE] = "\n\n".join(
                [_PYTHON_HEAD.replace("ORIGIN", origin), *functions]
            )
        if self.scripts:
            checks = ",\n".join(f"  {name}: {code}" for code, name in self.scripts.items())
            self.source.files[SCRIPT_FILE] = _SCRIPT.replace("ORIGIN", origin).replace(
                "CHECKS", checks
            )


@dataclass(slots=True, kw_only=True)
class _Assertion:
    kind: str
    """Without `not-`."""
    written: Mapping[str, Any]
    variables: Mapping[str, Any]
    path: str
    value: Any = None
    """With the contents of its file, and filled in."""

    @property
    def threshold(self) -> Any:
        return self.written.get("threshold")

    def text(self) -> str:
        if not isinstance(self.value, str | int | float) or self.value == "":
            raise NoEquivalentError("its value is not text")
        return str(self.value)

    def texts(self) -> list[str]:
        if isinstance(self.value, str):
            pieces = re.findall(r'"((?:[^"\\]|\\.|"")*)"|([^,]+)', self.value)
            return [quoted or bare.strip() for quoted, bare in pieces if (quoted or bare).strip()]
        if not isinstance(self.value, list) or not self.value:
            raise NoEquivalentError("its value is not a list of texts")
        return [str(one) for one in self.value]


# Each builder returns a grader's kind and options.


def _contains(*, every: bool | None = None, ignore_case: bool = False) -> _Builder:
    def build(_all: Assertions, assertion: _Assertion) -> _Built:
        extra: Options = {"ignore_case": True} if ignore_case else {}
        if every is None:
            return "contains", {**_text(assertion.text()), **extra}
        if every:
            return "contains", {"value": [*map(escaped, assertion.texts())], **extra}
        parts = [compact({"contains": {**_text(text), **extra}}) for text in assertion.texts()]
        return "any", {"of": parts}

    return build


def _text(text: str) -> Options:
    is_trimmed = text == text.strip()
    return {"value": escaped(text)} if is_trimmed else {"value": escaped(text), "strict": True}


def _equals(_all: Assertions, assertion: _Assertion) -> _Built:
    if isinstance(assertion.value, dict | list):
        return "json", {"value": _escaped(assertion.value), "strict": True}
    return "equals", {"value": escaped(str(assertion.value)), "strict": True}


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return escaped(value)
        case list():
            return [_escaped(one) for one in value]
        case dict():
            return {key: _escaped(one) for key, one in value.items()}
    return value


def _starts_with(_all: Assertions, assertion: _Assertion) -> _Built:
    return "starts_with", {"value": escaped(assertion.text()), "strict": True}


def _regex(_all: Assertions, assertion: _Assertion) -> _Built:
    pattern = re.sub(r"\(\?<(?![=!])", "(?P<", assertion.text())
    try:
        re.compile(pattern)
    except re.error as error:
        raise NoEquivalentError(f"not a regular expression in Python: {error}") from None
    return "regex", {"pattern": pattern}


def _is_json(made: Assertions, assertion: _Assertion) -> _Built:
    schema = _schema(made, assertion)
    return "json", {"strict": True, **({"schema": schema} if schema else {})}


def _contains_json(made: Assertions, assertion: _Assertion) -> _Built:
    schema = _schema(made, assertion)
    if schema:
        why = "JSON counts as the whole answer or as its only fenced block"
        made.source.leave_out(assertion.path, f"contains-json: {why}")
        return "json", {"schema": schema}
    return made.python_check(_CONTAINS_JSON, assertion)


def _schema(made: Assertions, assertion: _Assertion) -> Any:
    value = assertion.value
    return made.source.parse(value, Path("schema.yaml")) if isinstance(value, str) else value


def _similar(made: Assertions, assertion: _Assertion) -> _Built:
    if assertion.kind not in ("similar", "similar:cosine"):
        raise NoEquivalentError("similarity is the cosine of the embeddings")
    model = made.embedder(assertion.written.get("provider"), f"{assertion.path}.provider")
    options = {"model": model, "pass_at": assertion.threshold or 0.75}
    if isinstance(assertion.value, list):
        each = [{"similarity": {"value": escaped(str(one)), **options}} for one in assertion.value]
        return "any", {"of": each}
    return "similarity", {"value": escaped(assertion.text()), **options}


def _latency(_all: Assertions, assertion: _Assertion) -> _Built:
    if assertion.threshold is None:
        raise NoEquivalentError("has no threshold")
    return "latency", {"max": f"{assertion.threshold}ms"}


def _cost(_all: Assertions, assertion: _Assertion) -> _Built:
    if assertion.threshold is None:
        raise NoEquivalentError("has no threshold")
    return "cost", {"max_usd": assertion.threshold}


def _judge(**fixed: str) -> _Builder:
    def build(made: Assertions, assertion: _Assertion) -> _Built:
        options: Options = {
            "model": made.judge(assertion.written.get("provider"), f"{assertion.path}.provider"),
            **fixed,
        }
        if not fixed:
            value = assertion.value
            lines = [str(one) for one in value] if isinstance(value, list) else [as_rubric(value)]
            options["rubric"] = escaped("\n".join(lines))
            options["reference"] = False
        if assertion.threshold is not None:
            options["pass_at"] = assertion.threshold
        return "judge", options

    return build


def as_rubric(value: Any) -> str:
    """Return a rubric's text; promptfoo also has rubrics of messages."""
    if isinstance(value, str | int | float) and str(value).strip():
        return str(value).strip()
    raise NoEquivalentError("its rubric is not text")


def _factuality(made: Assertions, assertion: _Assertion) -> _Built:
    text = assertion.text()
    if made.reference not in (None, text):
        assertion.value = f"The answer agrees with this, and does not contradict it: {text}"
        return _judge()(made, assertion)
    made.reference = text
    return _judge(preset="factuality")(made, assertion)


def _faithfulness(made: Assertions, assertion: _Assertion) -> _Built:
    if "context" not in assertion.variables:
        raise NoEquivalentError("needs a variable `context`")
    return _judge(preset="faithfulness")(made, assertion)


def _word_count(made: Assertions, assertion: _Assertion) -> _Built:
    value = assertion.value
    if isinstance(value, dict):
        test = f"{value.get('min', 0)} <= words"
        test += f" <= {value['max']}" if "max" in value else ""
    else:
        test = f"words == {assertion.text()}"
    return made.python_check(f"words = len(output.split())\nreturn {test}", assertion)


def _levenshtein(made: Assertions, assertion: _Assertion) -> _Built:
    limit = 5 if assertion.threshold is None else assertion.threshold
    body = _LEVENSHTEIN.replace("VALUE", repr(assertion.text())).replace("LIMIT", str(limit))
    assertion.written = {**assertion.written, "threshold": None}
    return made.python_check(body, assertion)


def _python(made: Assertions, assertion: _Assertion) -> _Built:
    code = assertion.value
    if not isinstance(code, str):
        raise NoEquivalentError("its value is not code")
    script = re.fullmatch(r"(?:file://)?(\S+\.py)(?::(\w+))?", code)
    if script:
        file = made.script(script[1], assertion.path)
        name = script[2] or "get_assert"
        body = f"return _load({file!r}, {name!r})(output, context)"
    else:
        body = code if "\n" in code.strip() else f"return {code.strip()}"
    return made.python_check(body, assertion)


def _javascript(made: Assertions, assertion: _Assertion) -> _Built:
    code = assertion.value
    if not isinstance(code, str) or not code.strip():
        raise NoEquivalentError("its value is not code")
    if code.startswith(FILE):
        script = re.fullmatch(r"file://(\S+\.[cm]?js)(?::(\w+))?", code)
        if script is None:
            raise NoEquivalentError(f"{code}: only .js, .cjs and .mjs files")
        file = made.script(script[1], assertion.path)
        body = f"return (await load({json.dumps(file)}, {json.dumps(script[2])}))(output, context);"
    else:
        body = _function_body(code.strip())
    transform = str(assertion.written.get("transform") or "")
    if transform.startswith(FILE):
        raise NoEquivalentError(f"{transform}: the transform has no equivalent")
    if transform:
        body = f"output = await (async () => {{ {_function_body(transform)} }})();\n{body}"
    settings = {
        key: assertion.written[key]
        for key in ("threshold", "config")
        if assertion.written.get(key) is not None
    }
    inner = textwrap.indent(body, " " * 4)
    code = f"[{json.dumps(settings)}, async (output, context) => {{\n{inner}\n  }}]"
    name = made.scripts.setdefault(code, f"check_{len(made.scripts) + 1}")
    made.source.notes["The javascript assertions need node on the PATH."] = None
    return "command", {"command": ["node", SCRIPT_FILE, name]}


def is_harmless(transform: Any) -> bool:
    """Whether a transform of the answer changes nothing for graders."""
    return not transform or str(transform).strip() == "JSON.parse(output)"


def decides(assertion: Any) -> bool:
    """Whether an answer can fail an assertion."""
    return not isinstance(assertion, dict) or assertion.get("weight") != 0


def _function_body(code: str) -> str:
    """One line is an expression, after declarations; several are the body of a function."""
    if "\n" in code:
        return code
    code = code.rstrip("; ")
    before, semicolon, last = code.rpartition(";")
    if re.match(r"(const|let|var)\s", code) and semicolon:
        return f"{before}; return {last.strip()};"
    return f"return {code};"


_Builder = Callable[[Assertions, _Assertion], _Built]
GRADERS: dict[str, _Builder] = {
    "equals": _equals,
    "contains": _contains(),
    "icontains": _contains(ignore_case=True),
    "contains-all": _contains(every=True),
    "icontains-all": _contains(every=True, ignore_case=True),
    "contains-any": _contains(every=False),
    "icontains-any": _contains(every=False, ignore_case=True),
    "starts-with": _starts_with,
    "regex": _regex,
    "is-json": _is_json,
    "contains-json": _contains_json,
    "word-count": _word_count,
    "levenshtein": _levenshtein,
    "similar": _similar,
    "similar:cosine": _similar,
    "latency": _latency,
    "cost": _cost,
    "python": _python,
    "javascript": _javascript,
    "llm-rubric": _judge(),
    "model-graded-closedqa": _judge(),
    "g-eval": _judge(),
    "factuality": _factuality,
    "model-graded-factuality": _factuality,
    "answer-relevance": _judge(preset="relevance"),
    "context-faithfulness": _faithfulness,
}
_NO_EQUIVALENT = {
    "select-best": "run `paraval pairwise last`",
    "max-score": "`paraval compare` shows which variant is better",
    "search-rubric": "a judge cannot search the web",
    "moderation": "use a Python function",
    "is-xml": "use a Python function",
    "is-refusal": "use llm-rubric or a regular expression",
}
_MAIN = {"contains": "value", "regex": "pattern", "any": "of", "not": "of", "python": "function"}


def compact(grader: Options) -> Options:
    """Return a grader as a person would write it."""
    ((kind, options),) = grader.items()
    main = _MAIN.get(kind, "command")
    return {kind: options[main]} if set(options) == {main} else grader


_PREFIXES = {"javascript": "javascript", "fn": "javascript", "eval": "javascript"}
_PREFIXES |= {"python": "python", "grade": "llm-rubric", "llm-rubric": "llm-rubric"}
_EXPECTED = re.compile(r"((?:not-)?[a-z-]+(?::[a-z]+)?)(?:\(([\d.]+)\))?(?::(.*))?", re.DOTALL)


def from_text(text: str) -> dict[str, Any]:
    """Read an assertion in a cell of a table: `contains: Paris`, `similar(0.8): Paris`, text."""
    text = text.strip()
    prefix, colon, rest = text.partition(":")
    if colon and prefix in _PREFIXES:
        return {"type": _PREFIXES[prefix], "value": rest.strip()}
    if script := re.fullmatch(r"file://\S+\.(py|[cm]?[jt]s)(:\w+)?", text):
        return {"type": "python" if script[1] == "py" else "javascript", "value": text}
    found = _EXPECTED.fullmatch(text)
    base = found[1].removeprefix("not-") if found else ""
    if found is None or (base not in GRADERS and base not in _NO_EQUIVALENT):
        return {"type": "equals", "value": text}
    assertion: dict[str, Any] = {"type": found[1]}
    if found[3] is not None:
        assertion["value"] = found[3].strip()
    if found[2]:
        assertion["threshold"] = float(found[2])
    return assertion


_CONTAINS_JSON = """\
for start in (at for at, sign in enumerate(output) if sign in "{["):
    try:
        json.JSONDecoder().raw_decode(output, start)
        return True
    except ValueError:
        continue
return False
"""
_LEVENSHTEIN = """\
expected = VALUE
row = list(range(len(expected) + 1))
for at, sign in enumerate(output, start=1):
    before, row[0] = row[0], at
    for index, other in enumerate(expected, start=1):
        before, row[index] = row[index], min(
            row[index] + 1, row[index - 1] + 1, before + (sign != other)
        )
return row[-1] <= LIMIT
"""
_PYTHON_HEAD = '''\
"""The assertions of ORIGIN that need Python, as graders."""

import importlib.util
import json  # noqa: F401 - promptfoo imports it for assertions
import sys
from pathlib import Path


class CannotGrade(Exception):
    """A mistake of the assertion, not of the answer."""


class Context(dict):
    def __missing__(self, key):
        raise CannotGrade(f"context[{key!r}] of promptfoo is not known here")

    def get(self, key, default=None):
        return self[key] if key == "prompt" else super().get(key, default)


def _load(file, name):
    path = Path(__file__).parent / file
    try:
        sys.path.insert(0, str(path.parent.resolve()))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)
    except Exception as error:
        raise CannotGrade(f"{path}: {type(error).__name__}: {error}") from error


def _grade(check, output, case, variant, threshold=None, config=None):
    variables = dict(case.input) if isinstance(case.input, dict) else {}
    test = Context(description=case.id, vars=variables, metadata=dict(case.metadata))
    context = Context(vars=variables, config=config or {}, test=test)
    context["provider"] = variant.get("provider", variant.get("model"))
    context["providerResponse"] = {"output": output.text}
    try:
        found = check(output.text, context)
    except CannotGrade:
        raise
    except Exception as error:  # As in promptfoo, the answer then fails.
        return {"passed": False, "score": 0, "reason": f"{type(error).__name__}: {error}"}
    if isinstance(found, bool):
        return found
    if isinstance(found, dict):
        passed = found.get("pass", found.get("pass_", False))
        score, reason = found.get("score", float(passed)), found.get("reason", "")
    else:
        score, reason = float(found), ""
        passed = score > 0
    if threshold is not None:
        passed = (passed if isinstance(found, dict) else True) and score >= threshold
    return {"passed": bool(passed), "score": min(1, max(0, score)), "reason": reason or ""}
'''
_SCRIPT = """\
// The javascript assertions of ORIGIN: node assertions.mjs NAME, with the trial on stdin.
import fs from "node:fs";

const checks = {
CHECKS,
};

// A mistake of the assertion, not of the answer.
function cannotGrade(message) {
  console.log(message);
  process.exit(2);
}

async function load(file, name) {
  const module = await import(new URL(file, import.meta.url)).catch(cannotGrade);
  const found = module.default ?? module;
  const check = name ? (module[name] ?? found[name]) : found;
  return typeof check === "function" ? check : cannotGrade(`${file} has no function ${name ?? ""}`);
}

function known(values) {
  const get = (all, key) =>
    key in all || typeof key !== "string" || key === "toJSON"
      ? all[key]
      : cannotGrade(`context.${key} of promptfoo is not known here`);
  return new Proxy(values, { get });
}

const trial = JSON.parse(fs.readFileSync(0, "utf8"));
const [settings, check] = checks[process.argv[2]];
const vars = trial.case.input ?? {};
const test = known({ description: trial.case.id, vars, metadata: trial.case.metadata });
const provider = trial.variant.provider ?? trial.variant.model;
const providerResponse = { output: trial.output.text };
const config = settings.config ?? {};
const context = known({ vars, config, test, provider, providerResponse });
let found;
try {
  found = await check(trial.output.text, context);
} catch (error) {
  // As in promptfoo, the answer then fails.
  found = { pass: false, score: 0, reason: String(error) };
}
if (typeof found === "number") {
  const enough = settings.threshold;
  found = { pass: enough === undefined ? found > 0 : found >= enough, score: found };
} else if (typeof found !== "object" || found === null) {
  found = { pass: Boolean(found), reason: found ? "" : check.toString().slice(0, 200) };
}
const score = Math.min(1, Math.max(0, found.score ?? (found.pass ? 1 : 0)));
console.log(JSON.stringify({ score, reason: String(found.reason ?? "").replace(/\\s+/g, " ") }));
process.exitCode = found.pass ? 0 : 1;
"""
