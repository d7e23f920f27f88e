"""Writes docs/suite.md from the models that suites are checked with: `python docs/generate.py`."""  # noqa: INP001 - a script, not a package

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from paraval.environment import PASSED_ALWAYS
from paraval.plan import model
from paraval.records import RetryPolicy
from paraval.schedule.scheduler import LONGEST_REFUSAL_S
from paraval.targets.command import TRY_AGAIN_EXIT_CODE

INTRODUCTION = """\
# The suite file

<!-- Written by docs/generate.py; change the models or that script, then run `make docs`. -->

A suite says what is evaluated (the target), on which inputs (the cases), in which variants (the
matrix), and how the answers are judged (the graders). It is a file in YAML, JSON or TOML. It is
checked as a whole before anything runs: every problem is told at once, with its file, line and key.
`paraval schema` prints a JSON Schema, for editors.

```yaml
name: greetings
cases:
  - id: hello
    input: Say hello.
    expect: hello
    tags: [smoke]
  - id: goodbye
    input: Say goodbye.
    expect: goodbye
matrix:
  model: [small, large]
  mode:
    with-tool: {env: {TOOL: "1"}}   # laid over the target for this value
    without-tool: {}
exclude:
  - {model: large, mode: with-tool}
repeats: 3
target:
  command: ["{python}", agent.py, --model, "{model}", "{input}"]
  env: {GREETING: hi}
  pass_env: [API_KEY]
  timeout: 60
graders: [contains]
limits:
  parallel: 4
  mode: {with-tool: 2}              # at most two trials of this value at once
retry: {attempts: 3}
fail_under: 0.9
```

Two cases, three variants and three repeats make 18 trials. They are planned, and reported, in this
order: by case, then by variant (the first axis changes slowest), then by repeat.

The same with a Python function, cases in a file, and weighted graders:

```yaml
cases: questions/*.jsonl
target: {python: "answers:answer", isolate: process, timeout: 10}
graders:
  - number: {tolerance: 0.01, weight: 2}
  - regex: {pattern: '\\d+ (kg|g)', name: has a unit, weight: 1}
pass_at: 0.6
```

YAML is read by its version 1.2: `no`, `on` and `12:30:00` are texts. Anchors, aliases, tags and
keys that are there twice are refused. A key whose value is `null` is as good as left out.
"""

TEMPLATES = """\
## Templates

The arguments of a command, the values of `env`, `stdin` and the path in `output` are templates:

| field | what is filled in |
| --- | --- |
| `{input}` | the case's input; a mapping as JSON |
| `{input.key}` | a part of it: keys of mappings and positions in lists, joined by dots |
| `{case.id}` | the case's id |
| `{repeat}` | the number of the repeat, from 1 |
| `{folder}` | the attempt's own scratch folder |
| `{python}` | the Python that paraval runs with |
| `{model}` | the variant's value of the axis of this name |

`{{` and `}}` are plain braces. A field that any trial would not have is told when the suite is
loaded. With `shell: true` each value is quoted, so that it stays one word, whatever it holds.
"""

CASES = """\
Files of cases are `.yaml`, `.yml` and `.json` (a list of cases), `.jsonl` (one case a line; empty
lines and lines that start with `//` are skipped) and `.csv` (the first line names the columns:
`id`, `input` or `input.<key>`, `expect`, `tags` separated by `;`; any other column goes to
`metadata`, but a near miss such as `Input` or `expected` is refused). An empty cell is no id and no
`expect`; an empty `input` is an empty text. Ids name files and folders, so they are 1 to 64
letters, digits, `.`, `_` and `-`, and unique over all files.
"""

MATRIX = """\
## Matrix

Each axis has a list of values, or a mapping of values to keys of the target, which are laid over
the target for that value: `env` is merged, any other key replaces the target's own. An axis is
named with letters, digits, `_` and `-`; `input`, `case`, `repeat`, `folder`, `python` and
`parallel` are taken. `exclude` lists mappings of axes to values; a variant that fits all values of
one of them is left out. Numbers are the same however they are written: `--variant size=1` chooses
`1.0`.
"""

COMMANDS = f"""\
A command's environment is made from nothing. It holds, in this order, later ones winning:

- of paraval's own, where they are set:
  {", ".join(f"`{name}`" for name in sorted(PASSED_ALWAYS))},
  every `LC_*`, and what `pass_env` names;
- what `env` sets;
- `PARAVAL_RUN` (the run's id), `PARAVAL_CASE` (the case's id), `PARAVAL_ATTEMPT` (the attempt's
  number, from 1) and `PARAVAL_FOLDER` (the path of `{{folder}}`; the folder is made beforehand only
  if a template uses it).

Isolated functions and grader commands get the same; of the last four, `PARAVAL_RUN` alone.

With `output: json` the command prints one JSON object: `text` (required, a string), `usage` (a
mapping of names to numbers), `cost_usd` (a number) and `metadata` (a mapping). Other keys become
metadata. Anything else is `invalid_output`.

Exit code 0 is an answer. {TRY_AGAIN_EXIT_CODE} asks to be tried again: an `infra_error`. Any other
code, and an end by a signal, is `crashed`. With an `exit_code` grader every code is an answer.
"""

FUNCTIONS = """\
It may be `async`. `case` is a `paraval.Case` with `id`, `input` (`None` if there is none),
`expect`, `tags` and `metadata`; `variant` is a dict of axes to values. It returns

- text;
- a mapping with `text`, and if it likes `usage`, `cost_usd` and `metadata`, as above;
- any other mapping: the answer is its JSON;
- a `paraval.Output(text=, usage=, cost_usd=, metadata=)`.

Anything else is `invalid_output`. It may raise `paraval.RateLimitedError(retry_after=seconds)` when
a service refuses (`retry_after` where it is known), and `paraval.TransientError("why")` when a
service fails: an `infra_error`. Any other exception is `crashed`.
"""

FUNCTION_GRADERS = """\
It may be `async`. `output` is a `paraval.Output`: the answer is `output.text`, beside `usage`,
`cost_usd` and `metadata`. It returns

- `True` or `False`;
- a score from 0 to 1, which passes from `pass_at` on;
- `(score, reason)`;
- a mapping with `score`, `passed` or both, and if it likes `reason`;
- a `paraval.Grade(score=, passed=, reason=)`, where `passed` decides.

Anything else, and an exception, is a `grader_error`.
"""

RETRY = f"""\
A refusal by a rate limit is tried again after `retry_after`, or the usual wait if that is longer.
It does not count as an attempt, but a trial is given up as `rate_limited` after
{RetryPolicy().refusals} refusals, or when it is told to wait more than {LONGEST_REFUSAL_S:g} s.
"""

LIMITS = """\
Beside `parallel`, every axis may stand here, with a mapping of its values to how many attempts of
that value run at once: `mode: {with-tool: 2}`.
"""

GRADERS = """\
## Graders

A grader is written as its kind alone (`contains`: it then compares with the case's `expect`, which
every case must have), as a kind with its main value (`{contains: hello}`), or as a kind with
options (`{contains: {value: hello, ignore_case: true}}`). All graders must pass, unless they have
weights. A grader that breaks is a `grader_error`, never a wrong answer. Texts are compared with
their ends trimmed.
"""


def suite_page() -> str:
    """The whole page."""
    parts = [
        INTRODUCTION,
        _section("## All keys", model.SuiteForm),
        _section("## Cases", model.CaseForm, CASES),
        MATRIX,
        "## Target\n\nExactly one of `command` and `python`.\n",
        _section("### A command", model.CommandTargetForm),
        COMMANDS,
        _section("### A Python function", model.FunctionTargetForm),
        FUNCTIONS,
        TEMPLATES,
        GRADERS,
        _table(model.GraderForm, ()),
        *(
            _section(f"### `{kind}`", form, FUNCTION_GRADERS if kind == "python" else "")
            for kind, form in model.GRADER_FORMS.items()
        ),
        _section("## Limits", model.LimitsForm, LIMITS),
        _section("## Retry", model.RetryForm),
        RETRY,
    ]
    return "\n".join(parts)


def _section(title: str, form: type[model.Form], text: str = "") -> str:
    about = " ".join((form.__doc__ or "").split())
    known = tuple(model.GraderForm.model_fields) if issubclass(form, model.GraderForm) else ()
    opening = [title, "", about, ""]
    return "\n".join([*opening, *([text] if text else []), _table(form, known)])


def _table(form: type[model.Form], known: tuple[str, ...]) -> str:
    """The keys of a form, its own before those that it has in common with others."""
    own = list(form.__annotations__)
    names = [*own, *(name for name in form.model_fields if name not in own)]
    fields = [(name, form.model_fields[name]) for name in names if name in form.model_fields]
    lines = ["| key | must be | default | what it is for |", "| --- | --- | --- | --- |"]
    lines += [_row(field.alias or name, field) for name, field in fields if name not in known]
    return "\n".join(lines) + "\n"


def _row(key: str, field: FieldInfo) -> str:
    must_be = _words(field.metadata) or _words_inside(field.annotation) or "anything"
    return f"| `{key}` | {must_be} | {_default(field)} | {field.description} |"


def _words(metadata: Any) -> str | None:
    texts = [item.text for item in metadata if isinstance(item, model.Words | model.Told)]
    return texts[-1] if texts else None


def _words_inside(annotation: Any) -> str | None:
    for inner in get_args(annotation):
        found = _words(getattr(inner, "__metadata__", ())) or _words_inside(inner)
        if found:
            return found
    return None


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    match field.default:
        case None | "" | [] | {}:
            return ""
        case bool():
            return f"`{str(field.default).lower()}`"
        case list():
            return f"`[{', '.join(map(str, field.default))}]`"
        case float():
            return f"`{field.default:g}`"
    return f"`{field.default}`"


if __name__ == "__main__":
    Path(__file__).with_name("suite.md").write_text(suite_page(), encoding="utf-8")
