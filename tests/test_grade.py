"""How outputs are judged: every kind of grader, hostile answers, and the panel."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from paraval.documents.json import parse_strictly
from paraval.errors import ParavalError
from paraval.grade.command import CommandContext
from paraval.grade.grader import GraderProblem, Subject
from paraval.grade.panel import Panel, PanelVerdict, weigh
from paraval.grade.text import same_data
from paraval.processes.children import Warden
from paraval.records import Case, Grade, GraderSpec, Grading, Outcome, Output
from paraval.text.terminal import one_line
from paraval.threads import Threads

PASSED, FAILED, GRADER_ERROR = Outcome.PASSED, Outcome.FAILED, Outcome.GRADER_ERROR


def subject(text: str, expect: Any = None, exit_code: int | None = None) -> Subject:
    return Subject(
        case=Case(id="hello", input="Say hello.", expect=expect),
        variant={"model": "small"},
        repeat=1,
        output=Output(text=text),
        exit_code=exit_code,
        label="hello · small",
    )


def judged(
    graders: list[GraderSpec],
    what: Subject,
    *,
    folder: str = "/nowhere",
    functions: Mapping[str, Callable[..., Any]] | None = None,
    pass_at: float = 0.5,
) -> PanelVerdict:
    async def judge() -> PanelVerdict:
        threads = Threads()
        try:
            async with Warden() as warden:
                grading = Grading(graders=tuple(graders), pass_at=pass_at)
                panel = Panel(grading, functions=functions or {}, threads=threads, warden=warden)
                return await panel.judge(what, folder)
        finally:
            threads.close()

    return asyncio.run(judge())


def spec(kind: str, **options: Any) -> GraderSpec:
    return GraderSpec(name=kind, kind=kind, options=options)


def one(kind: str, text: str, expect: Any = None, **options: Any) -> PanelVerdict:
    return judged([spec(kind, **options)], subject(text, expect))


def ask(function: Callable[..., Any], **options: Any) -> PanelVerdict:
    asked = spec("python", function="given:judge", **options)
    return judged([asked], subject("hello"), functions={"given:judge": function})


def message(verdict: PanelVerdict) -> str:
    assert verdict.outcome is GRADER_ERROR
    assert verdict.score is None
    assert verdict.error is not None
    assert verdict.error.kind is GRADER_ERROR
    return verdict.error.message


# ---- not, any, all


def contains(text: str) -> GraderSpec:
    return spec("contains", value=text)


def combined(kind: str, *parts: GraderSpec) -> GraderSpec:
    return GraderSpec(name=kind, kind=kind, parts=parts)


def broken() -> GraderSpec:
    return spec("regex", pattern="(")


SORRY, PARIS, ACCENT = contains("sorry"), contains("Paris"), contains("París")


@pytest.mark.parametrize(
    ("grader", "text", "reason"),
    [
        (combined("not", SORRY), "sure", None),
        (combined("not", SORRY), "I am sorry", 'expected not to contain "sorry", got "I am sorry"'),
        (combined("any", PARIS, ACCENT), "Es París.", None),
        (
            combined("any", PARIS, ACCENT),
            "Rome",
            'none of 2 passed: "Paris" not in "Rome"; "París" not in "Rome"',
        ),
        (combined("all", PARIS, SORRY), "sorry, Paris", None),
        (combined("all", PARIS, SORRY), "Paris", '1 of 2 failed: "sorry" not in "Paris"'),
        (combined("not", combined("any", PARIS, ACCENT)), "Rome", None),
        (
            combined("not", combined("any", PARIS, ACCENT)),
            "Paris",
            'expected not to contain "Paris" or contain "París", got "Paris"',
        ),
        (combined("any", combined("all", PARIS, SORRY), contains("Rome")), "Rome", None),
    ],
)
def test_graders_combine_with_readable_reasons(
    grader: GraderSpec, text: str, reason: str | None
) -> None:
    verdict = judged([grader], subject(text))
    assert verdict.outcome is (PASSED if reason is None else FAILED)
    assert verdict.grades[0].reason == (reason or "")
    assert verdict.grades[0].grader == grader.kind


@pytest.mark.parametrize("kind", ["not", "any", "all"])
def test_an_error_within_a_combination_is_an_error_and_never_a_pass(kind: str) -> None:
    parts = [broken()] if kind == "not" else [contains("hello"), broken()]
    told = message(judged([combined(kind, *parts)], subject("hello")))
    assert told.startswith(f"grader '{kind}': regex: ")
    assert "is not a valid pattern" in told


def test_functions_and_programs_may_be_combined(tmp_path: Path) -> None:
    program = spec("command", command=[sys.executable, "-c", "print('no'); raise SystemExit(1)"])
    python = spec("python", function="given:judge")
    verdict = judged(
        [combined("any", program, combined("not", python))],
        subject("hello"),
        folder=str(tmp_path),
        functions={"given:judge": lambda output, case: False},
    )
    assert verdict.outcome is PASSED
    assert list(verdict.artifacts) == ["command.stdout"]


# ---- time and cost


def test_what_took_too_long_or_cost_too_much_fails() -> None:
    slow = replace(subject("hello"), answer_s=3.0, cost_usd=0.02)
    verdict = judged([spec("latency", max=2.0), spec("cost", max_usd=0.01)], slow)
    assert verdict.outcome is FAILED
    reasons = [grade.reason for grade in verdict.grades]
    assert reasons == ["took 3.0 s, allowed 2.0 s", "cost $0.020, allowed $0.010"]
    fine = judged([spec("latency", max=3.0), spec("cost", max_usd=0.02)], slow)
    assert fine.outcome is PASSED


def test_an_unknown_cost_is_skipped_with_a_reason_and_is_neither_passed_nor_zero() -> None:
    verdict = judged([contains("hello"), spec("cost", max_usd=0.01)], subject("hello"))
    assert verdict.outcome is PASSED
    assert verdict.score == 1.0
    assert [grade.grader for grade in verdict.grades] == ["contains"]
    assert verdict.notes == ("grader 'cost' skipped: the cost of the answer is unknown",)


def test_with_weights_a_skipped_grader_has_none() -> None:
    heavy = replace(spec("cost", max_usd=0.01), weight=9.0)
    light = replace(contains("hello"), weight=1.0)
    assert judged([heavy, light], subject("hello")).score == 1.0


def test_an_answer_that_no_grader_could_judge_has_no_verdict() -> None:
    told = message(judged([spec("cost", max_usd=0.01)], subject("hello")))
    assert told.startswith("no grader could judge the answer; grader 'cost' skipped")


def test_a_skipped_part_counts_only_where_the_others_cannot_decide() -> None:
    cost = spec("cost", max_usd=0.01)
    assert judged([combined("any", cost, contains("hello"))], subject("hello")).outcome is PASSED
    assert judged([combined("all", cost, contains("bye"))], subject("hello")).outcome is FAILED
    for undecided in (combined("not", cost), combined("all", cost, contains("hello"))):
        assert "skipped" in message(judged([undecided], subject("hello")))


# ---- text

LONG = " ".join(map(str, range(3000)))


@pytest.mark.parametrize(
    ("kind", "text", "expect", "options", "outcome"),
    [
        ("equals", " hello\n", "hello", {}, PASSED),
        ("equals", "hello", "hello\n", {}, PASSED),
        ("equals", "hello\n", "hello", {"strict": True}, FAILED),
        ("equals", "Hello", "hello", {}, FAILED),
        ("equals", "STRASSE", "straße", {"ignore_case": True}, PASSED),
        ("equals", "other", "hello", {"value": "other"}, PASSED),
        ("equals", "", "", {}, PASSED),
        ("equals", "42", 42, {}, PASSED),
        ("equals", "true", True, {}, PASSED),
        ("contains", "it is 2.5 m", 2.5, {}, PASSED),
        ("contains", "it is 2 m", [2, "m"], {}, PASSED),
        ("starts_with", "  Hello there", "Hello", {}, PASSED),
        ("starts_with", "Well, Hello", "Hello", {}, FAILED),
        ("starts_with", "HELLO", "hello", {"ignore_case": True}, PASSED),
        ("similarity", "the cat sat on the mat", "the cat sat on a mat", {}, PASSED),
        ("similarity", "a dog", "the cat sat on a mat", {}, FAILED),
        ("similarity", f"{LONG} a b", f"{LONG} c d", {"pass_at": 0.99}, PASSED),
        ("contains", "well, hello there", "hello", {}, PASSED),
        ("contains", "well, hello there", "bye", {}, FAILED),
        ("contains", "Hello", "hello", {"ignore_case": True}, PASSED),
        ("contains", "ab", " a ", {}, PASSED),
        ("contains", "ab", " a ", {"strict": True}, FAILED),
        ("contains", "a b c", ["a", "c"], {}, PASSED),
        ("regex", "order 1234 is here", r"\d{4}", {}, PASSED),
        ("regex", "order is here", None, {"pattern": r"\d{4}"}, FAILED),
        ("regex", "HELLO", None, {"pattern": "^hello$", "ignore_case": True}, PASSED),
        ("regex", "a\nb", None, {"pattern": "^b$", "multiline": True}, PASSED),
        ("regex", " hello \n", None, {"pattern": r"^hello$"}, PASSED),
        ("regex", " hello \n", None, {"pattern": r"^hello$", "strict": True}, FAILED),
    ],
)
def test_text_is_compared_as_the_suite_asks(
    kind: str, text: str, expect: Any, options: dict[str, Any], outcome: Outcome
) -> None:
    verdict = one(kind, text, expect, **options)
    assert verdict.outcome is outcome
    assert verdict.grades[0].grader == kind
    assert bool(verdict.grades[0].reason) is (outcome is FAILED)


def test_contains_scores_the_part_that_it_found() -> None:
    verdict = one("contains", "a b", ["a", "b", "c", "d"])
    assert (verdict.outcome, verdict.score) == (FAILED, 0.5)
    assert '"c", "d" not in "a b"' in verdict.grades[0].reason


def test_a_wrong_answer_is_told_beside_the_expected_one() -> None:
    assert one("equals", "bye", "hello").grades[0].reason == 'expected "hello", got "bye"'


@pytest.mark.parametrize(
    ("kind", "options"), [("equals", {}), ("contains", {}), ("regex", {"pattern": "hello"})]
)
def test_blanks_that_nobody_sees_are_told_by_their_codes(kind: str, options: Any) -> None:
    """Also where they don't count; the end of a line, which most answers have, goes unsaid."""
    reason = one(kind, "\t=1\u2028+\x85\u2029\n", "hello", **options).grades[0].reason
    assert reason.endswith(r'"\t=1\u2028+\u0085\u2029"')
    assert one_line(reason, 200) == reason


def test_a_late_difference_in_a_long_text_is_shown_where_it_is() -> None:
    start = "x" * 5000
    reason = one("equals", start + "B" + start, start + "A" + start).grades[0].reason
    assert "differs at character 5001" in reason
    assert "xxxA" in reason
    assert "xxxB" in reason
    assert len(reason) < 250


@given(st.text("ab", max_size=60), st.text("ab", max_size=60))
def test_two_texts_part_at_their_first_difference(left: str, right: str) -> None:
    from paraval.grade.text import _common_start

    same = _common_start(left, right)
    assert left[:same] == right[:same]
    assert same == min(len(left), len(right)) or left[same] != right[same]


@pytest.mark.parametrize(
    ("kind", "expect", "options", "said"),
    [
        ("equals", None, {}, "no 'expect'"),
        ("equals", {"a": 1}, {}, "needs text to compare with"),
        ("equals", [True], {}, "needs text to compare with"),
        ("contains", [], {}, "no text to look for"),
        ("contains", ["a", " "], {}, "no text to look for"),
        ("regex", "(", {}, "is not a valid pattern"),
        ("number", "soon", {}, "needs a number to compare with"),
        ("number", float("nan"), {}, "needs a number to compare with"),
        ("number", True, {}, "needs a number to compare with"),
        ("json", None, {"path": "a"}, "no 'expect'"),
    ],
)
def test_a_grader_with_nothing_fit_to_compare_with_is_an_error_and_not_a_wrong_answer(
    kind: str, expect: Any, options: dict[str, Any], said: str
) -> None:
    told = message(one(kind, '{"a": "hello"}', expect, **options))
    assert told.startswith(f"grader '{kind}': ")
    assert said in told


def test_a_catastrophic_pattern_is_ended_and_is_an_error() -> None:
    before = time.process_time()
    told = message(one("regex", "a" * 40 + "b", None, pattern=r"(a+)+$"))
    assert "more than 0.2 s of CPU" in told
    assert time.process_time() - before < 5
    assert one("regex", "aaa", None, pattern=r"(a+)+$").outcome is PASSED


def test_outside_the_main_thread_only_short_texts_are_matched() -> None:
    verdicts: list[PanelVerdict] = []

    def judge_there() -> None:
        verdicts.append(one("regex", "x" * 20_000, None, pattern="x$"))
        verdicts.append(one("regex", "x" * 2_000, None, pattern="x$"))

    thread = threading.Thread(target=judge_there)
    thread.start()
    thread.join(30)
    assert "outside the main thread" in message(verdicts[0])
    assert verdicts[1].outcome is PASSED


# ---- json


@pytest.mark.parametrize(
    ("text", "expect", "options", "outcome"),
    [
        ('{"a": 1}', None, {}, PASSED),
        (' \n{"a": 1}\n', None, {}, PASSED),
        ('```json\n{"a": 1}\n```', None, {"value": {"a": 1}}, PASSED),
        ('Here you are:\n\n```\n{"a": 1}\n```\nDone.', None, {"value": {"a": 1}}, PASSED),
        ("```python\nx\n```\n```JSON\n[1]\n```", None, {"value": [1]}, PASSED),
        ('```json\n{"a": 1}\n```', None, {"strict": True}, FAILED),
        ("```\n1\n```\n```\n2\n```", None, {}, FAILED),
        ('{"a": "```"}', None, {}, PASSED),
        ("```json\n" * 100_000, None, {}, FAILED),
        ('{"a": {"b": [{"c": 3}]}}', 3, {"path": "a.b[0].c"}, PASSED),
        ('{"a": {"b": [{"c": 3}]}}', 3.0, {"path": "a.b[0].c"}, PASSED),
        ('{"a": 1}', True, {"path": "a"}, FAILED),
        ('{"a": 1}', 1, {"path": "a.b"}, FAILED),
        ('{"a": [1]}', 1, {"path": "a[7]"}, FAILED),
        ('{"a": "hello"}', 1, {"path": "a[0]"}, FAILED),
        ("[1, 2]", 2, {"path": "[1]"}, PASSED),
        ('{"a": null}', "ignored", {"path": "a", "value": None}, PASSED),
        ('{"b": 2, "a": 1.0}', None, {"value": {"a": 1, "b": 2}}, PASSED),
        ('{"a": 2}', None, {"value": {"a": 1}}, FAILED),
        ("[1]", None, {"value": [1]}, PASSED),
        ("[1]", "for another grader", {}, PASSED),
        ('{"a": "x"}', None, {"schema": {"required": ["a"]}}, PASSED),
        ('{"a": "x"}', None, {"schema": {"properties": {"a": {"type": "integer"}}}}, FAILED),
        (json.dumps(["x"] * 9_000), None, {"schema": {"maxItems": 8_000}}, FAILED),
        (json.dumps(["x"] * 9_000), None, {"schema": {"maxItems": 9_000}}, PASSED),
    ],
)
def test_json_is_parsed_checked_and_compared(
    text: str, expect: Any, options: dict[str, Any], outcome: Outcome
) -> None:
    assert one("json", text, expect, **options).outcome is outcome


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the end"),
        ("hello", "line 1, column 1"),
        ('{"a": NaN}', "NaN"),
        ("[-Infinity]", "-Infinity"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5_000, "digits"),
        ("1e999", "too large"),
        ('{"a": 1', "the end"),
        ('{"a": 1} trailing', "Extra data"),
        ("\x00", "line 1"),
    ],
)
def test_what_is_not_json_is_a_wrong_answer_with_its_reason(text: str, said: str) -> None:
    verdict = one("json", text)
    assert verdict.outcome is FAILED
    assert verdict.grades[0].reason.startswith("not JSON: ")
    assert said in verdict.grades[0].reason
    assert len(verdict.grades[0].reason) < 300


def test_a_schema_says_where_the_answer_does_not_fit() -> None:
    schema = {"properties": {"items": {"items": {"type": "integer"}}}}
    verdict = one("json", '{"items": [1, "two"]}', schema=schema)
    assert "$.items[1]: 'two' is not of type 'integer'" in verdict.grades[0].reason


def test_a_remote_reference_in_a_schema_is_never_fetched() -> None:
    told = message(one("json", "{}", schema={"$ref": "http://127.0.0.1:9/schema.json"}))
    assert "127.0.0.1:9" in told
    assert "unresolved reference" in told


def test_a_catastrophic_pattern_in_a_schema_is_ended_too() -> None:
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert "of CPU" in message(one("json", json.dumps("a" * 40 + "b"), schema=schema))


def test_a_long_answer_gives_a_catastrophic_pattern_no_way_round_the_bound() -> None:
    schema = {"items": {"type": "string", "pattern": "^(a+)+$"}}
    text = json.dumps(["a" * 40 + "b"] * 1000)
    assert "of CPU" in message(one("json", text, schema=schema))


@pytest.mark.parametrize("depth", [100, 300, 500, 700, 900, 990, 2000])
@pytest.mark.parametrize("options", [{"path": "a"}, {"schema": {"items": {"$ref": "#"}}}])
def test_deep_nesting_is_a_wrong_answer_or_a_right_one_and_never_an_error(
    depth: int, options: dict[str, Any]
) -> None:
    verdict = one("json", "[" * depth + "]" * depth, "x", **options)
    assert verdict.outcome is FAILED or ("schema" in options and verdict.outcome is PASSED)


@pytest.mark.parametrize("options", [{"schema": {"type": "wrong"}}, {"path": "a..b"}])
def test_options_that_make_no_sense_are_refused_before_anything_is_judged(
    options: dict[str, Any],
) -> None:
    with pytest.raises(ParavalError):
        one("json", "{}", **options)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50)
@given(json_values)
def test_what_json_wrote_is_read_back_as_the_same_data(value: Any) -> None:
    assert same_data(parse_strictly(json.dumps(value)), value)


@settings(max_examples=50)
@given(json_values, json_values)
def test_data_is_the_same_exactly_when_its_canonical_text_is(left: Any, right: Any) -> None:
    def canonical(value: Any) -> str:
        return json.dumps(_numbers_alike(value), sort_keys=True)

    assert same_data(left, right) is (canonical(left) == canonical(right))


def _numbers_alike(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return str(int(value)) + "n" if value == int(value) else f"{value!r}n"
    if isinstance(value, dict):
        return {key: _numbers_alike(inner) for key, inner in value.items()}
    return [_numbers_alike(inner) for inner in value] if isinstance(value, list) else f"{value!r}"


# ---- number


@pytest.mark.parametrize(
    ("text", "expect", "options", "outcome"),
    [
        ("42", 42, {}, PASSED),
        (" 42.0\n", 42, {}, PASSED),
        ("The answer is 42.", 42, {}, PASSED),
        ("It costs $1,234.50 in all", 1234.5, {}, PASSED),
        ("\N{MINUS SIGN}3", -3, {}, PASSED),
        ("-3e2", "-300", {}, PASSED),
        (".5", 0.5, {}, PASSED),
        ("41", 42, {}, FAILED),
        ("between 41 and 43", 42, {}, FAILED),
        ("version 1.2.3", 1.2, {}, FAILED),
        ("x42", 42, {}, FAILED),
        ("1,2,3", 3, {}, FAILED),
        ("none", 42, {}, FAILED),
        ("", 42, {}, FAILED),
        ("nan", 42, {}, FAILED),
        ("inf", 42, {}, FAILED),
        ("1e999", 42, {"tolerance": 1}, FAILED),
        ("1e99999999999999999999999", 42, {}, FAILED),
        ("1e-99999999999999999999999", 0, {}, FAILED),
        ("9" * 5_000, 42, {}, FAILED),
        ("0.4", 0.3, {"tolerance": 0.1}, PASSED),
        ("0.41", 0.3, {"tolerance": 0.1}, FAILED),
        ("101", 100, {"relative": 0.01}, PASSED),
        ("-101", -100, {"relative": 0.01}, PASSED),
        ("102", 100, {"relative": 0.01}, FAILED),
        ("102", 100, {"relative": 0.01, "tolerance": 2}, PASSED),
        ("9007199254740993", 9007199254740992, {}, FAILED),
        ("7", 42, {"value": 7}, PASSED),
        ("first 3, then 4, so 7", 7, {"take": "last"}, PASSED),
        ("first 3, then 4, so 7", 3, {"take": "first"}, PASSED),
        ("3 + 4 = 7", "She has 3 and 4.\n#### 7", {"take": "last"}, PASSED),
        ("3 + 4 = 8", "She has 3 and 4.\n#### 7", {"take": "last"}, FAILED),
        ("none", 7, {"take": "last"}, FAILED),
        ("3 and 7", 7, {"take": "only"}, FAILED),
    ],
)
def test_a_number_is_near_enough_or_not(
    text: str, expect: Any, options: dict[str, Any], outcome: Outcome
) -> None:
    verdict = one("number", text, expect, **options)
    assert verdict.outcome is outcome
    assert len(verdict.grades[0].reason) < 300


@pytest.mark.parametrize("text", ["1" * 1_000_000 + "x", "1," * 500_000, "1.1." * 250_000])
def test_a_megabyte_of_digits_is_judged_quickly(text: str) -> None:
    before = time.process_time()
    assert one("number", text, 1).outcome is FAILED
    assert time.process_time() - before < 5


# ---- exit code


@pytest.mark.parametrize(
    ("code", "options", "outcome"),
    [
        (0, {}, PASSED),
        (3, {}, FAILED),
        (3, {"value": 3}, PASSED),
        (2, {"value": [1, 2]}, PASSED),
        (0, {"value": [1, 2]}, FAILED),
    ],
)
def test_an_exit_code_is_one_of_those_wanted(
    code: int, options: dict[str, Any], outcome: Outcome
) -> None:
    verdict = judged([spec("exit_code", **options)], subject("", exit_code=code))
    assert verdict.outcome is outcome


def test_a_target_without_an_exit_code_cannot_be_judged_by_it() -> None:
    assert "not a command" in message(one("exit_code", "hello"))


# ---- python


@pytest.mark.parametrize(
    ("answer", "score", "outcome", "reason"),
    [
        (True, 1.0, PASSED, ""),
        (False, 0.0, FAILED, ""),
        (1, 1.0, PASSED, ""),
        (0.7, 0.7, FAILED, ""),
        ((0.7, "nearly"), 0.7, FAILED, "nearly"),
        ((True, "fine"), 1.0, PASSED, "fine"),
        ({"score": 1.0, "reason": "good"}, 1.0, PASSED, "good"),
        ({"score": 0.2, "passed": True}, 0.2, PASSED, ""),
        ({"passed": False}, 0.0, FAILED, ""),
        (Grade(score=0.3, passed=True, reason="lenient"), 0.3, PASSED, "lenient"),
    ],
)
def test_a_function_may_answer_in_several_ways(
    answer: Any, score: float, outcome: Outcome, reason: str
) -> None:
    verdict = ask(lambda output, case: answer)
    assert (verdict.outcome, verdict.score) == (outcome, score)
    assert verdict.grades == (
        Grade(score=score, passed=outcome is PASSED, reason=reason, grader="python"),
    )


def test_a_score_passes_from_the_graders_own_mark_on() -> None:
    assert ask(lambda output, case: 0.7, pass_at=0.7).outcome is PASSED
    assert ask(lambda output, case: 0.69, pass_at=0.7).outcome is FAILED


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "null (NoneType)"),
        ("yes", '"yes" (str)'),
        (1.5, "1.5"),
        (-0.1, "-0.1"),
        (float("nan"), "nan"),
        ((1.0, "a", "b"), "tuple of 3"),
        ({"scroe": 1}, "neither 'score' nor 'passed'"),
        ({"score": 1, "passed": "yes"}, "passed="),
        (Grade(score=7, passed=True), "7"),
    ],
)
def test_an_answer_that_is_no_verdict_is_an_error_that_says_what_came(
    answer: Any, said: str
) -> None:
    told = message(ask(lambda output, case: answer))
    assert told.startswith("grader 'python': it returned ")
    assert said in told


def test_a_function_gets_the_output_the_case_and_the_variant_if_it_takes_them() -> None:
    seen: list[tuple[Any, ...]] = []

    def two(output: Output, case: Case) -> bool:
        seen.append((output.text, case.id))
        return True

    def three(output: Output, case: Case, variant: Mapping[str, Any]) -> bool:
        seen.append((output.text, case.id, variant["model"]))
        return True

    assert ask(two).outcome is PASSED
    assert ask(three).outcome is PASSED
    assert seen == [("hello", "hello"), ("hello", "hello", "small")]


def test_an_async_function_is_awaited_also_when_a_plain_one_hands_it_over() -> None:
    async def judge(output: Output, case: Case) -> float:
        await asyncio.sleep(0)
        return 1.0

    assert ask(judge).outcome is PASSED

    def hands_over(output: Output, case: Case) -> Any:
        return judge(output, case)

    assert ask(hands_over).outcome is PASSED


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this works")


def test_a_function_that_raises_is_an_error_with_its_type_message_and_place() -> None:
    def judge(output: Output, case: Case) -> bool:
        raise ValueError("no such rule")

    told = message(ask(judge))
    assert told.startswith("grader 'python': ValueError: no such rule (test_grade.py, line ")
    assert told.endswith(", in judge)")


def test_the_place_of_an_exit_is_where_the_function_left() -> None:
    def leaves(output: Output, case: Case) -> bool:
        sys.exit(3)

    def explains(output: Output, case: Case) -> bool:
        try:
            return bool(1 / 0)
        except ZeroDivisionError as error:
            raise ValueError("no rules") from error

    assert message(ask(leaves)).endswith(", in leaves)")
    assert "ValueError: no rules (test_grade.py" in message(ask(explains))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit(3), "sys.exit(3)"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
        (UnspeakableError(), "UnspeakableError: (its message cannot be shown)"),
        (ValueError("x" * 100_000), "ValueError: xxx"),
        (TimeoutError("of its own"), "TimeoutError: of its own"),
        (StopIteration(), "StopIteration"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
def test_nothing_that_a_function_raises_goes_further_than_its_verdict(
    error: BaseException, said: str, is_async: bool
) -> None:
    async def judge_async(output: Output, case: Case) -> bool:
        raise error

    def judge(output: Output, case: Case) -> bool:
        raise error

    told = message(ask(judge_async if is_async else judge))
    assert said in told
    assert len(told) < 2_500


def test_a_function_that_never_answers_is_given_up_at_its_timeout() -> None:
    release = threading.Event()

    async def hangs(output: Output, case: Case) -> bool:
        await asyncio.sleep(600)
        return True

    try:
        assert "after 0.05 s" in message(ask(lambda *_: release.wait(60), timeout=0.05))
        assert "after 0.05 s" in message(ask(hangs, timeout=0.05))
    finally:
        release.set()


def test_a_cancel_goes_through_a_panel_at_once() -> None:
    begun = asyncio.Event()

    async def hangs(output: Output, case: Case) -> bool:
        begun.set()
        await asyncio.sleep(600)
        return True

    async def cancel_it() -> None:
        graders = tuple(
            GraderSpec(name=f"g{number}", kind="python", options={"function": "m:f"})
            for number in range(2)
        )
        async with Warden() as warden:
            panel = Panel(
                Grading(graders=graders), functions={"m:f": hangs}, threads=Threads(), warden=warden
            )
            judging = asyncio.create_task(panel.judge(subject("hello"), "/nowhere"))
            await begun.wait()
            judging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await judging

    asyncio.run(cancel_it())


def test_blocking_graders_of_many_subjects_run_at_once() -> None:
    everybody = threading.Barrier(20, timeout=30)

    def judge(output: Output, case: Case) -> bool:
        everybody.wait()
        return True

    async def all_of_them() -> list[PanelVerdict]:
        threads = Threads()
        graders = tuple(
            GraderSpec(name=f"g{number}", kind="python", options={"function": "m:f"})
            for number in range(2)
        )
        async with Warden() as warden:
            panel = Panel(
                Grading(graders=graders), functions={"m:f": judge}, threads=threads, warden=warden
            )
            verdicts = await asyncio.gather(
                *(panel.judge(subject("hello"), "/nowhere") for _ in range(10))
            )
        threads.close()
        return verdicts

    verdicts = asyncio.run(all_of_them())
    assert [verdict.outcome for verdict in verdicts] == [PASSED] * 10


def test_a_function_is_loaded_from_the_suites_folder(tmp_path: Path) -> None:
    (tmp_path / "my_judge_in_a_file.py").write_text("def judge(output, case):\n    return True\n")
    asked = GraderSpec(
        name="mine",
        kind="python",
        options={"function": "my_judge_in_a_file:judge"},
        folder=str(tmp_path),
    )
    assert judged([asked], subject("hello")).outcome is PASSED


def test_a_function_that_takes_nothing_is_refused_before_anything_is_judged() -> None:
    with pytest.raises(ParavalError, match="takes no arguments"):
        ask(lambda: True)


# ---- command


def command(
    tmp_path: Path, program: str, what: Subject | None = None, **options: Any
) -> PanelVerdict:
    asked = GraderSpec(
        name="program",
        kind="command",
        options={"command": [sys.executable, "-c", program], **options},
        folder=str(tmp_path),
    )
    return judged([asked], what or subject("hello", "hi"), folder=str(tmp_path / "attempt"))


@pytest.mark.parametrize(
    ("program", "outcome", "score", "reason"),
    [
        ("pass", PASSED, 1.0, ""),
        ("raise SystemExit(1)", FAILED, 0.0, ""),
        ("print('looks good\\n\\n')", PASSED, 1.0, "looks good"),
        ("print('0.25'); raise SystemExit(1)", FAILED, 0.25, ""),
        ("print('talk'); print('0.75')", PASSED, 0.75, ""),
        ("print('42')", PASSED, 1.0, "42"),
        ("""print('{{"score": 0.5, "reason": "half"}}'); exit(1)""", FAILED, 0.5, "half"),
        ("""print('{{"reason": "only this"}}')""", PASSED, 1.0, "only this"),
        ("""print('{{"other": 1}}')""", PASSED, 1.0, '{"other": 1}'),
        ("print('[' * 100000)", PASSED, 1.0, "[" * 65_536),
        ("print('true')", PASSED, 1.0, "true"),
        ("print('wrong tool'); raise ValueError", FAILED, 0.0, "wrong tool"),
    ],
)
def test_exit_code_and_last_line_decide(
    tmp_path: Path, program: str, outcome: Outcome, score: float, reason: str
) -> None:
    verdict = command(tmp_path, program)
    assert verdict.outcome is outcome
    grade = verdict.grades[0]
    assert (grade.score, grade.reason.strip()) == (
        score,
        reason[-len(grade.reason.strip()) or None :],
    )


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise SystemExit(2)", "exit code 2"),
        ("raise ValueError('broken judge')", "ValueError: broken judge"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("""print('{{"score": 7}}')""", "7"),
        ("""print('{{"score": "high"}}')""", '"high"'),
    ],
)
def test_a_program_without_a_verdict_is_an_error(tmp_path: Path, program: str, said: str) -> None:
    assert said in message(command(tmp_path, program))


def test_the_last_words_of_a_broken_program_are_told(tmp_path: Path) -> None:
    program = "import sys; print('cannot find the rules', file=sys.stderr); sys.exit(5)"
    assert "cannot find the rules (it ended with exit code 5" in message(command(tmp_path, program))


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    asked = GraderSpec(
        name="gone", kind="command", options={"command": ["/no/such"]}, folder=str(tmp_path)
    )
    told = message(judged([asked], subject("hello"), folder=str(tmp_path)))
    assert "grader 'gone': it could not be started" in told


def test_a_program_that_takes_too_long_is_ended_and_is_an_error(tmp_path: Path) -> None:
    told = message(command(tmp_path, "import time; time.sleep(600)", timeout=0.3))
    assert "timed out after 0.3 s" in told


def test_a_program_gets_the_trial_on_its_stdin(tmp_path: Path) -> None:
    copy = tmp_path / "seen.json"
    hostile = Subject(
        case=Case(
            id="c",
            input=MappingProxyType({"q": 1}),
            expect=["a"],
            tags=("t",),
            metadata={"nan": float("nan"), "lock": threading.Lock()},
        ),
        variant={"model": "small"},
        repeat=2,
        output=Output(text="\ud800 \x00 é", usage={"tokens": 3}, cost_usd=0.1),
        exit_code=4,
    )
    program = f"import sys; open({str(copy)!r}, 'w').write(sys.stdin.read())"
    assert command(tmp_path, program, hostile).outcome is PASSED
    seen = json.loads(copy.read_text())
    assert "lock" in seen["case"]["metadata"].pop("lock")
    assert seen["case"] == {
        "id": "c",
        "input": {"q": 1},
        "expect": ["a"],
        "tags": ["t"],
        "metadata": {"nan": None},
        "locks": [],
        "exclusive": False,
        "description": None,
    }
    assert seen["workspace"] is None
    assert (seen["variant"], seen["repeat"], seen["exit_code"]) == ({"model": "small"}, 2, 4)
    assert seen["output"]["text"] == "\ud800 \x00 é"


def test_a_program_gets_only_the_environment_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s")
    monkeypatch.setenv("KEY", "k")
    program = "import os; print(os.environ.get('SECRET'), os.environ['KEY'], os.environ['MODE'])"
    verdict = command(tmp_path, program, env={"MODE": "strict"}, pass_env=["KEY"])
    assert verdict.grades[0].reason == "None k strict"


def test_the_runs_marks_are_laid_over_a_programs_environment(tmp_path: Path) -> None:
    async def judge() -> PanelVerdict:
        asked = GraderSpec(
            name="marked",
            kind="command",
            options={"command": [sys.executable, "-c", "import os; print(os.environ['MARK'])"]},
            folder=str(tmp_path),
        )
        async with Warden() as warden:
            panel = Panel(
                Grading(graders=(asked,)),
                functions={},
                threads=Threads(),
                warden=warden,
                room=CommandContext(marks={"MARK": "run-1"}),
            )
            return await panel.judge(subject("hello"), str(tmp_path))

    assert asyncio.run(judge()).grades[0].reason == "run-1"


def test_a_programs_logs_are_artifacts_of_the_attempt(tmp_path: Path) -> None:
    program = "import sys; print('out'); print('err', file=sys.stderr)"
    verdict = command(tmp_path, program)
    logs = {name: Path(path).read_text() for name, path in verdict.artifacts.items()}
    assert logs == {"program.stdout": "out\n", "program.stderr": "err\n"}
    assert all(path.startswith(str(tmp_path / "attempt")) for path in verdict.artifacts.values())
    assert command(tmp_path / "silent", "pass").artifacts == {}


# ---- the panel


def test_without_graders_a_trial_that_ended_well_passes() -> None:
    assert judged([], subject("anything")) == PanelVerdict(outcome=PASSED, score=1.0)


def test_all_graders_must_pass_and_the_score_is_their_mean() -> None:
    verdict = judged([spec("contains"), spec("equals")], subject("hello there", "hello"))
    assert (verdict.outcome, verdict.score) == (FAILED, 0.5)
    assert [grade.grader for grade in verdict.grades] == ["contains", "equals"]


def test_one_grader_that_cannot_judge_leaves_no_verdict_whatever_the_others_say() -> None:
    wrong = judged([spec("equals"), spec("exit_code")], subject("bye", "hello"))
    assert "grader 'exit_code'" in message(wrong)
    assert [grade.passed for grade in wrong.grades] == [False]


@pytest.mark.parametrize(
    ("weights", "scores", "pass_at", "outcome", "score"),
    [
        ((3.0, 1.0), (1.0, 0.0), 0.75, PASSED, 0.75),
        ((3.0, 1.0), (1.0, 0.0), 0.76, FAILED, 0.75),
        ((3.0, 1.0), (0.0, 1.0), 0.5, FAILED, 0.25),
        ((2.0, None), (1.0, 0.0), 0.5, PASSED, 2 / 3),
        ((0.1, 0.2, 0.7), (1.0, 1.0, 0.0), 0.3, PASSED, 0.3),
    ],
)
def test_weighted_graders_pass_when_their_mean_reaches_the_mark(
    weights: tuple[float | None, ...],
    scores: tuple[float, ...],
    pass_at: float,
    outcome: Outcome,
    score: float,
) -> None:
    specs = tuple(
        GraderSpec(name=str(number), kind="equals", weight=weight)
        for number, weight in enumerate(weights)
    )
    grades = [Grade(score=one, passed=one == 1.0) for one in scores]
    verdict = weigh(Grading(graders=specs, pass_at=pass_at), grades)
    assert verdict.outcome is outcome
    assert verdict.score == pytest.approx(score)


grades_or_problems = st.one_of(
    st.builds(Grade, score=st.floats(0, 1), passed=st.booleans()),
    st.builds(GraderProblem, grader=st.just("g"), message=st.just("broken")),
)


@given(st.lists(st.tuples(grades_or_problems, st.none() | st.floats(0.1, 10)), max_size=6))
def test_a_verdict_is_an_error_exactly_when_a_grader_had_a_problem(
    given_marks: list[tuple[Grade | GraderProblem, float | None]],
) -> None:
    specs = tuple(
        GraderSpec(name=str(number), kind="equals", weight=weight)
        for number, (_, weight) in enumerate(given_marks)
    )
    marks = [mark for mark, _ in given_marks]
    verdict = weigh(Grading(graders=specs), marks)
    has_problem = any(isinstance(mark, GraderProblem) for mark in marks)
    assert (verdict.outcome is GRADER_ERROR) is has_problem
    assert (verdict.score is None) is has_problem
    assert verdict.score is None or 0.0 <= verdict.score <= 1.0


def test_an_unknown_kind_is_refused_before_anything_is_judged() -> None:
    with pytest.raises(ParavalError, match="unknown kind 'vibes'"):
        one("vibes", "hello")
