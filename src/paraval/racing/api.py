"""Races from Python: the keys of a race file as arguments, with a function as `propose`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.racing.candidates.given import given_proposals
from paraval.racing.candidates.lines import ProposalReader
from paraval.racing.candidates.propose import Ask
from paraval.racing.findings import Proposal
from paraval.racing.race_file import (
    MAIN_KEYS,
    FlagValue,
    as_in_a_file,
    load_race,
    race_of,
)
from paraval.racing.report.race_report import RaceReport
from paraval.racing.request import RaceRequest
from paraval.racing.run import run_race_async, run_race_stoppably
from paraval.runner.session import Observer
from paraval.settings import Options

Words = str | Sequence[str]
ProposeFunction = Callable[[Ask], Any]
"""Sync or async. Returns or yields candidates: mappings with the keys of a program's lines, or
strings, which are patches."""


class RaceArguments(TypedDict, total=False):
    """The keys of a race file, see `docs/reference/race-file.md`."""

    name: str
    models: str | Path | Mapping[str, Mapping[str, Any]]
    repo: str | Path | Mapping[str, Any]
    setup: Words
    sandbox: bool
    test: Words | Mapping[str, Any]
    compare: Words
    bench: Words | Mapping[str, Any]
    candidates: str | Path | Sequence[str | Path | Mapping[str, Any]]
    propose: Words | ProposeFunction | Mapping[str, Any]
    profile: str
    functions: Sequence[str]
    accept: Mapping[str, Any]
    limits: Mapping[str, Any]
    protect: Sequence[str] | bool
    env: Mapping[str, str]
    pass_env: Sequence[str]


def race(
    file: str | Path | None = None,
    /,
    *,
    options: Options | None = None,
    observer: Observer | None = None,
    **keys: Unpack[RaceArguments],
) -> RaceReport:
    """Race candidates and return the report; `keys` override the file's.

    Candidates may be mappings with `patch`, `folder` or `ref`. `propose` may be a function, or a
    mapping with `function`, `rounds` and `timeout`. Ctrl-C stops cleanly: finished work stays
    recorded, and KeyboardInterrupt is raised.
    """
    _refuse_a_running_loop()
    asked = _asked(file, keys)
    report = run_race_stoppably(
        asked.request,
        proposals=asked.proposals,
        options=options or Options(),
        observer=observer,
        function=asked.function,
    )
    if report.run.interrupted:
        raise KeyboardInterrupt(f"race {report.run.id} was interrupted; it can be resumed")
    return report


async def race_async(
    file: str | Path | None = None,
    /,
    *,
    options: Options | None = None,
    observer: Observer | None = None,
    **keys: Unpack[RaceArguments],
) -> RaceReport:
    """Like `race`, inside a running event loop. It handles no signals: cancel it to stop."""
    # In a thread, because it reads files and runs git.
    asked = await asyncio.to_thread(_asked, file, keys)
    return await run_race_async(
        asked.request,
        proposals=asked.proposals,
        options=options or Options(),
        observer=observer,
        function=asked.function,
    )


def _refuse_a_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RequestError(
        "paraval.race cannot be used inside a running event loop (a notebook, an async function)",
        hint="use: report = await paraval.race_async(...)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ApiRequest:
    request: RaceRequest
    proposals: tuple[Proposal, ...]
    function: ProposeFunction | None


def _asked(file: str | Path | None, given: Mapping[str, Any]) -> _ApiRequest:
    keys = dict(given)
    function = _take_function(keys)
    items = _take_items(keys)
    has_function = function is not None
    if file is None:
        request = race_of(keys, Path.cwd(), has_function=has_function)
    else:
        flags = _flags(keys, has_function=has_function)
        request = load_race(Path(file), flags, has_function=has_function)
    proposals = given_proposals(request) if request.keys.candidates or not items else ()
    reader = ProposalReader(repo=request.repo, folder=Path(request.folder), called="candidate")
    more, _ = reader.items(items)
    names = {one.name for one in proposals}
    mistakes = [
        *more.complaints,
        *(f"duplicate name '{one.name}'" for one in more.proposals if one.name in names),
    ]
    if mistakes:
        raise RequestError("\n".join(f"candidates: {mistake}" for mistake in mistakes))
    return _ApiRequest(request=request, proposals=(*proposals, *more.proposals), function=function)


def _take_function(keys: dict[str, Any]) -> ProposeFunction | None:
    """Take out the function that proposes."""
    propose = keys.get("propose")
    if callable(propose):
        propose = {"function": propose}
    if not isinstance(propose, Mapping) or "function" not in propose:
        return None
    keys["propose"] = {name: value for name, value in propose.items() if name != "function"}
    if not callable(propose["function"]) or {"command", "models"} & propose.keys():
        raise RequestError("propose: has a function, which must be callable, or something else")
    function: ProposeFunction = propose["function"]
    return function


def _take_items(keys: dict[str, Any]) -> list[Mapping[str, Any]]:
    """Take out candidates that are data; leave those that a file could name."""
    given = keys.get("candidates")
    if given is None:
        return []
    if not isinstance(given, str | Path | Mapping | Iterable):
        return []  # The reader says what is wrong with it.
    given = [given] if isinstance(given, str | Path | Mapping) else [*given]
    keys["candidates"] = [str(one) for one in given if not isinstance(one, Mapping)]
    return [one for one in given if isinstance(one, Mapping)]


def _flags(keys: Mapping[str, Any], *, has_function: bool) -> Iterator[FlagValue]:
    """What overrides a file's values, key by key where it has several."""
    if has_function:
        for other in ("command", "models"):
            yield FlagValue(flag="propose", steps=("propose", other), value=None)
    for name, given in keys.items():
        value = as_in_a_file(given)
        if isinstance(value, Mapping) and name != "models":
            for key, inner in value.items():
                yield FlagValue(flag=f"{name}.{key}", steps=(name, key), value=inner)
        elif name in MAIN_KEYS and value is not None:
            yield FlagValue(flag=name, steps=(name, MAIN_KEYS[name]), value=value)
        else:
            yield FlagValue(flag=name, steps=(name,), value=value)
