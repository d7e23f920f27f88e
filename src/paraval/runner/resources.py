"""The resources of a run: threads, processes, models, judges, workspaces. Opened before it, closed
after it."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from paraval.dataclass import dataclass
from paraval.documents.variables import env_file
from paraval.errors import RequestError
from paraval.execute.attempts import Answerers, Attempts
from paraval.functions import Functions
from paraval.garbage import no_collections
from paraval.grade.command import CommandContext
from paraval.grade.panel import ELSEWHERE, Panel
from paraval.models.cache import Cache, RequestKeys
from paraval.models.prices import Prices
from paraval.models.requests import Request, missing_keys
from paraval.models.secrets import Redactor
from paraval.plan.suite import Suite
from paraval.processes.children import Warden
from paraval.processes.identity import RUN_VARIABLE, unreadable_environment
from paraval.records import (
    AgentTarget,
    CacheUse,
    ChatTarget,
    CommandTarget,
    FunctionTarget,
    Model,
    Plan,
    Provider,
    StoredTarget,
    Trial,
    Workspace,
    WorkspaceKind,
)
from paraval.runner.attempt_dirs import AttemptDirs, HiddenPaths, open_attempt_dirs
from paraval.runner.forecast import ModelKnowledge, asked_models_of, models_of
from paraval.store.ledger import Ledger
from paraval.store.store import Store
from paraval.targets.chat import ChatAnswerer
from paraval.targets.command import CommandAnswerer, ProcessRoom
from paraval.targets.function import FunctionAnswerer
from paraval.targets.function_logs import routed_streams
from paraval.targets.isolated import IsolatedAnswerer
from paraval.targets.redaction import redact_files, secrets_of
from paraval.text.words import counted, listed
from paraval.threads import Threads

if TYPE_CHECKING:
    from paraval.loopback.scenario import Scenario
    from paraval.models.client import Models
    from paraval.runner.regrade import StoredAnswers
    from paraval.targets.agent import AgentAnswerer

NICE = 5
"""Niceness of attempts, to yield to everything else on the machine, this engine included."""
FILES_PER_PROCESS = 4
FILES_FOR_THE_REST = 200
CACHE_FILE = "cache.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """Access to the models of a plan."""

    models: Models | None = None
    """The client; None: the plan itself calls no models."""
    cache: Cache | None = None
    """Where answers are cached; None: nowhere."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Addresses of the simulated models, by registry name."""
    redactor: Redactor = field(default_factory=Redactor)
    """Knows every secret given to attempts; there is one per run."""

    def write_answers(self) -> None:
        """Write pending answers to the cache, from time to time."""
        if self.cache is not None:
            self.cache.flush_sometimes()

    def complaints(self) -> list[str]:
        """Messages about the cache, each returned once."""
        return [] if self.cache is None else self.cache.complaints()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResources:
    """What attempts need, on this machine or on a node of a cluster."""

    plan: Plan
    run_id: str
    folder: Path
    """The run's; on a node, one that stands for it."""
    functions: Functions
    warden: Warden
    access: ModelAccess
    prices: Prices
    store_root: Path
    at_once: int
    """How many attempts may run in parallel."""
    stored: StoredAnswers | None = None
    """The answers of another run, for one that grades them again."""
    asks_judges: bool = True
    """False: answers that need a judge are given back without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResources:
    """What exists before the first attempt."""

    suite: Suite
    ledger: Ledger
    warden: Warden
    access: ModelAccess
    prices: Prices
    store_root: Path
    asking: ModelKnowledge
    chosen: frozenset[int] | None
    """The trials that may run now; None: all without a result."""
    at_once: int
    """How many attempts the open-file limit allows in parallel."""
    on_node: Callable[[Trial], bool] = lambda _trial: False
    """Whether a trial runs on a node of a cluster."""
    stored: StoredAnswers | None = None
    """The answers of another run, for one that grades them again."""
    notes: tuple[str, ...] = ()
    """Notices to show before the run begins."""

    def for_attempts(self) -> AttemptResources:
        """For those that run here."""
        plan = self.ledger.plan
        trials = tuple(trial for trial in plan.trials if not self.on_node(trial))
        if len(trials) < len(plan.trials):
            workspace = plan.workspace if trials else Workspace()
            plan = replace(plan, trials=trials, workspace=workspace)
        return AttemptResources(
            plan=plan,
            run_id=self.ledger.run.id,
            folder=self.ledger.folder,
            functions=self.suite.functions,
            warden=self.warden,
            access=self.access,
            prices=self.prices,
            store_root=self.store_root,
            at_once=self.at_once,
            stored=self.stored,
        )

    def trials(self) -> dict[int, Trial]:
        """The trials to run now."""
        done, chosen = self.ledger.done, self.chosen
        return {
            trial.index: trial
            for trial in self.ledger.plan.trials
            if trial.index not in done and (chosen is None or trial.index in chosen)
        }


# ---- models


@contextlib.asynccontextmanager
async def access_for(
    plan: Plan,
    store: Store,
    prices: Prices,
    chosen: frozenset[int] | None,
    more: tuple[Model, ...] = (),
) -> AsyncIterator[ModelAccess]:
    """Open access to every model that the plan's chosen trials call or pass to agents, and to more
    that trials to come will call.

    Problems that can be detected are reported before anything is spent.
    """
    with env_file(None if plan.source is None else Path(plan.source).parent):
        async with _access_for(plan, store, prices, chosen, more) as access:
            yield access


@contextlib.asynccontextmanager
async def _access_for(
    plan: Plan,
    store: Store,
    prices: Prices,
    chosen: frozenset[int] | None,
    more: tuple[Model, ...],
) -> AsyncIterator[ModelAccess]:
    models = (*models_of(plan, chosen), *more)
    redactor = Redactor(secrets_of(plan, os.environ))
    if not models:
        yield ModelAccess(redactor=redactor)
        return
    with no_collections():
        # Only here: it is slow to import, and most commands call no model.
        from paraval.models.client import Models  # noqa: PLC0415 - see above
        from paraval.models.http_call import HttpCaller  # noqa: PLC0415

    choose = "choose other models with --models (judges cannot be changed there)"
    _check_keys(models, or_else="name another model" if more else choose)
    for model in models:
        # The table is slow to load, which must not delay the first answers.
        prices.price(model)
    if plan.budget is not None:
        # Agents report what they spend, or it is unknown in advance.
        _check_prices((*asked_models_of(plan, chosen), *more), prices)
    scenarios = scenarios_of(models)
    async with contextlib.AsyncExitStack() as stack:
        addresses = await loopback_addresses(scenarios, stack)
        wire = HttpCaller(environment=os.environ, addresses=addresses, redactor=redactor)
        cache = None
        if plan.cache is not CacheUse.OFF:
            cache = stack.enter_context(
                contextlib.closing(Cache(store.root / CACHE_FILE, plan.cache_bytes))
            )
            cache.prepare()
        yield ModelAccess(
            cache=cache,
            models=Models(
                wire=await stack.enter_async_context(wire),
                cache=cache,
                use=plan.cache,
                prices=prices,
                identities={name: scenario.identity for name, scenario in scenarios.items()},
            ),
            addresses=addresses,
            redactor=redactor,
        )


def _check_keys(models: tuple[Model, ...], *, or_else: str) -> None:
    missing = missing_keys(models, os.environ)
    if missing:
        needs = "; ".join(f"model '{name}' needs {variable}" for name, variable in missing)
        raise RequestError(
            f"{needs} (not set in the environment, nor in .env beside the suite)",
            hint=f"set it, or {or_else}",
        )


def _check_prices(models: tuple[Model, ...], prices: Prices) -> None:
    unpriced = [model.name for model in models if prices.price(model) is None]
    if unpriced:
        raise RequestError(
            f"a budget needs the price of every model; none is known for {listed(unpriced)}",
            hint="give it price: {input_per_million: ..., output_per_million: ...}",
        )


def asking_for(plan: Plan, cache: Cache | None, prices: Prices) -> ModelKnowledge:
    """What is known about the plan's models without calling them."""
    models = models_of(plan)
    if not models or cache is None or plan.cache is not CacheUse.REUSE or cache.is_empty:
        return ModelKnowledge(prices=prices)
    scenarios = scenarios_of(models)
    keys = RequestKeys({name: scenario.identity for name, scenario in scenarios.items()})

    def cached_text(request: Request) -> str | None:
        # Read, not only looked up: an entry counted as cached reserves no limit and no money.
        kept = cache.get(keys.key(request))
        return None if kept is None else kept.text

    return ModelKnowledge(prices=prices, cached_text=cached_text)


def scenarios_of(models: tuple[Model, ...]) -> dict[str, Scenario]:
    """The scenarios of the simulated models among these, by name."""
    simulated = [model for model in models if model.provider is Provider.LOOPBACK]
    if not simulated:
        return {}
    from paraval.loopback.scenario import Scenario  # noqa: PLC0415 - seldom needed, slow to import

    by_source = {model.scenario: Scenario.load(model.scenario) for model in simulated}
    return {model.name: by_source[model.scenario] for model in simulated}


async def loopback_addresses(
    scenarios: Mapping[str, Scenario], stack: contextlib.AsyncExitStack
) -> dict[str, str]:
    """Addresses of the simulated models: one server per scenario, for the duration of the run."""
    if not scenarios:
        return {}
    from paraval.loopback.server import LoopbackServer  # noqa: PLC0415 - seldom needed

    servers: dict[str, LoopbackServer] = {}
    for scenario in scenarios.values():
        if scenario.identity not in servers:
            server = LoopbackServer(scenario)
            servers[scenario.identity] = await stack.enter_async_context(server)
    return {name: servers[scenario.identity].base_url for name, scenario in scenarios.items()}


# ---- attempts


def at_once_with_files(plan: Plan) -> int:
    """How many attempts can run in parallel with the allowed number of open files.

    Raises this process's own limit as far as possible and necessary.
    """
    at_once = plan.limits.parallel
    if plan.trials:
        at_once = min(at_once, len(plan.trials))
    each = _files_each(plan)
    if not each:
        return at_once
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = at_once * each + FILES_FOR_THE_REST
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return at_once
    return min(at_once, max(1, (soft - FILES_FOR_THE_REST) // each))


def _files_each(plan: Plan) -> int:
    """Files that an attempt holds open: pipes, or connections (both ends of simulated ones)."""
    called = models_of(plan)
    simulated = any(model.provider is Provider.LOOPBACK for model in called)
    of_processes = FILES_PER_PROCESS if starts_processes(plan) else 0
    return of_processes + (2 if simulated else 1 if called else 0)


def starts_processes(plan: Plan) -> bool:
    """A plan without trials counts too: the trials to come may start processes."""
    if not plan.trials:
        return True
    return any(spec.kind == "command" for spec in plan.grading.every) or any(
        isinstance(target, CommandTarget | AgentTarget)
        or (isinstance(target, FunctionTarget) and target.isolate)
        or (isinstance(target, StoredTarget) and plan.workspace.kind is not WorkspaceKind.NONE)
        for target in {id(trial.target): trial.target for trial in plan.trials}.values()
    )


@contextlib.asynccontextmanager
async def attempts_with(
    resources: AttemptResources, say: Callable[[str], None]
) -> AsyncIterator[Attempts]:
    """Open what performs the attempts of a run; `say` reports what it left behind."""
    async with contextlib.AsyncExitStack() as stack:
        attempt_dirs = AttemptDirs()
        redactor = resources.access.redactor
        if redactor:
            resources.warden.clean_logs = partial(redact_files, redactor=redactor)
        if starts_processes(resources.plan):
            stack.enter_context(unreadable_environment())
            attempt_dirs = await stack.enter_async_context(_attempt_dirs(resources, say))
        threads = Threads()
        attempts = _attempts(resources, threads, attempt_dirs)
        try:
            with routed_streams():
                yield attempts
        finally:
            await attempts.close()
            threads.close()
            if threads.left_behind:
                left = counted(threads.left_behind, "function")
                say(f"Still running in threads of this process: {left}.")


def _attempt_dirs(
    resources: AttemptResources, say: Callable[[str], None]
) -> contextlib.AbstractAsyncContextManager[AttemptDirs]:
    return open_attempt_dirs(
        resources.plan,
        warden=resources.warden,
        at_most=resources.at_once,
        hidden=HiddenPaths(store=resources.store_root, suite=True),
        say=say,
    )


def _attempts(resources: AttemptResources, threads: Threads, attempt_dirs: AttemptDirs) -> Attempts:
    plan, functions, warden = resources.plan, resources.functions, resources.warden
    run_id = resources.run_id
    return Attempts(
        Answerers(
            commands=CommandAnswerer(_room(resources, attempt_dirs)),
            functions=FunctionAnswerer(functions, threads),
            isolated=IsolatedAnswerer(
                warden,
                run_id,
                folder=str(resources.folder / "workers"),
                most=plan.limits.parallel,
            ),
            chats=ChatAnswerer(resources.access.models, functions=functions, threads=threads),
            agents=_agents(resources, attempt_dirs),
            stored=resources.stored,
        ),
        panel=Panel(
            plan.grading,
            functions=functions,
            threads=threads,
            warden=warden,
            room=CommandContext(
                marks={RUN_VARIABLE: run_id},
                homes=attempt_dirs.homes,
                sandbox_for=attempt_dirs.grader_sandbox_for,
                imports=attempt_dirs.imports,
                containers=attempt_dirs.containers,
            ),
            models=resources.access.models if resources.asks_judges else ELSEWHERE,
        ),
        warden=warden,
        run_folder=resources.folder,
        workspaces=attempt_dirs.workspaces,
        hidden=plan.workspace.hidden,
        redactor=resources.access.redactor if _may_repeat_secrets(plan) else None,
    )


def _may_repeat_secrets(plan: Plan) -> bool:
    """Whether attempts do more than call models, whose answers are already redacted."""
    return any(spec.kind in ("command", "python") for spec in plan.grading.every) or any(
        not isinstance(trial.target, ChatTarget) or trial.target.runs_tools for trial in plan.trials
    )


def _agents(resources: AttemptResources, attempt_dirs: AttemptDirs) -> AgentAnswerer | None:
    plan = resources.plan
    if not any(isinstance(trial.target, AgentTarget) for trial in plan.trials):
        return None
    from paraval.targets.agent import AgentAnswerer, AgentModelAccess  # noqa: PLC0415 - seldom needed

    return AgentAnswerer(
        _room(resources, attempt_dirs),
        AgentModelAccess(addresses=resources.access.addresses, prices=resources.prices),
    )


def _room(resources: AttemptResources, attempt_dirs: AttemptDirs) -> ProcessRoom:
    return ProcessRoom(
        warden=resources.warden,
        run_id=resources.run_id,
        homes=attempt_dirs.homes,
        nice=NICE,
        sandbox_for=attempt_dirs.sandbox_for,
        imports=attempt_dirs.imports,
        folder_for=attempt_dirs.folder_for,
        containers=attempt_dirs.containers,
    )
