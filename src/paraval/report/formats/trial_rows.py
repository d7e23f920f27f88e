"""One row per trial: the columns of CSV files and data frames.

A column's name is the path of its value in a trial of the JSON report (`usage.input_tokens`), so
that all formats share their names. The few whose description ends in "Computed." have none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, NamedTuple

from paraval.errors import RequestError
from paraval.records import Activity, Change, TrialResult, Variant
from paraval.report.contents import Contents
from paraval.report.formats.json import trial_as_dict
from paraval.report.summary.tally import Summary

Entry = Mapping[str, Any]
"""A trial of the JSON report."""
_PLACEHOLDER = re.compile("[A-Z]+")
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_LIBRARIES = ("pandas", "polars")


def axes_in(variants: Iterable[Variant]) -> list[str]:
    """In the order of the matrix; some variants may lack one."""
    return list(dict.fromkeys(axis for variant in variants for axis in variant))


# ---- computed values: of the part in capitals in a column's name


def _at(path: tuple[str, ...], entry: Entry, _result: TrialResult) -> Any:
    value: Any = entry
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _metadata_value(key: str, entry: Entry, _result: TrialResult) -> Any:
    value = entry["metadata"].get(key)
    return as_text(value) if isinstance(value, list | dict) else value


def _grade(key: str) -> Callable[[str, Entry, TrialResult], Any]:
    def value(grader: str, entry: Entry, _result: TrialResult) -> Any:
        return next((one[key] for one in entry["grades"] if one["grader"] == grader), None)

    return value


def _retries(_part: str, _entry: Entry, result: TrialResult) -> int:
    return sum(result.retries.values())


def _calls(number: Callable[[Activity], float]) -> Callable[[str, Entry, TrialResult], Any]:
    def value(_part: str, _entry: Entry, result: TrialResult) -> float | None:
        activity = result.result.activity
        return None if activity is None or not activity.tells_tools else number(activity)

    return value


def _server_calls(server: str, _entry: Entry, result: TrialResult) -> float | None:
    activity = result.result.activity
    return activity.calls_of(server) if activity is not None and activity.tells_tools else None


def _changed(number: Callable[[Change], int]) -> Callable[[str, Entry, TrialResult], Any]:
    """Only complete numbers: a lower bound in a column would be taken for the number."""

    def value(_part: str, _entry: Entry, result: TrialResult) -> int | None:
        change = result.result.change
        return None if change is None or change.unknown is not None else number(change)

    return value


# ---- which columns a run has


def _once(_contents: Contents) -> Iterable[str]:
    return ("",)


def _metadata(contents: Contents) -> Iterable[str]:
    return dict.fromkeys(key for case in contents.source.cases() for key in case.metadata)


def _axes(contents: Contents) -> Iterable[str]:
    return axes_in(one.variant for one in contents.summary.variants)


def _if(holds: Callable[[Summary], bool]) -> Callable[[Contents], Iterable[str]]:
    return lambda contents: ("",) if holds(contents.summary) else ()


def _servers(contents: Contents) -> Iterable[str]:
    return () if contents.summary.agents is None else contents.summary.agents.mcp


_of_agents = _if(lambda summary: summary.agents is not None)
_of_changes = _if(lambda summary: summary.changes is not None)
_of_processes = _if(
    lambda summary: not (summary.cpu_s is None and summary.most_memory_bytes is None)
)


class TrialColumn(NamedTuple):
    """A column, or one for each part of the run that the word in capitals stands for."""

    name: str
    about: str
    each: Callable[[Contents], Iterable[str]] = _once
    value: Callable[[str, Entry, TrialResult], Any] | None = None
    """None: the value at the path that is the column's name."""
    is_truth: bool = False


COLUMNS = (
    TrialColumn("index", "Position of the trial in the plan, from 0."),
    TrialColumn("case", "Id of the case."),
    TrialColumn("tags", "Tags of the case; in CSV separated by semicolons."),
    TrialColumn("input", "Input of the case; in CSV as JSON if it is not text."),
    TrialColumn("expect", "What the case expects; in the same way."),
    TrialColumn(
        "metadata.KEY",
        "Each key of the cases' metadata; a list or mapping as JSON.",
        _metadata,
        _metadata_value,
    ),
    TrialColumn("variant.AXIS", "The variant's value of each axis of the matrix.", _axes),
    TrialColumn("repeat", "Number of the repeat, from 1."),
    TrialColumn("outcome", "`passed`, `failed`, an error such as `timeout`, or `skipped`."),
    TrialColumn("passed", "True or false; empty without a verdict.", is_truth=True),
    TrialColumn("score", "Mean score of the graders that judged, from 0 to 1."),
    TrialColumn("reason", "Why it did not pass; empty if it did."),
    TrialColumn("output", "The answer."),
    *(
        TrialColumn(
            f"grade.GRADER.{key}",
            f"{about}; empty if it did not judge. Computed from `grades`.",
            lambda contents: contents.summary.by_grader,
            _grade(key),
            is_truth=key == "passed",
        )
        for key, about in {
            "passed": "Each grader's verdict",
            "score": "Its score",
            "reason": "Its reason",
        }.items()
    ),
    TrialColumn("error.kind", "Kind of error, if it ended in one."),
    TrialColumn("error.message", "The error's message."),
    TrialColumn("notes", "Notes on the attempt, such as a cut answer."),
    TrialColumn("attempts", "Number of attempts."),
    TrialColumn("retries", "Attempts without a verdict. Computed from `retries`.", value=_retries),
    TrialColumn("total_s", "Seconds of all attempts, graders included."),
    TrialColumn(
        "target_s",
        "The target's part of them; empty if unknown. In a regrade, 0 if `cached_s` has the time of"
        " the stored answer, else that time.",
    ),
    TrialColumn("queued_s", "Seconds that it waited to start."),
    TrialColumn(
        "cost_usd",
        "Known cost of the target in US dollars, with cached answers as when first requested.",
    ),
    TrialColumn("cost_unknown", "True: a call of unknown cost is missing from it.", is_truth=True),
    TrialColumn("spent_usd", "What this run itself spent, without cached answers."),
    TrialColumn("cached", "Answers that came from the cache."),
    TrialColumn("cached_s", "Seconds that these took when first requested."),
    TrialColumn("tokens", "Input and output tokens together; empty if unknown."),
    TrialColumn(
        "usage.NAME",
        "`input_tokens` (with cached ones), `output_tokens` (with reasoning), `cached_tokens`,"
        " `reasoning_tokens`, and whatever else the target counts.",
        lambda contents: dict.fromkeys((*_TOKENS, *contents.summary.usage)),
    ),
    *(
        TrialColumn(f"judging.{key}", "The same for judges.", is_truth=key == "cost_unknown")
        for key in ("cost_usd", "cost_unknown", "spent_usd", "cached", "cached_s")
    ),
    TrialColumn(
        "judging.usage.NAME",
        "The same for judges.",
        lambda contents: contents.summary.judging.usage,
    ),
    TrialColumn("activity.turns", "For agents: turns.", _of_agents),
    TrialColumn(
        "tool_calls",
        "For agents: tool calls; empty if the agent does not report them. Computed.",
        _of_agents,
        _calls(lambda activity: sum(tool.calls for tool in activity.tools)),
    ),
    TrialColumn(
        "tool_errors",
        "For agents: tool calls that failed. Computed.",
        _of_agents,
        _calls(lambda activity: sum(tool.failed for tool in activity.tools)),
    ),
    TrialColumn(
        "activity.mcp.SERVER",
        "For agents: whether the MCP server was connected.",
        _servers,
    ),
    TrialColumn(
        "mcp_calls.SERVER",
        "For agents: calls of its tools without an error. Computed.",
        _servers,
        _server_calls,
    ),
    TrialColumn(
        "files_changed",
        "With a workspace: changed files; empty if not all are known. Computed.",
        _of_changes,
        _changed(attrgetter("files_in_all")),
    ),
    *(
        TrialColumn(key, "With a workspace. Computed.", _of_changes, _changed(attrgetter(key)))
        for key in ("lines_added", "lines_deleted")
    ),
    TrialColumn("change.tampering", "Signs of tampering with graders.", _of_changes),
    TrialColumn("change.flagged", "Files of its grading that it touched.", _of_changes),
    TrialColumn("change.unknown", "Why the change is not completely known.", _of_changes),
    TrialColumn("cpu_s", "CPU seconds of its processes.", _of_processes),
    TrialColumn("memory_bytes", "Their peak memory.", _of_processes),
    TrialColumn(
        "node",
        "Node of the cluster; only in runs on a cluster.",
        _if(lambda summary: bool(summary.nodes)),
    ),
)


class Rows:
    """The rows of a run, read again each time they are looped over."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        found = [(column, part) for column in COLUMNS for part in column.each(contents)]
        self.names = [part.join(_PLACEHOLDER.split(column.name)) for column, part in found]
        self.truths = {
            name for name, (one, _) in zip(self.names, found, strict=True) if one.is_truth
        }
        self._values = [_value_of(column, part) for column, part in found]

    def __iter__(self) -> Iterator[list[Any]]:
        for result, case in self._contents.trials_with_cases():
            entry = trial_as_dict(result, case)
            yield [value(entry, result) for value in self._values]


def _value_of(column: TrialColumn, part: str) -> Callable[[Entry, TrialResult], Any]:
    if column.value is not None:
        return partial(column.value, part)
    keys = column.name.split(".")
    return partial(_at, tuple(part if _PLACEHOLDER.fullmatch(key) else key for key in keys))


def as_text(value: Any) -> str:
    """Text as it is, other data as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def data_frame(contents: Contents, library: str | None = None) -> Any:
    """A DataFrame of pandas or polars."""
    if library not in (None, *_LIBRARIES):
        raise RequestError(f"unknown library '{library}'; use 'pandas' or 'polars'")
    wanted = _LIBRARIES if library is None else (library,)
    found = next((name for name in wanted if find_spec(name) is not None), None)
    if found is None:
        which = "neither is" if library is None else f"{library} is not"
        raise RequestError(
            f"to_dataframe needs pandas or polars, and {which} installed",
            hint=f"pip install {wanted[0]}",
        )
    rows, module = Rows(contents), import_module(found)
    columns: dict[str, list[Any]] = {name: [] for name in rows.names}
    for row in rows:
        for values, value in zip(columns.values(), row, strict=True):
            values.append(value)
    # To tell the runs apart in frames that are put together.
    told = {"run": contents.run.id, "suite": contents.run.suite}
    trials = len(columns["index"])
    columns = {**{name: [value] * trials for name, value in told.items()}, **columns}
    if found == "polars":
        # A column there has one type.
        for name in ("input", "expect"):
            columns[name] = [value if value is None else as_text(value) for value in columns[name]]
        return module.DataFrame(columns, strict=False)
    return module.DataFrame(columns).astype(dict.fromkeys(rows.truths, "boolean"))
