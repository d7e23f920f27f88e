"""Prompts: what they take from a case, from files and from the environment, and which mistakes are
found before anything is spent.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import SuiteError
from paraval.grade.grader import Subject
from paraval.grade.judge import judge_request
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.records import ChatTarget, Output, Plan, Trial
from paraval.settings import Selection
from paraval.templates.jinja import JinjaError, render
from tests.conftest import Paraval, WriteSuite

CASES = """\
models: {m: {provider: loopback}}
cases:
  - {id: a, input: x, expect: x, metadata: {region: north, deep: {list: [p, q]}}}
  - {id: b, input: y, expect: y, metadata: {region: south, deep: {list: [r, s]}}}
"""


def write_suite(write: WriteSuite, lines: str, cases: str = CASES) -> Path:
    return write("suite.yaml", cases + textwrap.dedent(lines).lstrip())


def problems(write: WriteSuite, lines: str, cases: str = CASES) -> list[str]:
    write_suite(write, lines, cases)
    with pytest.raises(SuiteError) as refused:
        Suite.load("suite.yaml")
    return [str(problem) for problem in refused.value.problems]


def plan_of(write: WriteSuite, lines: str, cases: str = CASES) -> Plan:
    return build_plan(Suite.load(write_suite(write, lines, cases)), Selection())


def answers(paraval: Paraval, folder: Path) -> dict[tuple[str, ...], str]:
    """Run the suite; a simulated model repeats its prompt, a command prints what it gets. By the
    case and the variant's values."""
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode in (0, 1), ended.stderr
    trials: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())["trials"]
    return {
        (trial["case"], *map(str, trial["variant"].values())): trial["output"] for trial in trials
    }


# ---- the case's metadata


def test_metadata_is_usable_in_prompts_commands_and_environments(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write_suite(
        write,
        """
        target: {chat: {model: m, system: "{metadata.deep.list.1}", prompt: "{metadata.region}"}}
        graders: [{command: {command: [test, "{metadata.region}", "!=", ""]}}]
        """,
    )
    assert answers(paraval, folder) == {("a",): "north", ("b",): "south"}
    write_suite(
        write,
        """
        target:
          command: 'printf "%s %s" "$metadata_region" "$LIST"'
          shell: true
          env: {LIST: "{metadata.deep.list}"}
        graders: [contains]
        """,
    )
    assert answers(paraval, folder) == {("a",): 'north ["p","q"]', ("b",): 'south ["r","s"]'}


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ("{metadata.regoin}", "no such key, did you mean {metadata.region}?"),
        ("{metadata.deep.x}", "no such key, did you mean {metadata.deep}?"),
        ("{region}", "unknown field {region}, did you mean {metadata.region}?"),
        ("{input} {{region}}", "not filled in; did you mean {metadata.region}?"),
        ("{{ metadata.region }}", "not filled in; did you mean {metadata.region}?"),
    ],
)
def test_metadata_that_is_not_there_is_an_error_with_the_right_form(
    write: WriteSuite, prompt: str, problem: str
) -> None:
    (told,) = problems(write, f'target: {{chat: {{model: m, prompt: "{prompt}"}}}}')
    assert told.startswith("suite.yaml:5: target.chat.prompt: ")
    assert told.endswith(problem)


def test_a_case_without_the_metadata_that_a_prompt_uses_is_named(write: WriteSuite) -> None:
    cases = CASES + "  - {id: c, input: z}\n  - {id: d, input: z}\n"
    (told,) = problems(write, 'target: {chat: {model: m, prompt: "{metadata.region}"}}', cases)
    assert told.endswith("{metadata.region} for case 'c' (and 1 more): it has no metadata")


def test_a_key_of_an_input_in_double_braces_is_an_error_with_the_right_form(
    write: WriteSuite,
) -> None:
    cases = "models: {m: {provider: loopback}}\ncases: [{input: {question: why}}]\n"
    (told,) = problems(write, 'target: {chat: {model: m, prompt: "{{question}}"}}', cases)
    assert told == (
        "suite.yaml:3: target.chat.prompt: {{question}} is literal text and is not filled in;"
        " did you mean {input.question}?"
    )


def test_a_prompt_without_the_case_is_an_error_that_names_its_metadata(write: WriteSuite) -> None:
    cases = """\
models: {m: {provider: loopback}}
cases: [{id: a, metadata: {region: x}}, {id: b, metadata: {region: y}}]
"""
    (told,) = problems(write, "target: {chat: {model: m, prompt: Hello.}}", cases)
    assert told.endswith("all 2 cases would send the same text; did you mean {metadata.region}?")


def test_an_agents_cases_may_differ_only_in_what_is_looked_for_in_its_workspace(
    write: WriteSuite,
) -> None:
    lines = """
        target: {agent: custom, command: ["true"], prompt: Fix the bugs.}
        workspace: {folder: true}
        graders: [{command: {command: [test, -e, "{case.id}"]}}]
    """
    assert len(plan_of(write, lines, "cases: [{id: a}, {id: b}]\n").trials) == 2
    (told,) = problems(write, lines, "cases: [{id: a, input: x}, {id: b, input: y}]\n")
    assert "the prompt uses nothing of the case: all 2 cases" in told


def test_the_name_of_the_column_that_became_the_input_is_explained(write: WriteSuite) -> None:
    write("qa.csv", "question,answer\nwhy,because\nhow,so\n")
    cases = "models: {m: {provider: loopback}}\ncases: qa.csv\n"
    for prompt in ("{question}", "{{question}}"):
        (told,) = problems(write, f'target: {{chat: {{model: m, prompt: "{prompt}"}}}}', cases)
        assert told.endswith("did you mean {input}?")


# ---- axes of files


@pytest.fixture
def prompts(folder: Path) -> Path:
    made = folder / "prompts"
    made.mkdir()
    (made / "short.md").write_text("---\ntitle: for people\n---\nShort: {input}\n")
    (made / "long.md").write_text("Long, {metadata.region}: {input}\n")
    (made / "scores.csv").write_text("not,a,prompt\n")
    return made


@pytest.mark.usefixtures("prompts")
@pytest.mark.parametrize(
    ("axis", "names"),
    [
        ("prompts/*.md", ["long", "short"]),
        ("prompts/*", ["long", "short"]),
        ("[prompts/sh*.md, prompts/*]", ["short", "long"]),
        ("[prompts/short.md, prompts/long.md]", ["short", "long"]),
        ("{s: prompts/short.md, l: prompts/long.md}", ["s", "l"]),
    ],
)
def test_files_as_an_axis_are_sent_as_text_and_reported_by_name(
    write: WriteSuite, paraval: Paraval, folder: Path, axis: str, names: list[str]
) -> None:
    write_suite(
        write,
        f"""
        matrix: {{prompt: {axis}}}
        target: {{chat: {{model: m, prompt: "{{prompt}}"}}}}
        graders: [contains]
        """,
    )
    short, long = [name for letter in "sl" for name in names if name.startswith(letter)]
    assert answers(paraval, folder) == {
        ("a", short): "Short: x",
        ("a", long): "Long, north: x",
        ("b", short): "Short: y",
        ("b", long): "Long, south: y",
    }
    ended = paraval("plan", "suite.yaml")
    assert f"a · {names[0]}" in ended.stdout


@pytest.mark.usefixtures("prompts")
def test_a_file_of_an_axis_may_be_a_part_of_a_prompt_or_the_system_prompt(
    write: WriteSuite,
) -> None:
    plan = plan_of(
        write,
        """
        matrix: {style: [prompts/short.md, prompts/long.md]}
        target: {chat: {model: m, system: "You are {style}.", prompt: "<{style}> {{}} {input}"}}
        graders: [contains]
        """,
    )
    assert [messages_of(trial) for trial in plan.trials[:2]] == [
        ["You are Short: {input}.", "<Short: {input}> {{}} {input}"],
        [
            "You are Long, {metadata.region}: {input}.",
            "<Long, {metadata.region}: {input}> {{}} {input}",
        ],
    ]


def test_a_file_of_an_axis_may_name_another_axis_of_files(write: WriteSuite, prompts: Path) -> None:
    (prompts / "frame.txt").write_text("<{style}>")
    plan = plan_of(
        write,
        """
        matrix: {frame: prompts/*.txt, style: [prompts/short.md]}
        target: {chat: {model: m, prompt: "{frame}"}}
        graders: [contains]
        """,
    )
    assert messages_of(plan.trials[0]) == ["<Short: {input}>"]


def messages_of(trial: Trial) -> list[str]:
    assert isinstance(trial.target, ChatTarget)
    return [message.content for message in trial.target.messages]


CHAT_WITH_FILES = """
    matrix: {prompt: prompts/*.md}
    target: {chat: {model: m, prompt: "{prompt}"}}
    graders: [contains]
"""


def test_a_changed_text_makes_other_trials_and_leaves_those_of_other_files(
    write: WriteSuite, prompts: Path
) -> None:
    before = [trial.key for trial in plan_of(write, CHAT_WITH_FILES).trials]
    (prompts / "long.md").write_text("Very long, {metadata.region}: {input}\n")
    after = [trial.key for trial in plan_of(write, CHAT_WITH_FILES).trials]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True] * 2


def test_files_of_the_same_name_in_two_folders_are_reported_by_their_paths(
    write: WriteSuite, prompts: Path
) -> None:
    (prompts / "v2").mkdir()
    (prompts / "v2" / "short.md").write_text("{input}")
    (prompts / "v2" / "a space.md").write_text("{input}")
    plan = plan_of(write, CHAT_WITH_FILES.replace("*.md", "**/*.md"))
    names = ("long", "prompts/short.md", "a space", "prompts/v2/short.md")
    assert plan.axes["prompt"] == names


def test_an_agent_gets_the_text_of_a_file_too(
    write: WriteSuite, paraval: Paraval, folder: Path, prompts: Path
) -> None:
    (prompts / "rules.txt").write_text("Mind {case.id}.")
    write_suite(
        write,
        """
        matrix: {prompt: [prompts/short.md], rules: prompts/*.txt}
        target:
          agent: custom
          command: [sh, -c, 'printf "%s %s %s" "$1" "$2" "$RULES"', sh, "{prompt}", "{rules}"]
          prompt: "{prompt}"
          env: {RULES: "{rules}"}
        graders: [contains]
        """,
    )
    assert answers(paraval, folder) == {
        ("a", "short", "rules"): "Short: x Mind a. Mind a.",
        ("b", "short", "rules"): "Short: y Mind b. Mind b.",
    }


@pytest.mark.usefixtures("prompts")
def test_a_command_gets_the_names_in_a_list_and_the_texts_of_a_glob(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    lines = """
        matrix: {prompt: %s}
        target: {command: [cat], stdin: "{prompt}"}
        graders: [contains]
    """
    write_suite(write, lines % "[prompts/short.md]")
    assert answers(paraval, folder)["a", "prompts/short.md"] == "prompts/short.md"
    write_suite(write, lines % "prompts/s*.md")
    assert answers(paraval, folder)["a", "short"] == "Short: x"


@pytest.mark.usefixtures("prompts")
@pytest.mark.parametrize(
    ("axis", "target", "told"),
    [
        ("[prompts/short.md, prompts/lng.md]", "", "no such file, did you mean 'prompts/long.md'?"),
        ("{s: prompts/shrt.md}", "", "no such file, did you mean 'prompts/short.md'?"),
        ("prompt/*.md", "", "no file matches 'prompt/*.md', did you mean 'prompts/*.md'?"),
        ("[prompts/short.md, prompts/x*]", "", "no file matches 'prompts/x*'"),
        ("prompts/*.csv", "", "no text file (.md, .txt, .prompt or .j2) matches 'prompts/*.csv'"),
        (
            "{all: prompts/*.md}",
            "",
            "a name stands for one file; for all that match, write prompt: prompts/*.md",
        ),
        ("prompts/*.txt", "", "no file matches 'prompts/*.txt'"),
        (
            "[prompts/short.md, Be brief.]",
            "",
            (
                "must be a text file (.md, .txt, .prompt or .j2) like the other values of this"
                " axis, not 'Be brief.'"
            ),
        ),
        (
            "{s: prompts/short.md, l: {timeout: 3}}",
            "",
            (
                "must be a text file (.md, .txt, .prompt or .j2), or for every value a mapping of"
                ' target keys, not the mapping {"timeout": 3}'
            ),
        ),
        (
            "prompts/*.md",
            "{chat: {model: m}}",
            (
                "names text files, but no template in the target uses {prompt}; write"
                ' prompt: "{prompt}" there'
            ),
        ),
        (
            "prompts/*.md",
            "{command: 'echo {prompt}', shell: true}",
            '{prompt} is not filled in by a shell; write "$prompt"',
        ),
    ],
)
def test_a_mistake_in_an_axis_of_files_is_reported_before_anything_is_spent(
    write: WriteSuite, axis: str, target: str, told: str
) -> None:
    target = target or '{chat: {model: m, prompt: "{prompt}"}}'
    (problem,) = problems(write, f"matrix: {{prompt: {axis}}}\ntarget: {target}\n")
    assert problem.startswith("suite.yaml:")
    assert problem.endswith(told)


@pytest.mark.usefixtures("prompts")
def test_an_axis_that_changes_nothing_of_what_is_sent_is_an_error(
    write: WriteSuite, paraval: Paraval
) -> None:
    told = "is not used: nothing in the target names {prompt}"
    for axis in ("[prompts/short.md, prompts/long.md]", "[terse, kind]", "{a: {}, b: null}"):
        write_suite(
            write,
            f"""
            matrix: {{prompt: {axis}}}
            target: {{chat: {{model: m, prompt: "{{input}}"}}}}
            graders: [contains]
            """,
        )
        ended = paraval("run", "suite.yaml")
        assert ended.returncode == 2
        assert f"suite.yaml:5: matrix.prompt: {told}" in ended.stderr
    agent = '{agent: custom, command: [echo, "{prompt}"], prompt: "{input}"}'
    (problem,) = problems(write, f"matrix: {{tone: [terse, kind]}}\ntarget: {agent}\n")
    assert "matrix.tone: is not used: nothing in the target names {tone}" in problem
    # The graders may be what differs.
    write_suite(
        write,
        """
        matrix: {prompt: [strict, kind]}
        target: {chat: {model: m}}
        graders: [{command: {command: [grep, -q, variant]}}]
        """,
    )
    ended = paraval("run", "suite.yaml")
    assert f"matrix.prompt {told}; it can only matter to your graders." in ended.stderr


@pytest.mark.parametrize(
    ("axis", "rest"),
    [
        ("[a, b]", 'target: {chat: {model: m, prompt: "{ tone } {input}"}}'),
        ("[0, 1]", 'target: {chat: {model: m, temperature: "{tone}"}}'),
        ("[a, b]", "target: {chat: {model: m, prompt: p.j2}}"),
        ("{a: {}, b: {chat: {temperature: 0}}}", "target: {chat: {model: m}}"),
        ("[a]", "target: {chat: {model: m}}"),
        (
            "[a, b]",
            'target: {chat: {model: m}}\ngraders: [{judge: {model: m, rubric: "Is it {tone}?"}}]',
        ),
        ("[a, b]", "target: {chat: {model: m}}\ngraders: [{judge: {model: m, rubric: p.j2}}]"),
        ("[a, b]", "target: {command: [echo, x]}"),
    ],
)
def test_an_axis_is_used_wherever_it_is_named(write: WriteSuite, axis: str, rest: str) -> None:
    write("p.j2", "{% if tone == 'a' %}Hi.{% endif %}{{ input }}")
    plan = plan_of(write, f"matrix: {{tone: {axis}}}\n{rest}\n")
    assert plan.trials


@pytest.mark.usefixtures("prompts")
def test_files_of_an_axis_with_the_same_text_are_noticed(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    (folder / "prompts/copy.md").write_text("Short: {input}\n")
    lines = """
        matrix: {prompt: prompts/*.md}
        target: {chat: {model: m, prompt: "{prompt}"}}
        graders: [contains]
        """
    write_suite(write, lines)
    ended = paraval("run", "suite.yaml")
    assert "matrix.prompt: 'copy' and 'short' have the same text." in ended.stderr


def test_a_mistake_in_a_file_of_an_axis_is_reported_with_its_line(
    write: WriteSuite, prompts: Path
) -> None:
    (prompts / "long.md").write_text("One.\nTwo {{input}} {input}\n{% if x %}\n")
    assert problems(write, CHAT_WITH_FILES) == [
        "prompts/long.md:2: {{input}} is literal text and is not filled in; did you mean {input}?",
        (
            "prompts/long.md:3: unknown field {% if x %}; for Jinja templates, use a file that ends"
            " in .j2"
        ),
    ]
    (prompts / "long.md").write_text("Hello.")
    assert problems(write, CHAT_WITH_FILES) == [
        (
            "prompts/long.md:1: the prompt uses nothing of the case: all 2 cases would send the"
            " same text; did you mean {input}?"
        )
    ]


# ---- Jinja


FEW_SHOT = """\
{% for example in metadata.examples %}
Q: {{ example.q }}
A: {{ example.a }}
{% endfor %}
Q: {{ input }}
{% if case.id == "a" %}
First.
{% endif %}
A:
"""
SHOTS = """\
models: {m: {provider: loopback}}
cases:
  - {id: a, input: 1+1, metadata: {examples: [{q: 2+2, a: 4}, {q: 3+3, a: [6]}]}}
  - {id: b, input: 5+5, metadata: {examples: []}}
"""


def test_a_jinja_file_loops_over_the_examples_of_a_case(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("few.j2", FEW_SHOT)
    write_suite(
        write,
        """
        target: {chat: {model: m, prompt: few.j2}}
        graders: [{regex: ^Q}]
        """,
        SHOTS,
    )
    assert answers(paraval, folder) == {
        ("a",): "Q: 2+2\nA: 4\nQ: 3+3\nA: [6]\nQ: 1+1\nFirst.\nA:",
        ("b",): "Q: 5+5\nA:",
    }


def test_jinja_files_and_plain_ones_are_mixed_in_one_axis(
    write: WriteSuite, paraval: Paraval, folder: Path, prompts: Path
) -> None:
    (prompts / "jinja.j2").write_text("{{ prompt }}/{{ style }}: {{ input | upper }}")
    (prompts / "braces.txt").write_text('{{"q": "{input}"}}\n')
    write_suite(
        write,
        """
        matrix: {prompt: [prompts/jinja.j2, prompts/short.md], style: {b: prompts/braces.txt}}
        target: {chat: {model: m, prompt: "<{prompt}> {{}} {style}"}}
        graders: [contains]
        """,
    )
    assert answers(paraval, folder) == {
        ("a", "jinja", "b"): '<jinja/{"q": "x"}: X> {} {"q": "x"}',
        ("b", "jinja", "b"): '<jinja/{"q": "y"}: Y> {} {"q": "y"}',
        ("a", "short", "b"): '<Short: x> {} {"q": "x"}',
        ("b", "short", "b"): '<Short: y> {} {"q": "y"}',
    }
    (prompts / "outer.j2").write_text("{{ style | trim }} {{ input }}")
    write_suite(
        write,
        """
        matrix: {style: [prompts/braces.txt, prompts/jinja2.j2]}
        target: {chat: {model: m, prompt: prompts/outer.j2}}
        graders: [contains]
        """,
    )
    (prompts / "jinja2.j2").write_text("{{ case.id }}\n{{ metadata.region }}")
    assert answers(paraval, folder) == {
        ("a", "braces"): '{"q": "x"} x',
        ("b", "braces"): '{"q": "y"} y',
        ("a", "jinja2"): "a\nnorth x",
        ("b", "jinja2"): "b\nsouth y",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "Hi\n{% for x in %}",
            ":2: not a valid Jinja template: Expected an expression, got 'end of statement block'",
        ),
        ("\n\n{{ inptu }}", ":3: unknown name 'inptu', did you mean 'input'?"),
        ("{{ region }}", ":1: unknown name 'region', did you mean metadata.region?"),
        (
            "{% if case.id == 'b' %}\n{{ metadata.nope }}\n{% endif %}{{ input }}",
            ":2: cannot be filled in for case 'b': 'dict object' has no attribute 'nope'",
        ),
        (
            "{{ input.__class__.__mro__ }}",
            (
                ":1: cannot be filled in for case 'a' (and 1 more): access to attribute '__class__'"
                " of 'str' object is unsafe"
            ),
        ),
        (
            "{{ input }}{% for i in range(1000000) %}.{% endfor %}",
            (
                ":1: cannot be filled in for case 'a' (and 1 more): Range too big. The sandbox"
                " blocks ranges larger than MAX_RANGE (100000)"
            ),
        ),
        (
            "Hello.",
            (
                ":1: the prompt uses nothing of the case: all 2 cases would send the same text; did"
                " you mean {{ input }}?"
            ),
        ),
        (
            "Answer the question. {input}",
            ":1: {input} is literal text in a .j2 file; write {{ input }}",
        ),
        (
            "In {{ metadata.region }}:\n{ metadata.deep }",
            ":2: { metadata.deep } is literal text in a .j2 file; write {{ metadata.deep }}",
        ),
        (
            "{{ metadata.keys }}",
            (
                ":1: cannot be filled in for case 'a' (and 1 more): a method cannot be printed;"
                " call it, as in items()"
            ),
        ),
    ],
)
def test_a_mistake_in_a_jinja_file_is_reported_before_anything_is_spent(
    write: WriteSuite, text: str, told: str
) -> None:
    write("p.j2", text)
    (problem,) = problems(write, "target: {chat: {model: m, prompt: p.j2}}")
    assert problem == f"p.j2{told}"


JUDGED = """
    models: {judge: {provider: loopback}}
    cases:
      - {id: a, input: x, metadata: {must: be short}}
      - {id: b, input: y, metadata: {must: rhyme}}
    target: {command: [echo, "{input}"]}
    graders: [{judge: {model: judge, rubric: rubric.j2%s}}]
"""


@pytest.mark.parametrize("preset", ["", ", preset: instruction_following"])
def test_a_judges_rubric_may_be_a_jinja_file(write: WriteSuite, preset: str) -> None:
    write("rubric.j2", "The {answer} must {{ metadata.must }}.")
    plan = plan_of(write, JUDGED % preset, "")
    (spec,) = plan.grading.graders
    asked = [
        judge_request(
            spec,
            Subject(
                case=trial.case, variant=trial.variant, repeat=1, output=Output(text="the answer")
            ),
        )
        .messages[0]
        .content
        for trial in plan.trials
    ]
    assert "The {answer} must be short.\n</rubric>" in asked[0]
    assert "The {answer} must rhyme.\n</rubric>" in asked[1]
    assert "jinja" not in asked[0]


def test_a_mistake_in_a_jinja_rubric_is_reported_before_anything_is_spent(
    write: WriteSuite,
) -> None:
    write("rubric.j2", "It\nmust {{ metadata.mst }}.")
    assert problems(write, JUDGED % "", "") == [
        (
            "rubric.j2:2: cannot be filled in for case 'a' (and 1 more): 'dict object' has no"
            " attribute 'mst'"
        )
    ]
    write("rubric.j2", "It\nmust {{ must }}.")
    assert problems(write, JUDGED % "", "") == [
        "rubric.j2:2: unknown name 'must', did you mean metadata.must?"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ 'a' * 999999999 }}", "the result of * is too large"),
        ("{{ 9 ** 99999999 }}", "the result of ** is too large"),
        ("{{ '%999999999d' % 1 }}", "the result of % is too large"),
        ("{{ 'a'|center(999999999) }}", "a text would be too wide"),
        ("{{ 'a'.rjust(999999999) }}", "a text would be too wide"),
        ("{{ '{:>999999999}'.format(1) }}", "a text would be too wide"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "steps"),
        ("{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}", "longer than 50,000,000"),
    ],
)
def test_a_template_that_would_never_end_or_fill_the_memory_is_an_error(
    text: str, message: str
) -> None:
    with pytest.raises(JinjaError, match=re.escape(message)):
        render(text, {"input": "x"}, str)
    assert (
        render("{{ 'ab' * 3 }}{% for i in range(3) %}{{ i }}{% endfor %}", {}, str) == "ababab012"
    )
