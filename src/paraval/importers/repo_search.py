"""The cases and results of repo-search-eval and codetect-eval: an agent with and without a tool."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from paraval.documents.problems import Location
from paraval.errors import RequestError
from paraval.importers.imported import ImportedSuite, NotHonored, SourceFiles
from paraval.importers.results import ImportedTrial
from paraval.records import Activity, Case, Grade, Outcome

CASES_FILE = "cases.jsonl"
MODES = ("with_mcp", "without_mcp")
_PLACES = (".codetect/evals/cases", ".repo_search/evals/cases", "evals/cases")
"""Where cases are, in a repository; the first that exists counts."""
_KEYS = ("id", "category", "description", "prompt", "ground_truth", "difficulty")
_TRUTHS = ("files", "symbols", "lines", "content")
_WRITERS = "Edit,Write,NotebookEdit,WebFetch,WebSearch,Task"
_TIMEOUT_S = 300.0
_NANOSECOND = 1e-9
_NOTE = (
    "A case passes if its answer names everything in its ground truth (grader `recall`);"
    " `precision` is recorded, and fails no case. `{server} index` runs once in each worktree."
)
_KILLED = "signal: killed"
"""How the program reports a run that it ended after its time limit."""


def find_cases(repository: Path) -> Path:
    """The folder of cases that the program itself would use."""
    for place in _PLACES:
        if (repository / place).is_dir():
            return repository / place
    raise RequestError(
        f"no cases in {repository}: looked for {', '.join(_PLACES)}",
        hint="name the folder or the file",
    )


def read_repo_search(
    source: Path,
    *,
    repository: Path,
    folder: Path,
    settings: Mapping[str, Any] | None = None,
) -> ImportedSuite:
    """A suite of the cases in a folder or file. `folder`: where the suite will be.

    `settings` are the `config` of a results file, if there is one: its model and time limit.
    """
    files = _case_files(source)
    read = SourceFiles()
    not_honored: list[NotHonored] = []
    found = [
        (file, case)
        for file in files
        for line, spot in read.lines(file)
        if (case := _case(line, spot, not_honored)) is not None
    ]
    read.check()
    if not found:
        raise RequestError(f"{source} has no cases")
    cases = _with_own_ids(found, source)
    server = "repo-search" if ".repo_search" in source.parts else "codetect"
    settings = settings or {}
    timeout = settings.get("timeout") or _TIMEOUT_S / _NANOSECOND
    lines = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)
    place = os.path.relpath(repository, folder)
    kind = "git" if (repository / ".git").exists() else "folder"
    not_honored.append(
        NotHonored(
            key="Bash(rg:*), Bash(grep:*), Bash(find:*)",
            why="paraval starts Claude Code without permission checks: without_mcp has all of Bash",
        )
    )
    return ImportedSuite(
        source=f"{source} (repo-search)",
        suite={
            "name": _name(repository),
            "description": "An agent that finds code, with and without a tool.",
            "cases": CASES_FILE,
            "matrix": {
                "mode": {
                    MODES[0]: {
                        "mcp": {server: {"command": [server, "mcp"]}},
                        "arguments": ["--disallowedTools", f"Bash,Glob,Grep,{_WRITERS}"],
                    },
                    MODES[1]: {"arguments": ["--disallowedTools", _WRITERS]},
                }
            },
            "target": {
                "agent": "claude-code",
                "prompt": "{input}",
                "model": settings.get("model") or "sonnet",
                "max_turns": 20,
                "timeout": round(timeout * _NANOSECOND, 3),
            },
            "workspace": {kind: place, "setup": [server, "index"]},
            "graders": [
                {"mentions": {"name": "recall", "score": "recall", "pass_at": 1}},
                {"mentions": {"name": "precision", "score": "precision", "pass_at": 0}},
            ],
        },
        files={CASES_FILE: lines},
        not_honored=tuple(not_honored),
        notes=(_NOTE.format(server=server),),
    )


def _name(repository: Path) -> str:
    return f"repo-search {repository.resolve().name}".strip()


def _case_files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise RequestError(f"{source}: no such file or folder")
    files = [*sorted(source.glob("*.jsonl")), *sorted(source.glob("*/*.jsonl"))]
    if not files:
        raise RequestError(f"{source} has no .jsonl files, nor have its folders")
    return files


def _case(
    line: dict[str, Any], spot: Location, not_honored: list[NotHonored]
) -> dict[str, Any] | None:
    """A case in the shape that suites read; None: a problem was reported."""
    for key in ("id", "prompt"):
        if not isinstance(line.get(key), str) or not line[key].strip():
            spot.at(key).report("must be a text")
            return None
    truth = line.get("ground_truth") or {}
    if not isinstance(truth, dict):
        spot.at("ground_truth").report("must be a mapping")
        return None
    for key in truth:
        if key not in _TRUTHS:
            at = f"{spot.file}:{spot.line}: ground_truth.{key}"
            not_honored.append(NotHonored(key=at, why="not a kind of ground truth"))
    known = {key: truth[key] for key in _TRUTHS if truth.get(key)}
    if not known:
        spot.at("ground_truth").report("is empty: nothing to look for in an answer")
        return None
    case = {key: line[key] for key in _KEYS if line.get(key) and key != "ground_truth"}
    # What else a line has goes to the case's metadata.
    return {**case, "ground_truth": known, **{k: line[k] for k in line if k not in _KEYS}}


def _with_own_ids(
    cases: Sequence[tuple[Path, dict[str, Any]]], source: Path
) -> list[dict[str, Any]]:
    """The cases; an id that is in several files gets the file's name."""
    often = Counter(case["id"] for _, case in cases)
    taken: Counter[str] = Counter()
    named = []
    for file, case in cases:
        own = case["id"]
        if often[own] > 1:
            inner = file.relative_to(source) if file != source else Path(file.name)
            own = f"{inner.with_suffix('').as_posix()}/{own}"
        taken[own] += 1
        if taken[own] > 1:
            own = f"{own}-{taken[own]}"
        named.append({**case, "id": own})
    return named


# ---- results


def read_results(path: Path, imported: ImportedSuite) -> tuple[list[ImportedTrial], float | None]:
    """The results in a report of the program, and its time.

    Zero scores count, as they do not in the program's own averages. Its precision was always equal
    to its recall, so it is left out: a regrade computes it.
    """
    read = SourceFiles()
    report, spot = read.mapping(path)
    read.check()
    compared = {one.get("test_case_id"): one for one in _rows(report, "results")}
    rows = _rows(report, "raw_results") or [
        {"success": True, **one[mode], "test_case_id": name, "mode": mode}
        for name, one in compared.items()
        for mode in MODES
        if isinstance(one.get(mode), dict)
    ]
    if not rows:
        spot.report("has no results: neither raw_results nor results")
    settings = report.get("config") or {}
    cases = _cases_by_id(imported)
    seen: Counter[tuple[str, str]] = Counter()
    trials = []
    for number, row in enumerate(rows):
        name, mode = row.get("test_case_id"), row.get("mode")
        if not isinstance(name, str) or mode not in MODES:
            spot.at("raw_results", number).report("needs test_case_id and mode")
            continue
        place = seen[name, mode]
        seen[name, mode] += 1
        several = cases.get(name, [])
        # Results are in the order of the cases, so the second result is that of the second file.
        case = several[place] if place < len(several) else Case(id=name)
        verdict = (compared.get(name) or {}).get(mode) or {}
        trials.append(_trial(row, case, verdict if len(several) < 2 else {}, settings))
    read.check()
    return trials, _time(report.get("timestamp"))


def settings_in(path: Path) -> dict[str, Any]:
    """The `config` of a results file."""
    read = SourceFiles()
    report, _ = read.mapping(path)
    read.check()
    return report.get("config") or {}


def _rows(report: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return [row for row in report.get(key) or () if isinstance(row, dict)]


def _cases_by_id(imported: ImportedSuite) -> dict[str, list[Case]]:
    """The suite's cases by the id that they had in the program."""
    found: dict[str, list[Case]] = defaultdict(list)
    for line in str(imported.files[CASES_FILE]).splitlines():
        case = json.loads(line)
        tags = tuple(case[key] for key in ("category", "difficulty") if key in case)
        own = Case(id=case["id"], input=case["prompt"], expect=case["ground_truth"], tags=tags)
        for name in {own.id, own.id.rpartition("/")[2]}:
            found[name].append(own)
    return found


def _trial(
    row: Mapping[str, Any], case: Case, verdict: Mapping[str, Any], settings: Mapping[str, Any]
) -> ImportedTrial:
    seconds = (row.get("duration_ns") or 0) * _NANOSECOND
    outcome, error = _outcome(row, verdict, seconds, settings)
    missed = [*(verdict.get("files_missed") or ()), *(verdict.get("symbols_missed") or ())]
    recall = verdict.get("recall")
    grades: tuple[Grade, ...] = ()
    if outcome.is_judged and recall is not None:
        reason = f"not mentioned: {', '.join(missed)}" if missed else ""
        grades = (Grade(grader="recall", score=recall, passed=recall >= 1, reason=reason),)
    turns, session = row.get("num_turns") or None, row.get("session_id")
    return ImportedTrial(
        case=case,
        variant={"mode": row["mode"]},
        outcome=outcome,
        grades=grades,
        output=row.get("output") or None,
        error=error,
        # Older versions wrote no costs and tokens, and newer ones write no zeros.
        cost_usd=row.get("cost_usd") or None,
        usage=dict(_usage(row)),
        duration_s=seconds,
        activity=Activity(turns=turns, session=session, tells_tools=False)
        if turns or session
        else None,
    )


def _outcome(
    row: Mapping[str, Any], verdict: Mapping[str, Any], seconds: float, settings: Mapping[str, Any]
) -> tuple[Outcome, str | None]:
    if row.get("success"):
        if "recall" not in verdict:
            return Outcome.GRADER_ERROR, "the results have no score for it"
        return (Outcome.PASSED if verdict["recall"] >= 1 else Outcome.FAILED), None
    error = (row.get("error") or "").strip().removesuffix(":")
    limit = (settings.get("timeout") or 0) * _NANOSECOND
    if error.startswith(_KILLED) and seconds >= limit:
        return Outcome.TIMEOUT, f"no answer within {limit:g} s"
    return Outcome.CRASHED, error or "the agent reported no success"


def _usage(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    cached, created = row.get("cache_read_tokens") or 0, row.get("cache_create_tokens") or 0
    fresh, written = row.get("input_tokens") or 0, row.get("output_tokens") or 0
    if cached or created or fresh or written:
        yield "input_tokens", fresh + cached + created
        yield "cached_tokens", cached
        yield "output_tokens", written


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
