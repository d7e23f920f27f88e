"""Candidates with the same syntax have the same normal form; no source breaks the comparison."""

from __future__ import annotations

import ast
import hashlib

import pytest
from hypothesis import given, settings, strategies as st

from paraval.git.objects import ABSENT, TreeChange
from paraval.racing.candidates import duplicates as module
from paraval.racing.candidates.duplicates import (
    BASE_NORMAL,
    LARGEST_SOURCE_BYTES,
    ChangedSyntax,
    syntax_of,
)
from paraval.racing.candidates.syntax_child import form_of

OLD = b"def f(x):\n    return x + 1\n"


def syntax(new: bytes, old: bytes = OLD, path: bytes = b"a.py", **modes: int) -> ChangedSyntax:
    names = {content: hashlib.sha1(content).hexdigest() for content in (old, new)}
    change = TreeChange(
        path=path,
        old_mode=modes.get("old_mode", 0o100644),
        new_mode=modes.get("new_mode", 0o100644),
        old_hash=names[old],
        new_hash=names[new],
    )
    return syntax_of([change], {name: content for content, name in names.items()})


def form(new: bytes, old: bytes = OLD, path: bytes = b"a.py", **modes: int) -> str:
    return syntax(new, old, path, **modes).normal


@pytest.mark.parametrize(
    "same",
    [
        b"def f(x):\n  # why\n  return (x+1)\n",
        b"def f(\n    x,\n):\n\n    return x + 1  # type: ignore\n",
        b"\xef\xbb\xbfdef f(x): return x + 0x1\r\n",
        b"# -*- coding: latin-1 -*-\ndef f(x):\n\treturn x + 1; # \xe9\n",
    ],
)
def test_formatting_and_comments_are_no_change(same: bytes) -> None:
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
def test_another_syntax_has_another_form(other: bytes) -> None:
    assert form(other) != BASE_NORMAL
    assert form(other) == form(other)


def test_candidates_that_differ_only_in_formatting_have_the_same_form() -> None:
    assert form(b"x = 'a'  # one\n") == form(b'x = (u"a")\n')
    assert form(b"x = 'a'\n") != form(b"x = b'a'\n")


def test_modes_paths_and_other_files_count_as_they_are() -> None:
    assert form(OLD, new_mode=0o100755) != BASE_NORMAL
    assert form(b"x=1\n") == form(b"x = 1\n") != form(b"x=1\n", path=b"b.py")
    assert form(b"x=1\n", path=b"a.txt") != form(b"x = 1\n", path=b"a.txt")
    assert form(OLD, path=b"l.py", old_mode=0o120000, new_mode=0o120000) != BASE_NORMAL
    gone = TreeChange(
        path=b"a.py", old_mode=0o100644, new_mode=ABSENT, old_hash="1" * 40, new_hash="0" * 40
    )
    assert syntax_of([gone], {}).normal not in (BASE_NORMAL, form(b""))
    assert syntax_of([], {}) == ChangedSyntax(normal=BASE_NORMAL, syntax_error="")


def test_a_new_syntax_error_is_found_and_one_of_the_baseline_is_not() -> None:
    error = "syntax error in a.py:1: '(' was never closed"
    assert syntax(b"def f(x\n").syntax_error == error
    assert syntax(b"def f(x\n", old=b"print 'two'\n").syntax_error == ""
    assert syntax(b"def f(x\n", path=b"a.txt").syntax_error == ""
    assert syntax(b"async = 1\n").syntax_error.startswith("syntax error in a.py:1: ")


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
def test_no_source_breaks_the_comparison(source: bytes) -> None:
    assert form(source) == form(source)
    assert form(source) != BASE_NORMAL


def test_a_parser_that_does_not_finish_leaves_the_bytes(
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
def test_forms_are_equal_exactly_if_the_syntax_is(one: list[str], two: list[str]) -> None:
    texts = ["\n".join(lines) for lines in (one, two)]
    dumps = [ast.dump(ast.parse(text)) for text in texts]
    forms = [form_of(text.encode()) for text in texts]
    assert (forms[0] == forms[1]) == (dumps[0] == dumps[1])
    assert form_of(ast.unparse(ast.parse(texts[0])).encode()) == forms[0]
