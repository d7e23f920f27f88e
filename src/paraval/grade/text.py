"""Graders of the answer's text: equals, contains, starts_with, similarity, regex, json, number; all
with bounded time.
"""

from __future__ import annotations

import json
import math
import re
import signal
import threading
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation, localcontext
from difflib import SequenceMatcher
from typing import Any, TypeVar

from paraval.documents.json import parse_strictly
from paraval.documents.scalars import scalar_text
from paraval.errors import ParavalError
from paraval.grade.grader import CannotGrade, Subject, expected_of, quoted
from paraval.records import Grade, GraderSpec
from paraval.text.words import some, without_separators
from paraval.threads import Threads

# A time limit for work that nothing else can interrupt, above all pattern matching.

T = TypeVar("T")

LONGEST_UNTIMED_TEXT = 10_000
"""Maximum characters to match where no timer can stop it: in a loop outside the main thread."""


class _TooSlow(BaseException):
    """Raised by the timer; not an Exception, so that no `except Exception` stops it."""


def within_cpu_time(work: Callable[[], T], *, seconds: float, characters: int) -> T:
    """Return the result of `work`; CannotGrade if it needs more CPU than `seconds`."""
    if threading.current_thread() is not threading.main_thread():
        if characters > LONGEST_UNTIMED_TEXT:
            raise CannotGrade(
                f"cannot match {characters} characters outside the main thread, where a slow "
                f"pattern cannot be stopped (limit: {LONGEST_UNTIMED_TEXT})"
            )
        return work()
    try:
        return _TIMER.run(work, seconds)
    except _TooSlow:
        raise CannotGrade(
            f"it took more than {seconds:g} s of CPU on {characters} characters and was stopped; "
            "a nested repeat such as (a+)+ is the usual cause"
        ) from None


class _CpuTimer:
    """Fires once, in the main thread, when the process has used that much CPU."""

    # SIGVTALRM counts CPU, not wall time: a busy machine cannot make a fast pattern look slow, and
    # SIGALRM stays free for other uses.

    def __init__(self) -> None:
        self._armed = False

    def run(self, work: Callable[[], T], seconds: float) -> T:
        # Never restored: a pending signal would meet the default, which ends the process.
        if signal.getsignal(signal.SIGVTALRM) != self._ring:
            signal.signal(signal.SIGVTALRM, self._ring)
        self._armed = True
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            return work()
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _ring(self, _number: int, _frame: object) -> None:
        if self._armed:
            raise _TooSlow


_TIMER = _CpuTimer()


# Graders that parse the answer: json, number.

SCHEMA_CPU_S = 1.0
LONGEST_INLINE_TEXT = 20_000
"""Longer answers are validated in a thread, because that may take a while."""

# ---- json


def fenced_blocks(text: str) -> list[str]:
    """Return the contents of all blocks between ``` or ```json, and ```."""
    blocks: list[str] = []
    lines: list[str] = []
    language: str | None = None
    for line in text.split("\n"):
        mark = line.strip()
        if not mark.startswith("```"):
            lines.append(line)
        elif language is None:
            lines, language = [], mark[3:].strip().casefold()
        elif mark == "```":
            if language in ("", "json"):
                blocks.append("\n".join(lines))
            language = None
    return blocks


class JsonGrader:
    """The answer is JSON that matches the schema and has the expected value at the path.

    Without a path and its own value nothing is compared: the case's `expect` is for another grader.
    """

    def __init__(self, spec: GraderSpec, *, threads: Threads) -> None:
        self.name = spec.name
        self._options = spec.options
        self._threads = threads
        self._steps = _path_steps(spec.options.get("path"))
        schema = spec.options.get("schema")
        self._problem_with = None if schema is None else _schema_check(spec.name, schema)
        # Patterns hold the interpreter's lock: in a thread, a bad one could not be stopped.
        self._has_patterns = '"pattern' in json.dumps(schema, default=repr)
        self.may_block = schema is not None

    async def grade(self, subject: Subject) -> Grade:
        text = subject.output.text
        if not self._options.get("strict"):
            blocks = fenced_blocks(text)
            if len(blocks) > 1:
                return self._wrong(f"{len(blocks)} fenced blocks instead of one")
            text = blocks[0] if len(blocks) == 1 else text
        try:
            document = parse_strictly(text)
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
    """Deep equality of data: 1 is 1.0, but True is not 1. Not recursive, so any depth works."""
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
    """Parse `a.b[0].c` into keys and positions."""
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
    """Return a function that reports how a document violates this schema."""
    # Imported late: it is slow to import, and most suites have no schema.
    from jsonschema import exceptions, validators  # noqa: PLC0415 - see above
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - see above
    from referencing.jsonschema import EMPTY_REGISTRY  # noqa: PLC0415 - see above

    # The library's default registry would fetch a remote $ref; this one fetches nothing.
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except exceptions.SchemaError as error:
        raise ParavalError(
            f"grader '{name}': its schema is not a valid JSON Schema: {error.message}"
        ) from None
    validator = kind(schema, registry=EMPTY_REGISTRY)

    def problem_with(document: Any) -> str | None:
        try:
            worst = exceptions.best_match(validator.iter_errors(document))
        except Unresolvable as error:
            raise CannotGrade(f"the schema has an unresolved reference: {error}") from None
        except RecursionError:
            return "nested too deeply to be checked against the schema"
        if worst is None:
            return None
        message = worst.message if len(worst.message) <= 200 else f"{worst.message[:200]}…"
        place = worst.json_path
        return f"does not match the schema at {place}: {message}"

    return problem_with


# ---- number

# Possessive repeats: a megabyte of digits is read once, not once per digit.
_NUMBER = re.compile(
    r"(?<![\w.])(?<!\d,)[+\-\u2212]?"  # \u2212: the minus sign that models like to write
    r"(?:(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?(?!\w|[.,]\d)"
)
_ENOUGH_DIGITS = Context(prec=100)


class NumberGrader:
    """The answer is a number, or contains exactly one, close enough to the expected one.
    With `take`, the first or last of several counts, also in the expected text."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options
        self._absolute = _decimal(spec.options.get("tolerance") or 0)
        self._relative = _decimal(spec.options.get("relative") or 0)
        self._place = {"first": 0, "last": -1}.get(spec.options.get("take", "only"))

    def _expected(self, subject: Subject) -> Decimal:
        expected = expected_of(subject, self._options)
        if self._place is not None and isinstance(expected, str):
            numbers = _numbers_in(expected)
            expected = str(numbers[self._place]) if numbers else expected
        return _expected_number(expected)

    async def grade(self, subject: Subject) -> Grade:
        expected = self._expected(subject)
        found = _numbers_in(subject.output.text.strip())
        if not found or (self._place is None and len(found) > 1):
            return self._wrong(f"{_count(found)} in {quoted(subject.output.text.strip())}")
        number = found[self._place or 0]
        if not math.isfinite(float(number)):
            return self._wrong(f"expected {expected}, got a number too large to represent")
        if self._near(number, expected):
            return Grade(score=1.0, passed=True, grader=self.name)
        allowed = "" if not (self._absolute or self._relative) else " within the tolerance"
        return self._wrong(f"expected {expected}{allowed}, got {quoted(str(number))}")

    def _wrong(self, reason: str) -> Grade:
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)

    def _near(self, number: Decimal, expected: Decimal) -> bool:
        # Compare as decimals: 0.4 is within 0.1 of 0.3, and 2**53 + 1 is not 2**53.
        with localcontext(_ENOUGH_DIGITS):
            allowed = max(self._absolute, self._relative * abs(expected))
            return abs(number - expected) <= allowed


def _numbers_in(text: str) -> list[Decimal]:
    written = (found.group().replace(",", "") for found in _NUMBER.finditer(text))
    return [_found_number(one.replace("\N{MINUS SIGN}", "-")) for one in written]


def _found_number(digits: str) -> Decimal:
    try:
        return _decimal(digits)
    except ValueError:  # An exponent beyond the range of decimals.
        return Decimal("inf")


def _count(found: list[Decimal]) -> str:
    return f"{len(found)} numbers instead of one" if found else "no number"


def _expected_number(expected: Any) -> Decimal:
    if isinstance(expected, int | float | str) and not isinstance(expected, bool):
        try:
            written = without_separators(expected) if isinstance(expected, str) else expected
            number = _decimal(written)
        except ValueError:
            number = Decimal("nan")
        if number.is_finite():
            return number
    raise CannotGrade(f"it needs a number to compare with, not {quoted(expected)}")


def _decimal(value: int | float | str) -> Decimal:
    try:
        return Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise ValueError(f"'{value}' is not a number") from None


SIMILARITY_CPU_S = 5.0
MOST_COMPARED_CHARACTERS = 2000
"""Of longer texts, the words are compared: the time is quadratic."""
PATTERN_CPU_S = 0.2
"""CPU seconds: a pattern that needs more on one answer may never end."""


class EqualsGrader:
    """The answer is the expected text."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options

    async def grade(self, subject: Subject) -> Grade:
        expected = expected_text(expected_of(subject, self._options))
        answer = as_compared(subject.output.text, self._options)
        wanted = as_compared(expected, self._options)
        if answer == wanted:
            return Grade(score=1.0, passed=True, grader=self.name)
        reason = _difference(wanted, answer, _as_shown(subject.output.text, self._options))
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)


class ContainsGrader:
    """The answer contains every expected text; the score is the share that it contains."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options

    async def grade(self, subject: Subject) -> Grade:
        wanted = self._wanted(subject)
        answer = as_compared(subject.output.text, self._options)
        missing = [text for text in wanted if as_compared(text, self._options) not in answer]
        if not missing:
            return Grade(score=1.0, passed=True, grader=self.name)
        return Grade(
            score=(len(wanted) - len(missing)) / len(wanted),
            passed=False,
            reason=f"{_listed(missing)} not in {_as_shown(subject.output.text, self._options)}",
            grader=self.name,
        )

    def _wanted(self, subject: Subject) -> list[str]:
        expected = expected_of(subject, self._options)
        several = expected if isinstance(expected, list | tuple) else [expected]
        wanted = [expected_text(one) for one in several]
        # Every text contains "": such a grader would pass any answer unnoticed.
        if not wanted or not all(as_compared(text, self._options) for text in wanted):
            raise CannotGrade(f"case '{subject.case.id}' has no text to look for")
        return wanted


class StartsWithGrader:
    """The answer starts with the expected text."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options

    async def grade(self, subject: Subject) -> Grade:
        expected = expected_text(expected_of(subject, self._options))
        start = as_compared(expected, self._options)
        if not start:
            raise CannotGrade(f"case '{subject.case.id}' has no text to start with")
        if as_compared(subject.output.text, self._options).startswith(start):
            return Grade(score=1.0, passed=True, grader=self.name)
        shown = _as_shown(subject.output.text, self._options)
        reason = f"does not start with {quoted(expected)}: {shown}"
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)


class SimilarityGrader:
    """The answer resembles the expected text."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options

    async def grade(self, subject: Subject) -> Grade:
        wanted = as_compared(expected_text(expected_of(subject, self._options)), self._options)
        answer = as_compared(subject.output.text, self._options)
        try:
            score = within_cpu_time(
                lambda: _ratio(wanted, answer), seconds=SIMILARITY_CPU_S, characters=0
            )
        except CannotGrade:
            raise CannotGrade("the texts are too long to compare") from None
        return similarity_grade(score, self._options, self.name)


def _ratio(wanted: str, answer: str) -> float:
    is_long = max(len(wanted), len(answer)) > MOST_COMPARED_CHARACTERS
    one, other = (wanted.split(), answer.split()) if is_long else (wanted, answer)
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def similarity_grade(score: float, options: Mapping[str, Any], name: str) -> Grade:
    """Return the grade for a similarity from 0 to 1."""
    needed = float(options.get("pass_at", 0.8))
    passed = score >= needed - 1e-9
    reason = "" if passed else f"similarity {score:.2f}, needs {needed:g}"
    return Grade(score=score, passed=passed, reason=reason, grader=name)


class RegexGrader:
    """A pattern matches somewhere in the answer."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options
        self._flags = re.RegexFlag(0)
        for option, flag in (
            ("ignore_case", re.IGNORECASE),
            ("multiline", re.MULTILINE),
            ("dotall", re.DOTALL),
        ):
            if spec.options.get(option):
                self._flags |= flag

    async def grade(self, subject: Subject) -> Grade:
        pattern = self._pattern(subject)
        text = subject.output.text
        answer = text if self._options.get("strict") else text.strip()
        found = within_cpu_time(
            lambda: pattern.search(answer), seconds=PATTERN_CPU_S, characters=len(answer)
        )
        if found:
            return Grade(score=1.0, passed=True, grader=self.name)
        reason = f"no match for {quoted(pattern.pattern)} in {_as_shown(text, self._options)}"
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)

    def _pattern(self, subject: Subject) -> re.Pattern[str]:
        source = self._options.get("pattern")
        if source is None:
            source = expected_of(subject, self._options)
        try:
            # `re` caches compiled patterns, so this is only a lookup after the first time.
            return re.compile(expected_text(source), self._flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise CannotGrade(f"{quoted(source)} is not a valid pattern: {error}") from None


def as_compared(text: str, options: Mapping[str, Any]) -> str:
    trimmed = text if options.get("strict") else text.strip()
    return trimmed.casefold() if options.get("ignore_case") else trimmed


def _as_shown(text: str, options: Mapping[str, Any]) -> str:
    """Return the answer for a reason, with ignored whitespace around it shown, except for the
    spaces and line ends that most answers have."""
    return quoted(text if options.get("strict") else text.strip(" \r\n"))


def expected_text(expected: Any) -> str:
    if isinstance(expected, str):
        return expected
    if isinstance(expected, int | float):
        return scalar_text(expected)
    raise CannotGrade(f"it needs text to compare with, not {quoted(expected)}")


def _difference(wanted: str, answer: str, shown: str) -> str:
    """Describe where two texts differ; if they begin alike, show only that part."""
    same = _common_start(wanted, answer)
    if same <= 40:
        return f"expected {quoted(wanted)}, got {shown}"
    start = same - 10
    return (
        f"differs at character {same + 1}: "
        f"expected …{quoted(wanted[start : start + 60])}, got …{quoted(answer[start : start + 60])}"
    )


def _common_start(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    low, high = 0, shorter
    # Bisection: comparing slices is fast, comparing a megabyte by character is not.
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _listed(texts: list[str]) -> str:
    return some([quoted(text) for text in texts], 3)
