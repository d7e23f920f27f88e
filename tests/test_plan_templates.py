"""Templates: what they fill in, and what they refuse."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from paraval.templates.shell import misplaced_fields, shell_command
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


SOUND = {
    "printf %s {input}": HOSTILE,
    'printf %s "{input}"': HOSTILE,
    "printf %s a{input}b": f"a{HOSTILE}b",
    'printf %s "a {input} b"': f"a {HOSTILE} b",
    'x={input}; printf %s "$x"': HOSTILE,
    'x="{input}"; printf %s "$x"': HOSTILE,
    'printf "%s" "$(printf "%s." "{input}")"': f"{HOSTILE}.",
    'x=$(printf "%s." {input}); printf %s "$x"': f"{HOSTILE}.",
    'printf "%s|" {input} {other} {input}': f"{HOSTILE}|o t|{HOSTILE}|",
    "cat <<EOF\n{input}\nEOF\n": f"{HOSTILE}\n",
    "cat <<-END; printf %s {other}\n\tit's {input} \"\n\tEND\n": f"it's {HOSTILE} \"\no t",
    "cat <<'END'\n$x `y`\nEND\nprintf %s {input}": f"$x `y`\n{HOSTILE}",
    "printf %s {input} # it's {input} `": HOSTILE,
    "set -- a b c; printf %s {input}": HOSTILE,
    "say() {{ printf %s {input}; }}; say x y": HOSTILE,
    'printf "%s" "$#$*"{input}': f"0{HOSTILE}",
    "for x in {input} b; do printf '<%s>' \"$x\"; done": f"<{HOSTILE}><b>",
    "case {input} in a) echo no;; *) printf %s {input};; esac": HOSTILE,
    "printf %s it\\'s {input}": f"it's{HOSTILE}",
    "printf '%s' 'plain' \"it's\" {input}": f"plainit's{HOSTILE}",
    "printf %s $((1 + 2)) ${{HOME#*}} >/dev/null; printf %s {other}": "o t",
    "sh -c 'printf %s \"$1\"' sh {input}": HOSTILE,
    "printf %s {input} | (cat; cat) 2>&1 && :": HOSTILE,
    "printf %s {input} | sh -c cat": HOSTILE,
    "echo nothing": "nothing\n",
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("script", SOUND)
def test_a_value_in_a_script_stays_one_word_and_is_not_run(script: str, shell: str) -> None:
    assert misplaced_fields(script) == []
    assert run_script(script, HOSTILE, shell) == SOUND[script]


@pytest.mark.parametrize(
    ("script", "where"),
    [
        ("echo '{input}'", "inside single quotes"),
        ("python -c 'print(\"{input}\")'", "inside single quotes"),
        ("echo `echo {input}`", "inside backticks"),
        ('echo "`echo {input}`"', "inside backticks"),
        ("echo \\{input}", "after a backslash"),
        ('echo "\\{input}"', "after a backslash"),
        ("echo ${input}", "after a $"),
        ('echo "${input}"', "after a $"),
        ("echo $(({input} + 1))", "inside $(( ))"),
        ("echo ${{x:-{input}}}", "inside ${ }"),
        ("cat <<'END'\n{input}\nEND\n", "in a quoted here-document"),
        ("cat <<\\END\n{input}\nEND\n", "in a quoted here-document"),
        ("cat <<END\n`echo {input}`\nEND\n", "inside backticks"),
        ("cat <<{input}\nx\n", "after <<"),
        ("cat <<END\nx \\\nEND\n{input}\nEND\n", "after a continued line in a here-document"),
        ("cat <<END $(echo\n) {input}\nEND\n", "after a line break between << and its document"),
        ("x=$(cat <<END\n{input}\nEND\n)", "after '<<END' inside $( )"),
        ("x=$(case a in a) echo {input};; esac)", "after 'case' inside $( )"),
        ("echo $'a' {input}", "after $'"),
        ("echo $[1] {input}", "after $["),
        ("((x = 1)); echo {input}", "after (("),
        ('echo "${{x:-"a"}}" {input}', "after ${"),
        ("eval echo {input}", "where it would be read as code"),
        ('if eval "echo {input}"; then :; fi', "where it would be read as code"),
        ('trap "echo {input}" EXIT', "where it would be read as code"),
        ('sh -c "echo {input}"', "where it would be read as code"),
        ("/bin/bash -o pipefail -c 'echo '{input}", "where it would be read as code"),
        ('sh -c "echo $(echo {input})"', "where it would be read as code"),
        ('"sh" -c "echo {input}"', "where it would be read as code"),
        ('S=sh; $S -c "echo {input}"', "where it would be read as code"),
        ("sh <<EOF\nprintf %s {input}\nEOF\n", "where it would be read as code"),
        ('/usr/bin/python3 - <<EOF\nprint("{input}")\nEOF\n', "where it would be read as code"),
        ('echo "printf %s {input}" | sh', "where it would be read as code"),
        ('echo "printf %s {input}" | bash -s; echo done', "where it would be read as code"),
        ("a[{input}]=1", "in let, [[ ]] or a subscript"),
        ("[[ {input} -eq 1 ]]", "in let, [[ ]] or a subscript"),
    ],
)
def test_a_field_that_could_not_stay_one_word_is_refused(script: str, where: str) -> None:
    [found] = misplaced_fields(script)
    assert found.field == "input"
    assert found.where.startswith(where)
    assert found.hint


PIECES = st.sampled_from(
    [
        *(
            "{input}",
            '"',
            "'",
            "`",
            "\\",
            "$",
            "$(",
            "(",
            ")",
            "${{",
            "}}",
            "$((",
            "))",
            "#",
            "x",
            "=",
        ),
        *(
            " ",
            "\n",
            ";",
            "|",
            "&",
            "<<",
            "<<E",
            "<<'E'",
            "\nE\n",
            "echo ",
            "eval ",
            "[",
            "]",
            "case ",
        ),
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=14), st.sampled_from(SHELLS))
def test_no_script_that_is_taken_runs_what_a_value_says(pieces: list[str], shell: str) -> None:
    script = "".join(pieces) + "{input}"
    if misplaced_fields(script):
        return
    with tempfile.TemporaryDirectory() as folder:
        value = ";>run; $(>run) `>run` '$(>run)' \"$(>run)\"\n>run\nE\n>run\n"
        _, *arguments = shell_command(script, fields(value))
        subprocess.run([shell, *arguments], cwd=folder, capture_output=True, check=False)
        assert not Path(folder, "run").exists(), script


@given(st.text())
def test_doubled_braces_bring_any_text_through(text: str) -> None:
    assert fill(text.replace("{", "{{").replace("}", "}}"), fields()) == text


@pytest.mark.parametrize("template", ["{input}", "{input.q}"])
def test_no_input_is_never_filled_in_as_text(template: str) -> None:
    with pytest.raises(TemplateError, match="unknown field"):
        fill(template, fields(None))
    assert fill("{input}", fields("")) == ""
