"""Templates: what they fill in, and what they refuse."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraval.templates import TemplateError, TemplateFields, field_names, fill, fill_shell


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
        ("{nope}", "there is no field {nope}"),
        ("{input.nope}", "there is no field {input.nope}"),
        ("{case}", "there is no field {case}"),
        ("a {", "a lone '{' at character 3"),
        ("}", "a lone '}' at character 1"),
        ("{}", "a field without a name: {}"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(template: str, message: str) -> None:
    with pytest.raises(TemplateError) as refused:
        fill(template, fields())
    assert refused.value.message == message


def test_the_fields_of_a_template_are_named_once_and_in_order() -> None:
    assert field_names("{b}{a}{b}{{c}}") == ("b", "a")


@given(st.text(alphabet=st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])))
def test_a_value_in_a_shell_line_stays_one_word_whatever_it_holds(value: str) -> None:
    assert shlex.split(fill_shell("say {input} end", fields(value))) == ["say", value, "end"]


def test_a_real_shell_does_not_run_what_a_value_says() -> None:
    line = fill_shell("printf %s {input}", fields("$(echo evil); `id` '\"\n"))
    shown = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True)
    assert shown.stdout == "$(echo evil); `id` '\"\n"


@given(st.text())
def test_doubled_braces_bring_any_text_through(text: str) -> None:
    assert fill(text.replace("{", "{{").replace("}", "}}"), fields()) == text


@pytest.mark.parametrize("template", ["{input}", "{input.q}"])
def test_no_input_is_never_filled_in_as_text(template: str) -> None:
    with pytest.raises(TemplateError, match="there is no field"):
        fill(template, fields(None))
    assert fill("{input}", fields("")) == ""
