"""`paraval doctor`: checks the setup, grouped by what a user wants to do."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click
import psutil

import paraval
from paraval.agents.catalog import KNOWN_AGENTS, AgentPresence, presence
from paraval.cli.error_messages import talk
from paraval.cli.options import cluster_options, json_option, store_option
from paraval.cli.suites import suite_from
from paraval.dataclass import dataclass
from paraval.documents.variables import env_file
from paraval.environment import child_environment
from paraval.errors import ParavalError
from paraval.machine.machine_reader import MachineReader
from paraval.models.requests import DEFAULT_KEY_VARIABLE
from paraval.processes.enforcement import Means, limits_enforced
from paraval.processes.launch import scopes_abstract_sockets
from paraval.processes.quick import run_quickly
from paraval.processes.sandbox import PROGRAM, why_no_sandbox
from paraval.records import AgentTarget, Plan, WorkspaceKind
from paraval.runner.attempt_dirs import containers_of
from paraval.runner.cluster.survey import NodeForecast
from paraval.runner.forecast import models_of
from paraval.runner.run import forecast_of, survey_cluster
from paraval.settings import Options, Selection, default_store
from paraval.text.terminal import one_line
from paraval.text.words import counted, duration, size, some
from paraval.workspaces.container_engine import ENGINES, NOT_INSTALLED, engine_states, find_engine

TESTED = "Python 3.11 to 3.13"
"""By `make test-pythons`."""
GIT_PATIENCE_S = 10.0
LONGEST_TEXT = 500
LEAST_PYTEST = (8, 2)
LITTLE_ROOM_BYTES = 1 << 30
MOST_SKEW_S = 5.0
"""How far the clock of a node may differ: the timeline shows its times beside this machine's."""
_VERSION = re.compile(r"\d+(?:\.\d+)+")

Mark = Literal["ok", "note", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check."""

    name: str
    mark: Mark
    """`missing`: paraval cannot work without it."""
    text: str
    brief: str = ""
    """For the line of a group in which all is well."""
    optional: bool = False
    """If it is missing, only -v shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The checks for one purpose."""

    title: str
    checks: tuple[Check, ...]
    otherwise: str = ""
    """Of a group of alternatives: what to show if none of them is there."""

    @property
    def problems(self) -> list[Check]:
        return [one for one in self.checks if one.mark != "ok" and not one.optional]

    def lines(self) -> Iterator[tuple[Mark, str]]:
        """One line if all is well, else one for each problem."""
        briefs = [one.brief for one in self.checks if one.mark == "ok" and one.brief]
        if briefs and (self.otherwise or not self.problems):
            yield "ok", f"{self.title}: {', '.join(briefs)}"
        for one in self.problems:
            yield one.mark, f"{self.title}: {one.text}"
        if not briefs and not self.problems:
            yield "note", f"{self.title}: {self.otherwise}"


EXAMPLE = "\b\nExample:\n  paraval doctor\n  paraval doctor suite.yaml"


@click.command("doctor", epilog=EXAMPLE)
@click.argument("suite", required=False, type=click.Path(path_type=Path))
@click.option("-v", "--verbose", is_flag=True, help="List every check.")
@cluster_options
@store_option
@json_option
def doctor_command(suite: Path | None, *, verbose: bool, as_json: bool, **given: Any) -> int:
    """Check your setup: what works here, what is missing, and how to get it.

    With a SUITE, check what that suite needs: its programs, agents, keys and sandbox. With
    --cluster, check the cluster and each of its nodes. Exits with 1 if something essential is
    missing: git, a store that can be written, a cluster that can be used, or what the SUITE needs.
    """
    options = Options(**{name: given[name] for name in ("store", "cluster", "insecure_cluster")})
    with env_file(Path.cwd() if suite is None else suite.parent):
        groups = _all_groups(options) if suite is None else _groups_for(suite, options)
    is_fine = all(one.mark != "missing" for group in groups for one in group.checks)
    if as_json:
        click.echo(json.dumps(_as_rows(groups), indent=2))
    elif verbose:
        _print_all(groups)
    else:
        for mark, text in (line for group in groups for line in group.lines()):
            click.echo(f"{mark:8} {text}")
        click.echo()
        click.echo(f"{_verdict(suite, is_fine=is_fine)} To see every check, add -v.")
    return 0 if is_fine else 1


def _verdict(suite: Path | None, *, is_fine: bool) -> str:
    if suite is not None:
        return f"{suite} can run here." if is_fine else f"{suite} cannot run here yet."
    return "Nothing essential is missing." if is_fine else "Something essential is missing."


def _as_rows(groups: Sequence[Group]) -> list[dict[str, str]]:
    return [
        {"group": group.title, "name": one.name, "mark": one.mark, "text": one.text}
        for group in groups
        for one in group.checks
    ]


def _print_all(groups: Sequence[Group]) -> None:
    for group in groups:
        click.echo(group.title)
        for one in group.checks:
            click.echo(f"  {one.mark:8} {one.name:13} {one.text}")


# ---- groups


def _all_groups(options: Options) -> list[Group]:
    store = options.store or default_store()
    agents = some([*KNOWN_AGENTS], 3)
    keys = " or ".join(dict.fromkeys(DEFAULT_KEY_VARIABLE.values()))
    return [
        _group("Run suites", _python, _sqlite, _machine, _open_files, lambda: _store(store)),
        _group(
            "Run models",
            _keys,
            otherwise=f"no API key is set; set {keys} (local and simulated models need none)",
        ),
        _group(
            "Run agents",
            _agents,
            otherwise=f"none of the known agents is installed ({agents});"
            " -v shows how to install them",
        ),
        _group("Race code changes", _git, lambda: _package("pytest"), _line_profiler),
        _group("Test with pytest", lambda: _package("pytest", LEAST_PYTEST)),
        _group("Limit processes", _system, _process_trees),
        _group("Sandbox", _sandbox),
        _group("Containers", _engines),
        *_on_cluster(None, options),
    ]


def _groups_for(path: Path, options: Options) -> list[Group]:
    """What one suite needs: all of it is essential."""
    suite, store = suite_from(path), options.store or default_store()
    forecast = forecast_of(suite, Selection(), Options(store=store))
    on_nodes = options.cluster is not None
    needed = [_required(one) for one in _needs_of(forecast.plan, on_nodes=on_nodes)]
    absent = (
        Check(name="program", mark="missing", text=_on_one_line(text))
        for text in forecast.absent
        if not on_nodes
    )
    nothing = Check(name="suite", mark="ok", text="needs nothing else", brief="nothing else")
    return [
        _group("Run suites", _python, _sqlite, lambda: _store(store)),
        Group(title=f"Needed by {forecast.plan.name}", checks=(*absent, *needed) or (nothing,)),
        *_on_cluster(forecast.plan, options),
    ]


def _on_cluster(plan: Plan | None, options: Options) -> list[Group]:
    if options.cluster is None:
        return []
    unusable = "no node can be used"
    return [_group("Run on a cluster", lambda: _cluster(plan, options), otherwise=unusable)]


def _group(title: str, *looks: Callable[[], Iterator[Check]], otherwise: str = "") -> Group:
    checks = tuple(check for look in looks for check in look())
    return Group(title=title, checks=checks, otherwise=otherwise)


def _required(check: Check) -> Check:
    mark: Mark = "ok" if check.mark == "ok" else "missing"
    return replace(check, mark=mark, optional=False)


def _needs_of(plan: Plan, *, on_nodes: bool) -> Iterator[Check]:
    """What a plan needs here; `on_nodes`: programs run there."""
    if plan.workspace.kind is WorkspaceKind.GIT:
        yield from _git()
    if plan.workspace.sandbox and not on_nodes:
        yield from _sandbox()
    for name in dict.fromkeys(container.engine for container in containers_of(plan)):
        yield _engine(name)
    for variable in dict.fromkeys(one.api_key_env for one in models_of(plan)):
        if variable is not None:
            yield _key(variable)
    if on_nodes:
        return
    yield from _graders(plan)
    # An agent that is given a model of the suite uses that model's key.
    targets = {id(trial.target): trial.target for trial in plan.trials}.values()
    named = {one.agent for one in targets if isinstance(one, AgentTarget) and one.model is None}
    for check in _agents(named):
        # One that is not installed is in the plan's list of absent programs.
        if not check.optional:
            yield check


# ---- checks


def _graders(plan: Plan) -> Iterator[Check]:
    """The modules and test files of graders that are commands. A plan has checked the programs."""
    if plan.workspace.container is not None:
        return
    commands = {
        (tuple(one.options["command"]), one.folder): one.name
        for spec in plan.grading.every
        for one in spec.flat()
        if one.kind == "command"
    }
    for (words, folder), name in commands.items():
        argv = [sys.executable if word == "{python}" else word for word in words]
        problem = _why_no_grader(argv, folder, plan)
        text = f"grader '{name}': {problem or 'its program is here'}"
        yield Check(name="grader", mark="missing" if problem else "ok", text=_on_one_line(text))


def _why_no_grader(argv: Sequence[str], folder: str, plan: Plan) -> str | None:
    """What is missing, as far as that can be known before an attempt; None: nothing."""
    program, *words = argv
    if "{" in program:
        return None
    module = words[1] if words[:1] == ["-m"] and len(words) > 1 else None
    if module is not None and module.isidentifier():
        find = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
        ended = run_quickly([program, "-c", find], env=child_environment({}), cwd=folder)
        if not ended.is_well:
            return f"{program} has no module {module}"
    is_pytest = "pytest" in (module, Path(program).name)
    if not is_pytest or plan.workspace.hidden or any(one.workspace for one in plan.trials):
        return None
    top = plan.workspace.source
    places = [Path(folder)] if top is None else [Path(folder), Path(top) / plan.workspace.start]
    paths = [word.partition("::")[0] for word in words if "{" not in word]
    tests = [path for path in paths if path.endswith(".py")]
    lost = [path for path in tests if not any((place / path).exists() for place in places)]
    return f"there is no {lost[0]}" if lost else None


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check(
        name="python",
        mark="ok",
        text=f"{version} at {sys.executable}; paraval {paraval.__version__} is tested on {TESTED}",
        brief=f"paraval {paraval.__version__}, Python {version}",
    )


def _git() -> Iterator[Check]:
    git = shutil.which("git")
    if git is None:
        text = "git is not on PATH; install it: https://git-scm.com/downloads"
        yield Check(name="git", mark="missing", text=text)
        return
    ended = run_quickly([git, "--version"], env=child_environment({}), timeout=GIT_PATIENCE_S)
    if not ended.is_well:
        text = f"{git} does not work: {_on_one_line(ended.stderr) or 'no output'}; reinstall git"
        yield Check(name="git", mark="missing", text=text)
        return
    answer = ended.stdout.decode(errors="replace").strip()
    version = _VERSION.search(answer)
    brief = f"git {version[0]}" if version else "git"
    yield Check(name="git", mark="ok", text=_on_one_line(f"{answer} at {git}"), brief=brief)


def _package(name: str, least: tuple[int, ...] = (), *, optional: bool = False) -> Iterator[Check]:
    """A Python package that paraval works with and does not depend on."""
    how = f"{shlex.quote(sys.executable)} -m pip install -U {name}"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        text = f"{name} is not installed; install it: {how}"
        yield Check(name=name, mark="note", text=text, optional=optional)
        return
    numbers = tuple(map(int, re.findall(r"\d+", version)[: len(least)]))
    if numbers < least:
        needed = ".".join(map(str, least))
        text = f"{name} {version} is too old: {needed} or newer is needed; upgrade it: {how}"
        yield Check(name=name, mark="note", text=text)
    else:
        yield Check(name=name, mark="ok", text=version, brief=f"{name} {version}")


def _line_profiler() -> Iterator[Check]:
    """For the line profile of a winner, which a race can do without."""
    return _package("line_profiler", optional=True)


def _sqlite() -> Iterator[Check]:
    version = sqlite3.sqlite_version_info
    text = sqlite3.sqlite_version
    if version < (3, 24):
        text = f"SQLite {text} is too old: 3.24 or newer is needed; use a newer Python"
        yield Check(name="sqlite", mark="missing", text=text)
        return
    if version < (3, 51, 3):
        text += (
            "; has the WAL-reset bug, which needs two concurrent writers: a run has one, so its"
            " results are safe; don't write to a run.db with other tools"
        )
    yield Check(name="sqlite", mark="ok", text=text)


def _machine() -> Iterator[Check]:
    reading = MachineReader().read({})
    available, memory = size(reading.memory_available), size(reading.memory_bytes)
    cores = f"{reading.cpus:g} {'core' if reading.cpus == 1 else 'cores'}"
    text = f"{cores} may be used; {available} of {memory} of memory free"
    yield Check(name="machine", mark="ok", text=text, brief=f"{cores}, {available} of memory free")


def _open_files() -> Iterator[Check]:
    process = psutil.Process()
    if not hasattr(process, "rlimit"):
        return
    files = process.rlimit(psutil.RLIMIT_NOFILE)[0]
    if 0 <= files < 1024:
        text = f"only {files} open files are allowed; allow more: ulimit -n 4096"
        yield Check(name="limits", mark="note", text=text)
    else:
        text = "no limit on open files" if files < 0 else f"{files:,} open files allowed"
        yield Check(name="limits", mark="ok", text=text)


def _cluster(plan: Plan | None, options: Options) -> Iterator[Check]:
    """The cluster, and each of its nodes; `plan`: and what of it they lack."""
    try:
        found = survey_cluster(plan, options, talk)
    except ParavalError as error:
        yield Check(name="cluster", mark="missing", text=_on_one_line(str(error)))
        return
    usable = [node for node in found.nodes if node.facts is not None and not node.missing]
    tokens = "no token authentication" if options.insecure_cluster else "token authentication is on"
    nodes = counted(len(found.nodes), "node")
    few = "" if len(usable) == len(found.nodes) else f", {len(usable):,} of them usable"
    is_here = options.cluster == "ray"
    name = "the cluster of this machine" if is_here else f"the cluster {options.cluster}"
    text = f"{name}: {nodes}{few}; {tokens}"
    yield Check(name="cluster", mark="ok" if usable else "missing", text=text, brief=text)
    for node in found.nodes:
        yield from _node(node, of_plan=plan is not None)


def _node(node: NodeForecast, *, of_plan: bool) -> Iterator[Check]:
    """A node that lacks something is left out of runs. `of_plan`: what it has besides is not
    needed."""
    name, facts = one_line(node.name, 60), node.facts
    for why in node.missing:
        yield Check(name="node", mark="note", text=_on_one_line(f"{name}: {why}"))
    if facts is None:
        return
    notes = [
        "git is not installed" if facts.git is None and not of_plan else "",
        f"no sandbox: {facts.sandbox}" if facts.sandbox is not None and not of_plan else "",
        f"only {size(facts.free_bytes)} free in {facts.scratch}"
        if facts.free_bytes < LITTLE_ROOM_BYTES
        else "",
        f"its clock is {duration(abs(node.clock_skew_s))}"
        f" {'ahead' if node.clock_skew_s > 0 else 'behind'}; synchronize it"
        if abs(node.clock_skew_s) > MOST_SKEW_S
        else "",
    ]
    for note in filter(None, notes):
        yield Check(name="node", mark="note", text=_on_one_line(f"{name}: {note}"))
    machine = facts.machine
    text = (
        f"{name}: Python {facts.python}, {machine.cpus:g} CPUs, {size(machine.memory_bytes)} of"
        f" memory, {size(facts.free_bytes)} free in {facts.scratch}"
    )
    yield Check(name="node", mark="ok", text=_on_one_line(text))


def _system() -> Iterator[Check]:
    if sys.platform == "linux":
        yield Check(name="system", mark="ok", text="Linux")
    else:
        text = "not Linux: processes are killed by process group, which may leave some behind"
        yield Check(name="system", mark="note", text=text)


def _process_trees() -> Iterator[Check]:
    """How process trees are killed, and how the limits that suites set are enforced."""
    means = limits_enforced()
    limits = {"limits.memory": means.memory, "limits.processes": means.processes}
    parts = [
        f"{name} is {'not enforced' if by is Means.NONE else f'enforced by {by}'}"
        for name, by in limits.items()
    ]
    if Means.NONE in limits.values():
        parts.append("to enforce them, run where you may write to a cgroup")
    text = "; ".join((f"process trees are killed by {means.kill}", *parts))
    is_whole = means.kill is not Means.PROCESS_GROUP and Means.NONE not in limits.values()
    brief = "limits.memory and limits.processes are enforced"
    yield Check(name="trees", mark="ok" if is_whole else "note", text=text, brief=brief)


def _engines() -> Iterator[Check]:
    states = engine_states()
    if all(state.why_not == NOT_INSTALLED for state in states):
        text = f"none of {', '.join(ENGINES)} is installed: no suite can use `container`"
        yield Check(name="containers", mark="note", text=text)
    for state in states:
        if state.engine is not None:
            swept = state.engine.sweep()
            text = f"{state.name} {state.engine.version} works: `container` may be used"
            text += f" (options: {' '.join(state.engine.options)})" if state.engine.options else ""
            text += f"; removed {swept} containers of killed runs" if swept else ""
            brief = f"{state.name} {state.engine.version} works"
            yield Check(name=state.name, mark="ok", text=text, brief=brief)
        elif state.why_not != NOT_INSTALLED:
            text = f"{state.name} does not work here: {state.why_not}"
            yield Check(name=state.name, mark="note", text=text)


def _engine(name: str) -> Check:
    """The engine that a suite asks for."""
    found = find_engine(name)
    if isinstance(found, str):
        return Check(name=name, mark="note", text=_on_one_line(found))
    text = f"{found.name} {found.version} works"
    return Check(name=found.name, mark="ok", text=text, brief=text)


def _sandbox() -> Iterator[Check]:
    why = why_no_sandbox()
    if why is not None:
        yield Check(name="sandbox", mark="note", text=_on_one_line(why))
        return
    text = "bubblewrap works: `sandbox: true` may be used"
    if not scopes_abstract_sockets(shutil.which(PROGRAM) or PROGRAM):
        text += "; attempts can reach abstract Unix sockets (Linux 6.12 with Landlock prevents it)"
    yield Check(name="sandbox", mark="ok", text=text, brief="bubblewrap works")


def _keys() -> Iterator[Check]:
    for variable in dict.fromkeys(DEFAULT_KEY_VARIABLE.values()):
        yield _key(variable)


def _key(variable: str) -> Check:
    """Whether a key is set; never the key itself."""
    if os.environ.get(variable, "").strip():
        return Check(name="key", mark="ok", text=f"{variable} is set", brief=f"{variable} is set")
    return Check(name="key", mark="note", text=f"{variable} is not set", optional=True)


def _agents(names: Container[str] = KNOWN_AGENTS) -> Iterator[Check]:
    """Which agents are installed, and whether they can log in; never a key itself."""
    for found in presence(os.environ, Path.home()):
        if found.name not in names:
            continue
        is_ready = found.program is not None and (found.key is not None or found.logged_in)
        version = found.version or "of unknown version"
        yield Check(
            name="agent",
            mark="ok" if is_ready else "note",
            text=_agent_text(found, version),
            brief=f"{found.name} {version}",
            optional=found.program is None,
        )


def _agent_text(found: AgentPresence, version: str) -> str:
    if found.program is None:
        return _on_one_line(f"{found.name}: {found.advice}")
    return _on_one_line(f"{found.name}: {version}, at {found.program}; {found.advice}")


def _store(store: Path) -> Iterator[Check]:
    place = store.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    where = f"{store}: {size(free)} free"
    if not os.access(place, os.W_OK):
        text = f"the store {store} cannot be written; put it elsewhere with --store"
        yield Check(name="store", mark="missing", text=text)
    elif free < LITTLE_ROOM_BYTES:
        text = f"the store {where}: little room for a long run"
        yield Check(name="store", mark="note", text=text)
    else:
        yield Check(name="store", mark="ok", text=where, brief="the store can be written")


def _on_one_line(text: str) -> str:
    return one_line(text.replace("\nhint: ", "; "), LONGEST_TEXT)
