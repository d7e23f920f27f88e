"""The list of cases: each becomes a record, and is checked.

There may be a hundred thousand, so records are built by hand, and each address is a small tuple
that becomes a Location only when there is a problem.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any

from paraval.documents.forms import unknown_key
from paraval.documents.problems import Location, Step, shown
from paraval.documents.yaml import loses_digits, plain, scalar_text
from paraval.errors import Problem
from paraval.models.messages import messages_problem
from paraval.plan.schema.suite_form import LOCK_NAME, CaseForm
from paraval.plan.suite_folder import SuiteFolder
from paraval.records import Case
from paraval.text.suggest import suggestion

# Cases of another tool: prompts with a ground truth.

TAGS = ("category", "difficulty")
_FOREIGN_KEYS = ("id", "prompt", "ground_truth", *TAGS, "description", "tags", "lock", "exclusive")


def from_ground_truth(written: Mapping[str, Any], spot: Location) -> dict[str, Any]:
    """Convert a case of repo-search-eval, with prompt and ground_truth; report unknown keys."""
    for key in written:
        if key not in _FOREIGN_KEYS:
            name = str(key)
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
        case["metadata"] = {"description": written["description"]}
    return case


KEYS = frozenset(("id", "input", "expect", "tags", "metadata", "lock", "exclusive", "graders"))
_LOCK = re.compile(LOCK_NAME)
_ID = re.compile(
    r"\A(?!(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|\Z))(?!.*\.\.)"
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?<!\.)(?<!\.lock)\Z"
)
_ID_RULE = (
    "must be 1 to 64 letters, digits, '.', '_' and '-', starting with a letter or digit,"
    " without '..', not ending in '.' or '.lock', and not a device name such as CON"
)

_PLAIN = (str, dict, NoneType)

Address = tuple[Location, int | None, tuple[Step, ...]]
"""The file's location, the line if known, and the steps to the case."""


def is_case_id(text: str) -> bool:
    """Whether an id is a safe file or folder name on any system."""
    return _ID.match(text) is not None


@dataclass(slots=True, kw_only=True)
class CaseList:
    """The cases read so far, with their addresses."""

    around: SuiteFolder
    problems: dict[Problem, None]
    """Shared by all locations of this suite."""
    cases: list[Case] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    seen: dict[str, Address] = field(default_factory=dict)
    count: int = 0
    """Number of cases, including invalid ones, so that default ids don't shift."""

    def spot(self, index: int) -> Location:
        return spot_of(self.addresses[index])

    def add(self, written: Any, address: Address) -> None:
        self.count += 1
        case = self._read(written, address)
        if case is None:
            return
        first = self.seen.setdefault(case.id, address)
        if first is not address:
            place = _place(first)
            spot_of(address).at("id").report(f"duplicate id '{case.id}'; the first is {place}")
            return
        self.cases.append(case)
        self.addresses.append(address)

    def _read(self, written: Any, address: Address) -> Case | None:
        if isinstance(written, Case):
            return written if _is_sound(written, address) else None
        if not isinstance(written, dict):
            spot_of(address).report(
                f"a case must be a mapping with id, input and expect, not {shown(written)}"
            )
            return None
        if "ground_truth" in written and "prompt" in written:
            found = len(self.problems)
            written = from_ground_truth(written, spot_of(address))
            if len(self.problems) > found:
                return None
        case = _as_case(written, self.count)
        sound = _is_sound(case, address)
        if written.keys() <= KEYS:
            return case if sound else None
        for key in sorted(written.keys() - KEYS, key=str):
            spot_of(address).at(str(key)).report(unknown_key(str(key), CaseForm))
        return None


def _as_case(written: dict[str, Any], number: int) -> Case:
    """Build the record, with defaults for missing keys; not validated yet."""
    given = written.get
    identity: Any = given("id")
    if type(identity) is not str:
        identity = f"case-{number}" if identity is None else _number_as_id(identity)
    tags: Any = given("tags")
    metadata: Any = given("metadata")
    locks: Any = given("lock")
    exclusive: Any = given("exclusive")
    return Case(
        id=identity,
        input=given("input"),
        expect=given("expect"),
        tags=() if tags is None else tuple(tags) if type(tags) is list else tags,
        metadata={} if metadata is None else metadata,
        locks=() if locks is None else _as_locks(locks),
        exclusive=False if exclusive is None else exclusive,
        graders=given("graders") or (),
    )


def _as_locks(written: Any) -> Any:
    if isinstance(written, str):
        return (written,)
    return tuple(written) if isinstance(written, list) else written


def _number_as_id(identity: Any) -> Any:
    """Data sets often number their cases, so whole numbers are accepted as ids."""
    is_number = isinstance(identity, int) and not isinstance(identity, bool)
    return scalar_text(identity) if is_number else identity


def spot_of(address: Address) -> Location:
    spot, line, steps = address
    return replace(spot, line=line or spot.line, path=spot.path + steps)


def _place(address: Address) -> str:
    found: dict[Problem, None] = {}
    replace(spot_of(address), problems=found).report("")
    [problem] = found
    parts = (problem.file, f"line {problem.line}" if problem.line else problem.key)
    return ", ".join(part for part in parts if part) or "another case"


def _is_sound(case: Case, address: Address) -> bool:
    """Whether the record is valid; report its problems."""
    # Exact types first: there may be very many cases, and checking for a Mapping is slow.
    if (
        type(case.id) is str
        and type(case.input) in _PLAIN
        and type(case.metadata) is dict
        and (not case.tags or _are_texts(case.tags))
        and case.locks == ()
        and case.exclusive is False
        and is_case_id(case.id)
    ):
        return True
    problems = list(_case_problems(case))
    for key, message in problems:
        spot_of(address).at(key).report(message)
    return not problems


def _are_texts(tags: Any) -> bool:
    return type(tags) is tuple and all(isinstance(tag, str) and tag for tag in tags)


def _case_problems(case: Case) -> Iterator[tuple[str, str]]:
    identity: Any = case.id
    if not isinstance(identity, str):
        yield "id", f"must be text, not {shown(identity)}; put it in quotes"
    elif not is_case_id(identity):
        yield "id", f"{_ID_RULE}; not {shown(identity)}"
    if isinstance(case.input, list | tuple) and case.input and isinstance(case.input[0], Mapping):
        if problem := messages_problem(case.input):
            yield "input", problem
    elif not isinstance(case.input, str | Mapping | None):
        instead = (
            ", or a list of messages with role and content"
            if isinstance(case.input, list | tuple)
            else "; put it in quotes"
        )
        yield "input", f"must be text, or a mapping, not {shown(case.input)}{instead}"
    tags: Any = case.tags
    if not _are_texts(tags):
        yield "tags", f"must be a list of strings, not {shown(tags)}"
    metadata: Any = case.metadata
    if not isinstance(metadata, Mapping):
        yield "metadata", f"must be a mapping, not {shown(metadata)}"
    locks: Any = case.locks
    if not isinstance(locks, tuple) or not all(_is_lock(name) for name in locks):
        one = locks[0] if isinstance(locks, tuple) and len(locks) == 1 else locks
        yield "lock", f"must be {_LOCK_RULE}, or a list of such, not {shown(one)}"
    exclusive: Any = case.exclusive
    if not isinstance(exclusive, bool):
        yield "exclusive", f"must be true or false, not {shown(exclusive)}"


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
        if loses_digits(item.get("id")):
            item = {**item, "id": scalar_text(item["id"])}
        data = item = plain(item)
    try:
        json.dumps(_contents(data), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        spot_of(address).report(f"a case must be plain data: {error}")
        return
    into.add(item, address)


def _is_simple(case: Case) -> bool:
    """Whether it is plain data at first sight, as most cases are."""
    texts = (str, NoneType)
    plain_texts = type(case.input) in texts and type(case.expect) in texts
    return plain_texts and not (case.metadata or case.graders)


def _contents(data: Any) -> Any:
    if isinstance(data, Case):
        parts = (data.input, data.expect, data.metadata, data.graders)
        return [dict(part) if isinstance(part, Mapping) else part for part in parts]
    return data
