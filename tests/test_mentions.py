"""What an answer mentions: files, symbols, lines and content."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from paraval.grade.grader import CannotGrade, Subject
from paraval.grade.mentions import (
    ExpectedMentions,
    ExpectedPaths,
    MentionsGrader,
    look_for,
    looks_like_a_file,
    wanted_of,
)
from paraval.records import Case, Grade, GraderSpec, Output
from paraval.threads import Threads

MATH = "internal/embedding/math.go"
TRUTH = {"files": [MATH], "symbols": ["CosineSimilarity"], "lines": {MATH: [8]}}
WANTED = ExpectedMentions(files=(MATH,), symbols=("CosineSimilarity",), lines=((MATH, 8),))


def graded(text: str, expect: Any = None, **options: Any) -> Grade:
    threads = Threads()
    spec = GraderSpec(name="mentions", kind="mentions", options=options)
    case = Case(id="navigate-001", expect=expect)
    subject = Subject(case=case, variant={}, repeat=1, output=Output(text=text))
    try:
        return asyncio.run(MentionsGrader(spec, threads=threads).grade(subject))
    finally:
        threads.close()


# ---- what counts as a mention


@pytest.mark.parametrize(
    "text",
    [
        f"`CosineSimilarity` is defined in {MATH}:8.",
        f"CosineSimilarity: [math.go]({MATH}#L8)",
        f"See line 8 of /home/me/repo/{MATH}: func CosineSimilarity(a, b)",
        f"**CosineSimilarity** ({MATH}, lines 5-12)",
        f"{MATH} lines 3, 8 and 40: CosineSimilarity",
        "math.go:8:5 holds CosineSimilarity.",
        "CosineSimilarity is in internal\\embedding\\math.go:8",
        f"CosineSimilarity isn't in utils.go, but in {MATH} (line 8).",
        f"The function CosineSimilarity is not defined in utils.go, but in {MATH}:8.",
        f"It fails for files that do not exist. CosineSimilarity is at {MATH}:8",
        f"If the key is not found, CosineSimilarity in {MATH}:8 returns 0.",
        f'CosineSimilarity ({MATH}:8) returns "no such vector".',
        f"```\n// no such thing\nCosineSimilarity // {MATH}:8\n```",
    ],
)
def test_an_answer_that_names_it_all_has_mentioned_it_all(text: str) -> None:
    assert look_for(WANTED, text).missing == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CosineSimilarityX and XCosineSimilarity and Cosine_CosineSimilarity_ in aftermath.go:8",
        "cosinesimilarity in other/math.go:8",
        "CosineSimilarit\u0301y in math.goo:8",
    ],
)
def test_what_is_named_otherwise_is_not_mentioned(text: str) -> None:
    assert look_for(WANTED, text).recall == 0


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"{MATH}:80", False),
        (f"{MATH} line 18", False),
        (f"{MATH}:1-99999", False),
        (f"{MATH} has 8 functions", False),
        (f"line 8 of other/file.go, and {MATH}", False),
        (f"{MATH} and other/file.go:8", False),
        (f"{MATH} at line 8", True),
        (f"{MATH}#L5-L9", True),
    ],
)
def test_a_line_belongs_to_the_path_that_it_stands_by(text: str, lines: bool) -> None:
    assert (look_for(ExpectedMentions(lines=((MATH, 8),)), text).missing == ()) is lines


@pytest.mark.parametrize(
    ("expected", "word", "named"),
    [
        (("a/b.go",), "b.go", "a/b.go"),
        (("a/b.go",), "c/b.go", None),
        (("b.go",), "src/b.go", "b.go"),
        (("a/b.go", "c/b.go"), "b.go", None),
        (("a/b.go", "c/b.go"), "c/b.go", "c/b.go"),
        (("b.go", "a/b.go"), "a/b.go", "a/b.go"),
        (("b.go", "a/b.go"), "b.go", "b.go"),
        (("a/b/",), "a/b/c/d.go", "a/b/"),
        (("a/b/",), "a/b", "a/b/"),
        (("a/b/",), "a/bc/d.go", None),
        (("docs/",), "docs", None),
        (("Makefile",), "Makefile", "Makefile"),
    ],
)
def test_a_path_is_named_in_full_or_by_an_end_that_no_other_has(
    expected: tuple[str, ...], word: str, named: str | None
) -> None:
    assert ExpectedPaths(expected).named_by(word) == (() if named is None else (named,))


def test_one_path_may_be_several_things_that_were_asked_for() -> None:
    wanted = ExpectedMentions(
        files=("internal/", "internal/x/", "internal/x/y.go"), lines=(("internal/x/y.go", 8),)
    )
    found = look_for(wanted, "It is in internal/x/y.go:8.")
    assert (found.recall, found.precision, found.missing) == (1, 1, ())
    assert look_for(wanted, "It is in internal/x/z.go:8.").recall == 0.5


@pytest.mark.parametrize("word", ["np.dot", "e.g", "and/or", "2024/01/02", "v1.2.3", "main.foo"])
def test_what_only_looks_a_little_like_a_path_is_no_wrong_file(word: str) -> None:
    assert not looks_like_a_file(word)


def test_content_is_compared_without_regard_to_spaces() -> None:
    wanted = ExpectedMentions(content=("func  F(a int)\n\treturn 1",))
    assert look_for(wanted, "x\n  func F(a int)\n      return 1\n").missing == ()
    assert look_for(wanted, "func F(a int) return 2").missing != ()


def test_symbols_are_whole_words_of_any_script_and_of_any_characters() -> None:
    wanted = ExpectedMentions(symbols=("größe", "operator+", "Foo::bar", "cafe\u0301"))
    text = "größe, operator+(x), Foo::bar() and caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    assert look_for(wanted_of({"symbols": wanted.symbols}, Case(id="c")), text).missing == ()
    assert look_for(ExpectedMentions(symbols=("größ",)), text).missing == ("symbol größ",)


# ---- the score


def test_recall_precision_and_f1_are_three_numbers() -> None:
    text = f"CosineSimilarity is in {MATH}, see also a/b/other.go and README.md."
    found = look_for(ExpectedMentions(files=(MATH, "x.go"), symbols=("CosineSimilarity",)), text)
    assert found.recall == pytest.approx(2 / 3)
    assert found.precision == pytest.approx(1 / 3)
    assert found.score("f1") == pytest.approx(4 / 9)
    assert found.wrong_files == ("README.md", "a/b/other.go")


def test_a_folder_above_an_expected_file_is_no_wrong_one() -> None:
    assert (
        look_for(ExpectedMentions(files=(MATH,)), f"{MATH}, below x/internal/embedding/").precision
        == 1
    )


@pytest.mark.parametrize(
    ("options", "score", "passed"),
    [
        ({}, 1.0, True),
        ({"score": "precision"}, 0.5, False),
        ({"score": "precision", "pass_at": 0.5}, 0.5, True),
        ({"score": "f1", "pass_at": 0.6}, 2 / 3, True),
        ({"symbols": ["CosineSimilarity", "Gone"], "pass_at": 0.75}, 0.75, True),
        ({"symbols": ["CosineSimilarity", "Gone"]}, 0.75, False),
    ],
)
def test_the_suite_says_which_of_them_is_the_score_and_when_it_passes(
    options: dict[str, Any], score: float, passed: bool
) -> None:
    grade = graded(f"CosineSimilarity: {MATH}:8, called in other.go", TRUTH, **options)
    assert grade.score == pytest.approx(score)
    assert grade.passed is passed


def test_the_reason_names_what_is_missing_and_what_was_not_asked_for() -> None:
    grade = graded("CosineSimilarity is in utils.go", TRUTH)
    assert grade.reason == (
        f"not mentioned: file {MATH}, line {MATH}:8; recall 0.33 (1 of 3), precision 0.00, F1 0.00;"
        " not expected: utils.go"
    )


# ---- where it is said what is wanted


def test_the_ground_truth_of_repo_search_cases_is_understood() -> None:
    full = {**TRUTH, "content": ["return 1"]}
    text = f"CosineSimilarity in {MATH}:8 does `return 1`"
    assert graded(text, {"ground_truth": full}).passed
    assert graded(text, full).passed
    in_metadata = Case(id="c", metadata={"ground_truth": TRUTH})
    assert wanted_of({}, in_metadata) == WANTED
    nothing = {"files": None, "symbols": None, "lines": None, "content": None}
    assert wanted_of({}, Case(id="c", expect={**nothing, "files": [MATH]})).files == (MATH,)


def test_the_graders_own_lists_go_before_the_cases() -> None:
    empty = {"files": [], "symbols": ["F"], "lines": {}, "content": []}
    wanted = wanted_of(empty, Case(id="c", expect=TRUTH))
    assert wanted == ExpectedMentions(files=(MATH,), symbols=("F",), lines=((MATH, 8),))


@pytest.mark.parametrize(
    "expect",
    [
        *(None, "text", {}, {"symbols": {}}, {"files": [""]}, {"files": [3]}, {"files": 3}),
        *({"lines": [8]}, {"lines": {"a.go": ["8"]}}, {"lines": {"a.go": True}}),
    ],
)
def test_without_anything_to_look_for_there_is_no_verdict(expect: Any) -> None:
    with pytest.raises(CannotGrade):
        graded("anything", expect)


# ---- always

WORDS = st.lists(
    st.sampled_from(["math.go", "CosineSimilarity", MATH, ":8", "#L8", "line", "8", "é", "\x00"])
    | st.sampled_from(["is", "not", "defined", "in", "but", "if", "that", "could", "find:", "no"])
    | st.sampled_from([".", ";", "`", "\n", "- ", "```", "such", "instead", "of", ",", "\ud800"]),
    max_size=40,
).map(" ".join)


@given(text=WORDS | st.text())
def test_any_answer_is_read(text: str) -> None:
    found = look_for(WANTED, text)
    assert 0 <= found.recall <= 1
    assert 0 <= found.precision <= 1
    assert min(found.precision, found.recall) <= found.score("f1") + 1e-9
    assert found.score("f1") <= max(found.precision, found.recall) + 1e-9


@given(text=WORDS)
def test_saying_more_never_loses_what_was_mentioned(text: str) -> None:
    before = set(look_for(WANTED, text).missing)
    after = set(look_for(WANTED, f"{text}\n\nAlso see {MATH}:8 for CosineSimilarity").missing)
    assert after == set()
    assert after <= before


@given(name=st.from_regex(r"[^\W\d_]\w{2,10}", fullmatch=True))
@settings(max_examples=50)
def test_a_symbol_is_never_found_within_a_longer_one(name: str) -> None:
    wanted = wanted_of({"symbols": [name]}, Case(id="c"))
    assert look_for(wanted, f"use {name}() here").missing == ()
    assert look_for(wanted, f"use x{name} or {name}x here").missing != ()


@pytest.mark.parametrize(
    "piece",
    [
        "but not in x is not defined ",
        "math.go:8 ",
        "is not ",
        "./",
        "lines 1,1,",
        "that is not found ",
    ],
)
def test_a_megabyte_is_read_in_bounded_time(piece: str) -> None:
    began = time.process_time()
    graded((piece * 100_000)[:500_000], TRUTH)
    assert time.process_time() - began < 15
