"""Harbor and Terminal-Bench: tasks in containers, each a folder with its tests and its solution.

A suite refers to the tasks' folders, which stay where they are: images are built from them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.files import read_document, read_text
from paraval.documents.problems import Location, shown
from paraval.errors import Problem, RequestError, SuiteError
from paraval.importers.imported import (
    CHECK_FILE,
    FLAGGED_NOTE,
    ImportedSuite,
    NotHonored,
    check_text,
    jsonl_text,
)

CHECK_CASES = "check.jsonl"
_SCRIPT = "harbor_check.sh"
_GRADE_TIMEOUT_S = 7200
"""Tests have their own limits; this one is for what runs around them."""
_PLACE = ".harbor"
"""Where hidden files are put, before the script moves them."""
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml")
_MAIN_SERVICES = ("main", "client")
_TIMEOUT_S = 600.0


@dataclass(slots=True, kw_only=True)
class Task:
    """A task's folder, read."""

    folder: Path
    name: str
    instruction: str
    timeout: float | None
    test_timeout: float
    container: dict[str, Any]
    is_older: bool
    """True: in the shape of Terminal-Bench 1."""
    tags: list[str]
    metadata: Mapping[str, Any]
    not_honored: list[NotHonored] = field(default_factory=list)

    @property
    def solution(self) -> str | None:
        """Its solution, relative to its folder."""
        name = "solution.sh" if self.is_older else "solution"
        return name if (self.folder / name).exists() else None


def read_harbor(folder: Path, to: Path, agent: str = "claude-code") -> ImportedSuite:
    """The suite of a task's folder, or of a folder of tasks; `to` is where it will be written."""
    problems: dict[Problem, None] = {}
    read = (_read_task(one, Location(problems=problems)) for one in _task_folders(folder))
    tasks = [task for task in read if task is not None]
    if problems:
        raise SuiteError(list(problems))
    files = {
        "cases.jsonl": jsonl_text(_case(task, to) for task in tasks),
        _SCRIPT: Path(__file__).with_name(_SCRIPT).read_text(),
    }
    solved = [task for task in tasks if task.solution]
    if solved:
        files[CHECK_CASES] = jsonl_text(_case(task, to, with_solution=True) for task in solved)
        files[CHECK_FILE] = check_text(
            {
                "cases": CHECK_CASES,
                "matrix": {"solution": ["reference", "empty"]},
                "target": {"command": ["true"]},
                "workspace": {},
                "graders": [_grader("{solution}")],
            }
        )
    unsolved = [task.name for task in tasks if not task.solution]
    return ImportedSuite(
        source=folder.name or str(folder),
        suite={
            "name": folder.absolute().name,
            "cases": "cases.jsonl",
            "target": {"agent": agent, "errors": {"timeout": "fail"}},
            "workspace": {},
            "graders": [_grader()],
        },
        files=files,
        not_honored=tuple(one for task in tasks for one in task.not_honored),
        notes=(
            *([f"Without a solution to check: {', '.join(unsolved)}."] if unsolved else ()),
            FLAGGED_NOTE,
        ),
    )


def _task_folders(folder: Path) -> list[Path]:
    """The folder itself, or those in it, or in its folder `tasks`."""
    for candidates in ([folder], _subfolders(folder), _subfolders(folder / "tasks")):
        found = [one for one in candidates if _is_task(one)]
        if found:
            return found
    raise RequestError(
        f"{folder} has no tasks", hint="a task is a folder with a task.toml or a task.yaml"
    )


def _subfolders(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []


def _is_task(folder: Path) -> bool:
    return (folder / "task.toml").is_file() or (folder / "task.yaml").is_file()


class _Keys:
    """A mapping of a file, with the keys that were used; the others are not honored."""

    def __init__(self, data: Any, path: str, spot: Location) -> None:
        self._data = data if isinstance(data, Mapping) else {}
        self._path = path
        self._spot = spot
        self._used: set[str] = set()
        if data is not None and not isinstance(data, Mapping):
            spot.report(f"must be a mapping, not {shown(data)}")

    def get(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """The value of a key; None if it has none. A value of another kind is a problem."""
        self._used.add(key)
        value = self._data.get(key)
        if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        self._spot.at(key).report(f"unexpected value {shown(value)}")
        return None

    def within(self, key: str) -> _Keys:
        self._used.add(key)
        return _Keys(self._data.get(key), f"{self._path}{key}.", self._spot.at(key))

    def ignore(self, *keys: str) -> None:
        """Mark keys that have no effect on a trial."""
        self._used.update(keys)

    def accept(self, key: str, *, value: Any) -> None:
        """Mark a key that asks for what is done anyway."""
        if self._data.get(key) == value:
            self._used.add(key)

    def rest(self, why: Mapping[str, str]) -> Iterator[NotHonored]:
        for key, value in self._data.items():
            if key not in self._used and (value is False or value not in (None, [], {}, "", 0)):
                reason = why.get(key, "paraval has no such setting")
                yield NotHonored(key=f"{self._path}{key}", why=reason)


_NUMBER = (int, float)
_NOT_HONORED = {
    "allow_internet": "the agent in the container needs the network for its model",
    "network_mode": "the agent in the container needs the network for its model",
    "allowed_hosts": "containers have this machine's network, or none",
    "env": "variables are not passed on; set them in target.env or in the Dockerfile",
    "user": "commands run as root in the container",
    "mcp_servers": "add them to target.mcp",
    "storage_mb": "disk space is not limited",
    "build_timeout_sec": "builds have no limit of their own",
    "healthcheck": "attempts start as soon as the container runs",
    "parser_name": "the exit code of run-tests.sh decides",
    "run_tests_in_same_shell": "tests always run in a shell of their own",
}


def _read_task(folder: Path, spot: Location) -> Task | None:
    is_older = not (folder / "task.toml").is_file()
    file = folder / ("task.yaml" if is_older else "task.toml")
    document = read_document(file, Location(problems=spot.problems, file=str(file)))
    if document is None:
        return None
    keys = _Keys(document.data, f"{folder.name}/", document.spot)
    read = _older_task if is_older else _harbor_task
    task = read(folder, keys, document.spot)
    if task is not None:
        task.not_honored += _services(folder if is_older else folder / "environment", task)
        tests = folder / ("run-tests.sh" if is_older else "tests/test.sh")
        if not tests.is_file():
            document.spot.report(f"the task has no {tests.relative_to(folder)}")
    return task


def _harbor_task(folder: Path, keys: _Keys, spot: Location) -> Task | None:
    instruction = read_text(
        folder / "instruction.md",
        Location(problems=spot.problems, file=str(folder / "instruction.md")),
    )
    keys.ignore("version", "schema_version", "source", "task")
    agent, verifier = keys.within("agent"), keys.within("verifier")
    environment, solution = keys.within("environment"), keys.within("solution")
    metadata: Mapping[str, Any] = keys.get("metadata", dict) or {}
    container: dict[str, Any] = {}
    image = environment.get("docker_image", str)
    if image:
        container["image"] = image
    else:
        container["build"] = "environment"
    environment.accept("allow_internet", value=True)
    environment.accept("network_mode", value="public")
    if cpus := environment.get("cpus", _NUMBER):
        container["cpus"] = cpus
    memory = environment.get("memory", str)
    if megabytes := environment.get("memory_mb", _NUMBER):
        container["memory"] = f"{megabytes}MiB"
    elif memory:
        container["memory"] = f"{memory.strip().upper().removesuffix('B')}iB"
    task = Task(
        folder=folder,
        name=folder.name,
        instruction=instruction or "",
        timeout=agent.get("timeout_sec", _NUMBER),
        test_timeout=verifier.get("timeout_sec", _NUMBER) or _TIMEOUT_S,
        container=container,
        is_older=False,
        tags=_tags(metadata),
        metadata=metadata,
    )
    for part in (agent, verifier, environment, solution, keys):
        task.not_honored += part.rest(_NOT_HONORED)
    return None if instruction is None else task


def _older_task(folder: Path, keys: _Keys, spot: Location) -> Task | None:
    instruction = keys.get("instruction", str)
    if not instruction:
        spot.at("instruction").report("a task needs an instruction")
        return None
    names = ("difficulty", "category", "author_name", "author_email", "tags")
    metadata = {name: keys.get(name, (str, list)) for name in names}
    metadata = {name: value for name, value in metadata.items() if value}
    keys.ignore("disable_asciinema", "estimated_duration_sec")
    keys.ignore("expert_time_estimate_min", "junior_time_estimate_min")
    if keys.get("parser_name", str) not in (None, "pytest"):
        spot.at("parser_name").report("only tasks with parser_name: pytest can be imported")
    task = Task(
        folder=folder,
        name=folder.name,
        instruction=instruction,
        timeout=keys.get("max_agent_timeout_sec", _NUMBER) or 360.0,
        test_timeout=keys.get("max_test_timeout_sec", _NUMBER) or 60.0,
        container={"build": "."},
        is_older=True,
        tags=_tags(metadata),
        metadata=metadata,
    )
    task.not_honored += keys.rest(_NOT_HONORED)
    return task


def _tags(metadata: Mapping[str, Any]) -> list[str]:
    tags = metadata.get("tags")
    words = [metadata.get("difficulty"), metadata.get("category")]
    words += tags if isinstance(tags, list) else []
    return list(dict.fromkeys(str(word) for word in words if word))


def _services(folder: Path, task: Task) -> Iterator[NotHonored]:
    """What a compose file has beyond the one container of the task."""
    for file in (folder / name for name in _COMPOSE if (folder / name).is_file()):
        problems: dict[Problem, None] = {}
        document = read_document(file, Location(problems=problems, file=str(file)))
        services = document.data.get("services") if document is not None else None
        if not isinstance(services, Mapping):
            yield NotHonored(key=f"{task.name}/{file.name}", why="it cannot be read")
            return
        for name in services:
            if name not in _MAIN_SERVICES:
                why = "only the main container of a task is started"
                yield NotHonored(key=f"{task.name}/{file.name}: services.{name}", why=why)


# ---- writing


def _case(task: Task, to: Path, *, with_solution: bool = False) -> dict[str, Any]:
    # Relative, so that the suite and its tasks can be moved together.
    at = os.path.relpath(task.folder, to)
    container = dict(task.container)
    if "build" in container:
        container["build"] = os.path.normpath(f"{at}/{container['build']}")
    hidden: list[Any] = [
        {"from": f"{at}/tests", "to": f"{_PLACE}/tests"},
        {"from": _SCRIPT, "to": f"{_PLACE}/{_SCRIPT}"},
    ]
    if task.is_older:
        hidden.append({"from": f"{at}/run-tests.sh", "to": f"{_PLACE}/run-tests.sh"})
    if with_solution:
        name = "solution/solution.sh" if task.is_older else "solution"
        hidden.append({"from": f"{at}/{task.solution}", "to": f"{_PLACE}/{name}"})
    case: dict[str, Any] = {
        "id": task.name,
        "input": task.instruction,
        "tags": task.tags,
        "workspace": {"container": container},
        "hidden": hidden,
        "metadata": {**task.metadata, "test_timeout": math.ceil(task.test_timeout)},
    }
    if task.timeout is not None and not with_solution:
        case["timeout"] = task.timeout
    return case


def _grader(*arguments: str) -> dict[str, Any]:
    script = f"{_PLACE}/{_SCRIPT}"
    command = ["sh", script, "{metadata.test_timeout}", *arguments]
    options = {"command": command, "timeout": _GRADE_TIMEOUT_S, "failing": [1]}
    return {"command": {"name": "reward", **options}}
