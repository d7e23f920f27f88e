"""Two candidates that say the same are told to be the same; whatever they hold, nothing breaks."""

from __future__ import annotations

import ast
import hashlib

import pytest
from hypothesis import given, settings, strategies as st

from paraval.git.objects import ABSENT, TreeChange
from paraval.racing.candidates import duplicates as module
from paraval.racing.candidates.duplicates import BASE_NORMAL, LARGEST_SOURCE_BYTES, normal_form
from paraval.racing.candidates.syntax_child import NONE, form_of

OLD = b"def f(x):\n    return x + 1\n"


def form(
    new: bytes, old: bytes = OLD, path: bytes = b"a.py", mode: int = 0o100644, was: int = 0o100644
) -> str:
    names = {content: hashlib.sha1(content).hexdigest() for content in (old, new)}
    change = TreeChange(
        path=path, old_mode=was, new_mode=mode, old_hash=names[old], new_hash=names[new]
    )
    return normal_form([change], {name: content for content, name in names.items()})


@pytest.mark.parametrize(
    "same",
    [
        b"def f(x):\n  # why\n  return (x+1)\n",
        b"def f(\n    x,\n):\n\n    return x + 1  # type: ignore\n",
        b"\xef\xbb\xbfdef f(x): return x + 0x1\r\n",
        b"# -*- coding: latin-1 -*-\ndef f(x):\n\treturn x + 1; # \xe9\n",
    ],
)
def test_formatting_and_comments_alone_are_no_change(same: bytes) -> None:
    assert form(same) == BASE_NORMAL


@pytest.mark.parametrize(
    "other",
    [
        b"def f(x):\n    return x + 1.0\n",
        b"def f(x):\n    return 1 + x\n",
        b'def f(x):\n    """Adds."""\n    return x + 1\n',
        b"def f(x):\n    return x + 1\nprint()\n",
        b"def f(x) -> int:\n    return x + 1\n",
        b"def f(x\n",
        b"",
    ],
)
def test_what_says_something_else_is_another(other: bytes) -> None:
    assert form(other) != BASE_NORMAL
    assert form(other) == form(other)


def test_two_that_differ_in_looks_alone_are_the_same() -> None:
    assert form(b"x = 'a'  # one\n") == form(b'x = (u"a")\n')
    assert form(b"x = 'a'\n") != form(b"x = b'a'\n")


def test_modes_names_and_other_files_count_as_they_are() -> None:
    assert form(OLD, mode=0o100755) != BASE_NORMAL
    assert form(b"x=1\n") != form(b"x=1\n", path=b"b.py")
    assert form(b"x=1\n", path=b"a.txt") != form(b"x = 1\n", path=b"a.txt")
    assert form(b"x=1\n") == form(b"x = 1\n")
    assert form(OLD, mode=0o120000, was=0o120000, path=b"l.py") != BASE_NORMAL
    gone = TreeChange(
        path=b"a.py", old_mode=0o100644, new_mode=ABSENT, old_hash="1" * 40, new_hash="0" * 40
    )
    assert normal_form([gone], {}) not in (BASE_NORMAL, form(b""))
    assert normal_form([], {}) == BASE_NORMAL


HOSTILE = {
    "minus": b"-" * 300_000 + b"1",
    "sum": b"+".join([b"a"] * 100_000),
    "brackets": b"[" * 10_000 + b"]" * 10_000,
    "lambdas": b"lambda: " * 10_000 + b"1",
    "elifs": b"if a:\n pass\n" + b"elif a:\n pass\n" * 10_000,
    "calls": b"f" + b"()" * 50_000,
    "nul": b"x = 1\0\n",
    "digits": b"x = " + b"9" * 6_000,
    "surrogate": b"x = '\\ud800'\n",
    "no utf-8": b"x = '\xff'\n",
    "large": b"#" * (LARGEST_SOURCE_BYTES + 1),
    "cookie": b"# coding: nowhere\nx = 1\n",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_no_source_breaks_it(source: bytes) -> None:
    assert form(source) == form(source)
    assert form(source) != BASE_NORMAL


def test_a_parser_that_does_not_come_to_its_end_leaves_the_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.001)
    assert form(b"def f(x): return x+1\n") != BASE_NORMAL
    monkeypatch.undo()
    monkeypatch.setattr(module, "_CHILD", "/nowhere/at/all.py")
    assert form(b"def f(x): return x+1\n") != BASE_NORMAL


_NAMES = st.sampled_from(["a", "b", "f"])
_EXPRESSIONS = st.recursive(
    st.one_of(_NAMES, st.integers(0, 9).map(str), st.sampled_from(["'x'", "None", "1.5"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.tuples(_NAMES, inner).map(lambda t: f"{t[0]}({t[1]})"),
    ),
    max_leaves=8,
)


@given(st.lists(_EXPRESSIONS, max_size=4), st.lists(_EXPRESSIONS, max_size=4))
@settings(max_examples=150, deadline=None)
def test_forms_are_the_same_just_where_the_syntax_is(one: list[str], two: list[str]) -> None:
    """However they are written down."""
    texts = ["\n".join(lines) for lines in (one, two)]
    dumps = [ast.dump(ast.parse(text)) for text in texts]
    forms = [form_of(text.encode()) for text in texts]
    assert (forms[0] == forms[1]) == (dumps[0] == dumps[1])
    assert form_of(ast.unparse(ast.parse(texts[0])).encode()) == forms[0] != NONE
