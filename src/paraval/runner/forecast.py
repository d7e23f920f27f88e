"""Forecasts a plan before it runs: time, tokens, dollars.

Based on the store's history of the suite if there is any, else on estimates. The scheduler reserves
by it, and `paraval plan` shows it; the ledger has the actual figures.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Protocol

from paraval.dataclass import dataclass
from paraval.grade.grader import CannotGrade, Subject
from paraval.grade.judge import embedding_request, judge_request, judge_requests
from paraval.machine.machine_reader import MachineReader
from paraval.models.anthropic_messages import DEFAULT_MAX_TOKENS
from paraval.models.requests import Request
from paraval.records import (
    WORKSPACE_NEED,
    AgentTarget,
    ChatTarget,
    CommandTarget,
    FoundLimit,
    FunctionTarget,
    GraderSpec,
    Image,
    Limits,
    MachineReading,
    Model,
    Output,
    Plan,
    Price,
    Provider,
    StoredTarget,
    Target,
    Trial,
    WorkspaceKind,
    account_need,
    call_need,
    model_need,
)
from paraval.runner.cluster.survey import ClusterForecast
from paraval.schedule.estimates import (
    Estimates,
    MachineNeeds,
    Observation,
    case_by_case,
    of_the_target,
    variant_key,
)
from paraval.schedule.messages import Draw, NodeJoined, Work
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.simulation import PARALLEL, Bound, SimulatedEnd, bounds, simulate
from paraval.store.index import HistoryRow
from paraval.store.store import Store
from paraval.targets.chat import request_for
from paraval.targets.command import template_fields
from paraval.templates.shell import shell_command
from paraval.templates.template import as_text, fill

# Estimated tokens of a call: for reservations and forecasts.

BYTES_PER_TOKEN = 3.0
TOKENS_PER_MESSAGE = 5.0
"""What providers add to each message: its role, its start and end."""
DEFAULT_OUTPUT_TOKENS = 1000.0
"""If nothing bounds an answer."""
USUAL_OUTPUT_TOKENS = 300.0
"""Of an answer or a verdict, for the first estimate of a cost: limits are mostly far higher."""

_BOUNDS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
"""An entry's options override the request's own."""


def estimated_tokens(text: str) -> float:
    """Estimated tokens of a text; rather too many than too few."""
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return length / BYTES_PER_TOKEN


def expected_tokens(request: Request) -> tuple[float, float]:
    """Estimated input and output tokens; for output, as much as the request allows."""
    longest = longest_answer(request)
    return _tokens_read(request), DEFAULT_OUTPUT_TOKENS if longest is None else longest


def _tokens_read(request: Request) -> float:
    read = 0.0
    for message in request.messages:
        read += estimated_tokens(message.content) + TOKENS_PER_MESSAGE
        for part in message.parts:
            read += TOKENS_PER_IMAGE * isinstance(part, Image)
    for tool in request.settings.tools:
        read += TOKENS_PER_TOOL + estimated_tokens(tool.description)
    return read


def longest_answer(request: Request) -> float | None:
    """Maximum tokens of an answer; None if unbounded."""
    options = request.model.options
    bounds = [options[name] for name in _BOUNDS if name in options] if options else []
    for bound in (*bounds, request.max_tokens):
        if type(bound) in (int, float) and bound > 0:
            return float(bound)
    # Anthropic requires a bound, so one is always sent.
    return DEFAULT_MAX_TOKENS if request.model.provider is Provider.ANTHROPIC else None


TOKENS_PER_IMAGE = 1500.0
TOKENS_PER_TOOL = 100.0
"""Its name and parameters."""
USUAL_TURNS = 2
"""Calls of a model with tools: one with tool calls, one without."""
MODEL_NEEDS = (account_need(""), model_need(""))
CACHED_S = 0.001
"""Duration of a cached answer."""
HISTORY_MARGIN = 1.5
"""Margin on top of what similar attempts cost before."""
ROUNDING = 0.25
"""Two attempts that each keep a little more than a core busy still share two cores well."""
THIS_MACHINE = "this machine"
CLUSTER = "the cluster"


class PriceTable(Protocol):
    def price(self, model: Model) -> Price | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCalls:
    """Expected calls of one model by a trial."""

    model: Model
    requests: int
    input_tokens: float
    output_tokens: float
    bounded: bool = True
    """False: nothing bounds the answer, so this is a guess."""

    @property
    def tokens(self) -> float:
        return self.input_tokens + self.output_tokens

    def cost_usd(self, price: Price) -> float:
        paid = self.input_tokens * price.input_per_million
        return (paid + self.output_tokens * price.output_per_million) / 1e6

    @property
    def usual(self) -> ExpectedCalls:
        """The same with answers of usual length."""
        usual = min(self.output_tokens, self.requests * USUAL_OUTPUT_TOKENS)
        return replace(self, output_tokens=usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCost:
    """In US dollars; None if a price is unknown."""

    likely: float | None
    """From history; None if there is none."""
    at_most: float | None
    """With the longest answers that the suite allows; a guess if it sets no limit."""
    usual: float | None = None
    """With answers of usual length."""
    bounded: bool = True
    """False: the maximum is a guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKnowledge:
    """What is known about models before calling them."""

    prices: PriceTable
    cached_text: Callable[[Request], str | None] = field(default=lambda _request: None)
    """The text of a cached answer; None if it is not cached."""
    stored_text: Callable[[Trial], str | None] = field(default=lambda _trial: None)
    """The text of an answer that is graded again; None if there is none."""


class Forecaster:
    """Expected time, cost and calls of a plan's trials."""

    def __init__(self, plan: Plan, history: Sequence[HistoryRow], asking: ModelKnowledge) -> None:
        self.plan = plan
        observed = [
            Observation(
                case_id=row.case_id,
                variant=row.variant,
                count=row.n,
                mean_log_s=row.mean_log,
                memory_bytes=row.memory_bytes,
                cores=row.cores,
            )
            for row in history
            if row.n
        ]
        self.estimates = Estimates(observed)
        self._asking = asking
        self._rows = history
        self._prices: dict[str, Price | None] = {}
        self._has_judges = any(spec.model is not None for spec in plan.grading.every)
        self._needs_known: dict[Hashable, tuple[str, ...]] = {}
        self._needs: MachineNeeds | None = None
        if plan.limits.auto:
            # Trials named during a run have targets of their own, however alike.
            kind_of = _of_the_variant if not plan.trials else of_the_target
            self._needs = MachineNeeds(observed, kind_of)
        self.cached = 0
        """Trials with a cached answer, among those looked at."""

    @cached_property
    def _history(self) -> dict[Hashable, HistoryRow]:
        """Only costs need it."""
        return {_history_key(row.case_id, row.variant): row for row in self._rows}

    def seconds(self, trial: Trial) -> float:
        return self.estimates.expected_s(trial.case.id, trial.variant)

    def work(self, trial: Trial, calls: Sequence[ExpectedCalls], *, on_node: bool = False) -> Work:
        """The trial as the scheduler sees it, with the calls to be made for it."""
        is_cached = not calls and isinstance(trial.target, ChatTarget)
        work = Work(
            trial.index,
            self._needs_of(trial, calls),
            CACHED_S if is_cached else self.seconds(trial),
            _draws(calls) if calls else (),
            0.0 if self.plan.budget is None else self._reserved_usd(trial, calls),
            trial.exclusive,
            on_node=on_node,
        )
        return work if self._needs is None else self._needs.fill_in(work, trial)

    def _needs_of(self, trial: Trial, calls: Sequence[ExpectedCalls]) -> tuple[str, ...]:
        # A program calls what it likes, and that is never in our cache.
        calls_any = isinstance(trial.target, AgentTarget)
        key: Hashable = (trial.needs, calls_any)
        if calls:
            key = (key, *(call.model.name for call in calls))
        needs = self._needs_known.get(key)
        if needs is None:
            needs = trial.needs if calls_any else _needs(trial, calls)
            if self.plan.workspace.kind is not WorkspaceKind.NONE:
                needs = tuple(sorted((*needs, WORKSPACE_NEED)))
            self._needs_known[key] = needs
        return needs

    def possible_usd(self, trial: Trial) -> float:
        """What an attempt that reported no cost may have cost."""
        if not isinstance(trial.target, ChatTarget):
            return self._reserved_usd(trial, self.calls(trial)) or 0.0
        asked, answered = expected_tokens(request_for(trial))
        calls = [_judge_call(spec, trial, answered) for spec in self._judges(trial)]
        target = _target_call(trial.target, asked, answered, bounded=True)
        return self._reserved_usd(trial, [target, *calls]) or 0.0

    def calls(self, trial: Trial) -> list[ExpectedCalls]:
        """The calls to be made: of the target unless it is cached, and of judges."""
        target = trial.target
        if not isinstance(target, ChatTarget):
            if not self._has_judges:
                return []
            judges = self._judges(trial)
            text = self._asking.stored_text(trial) if judges else None
            if text is None:
                return [_judge_call(spec, trial, DEFAULT_OUTPUT_TOKENS) for spec in judges]
            judges = [spec for spec in judges if not self._is_judged(spec, trial, text)]
            return [_judge_call(spec, trial, estimated_tokens(text)) for spec in judges]
        request = request_for(trial)
        longest = longest_answer(request)
        answered = DEFAULT_OUTPUT_TOKENS if longest is None else longest
        judges = self._judges(trial)
        # With tools, the first answer says nothing about the later ones.
        text = None if target.runs_tools else self._asking.cached_text(request)
        if text is not None:
            self.cached += 1
            judges = [spec for spec in judges if not self._is_judged(spec, trial, text)]
        calls = [_judge_call(spec, trial, answered) for spec in judges]
        if text is not None:
            return calls
        call = _target_call(target, _tokens_read(request), answered, bounded=longest is not None)
        return [call, *calls]

    def _is_judged(self, spec: GraderSpec, trial: Trial, answer: str) -> bool:
        """Whether all votes of a judge on a cached answer are cached, too."""
        try:
            requests = judge_requests(spec, _subject(trial, answer))
        except CannotGrade:
            # It will be reported without a call.
            return True
        return all(self._asking.cached_text(request) is not None for request in requests)

    def _judges(self, trial: Trial) -> list[GraderSpec]:
        """The graders of a trial that call a model."""
        if not self._has_judges:
            return []
        graders = self.plan.grading.of(trial.case.id)
        return [one for spec in graders for one in spec.flat() if one.model is not None]

    def unpriced(self) -> tuple[str, ...]:
        """Registry names of the models without a known price; agents report their own cost."""
        models = asked_models_of(self.plan)
        return tuple(model.name for model in models if self._price(model) is None)

    def cost(self, trial: Trial, calls: Sequence[ExpectedCalls]) -> ExpectedCost:
        prices = [self._price(call.model) for call in calls]
        at_most: float | None = None
        usual: float | None = None
        if None not in prices:
            priced = [(c, price) for c, price in zip(calls, prices, strict=True) if price]
            at_most = sum(call.cost_usd(price) for call, price in priced)
            usual = sum(call.usual.cost_usd(price) for call, price in priced)
        row = self._history.get(_history_key(trial.case.id, trial.variant))
        likely = row.mean_cost_usd if row is not None else None
        if isinstance(trial.target, ChatTarget) and not calls:
            likely = 0.0
        bounded = all(call.bounded for call in calls)
        return ExpectedCost(likely=likely, at_most=at_most, usual=usual, bounded=bounded)

    def _reserved_usd(self, trial: Trial, calls: Sequence[ExpectedCalls]) -> float | None:
        if self.plan.budget is None:
            return 0.0
        cost = self.cost(trial, calls)
        at_most = cost.at_most or 0.0
        likely = (cost.likely or 0.0) * HISTORY_MARGIN
        if isinstance(trial.target, ChatTarget):
            # A free answer may have had another price then; a guess is worth less than history.
            return at_most if not likely else min(at_most, likely) if cost.bounded else likely
        if isinstance(trial.target, StoredTarget):
            return at_most
        # A program's cost is known from earlier runs, or from the suite, or not at all.
        own = likely or self.plan.budget.per_attempt_usd
        return None if own is None else own + at_most

    def _price(self, model: Model) -> Price | None:
        if model.name not in self._prices:
            self._prices[model.name] = self._asking.prices.price(model)
        return self._prices[model.name]


def _of_the_variant(trial: Trial) -> Hashable:
    return variant_key(trial.variant)


def needs_of(model: Model) -> tuple[str, str, str]:
    """The needs of a trial that calls a model."""
    return account_need(model.account), call_need(model), model_need(model.name)


def models_of(plan: Plan, chosen: frozenset[int] | None = None) -> tuple[Model, ...]:
    """Every model that a plan, or its chosen trials, call, each once: those called directly, then
    those passed to agents."""
    targets = _targets_of(plan, chosen)
    handed = [target.model for target in targets if isinstance(target, AgentTarget)]
    models = [*asked_models_of(plan, chosen), *(model for model in handed if model is not None)]
    return tuple({model.name: model for model in models}.values())


def asked_models_of(plan: Plan, chosen: frozenset[int] | None = None) -> tuple[Model, ...]:
    """Without agents' models: those of chat targets in plan order, then those of judges."""
    targets = _targets_of(plan, chosen)
    models = [target.model for target in targets if isinstance(target, ChatTarget)]
    models += [spec.model for spec in plan.grading.every if spec.model is not None]
    return tuple({model.name: model for model in models}.values())


def _targets_of(plan: Plan, chosen: frozenset[int] | None) -> Iterable[Target]:
    return {
        id(trial.target): trial.target
        for trial in plan.trials
        if chosen is None or trial.index in chosen
    }.values()


def _history_key(case_id: str, variant: Mapping[str, object]) -> Hashable:
    return case_id, tuple(sorted((axis, str(value)) for axis, value in variant.items()))


def _subject(trial: Trial, answer: str) -> Subject:
    return Subject(
        case=trial.case, variant=trial.variant, repeat=trial.repeat, output=Output(text=answer)
    )


def _judge_call(spec: GraderSpec, trial: Trial, answer_tokens: float) -> ExpectedCalls:
    """All votes of a judge on an answer that does not exist yet."""
    assert spec.model is not None
    subject = _subject(trial, "")
    if spec.kind == "similarity":
        asked, _ = expected_tokens(embedding_request(spec, subject))
        return ExpectedCalls(
            model=spec.model, requests=1, input_tokens=asked + answer_tokens, output_tokens=0
        )
    asked, answered = expected_tokens(judge_request(spec, subject))
    votes = int(spec.options.get("votes", 1))
    return ExpectedCalls(
        model=spec.model,
        requests=votes,
        input_tokens=votes * (asked + answer_tokens),
        output_tokens=votes * answered,
    )


def _target_call(
    target: ChatTarget, asked: float, answered: float, *, bounded: bool
) -> ExpectedCalls:
    """The calls of a chat target. Each turn after tool calls repeats all that was said before."""
    if not target.runs_tools:
        return ExpectedCalls(
            model=target.model,
            requests=1,
            input_tokens=asked,
            output_tokens=answered,
            bounded=bounded,
        )
    turns = target.max_turns
    return ExpectedCalls(
        model=target.model,
        requests=min(turns, USUAL_TURNS),
        input_tokens=turns * asked + answered * turns * (turns - 1) / 2,
        output_tokens=turns * answered,
        bounded=bounded,
    )


def _needs(trial: Trial, calls: Sequence[ExpectedCalls]) -> tuple[str, ...]:
    """The needs without models that need not be called: a cached answer waits for no one."""
    called = {name for call in calls for name in needs_of(call.model)}
    return tuple(need for need in trial.needs if need in called or not need.startswith(MODEL_NEEDS))


def _draws(calls: Sequence[ExpectedCalls]) -> tuple[Draw, ...]:
    """Total draw on each account, and on each model of it."""
    draws: dict[str, Draw] = {}
    for call in calls:
        for name in (account_need(call.model.account), call_need(call.model)):
            before = draws.get(name, Draw(name, 0, 0.0))
            draws[name] = Draw(name, before.requests + call.requests, before.tokens + call.tokens)
    return tuple(draws.values())


# ---- forecast of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a run of a plan would do, according to the scheduler in virtual time."""

    plan: Plan
    starts: tuple[tuple[Trial, float, float], ...]
    """In order of start: the trial, its start time, its expected duration."""
    absent: tuple[str, ...] = ()
    """Programs that a run needs but that are not installed: it would be refused."""
    from_history: bool
    wall_s: float | None
    """None if nothing is known about the suite."""
    serial_s: float | None
    cost_usd: float | None
    """From history; None if some trial that costs has no history."""
    cost_at_most_usd: float | None
    """With the longest answers allowed; None if a price is unknown."""
    cost_usual_usd: float | None = None
    """With answers of usual length; None as above."""
    cost_is_bounded: bool
    """False: nothing bounds some answers, so the above is a guess."""
    unpriced: tuple[str, ...]
    """Models without a known price."""
    cached: int
    """Trials whose answer is cached."""
    decides: Bound | None
    """What determines the minimum duration, if known."""
    at_once: int | None = None
    """How many the machine is expected to carry in parallel, if the suite leaves that open."""
    cluster: ClusterForecast | None = None
    """The nodes to run on, each with the slots that it is expected to carry; None: this machine."""


def forecast_plan(
    plan: Plan,
    store: Store,
    asking: ModelKnowledge,
    seed: int = 0,
    machine: MachineReading | None = None,
    cluster: ClusterForecast | None = None,
) -> Forecast:
    """Forecast a plan: what would run, in which order, for how long, and at what cost.

    `seed` draws the order of cases if the run may stop early. `machine` is the one to run on; None:
    this one, as it is now. `cluster` runs everything but calls of chat models.
    """
    expected = Forecaster(plan, store.history(plan.name).rows, asking)
    calls = [expected.calls(trial) for trial in plan.trials]
    works = [expected.work(*each) for each in zip(plan.trials, calls, strict=True)]
    if plan.stop is not None:
        works = case_by_case(works, plan.trials, seed)
    seconds = [work.expected_s for work in works]
    limits = _with_found(plan.limits, store.found_limits(plan.limits.accounts))
    if limits.auto:
        limits = _carried(works, limits, machine or MachineReader().read({}))
    if cluster is not None and cluster.slots:
        cluster = _with_slots(cluster, works, plan.limits)
        works = [_on_node(*each) for each in zip(works, plan.trials, strict=True)]
    scheduler = Scheduler(works, limits=limits, retry=plan.retry, seed=seed)
    for node in () if cluster is None else cluster.nodes:
        if node.slots:
            scheduler.handle(NodeJoined(at=0.0, node=node.name, slots=node.slots))
    trace = simulate(scheduler, lambda index, _: SimulatedEnd(duration_s=seconds[index]))
    known = expected.estimates.known
    costs = [expected.cost(*each) for each in zip(plan.trials, calls, strict=True)]
    # The maximum cost of agents is unknown.
    agents = any(isinstance(trial.target, AgentTarget) for trial in plan.trials)
    has_models = bool(models_of(plan)) and not agents
    return Forecast(
        plan=plan,
        starts=tuple(
            (plan.trials[span.index], span.start, seconds[span.index]) for span in trace.spans
        ),
        from_history=known,
        wall_s=trace.makespan_s if known else None,
        serial_s=sum(seconds) if known else None,
        cost_usd=_sum([cost.likely for cost in costs]),
        cost_at_most_usd=_sum([cost.at_most for cost in costs]) if has_models else None,
        cost_usual_usd=_sum([cost.usual for cost in costs]) if has_models else None,
        cost_is_bounded=all(cost.bounded for cost in costs),
        unpriced=expected.unpriced(),
        cached=expected.cached,
        decides=_deciding(works, limits, plan, known=known)
        if cluster is None
        else _deciding_on(cluster, works, limits, known=known),
        at_once=limits.parallel if plan.limits.auto else None,
        cluster=cluster,
    )


def _with_found(limits: Limits, found: Mapping[str, FoundLimit]) -> Limits:
    """With the rates that earlier runs found, where none is configured."""
    rates = {
        name: replace(known, requests_per_minute=max(1, round(found[name].requests_per_minute)))
        for name, known in limits.accounts.items()
        if name in found and known.requests_per_minute is None
    }
    return replace(limits, accounts={**limits.accounts, **rates}) if rates else limits


def _on_node(work: Work, trial: Trial) -> Work:
    return work if isinstance(trial.target, ChatTarget) else work._replace(on_node=True)


def _with_slots(cluster: ClusterForecast, works: Sequence[Work], limits: Limits) -> ClusterForecast:
    """With limits `auto`, the slots that each node is expected to carry."""
    if not limits.auto:
        return cluster
    nodes = [
        replace(
            node,
            slots=_carried(
                works, replace(limits, parallel=node.slots), node.facts.machine
            ).parallel,
        )
        if node.facts is not None and node.slots
        else node
        for node in cluster.nodes
    ]
    return replace(cluster, nodes=tuple(nodes))


def _deciding_on(
    cluster: ClusterForecast, works: Sequence[Work], limits: Limits, *, known: bool
) -> Bound | None:
    """The same on a cluster; if calls of models take up this machine, by its own limits."""
    if any(work.on_node for work in works):
        limits = replace(limits, parallel=cluster.slots)
    found = next((one for one in bounds(works, limits) if known or one.is_rate), None)
    return replace(found, name=CLUSTER) if found is not None and found.name == PARALLEL else found


def _carried(works: Sequence[Work], limits: Limits, machine: MachineReading) -> Limits:
    """A fixed number in place of measurements: from the average cores and memory of such trials, if
    known."""
    at_once = float(limits.parallel)
    cores = [work.cores if work.cpu is None else work.cpu for work in works if not work.exclusive]
    memory = [work.memory_bytes for work in works if not work.exclusive]
    for there_is, needs in ((machine.cpus, cores), (machine.memory_available, memory)):
        known = [need for need in needs if need is not None]
        if sum(known) > 0:
            at_once = min(at_once, there_is * len(known) / sum(known))
    return replace(limits, auto=False, parallel=max(1, int(at_once + ROUNDING)))


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


def _deciding(works: Sequence[Work], limits: Limits, plan: Plan, *, known: bool) -> Bound | None:
    """The tightest bound; without history, only rates are meaningful."""
    found = next((one for one in bounds(works, limits) if known or one.is_rate), None)
    if found is None or found.name != PARALLEL or limits.parallel == plan.limits.parallel:
        return found
    return replace(found, name=THIS_MACHINE, text=f"about {found.text}")


def first_request(forecast: Forecast) -> Iterator[tuple[str, str]]:
    """What the first trial would send: each part's name and text."""
    if not forecast.starts:
        return
    trial, target = forecast.starts[0][0], forecast.starts[0][0].target
    # What only an attempt has keeps its name.
    fields = template_fields(trial, "{folder}", "{workspace}")
    fields = replace(fields, extra={"suite": getattr(target, "folder", "{suite}")})
    match target:
        case ChatTarget():
            yield from ((one.role, one.content) for one in request_for(trial).messages)
        case CommandTarget(shell=True):
            yield "script", shlex.join(shell_command(target.command[0], fields))
        case CommandTarget():
            yield "command", shlex.join(fill(part, fields) for part in target.command)
        case AgentTarget():
            if target.system is not None:
                yield "system", fill(target.system, fields)
            yield "prompt", fill(target.prompt, fields)
        case FunctionTarget():
            yield "input", as_text(trial.case.input)
    if isinstance(target, CommandTarget) and target.stdin is not None:
        yield "stdin", fill(target.stdin, fields)
