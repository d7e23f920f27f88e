"""Graders that read the answer as data: json, number."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation, localcontext
from typing import Any

from paraval.errors import ParavalError
from paraval.grade.bounded import within_cpu_time
from paraval.grade.grader import CannotGrade, Subject, expected_of, quoted
from paraval.records import Grade, GraderSpec
from paraval.strict_json import parse_strictly
from paraval.threads import Threads

SCHEMA_CPU_S = 1.0
LONGEST_INLINE_TEXT = 20_000
"""A longer answer is checked against its schema in a thread, because that may take a while."""

# ---- json


class JsonGrader:
    """The answer is JSON; it fits the schema, and holds the expected value at the path.

    Without a path and a value of its own nothing is compared: the case's `expect` is another's.
    """

    def __init__(self, spec: GraderSpec, *, threads: Threads) -> None:
        self.name = spec.name
        self._options = spec.options
        self._threads = threads
        self._steps = _path_steps(spec.options.get("path"))
        schema = spec.options.get("schema")
        self._problem_with = None if schema is None else _schema_check(spec.name, schema)
        # Patterns hold the interpreter's lock: in a thread, nothing could end a bad one.
        self._has_patterns = '"pattern' in json.dumps(schema, default=repr)
        self.may_block = schema is not None

    async def grade(self, subject: Subject) -> Grade:
        try:
            document = parse_strictly(subject.output.text)
        except ValueError as error:
            return self._wrong(f"not JSON: {error}")
        problem = await self._schema_problem(document, len(subject.output.text))
        if problem is None and (self._steps or "value" in self._options):
            problem = self._difference(document, expected_of(subject, self._options))
        if problem is not None:
            return self._wrong(problem)
        return Grade(score=1.0, passed=True, grader=self.name)

    def _wrong(self, reason: str) -> Grade:
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)

    async def _schema_problem(self, document: Any, characters: int) -> str | None:
        check = self._problem_with
        if check is None:
            return None
        if characters > LONGEST_INLINE_TEXT and not self._has_patterns:
            return await self._threads.call(lambda: check(document))
        return within_cpu_time(lambda: check(document), seconds=SCHEMA_CPU_S, characters=characters)

    def _difference(self, document: Any, expected: Any) -> str | None:
        found = document
        for step in self._steps:
            try:
                found = found[step]
            except (KeyError, IndexError, TypeError):
                return f"nothing at '{self._options['path']}' in {quoted(document)}"
        if same_data(found, expected):
            return None
        place = f" at '{self._options['path']}'" if self._steps else ""
        return f"expected {quoted(expected)}{place}, got {quoted(found)}"


def same_data(one: Any, other: Any) -> bool:
    """Deep equality of data: 1 is 1.0, but True is not 1. Without recursion, however deep it is."""
    pairs = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            if left.keys() != right.keys():
                return False
            pairs.extend((left[key], right[key]) for key in left)
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            if len(left) != len(right):
                return False
            pairs.extend(zip(left, right, strict=True))
        elif isinstance(left, bool) is not isinstance(right, bool) or left != right:
            return False
    return True


_STEP = re.compile(r"\[(\d{1,9})\]|(?:^|\.)([^.\[\]]+)")


def _path_steps(path: str | None) -> tuple[str | int, ...]:
    """`a.b[0].c` as keys and positions."""
    if not path:
        return ()
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise ParavalError(f"'{path}' is not a path such as a.b[0].c")
        steps.append(int(step[1]) if step[1] else step[2])
        position = step.end()
    return tuple(steps)


def _schema_check(name: str, schema: Any) -> Callable[[Any], str | None]:
    """A function that says what is wrong with a document, by this schema."""
    # Only here: it is slow to import, and most suites have no schema.
    from jsonschema import exceptions, validators  # noqa: PLC0415 - see above
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - see above
    from referencing.jsonschema import EMPTY_REGISTRY  # noqa: PLC0415 - see above

    # The library's own registry would fetch a remote $ref; this one fetches nothing.
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except exceptions.SchemaError as error:
        raise ParavalError(
            f"grader '{name}': its schema is no JSON Schema: {error.message}"
        ) from None
    validator = kind(schema, registry=EMPTY_REGISTRY)

    def problem_with(document: Any) -> str | None:
        try:
            worst = exceptions.best_match(validator.iter_errors(document))
        except Unresolvable as error:
            raise CannotGrade(f"the schema refers to what is not in it: {error}") from None
        except RecursionError:
            return "nested too deeply to be checked against the schema"
        if worst is None:
            return None
        message = worst.message if len(worst.message) <= 200 else f"{worst.message[:200]}…"
        place = worst.json_path
        return f"does not fit the schema at {place}: {message}"

    return problem_with


# ---- number

# Possessive repeats: a megabyte of digits is read once, not once for every digit.
_NUMBER = re.compile(
    r"(?<![\w.])(?<!\d,)[+\-\u2212]?"  # \u2212: the minus sign that models like to write
    r"(?:(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?(?!\w|[.,]\d)"
)
_ENOUGH_DIGITS = Context(prec=100)


class NumberGrader:
    """The answer is a number, or holds exactly one, and it is near enough to the expected one."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options
        self._absolute = _decimal(spec.options.get("tolerance") or 0)
        self._relative = _decimal(spec.options.get("relative") or 0)

    async def grade(self, subject: Subject) -> Grade:
        expected = _expected_number(expected_of(subject, self._options))
        found = _numbers_in(subject.output.text.strip())
        if len(found) != 1:
            return self._wrong(f"{_count(found)} in {quoted(subject.output.text.strip())}")
        number = found[0]
        if not math.isfinite(float(number)):
            return self._wrong(f"expected {expected}, got a number beyond all bounds")
        if self._near(number, expected):
            return Grade(score=1.0, passed=True, grader=self.name)
        allowed = "" if not (self._absolute or self._relative) else " within the tolerance"
        return self._wrong(f"expected {expected}{allowed}, got {quoted(str(number))}")

    def _wrong(self, reason: str) -> Grade:
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)

    def _near(self, number: Decimal, expected: Decimal) -> bool:
        # In decimals: 0.4 is within 0.1 of 0.3, and 2**53 + 1 is not 2**53.
        with localcontext(_ENOUGH_DIGITS):
            allowed = max(self._absolute, self._relative * abs(expected))
            return abs(number - expected) <= allowed


def _numbers_in(text: str) -> list[Decimal]:
    written = (found.group().replace(",", "") for found in _NUMBER.finditer(text))
    return [_found_number(one.replace("\N{MINUS SIGN}", "-")) for one in written]


def _found_number(digits: str) -> Decimal:
    try:
        return _decimal(digits)
    except ValueError:  # An exponent that no decimal can have.
        return Decimal("inf")


def _count(found: list[Decimal]) -> str:
    return f"{len(found)} numbers, where one was expected," if found else "no number"


def _expected_number(expected: Any) -> Decimal:
    if isinstance(expected, int | float | str) and not isinstance(expected, bool):
        try:
            number = _decimal(expected)
        except ValueError:
            number = Decimal("nan")
        if number.is_finite():
            return number
    raise CannotGrade(f"it compares with a number, not with {quoted(expected)}")


def _decimal(value: int | float | str) -> Decimal:
    try:
        return Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise ValueError(f"'{value}' is not a number") from None
