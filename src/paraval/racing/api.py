"""Races from Python: the keys of a race file as arguments, with functions in place of programs.

`race_file` reads the arguments as if they were in a file. This module only takes out what no file
can contain: functions, and candidates as data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError
from paraval.racing.candidates.json_lines import LineSource, read_items
from paraval.racing.candidates.proposals import given_proposals
from paraval.racing.candidates.staging import content_hash
from paraval.racing.file.race_file import load_race, request_from_mapping
from paraval.racing.file.short_forms import MAIN_KEYS, FlagValue
from paraval.racing.findings import Origin, Proposal
from paraval.racing.hooks.hook_messages import Ask, as_line
from paraval.racing.report.race_report import RaceReport
from paraval.racing.request import RaceRequest
from paraval.racing.run import run_race_async, run_race_stoppably
from paraval.runner.session import Observer
from paraval.settings import Options

Words = str | Sequence[str]
HookFunction = Callable[[Ask], Any]
"""Sync or async. Returns or yields candidates: mappings with the keys of a program's lines, or
strings, which are patches."""
Hook = Words | HookFunction | Mapping[str, Any]
"""A program, a function, or a mapping with `command` or `function` and its limits."""

_HOOKS = ("generate", "repair", "refine")
_STANDS_IN = "{python}"
"""Stands in for a function in the race-file reader, which expects a program."""
_PLACES = {
    "ref": ("repo", "ref"),
    "uncommitted": ("repo", "uncommitted"),
    "functions": ("profile", "functions"),
}
"""Keys that may be written next to the part that they belong to."""


class RaceKeys(TypedDict, total=False):
    """The keys of a race file, see `docs/reference/race-file.md`."""

    name: str
    repo: str | Path | Mapping[str, Any]
    ref: str
    uncommitted: bool
    setup: Words
    sandbox: bool
    test: Words | Mapping[str, Any]
    compare: Sequence[str | Mapping[str, str]]
    bench: Words | Mapping[str, Any]
    candidates: str | Path | Sequence[str | Path | Mapping[str, Any] | Proposal]
    models: str | Path | Mapping[str, Mapping[str, Any]]
    generate: Hook
    repair: Hook
    refine: Hook
    profile: str | Mapping[str, Any]
    functions: Sequence[str]
    accept: Mapping[str, float]
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
    onlooker: Observer | None = None,
    **keys: Unpack[RaceKeys],
) -> RaceReport:
    """Race candidates and return the report; `keys` override the file's.

    Ctrl-C stops cleanly: finished work stays recorded, and KeyboardInterrupt is raised. `onlooker`
    is the old name of `observer`.
    """
    _refuse_a_running_loop()
    asked = _asked(file, keys)
    report = run_race_stoppably(
        asked.request,
        proposals=asked.proposals,
        options=options or Options(),
        observer=observer or onlooker,
        functions=asked.functions,
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
    onlooker: Observer | None = None,
    **keys: Unpack[RaceKeys],
) -> RaceReport:
    """Like `race`, inside a running event loop. It handles no signals: cancel it to stop."""
    # In a thread, because it reads files and runs git.
    asked = await asyncio.to_thread(_asked, file, keys)
    return await run_race_async(
        asked.request,
        proposals=asked.proposals,
        options=options or Options(),
        observer=observer or onlooker,
        functions=asked.functions,
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


# ---- arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class _ApiRequest:
    request: RaceRequest
    proposals: tuple[Proposal, ...]
    functions: Mapping[str, HookFunction] = field(default_factory=dict)


def _asked(file: str | Path | None, keys: Mapping[str, Any]) -> _ApiRequest:
    words = {name: str(one) if isinstance(one, Path) else one for name, one in keys.items()}
    functions = _take_functions(words)
    items = _take_items(words)
    if file is None:
        request = request_from_mapping(words, Path.cwd())
    else:
        request = load_race(Path(file), _laid(words))
    for kind in functions:
        spec = request.hook(kind)
        assert spec is not None, "its placeholder is there"
        request = replace(request, **{kind: replace(spec, command=())})  # type: ignore[arg-type]  # by the name of its field
    return _ApiRequest(request=request, proposals=_proposals(request, items), functions=functions)


def _take_functions(words: dict[str, Any]) -> dict[str, HookFunction]:
    """The functions among the hooks, by kind; placeholders take their place."""
    functions: dict[str, HookFunction] = {}
    for kind in _HOOKS:
        hook = words.get(kind)
        if callable(hook):
            hook = {"function": hook}
        if not isinstance(hook, Mapping) or "function" not in hook:
            continue
        if not callable(hook["function"]):
            name = type(hook["function"]).__name__
            raise RequestError(f"{kind}: 'function' must be a function, not {name}")
        if "command" in hook:
            raise RequestError(f"{kind}: has both a command and a function; remove one of them")
        functions[kind] = hook["function"]
        bounds = {name: value for name, value in hook.items() if name != "function"}
        words[kind] = {**bounds, "command": [_STANDS_IN]}
    return functions


def _take_items(words: dict[str, Any]) -> tuple[Mapping[str, Any] | Proposal, ...]:
    """Take out candidates that are data; leave those that a file could name."""
    given = words.get("candidates")
    if given is None:
        return ()
    given = (given,) if isinstance(given, str | Mapping | Proposal) else tuple(given)
    items = [one for one in given if _is_data(one)]
    words["candidates"] = [
        str(one) if isinstance(one, Path) else one for one in given if not _is_data(one)
    ]
    return tuple(items)


def _is_data(candidate: Any) -> bool:
    """Whether it is a candidate itself; a mapping with `model` says who writes some."""
    if isinstance(candidate, Mapping):
        return "model" not in candidate
    return isinstance(candidate, Proposal)


def _laid(words: Mapping[str, Any]) -> list[FlagValue]:
    """Override a file's values; mappings key by key."""
    laid = []
    for name, value in words.items():
        steps = _PLACES.get(name, (name,))
        if isinstance(value, Mapping):
            laid += [
                FlagValue(flag=f"{name}.{key}", steps=(name, key), value=value[key])
                for key in value
            ]
        elif name in MAIN_KEYS and value is not None:
            laid.append(FlagValue(flag=name, steps=(name, MAIN_KEYS[name]), value=_plain(value)))
        elif name == "compare" and isinstance(value, str):
            laid.append(FlagValue(flag=name, steps=steps, value=[value]))
        else:
            laid.append(FlagValue(flag=name, steps=steps, value=_plain(value)))
    return laid


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _proposals(
    request: RaceRequest, items: Sequence[Mapping[str, Any] | Proposal]
) -> tuple[Proposal, ...]:
    """Every given candidate: named ones first, then those given as data."""
    if not items:
        return given_proposals(request)
    named = given_proposals(request) if request.candidates else ()
    teller = LineSource(origin=Origin.GIVEN, folder=Path(request.folder), called="candidate")
    asked = read_items(map(as_line, items), teller).asked
    mistakes = list(asked.complaints)
    found, known = list(named), {proposal.name for proposal in named}
    for proposal in asked.proposals:
        if proposal.name in known:
            mistakes.append(f"duplicate name '{proposal.name}'; rename one")
        try:
            found.append(replace(proposal, content=content_hash(proposal, request.repo)))
        except ParavalError as error:
            mistakes.append(f"{proposal.name}: {error.message}")
    if mistakes:
        raise RequestError("\n".join(f"candidates: {mistake}" for mistake in mistakes))
    return tuple(found)
