"""Templates: what they fill in, and what they refuse."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.templates.shell import shell_command
from paraval.templates.template import (
    TemplateError,
    TemplateFields,
    escaped_names,
    field_names,
    fill,
)


def fields(given_input: Any = "hi", **variant: str | int | float | bool) -> TemplateFields:
    return TemplateFields(
        input=given_input,
        case_id="c1",
        repeat=2,
        folder="/scratch",
        variant=variant,
        python="/py",
    )


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("plain", "plain"),
        ("{input}", "hi"),
        ("a{case.id}b{repeat}", "ac1b2"),
        ("{folder}/out.txt", "/scratch/out.txt"),
        ("{python}", "/py"),
        ("{model}-{ model }", "small-small"),
        ("{{input}}", "{input}"),
        ("}}{{{repeat}", "}{2"),
        ("", ""),
    ],
)
def test_every_field_is_filled_in(template: str, filled: str) -> None:
    assert fill(template, fields(model="small")) == filled


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{input.q}", "why"),
        ("{input.n}", "1.5"),
        ("{input.deep.list.1}", "b"),
        ("{input.flag}", "true"),
        ("{input.deep}", '{"list":["a","b"]}'),
        ("{input.none}", "null"),
    ],
)
def test_parts_of_a_mapping_are_found_by_their_dotted_path(template: str, filled: str) -> None:
    data = {"q": "why", "n": 1.5, "deep": {"list": ["a", "b"]}, "flag": True, "none": None}
    assert fill(template, fields(data)) == filled


def test_a_whole_mapping_is_filled_in_as_json_that_keeps_its_letters() -> None:
    assert fill("{input}", fields({"q": "é"})) == '{"q":"é"}'


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{nope}", "unknown field {nope}"),
        ("{input.nope}", "unknown field {input.nope}"),
        ("{case}", "unknown field {case}"),
        ("a {", "unmatched '{' at character 3"),
        ("}", "unmatched '}' at character 1"),
        ("{}", "empty field: {}"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(template: str, message: str) -> None:
    with pytest.raises(TemplateError) as refused:
        fill(template, fields())
    assert refused.value.message == message


def test_the_fields_of_a_template_are_named_once_and_in_order() -> None:
    assert field_names("{b}{a}{b}{{c}}") == ("b", "a")


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("{{input}} and {{ case.id }}", [("input", 0), ("case.id", 14)]),
        ('{{"a": {{input}}}}', [("input", 7)]),
        ('{{"a": {input}}}', []),
        ("{{{input}}}", []),
        ("{{}} {{a}} }}{{", [("", 0), ("a", 5)]),
    ],
)
def test_what_stands_in_double_braces_is_known(template: str, names: list[tuple[str, int]]) -> None:
    assert list(escaped_names(template)) == names


# ---- scripts for a shell


HOSTILE = (
    "$(echo run >&2); `echo run >&2` '\"\n; echo run >&2 # \\ * ${IFS} EOF\nEOF\necho run >&2\n"
)
SHELLS = [path for path in ("/bin/sh", "/bin/bash", "/bin/dash") if Path(path).exists()]


def run_script(script: str, value: str, shell: str = "/bin/sh") -> str:
    """What a script prints, which must print nothing to stderr."""
    _, *arguments = shell_command(script, fields(value, other="o t"))
    ended = subprocess.run([shell, *arguments], capture_output=True, check=True)
    assert ended.stderr == b""
    return ended.stdout.decode()


SCRIPTS = {
    'printf %s "$input"': HOSTILE,
    'printf %s "a ${input} b"': f"a {HOSTILE} b",
    'printf "%s|" "$input" "$other" "$input"': f"{HOSTILE}|o t|{HOSTILE}|",
    "cat <<EOF\n$input\nEOF\n": f"{HOSTILE}\n",
    'say() { printf %s "$input"; }; say x y': HOSTILE,
    'printf "%s" "$#$*$input"': f"0{HOSTILE}",
    'sh -c \'printf %s "$1"\' sh "$input"': HOSTILE,
    "printf '%s' '{input} $input'": "{input} $input",
    "echo nothing": "nothing\n",
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_field_is_a_variable_of_the_shell_and_its_value_is_not_run(
    script: str, shell: str
) -> None:
    assert run_script(script, HOSTILE, shell) == SCRIPTS[script]


def test_parts_of_inputs_and_metadata_are_variables_too() -> None:
    given = replace(fields({"a-b": {"c": 1}}), metadata={"region": "north"})
    script = 'echo "$input_a_b_c $metadata_region $case_id $HOME_OF_NOBODY"'
    _, *arguments = shell_command(script, given)
    ended = subprocess.run(["/bin/sh", *arguments], capture_output=True, check=True, text=True)
    assert ended.stdout == f"1 north {given.case_id} \n"


@given(st.text())
def test_doubled_braces_bring_any_text_through(text: str) -> None:
    assert fill(text.replace("{", "{{").replace("}", "}}"), fields()) == text


@pytest.mark.parametrize("template", ["{input}", "{input.q}"])
def test_no_input_is_never_filled_in_as_text(template: str) -> None:
    with pytest.raises(TemplateError, match="unknown field"):
        fill(template, fields(None))
    assert fill("{input}", fields("")) == ""
