"""The list of cases: each becomes a record, and is checked.

There may be a hundred thousand, so records are built by hand, and each address is a small tuple
that becomes a Location only when there is a problem.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from types import NoneType
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.forms import read_duration
from paraval.documents.problems import Location, Step, shown
from paraval.documents.scalars import loses_digits, plain, scalar_text
from paraval.errors import Problem
from paraval.models.messages import messages_problem
from paraval.plan.cases.fields import NEAR_MISS, FieldReader, Mistake
from paraval.plan.schema.suite_form import LOCK_NAME
from paraval.plan.suite_folder import SuiteFolder
from paraval.records import Case
from paraval.text.suggest import nearest, suggestion
from paraval.text.words import counted

# Cases of another tool: prompts with a ground truth.

TAGS = ("category", "difficulty")
_FOREIGN_KEYS = ("id", "prompt", "ground_truth", *TAGS, "description", "tags", "lock", "exclusive")


def from_ground_truth(written: Mapping[str, Any], spot: Location) -> dict[str, Any]:
    """Convert a case of repo-search-eval, with prompt and ground_truth; report unknown keys."""
    rest = {str(key): value for key, value in written.items() if key not in _FOREIGN_KEYS}
    for name in rest:
        if name == "input" or nearest(name, _FOREIGN_KEYS, NEAR_MISS):
            spot.at(name).report(
                f"unknown key '{name}' in a case with ground_truth{suggestion(name, _FOREIGN_KEYS)}"
            )
    for key in (*TAGS, "description"):
        if not isinstance(written.get(key), str | None):
            spot.at(key).report(f"must be text, not {shown(written[key])}")
    own = written.get("tags") or []
    found = [written[key] for key in TAGS if written.get(key)]
    case = {key: written[key] for key in ("id", "lock", "exclusive") if key in written}
    case |= {"input": written["prompt"], "expect": written["ground_truth"]}
    case["tags"] = [*own, *found] if isinstance(own, list) else own
    if written.get("description"):
        case["description"] = written["description"]
        rest = {"description": written["description"], **rest}
    return {**case, "metadata": rest} if rest else case


ID_LENGTH = 200
LISTED = 10
"""Problems of one kind in one file that are shown; the rest are counted."""
_LOCK = re.compile(LOCK_NAME)
_JOINERS = {0x200C: None, 0x200D: None}
"""Characters inside words of some scripts and inside emoji; otherwise harmless."""

_PLAIN = (str, dict, NoneType)

Address = tuple[Location, int | None, tuple[Step, ...]]
"""The file's location, the line if known, and the steps to the case."""


def is_case_id(text: str) -> bool:
    """Whether an id is one line of visible text."""
    if not (text.isprintable() or text.translate(_JOINERS).isprintable()):
        return False
    return 0 < len(text) <= ID_LENGTH and not text.isspace()


@dataclass(slots=True, kw_only=True)
class CaseList:
    """The cases read so far, with their addresses."""

    around: SuiteFolder
    problems: dict[Problem, None]
    """Shared by all locations of this suite."""
    keeps_spelling: bool = False
    """True: graders compare `expect` as text, so `1.50` in YAML stays `1.50`."""
    cases: list[Case] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    seen: dict[str, Address] = field(default_factory=dict)
    count: int = 0
    """Number of cases, including invalid ones, so that default ids don't shift."""
    notices: dict[str, list[str]] = field(default_factory=dict)
    """Which fields were taken for what -> the files where they were."""
    unmapped: set[str] = field(default_factory=set)
    """Parts of cases that a mistake in the suite leaves empty; reported already."""
    _fields: FieldReader = field(default_factory=FieldReader)
    _shared: dict[Mistake, tuple[int, Address]] = field(default_factory=dict)
    """Mistakes in several cases -> their number, and the address of the first."""
    _single: Counter[str] = field(default_factory=Counter)
    """Key -> the number of problems there."""

    def spot(self, index: int) -> Location:
        return spot_of(self.addresses[index])

    @contextmanager
    def reading(self, spot: Location, fields: FieldReader) -> Iterator[None]:
        """Read a file or a list: its fields are resolved alike, and its problems are counted."""
        self._fields, self._shared, self._single = fields, {}, Counter()
        yield
        for mistake, (count, first) in list(self._shared.items())[:LISTED]:
            noun = "case" if first[1] is None else "line"
            place = spot_of(first)
            place = place.at(mistake.key) if mistake.key and count == 1 else place
            place.report(mistake.message(count, noun))
        if len(self._shared) > LISTED:
            spot.report(f"{counted(len(self._shared) - LISTED, 'more unknown key')}")
        for key, number in self._single.items():
            if number > LISTED:
                more = counted(number - LISTED, "more problem")
                spot.report(f"{more} of this kind{f' in {key!r}' if key else ''}")
        for part, message in () if self._shared else fields.never_found(spot.file):
            self.unmapped.add(part)
            (fields.mapped_at or spot).at(part).report(message)
        if (notice := fields.notice()) is not None:
            self.notices.setdefault(notice, []).append(spot.file or "cases")

    def report(self, address: Address, key: str, message: str) -> None:
        """Report a problem in a case, unless there were too many of its kind in this file."""
        self._single[key] += 1
        if self._single[key] <= LISTED:
            spot_of(address).at(*([key] if key else [])).report(message)

    def add(self, written: Any, address: Address, *, is_spelled: bool = False) -> None:
        """Add a case; `is_spelled` if numbers may have their spelling, as in YAML."""
        self.count += 1
        case = self._read(written, address, is_spelled)
        if case is None:
            return
        first = self.seen.setdefault(case.id, address)
        if first is not address:
            message = f"duplicate id '{case.id}'; the first is {_place(first)}"
            self.report(address, "id", message)
            return
        self.cases.append(case)
        self.addresses.append(address)

    def _read(self, written: Any, address: Address, is_spelled: bool) -> Case | None:
        if isinstance(written, Case):
            case = written
            if type(case.input) in SCALARS:
                case = replace(case, input=scalar_text(case.input))
            given: Any = case.tags
            if isinstance(given, Sequence) and not isinstance(given, str | tuple):
                case = replace(case, tags=tuple(given))
            return case if self._is_sound(case, address) else None
        if not isinstance(written, dict):
            message = f"a case must be a mapping with id, input and expect, not {shown(written)}"
            self.report(address, "", message)
            return None
        if "ground_truth" in written and "prompt" in written and not self._fields.mapped.paths:
            found = len(self.problems)
            written = from_ground_truth(written, spot_of(address))
            if len(self.problems) > found:
                return None
        shape = self._fields.shape(tuple(written))
        if shape.mistakes:
            for mistake in shape.mistakes:
                number, first = self._shared.get(mistake, (0, address))
                self._shared[mistake] = number + 1, first
            return None
        written = self._fields.read(written, shape)
        if is_spelled:
            written = _without_spellings(written, keeps_expect=self.keeps_spelling)
        case = _as_case(written, self.count)
        return case if self._is_sound(case, address) else None

    def _is_sound(self, case: Case, address: Address) -> bool:
        """Whether the record is valid; report its problems."""
        # Exact types first: there may be very many cases, and checking for a Mapping is slow.
        if (
            type(case.id) is str
            and type(case.input) in _PLAIN
            and type(case.metadata) is dict
            and (not case.tags or _are_texts(case.tags))
            and case.locks == ()
            and case.exclusive is False
            and case.description is None
            and case.timeout is None
            and case.workspace is None
            and case.hidden == ()
            and is_case_id(case.id)
        ):
            return True
        problems = list(_case_problems(case))
        for key, message in problems:
            self.report(address, key, message)
        return not problems


SCALARS = (int, float, bool)


def _without_spellings(written: dict[str, Any], *, keeps_expect: bool) -> dict[str, Any]:
    """Return plain data; numbers that become text keep their spelling: `1.50`, `010`."""
    case = {key: plain(value) for key, value in written.items()}
    if loses_digits(written.get("id")):
        case["id"] = scalar_text(written["id"])
    for key in ("input", "expect", "description"):
        if hasattr(written.get(key), "written") and (key != "expect" or keeps_expect):
            case[key] = scalar_text(written[key])
    if isinstance(written.get("tags"), list):
        case["tags"] = [
            scalar_text(tag) if hasattr(tag, "written") else tag for tag in written["tags"]
        ]
    return case


def _as_case(written: dict[str, Any], number: int) -> Case:
    """Build the record, with defaults for missing keys; not validated yet."""
    given = written.get
    identity: Any = given("id")
    if type(identity) is not str:
        identity = f"case-{number}" if identity is None else _as_text(identity)
    input_: Any = given("input")
    tags: Any = given("tags")
    metadata: Any = given("metadata")
    locks: Any = given("lock")
    exclusive: Any = given("exclusive")
    workspace: Any = given("workspace")
    if workspace is not None and not isinstance(workspace, Mapping):
        # A data set may have such a field: the name of a team, say.
        metadata, workspace = {"workspace": workspace, **(metadata or {})}, None
    hidden: Any = given("hidden")
    if hidden is not None and not isinstance(hidden, list):
        # A data set may have such a field.
        metadata, hidden = {"hidden": hidden, **(metadata or {})}, None
    return Case(
        id=identity,
        input=input_ if type(input_) in _PLAIN else _as_text(input_),
        expect=given("expect"),
        tags=() if tags is None else tuple(map(_as_text, tags)) if type(tags) is list else tags,
        metadata={} if metadata is None else metadata,
        locks=() if locks is None else _as_locks(locks),
        exclusive=False if exclusive is None else exclusive,
        description=_as_text(given("description")),
        graders=given("graders") or (),
        workspace=workspace,
        timeout=_as_seconds(given("timeout")),
        hidden=() if hidden is None else tuple(hidden),
    )


def _as_text(value: Any) -> Any:
    """Data sets have numbers where text is needed."""
    return scalar_text(value) if type(value) in SCALARS else value


def _as_seconds(written: Any) -> Any:
    """A duration in seconds; unchanged if it is none, and None for an empty cell."""
    if written is None or written == "":
        return None
    seconds = read_duration(written)
    with suppress(ValueError):
        seconds = float(seconds) if isinstance(seconds, str) else seconds
    return seconds


def _as_locks(written: Any) -> Any:
    if isinstance(written, str):
        return (written,)
    return tuple(written) if isinstance(written, list) else written


def spot_of(address: Address) -> Location:
    spot, line, steps = address
    return replace(spot, line=line or spot.line, path=spot.path + steps)


def _place(address: Address) -> str:
    found: dict[Problem, None] = {}
    replace(spot_of(address), problems=found).report("")
    [problem] = found
    parts = (problem.file, f"line {problem.line}" if problem.line else problem.key)
    return ", ".join(part for part in parts if part) or "another case"


def _are_texts(tags: Any) -> bool:
    return type(tags) is tuple and all(isinstance(tag, str) and tag for tag in tags)


def _case_problems(case: Case) -> Iterator[tuple[str, str]]:
    identity: Any = case.id
    if not isinstance(identity, str):
        yield "id", f"must be text, not {shown(identity)}"
    elif not is_case_id(identity):
        rule = f"must be 1 to {ID_LENGTH} visible characters on one line"
        yield "id", f"{rule}, not {shown(identity)}"
    if isinstance(case.input, list | tuple) and case.input and isinstance(case.input[0], Mapping):
        if problem := messages_problem(case.input):
            yield "input", problem
    elif not isinstance(case.input, str | Mapping | None):
        is_list = isinstance(case.input, list | tuple)
        instead = ", or a list of messages with role and content" if is_list else ""
        yield "input", f"must be text, or a mapping, not {shown(case.input)}{instead}"
    tags: Any = case.tags
    if not _are_texts(tags):
        yield "tags", f"must be a list of strings, not {shown(tags)}"
    metadata: Any = case.metadata
    if not isinstance(metadata, Mapping):
        yield "metadata", f"must be a mapping, not {shown(metadata)}"
    description: Any = case.description
    if not isinstance(description, str | None):
        yield "description", f"must be text, not {shown(description)}"
    yield from _setting_problems(case)


def _setting_problems(case: Case) -> Iterator[tuple[str, str]]:
    """Problems of how a case runs."""
    locks: Any = case.locks
    if not isinstance(locks, tuple) or not all(_is_lock(name) for name in locks):
        one = locks[0] if isinstance(locks, tuple) and len(locks) == 1 else locks
        yield "lock", f"must be {_LOCK_RULE}, or a list of such, not {shown(one)}"
    if not isinstance(case.hidden, list | tuple):
        yield "hidden", f"must be a list of paths or mappings, not {shown(case.hidden)}"
    exclusive: Any = case.exclusive
    if not isinstance(exclusive, bool):
        yield "exclusive", f"must be true or false, not {shown(exclusive)}"
    timeout: Any = case.timeout
    is_number = type(timeout) in (int, float)
    if timeout is not None and not (is_number and 0 < timeout < math.inf):
        yield "timeout", f"must be a duration such as 90, 2s or 500ms, not {shown(timeout)}"
    if not isinstance(case.workspace, Mapping | None):
        yield "workspace", f"must be a mapping, not {shown(case.workspace)}"


_LOCK_RULE = "a name of letters, digits and any of '_.:/@+-'"


def _is_lock(name: Any) -> bool:
    return isinstance(name, str) and _LOCK.fullmatch(name) is not None


def read_list(written: Iterable[Any], spot: Location, into: CaseList) -> None:
    for position, item in enumerate(written):
        if isinstance(item, str):
            spot.at(position).report("mixes cases and paths; use one or the other")
        else:
            add_plain(item, (spot, None, (position,)), into)


def add_plain(item: Any, address: Address, into: CaseList) -> None:
    """Add a case with values of any kind: Python objects, numbers with their spelling."""
    if type(item) is Case and _is_simple(item):
        into.add(item, address)
        return
    data = item
    if isinstance(item, Mapping):
        data = plain(item)
        item = dict(item)
    try:
        json.dumps(_contents(data), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        into.report(address, "", f"a case must be plain data: {error}")
        return
    into.add(item, address, is_spelled=True)


def _is_simple(case: Case) -> bool:
    """Whether it is plain data at first sight, as most cases are."""
    texts = (str, NoneType)
    plain_texts = type(case.input) in texts and type(case.expect) in texts
    own = case.metadata or case.graders or case.workspace or case.hidden
    return plain_texts and not own


def _contents(data: Any) -> Any:
    if isinstance(data, Case):
        grading = (data.expect, data.graders, data.hidden)
        parts = (data.input, data.metadata, data.workspace, *grading)
        return [dict(part) if isinstance(part, Mapping) else part for part in parts]
    return data
