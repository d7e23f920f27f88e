"""Agent targets: their prompts, the agent and model of each variant, and whether the agent supports
the keys.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paraval.dataclass import dataclass
from paraval.documents.forms import Locate, check, pattern_problem
from paraval.documents.problems import Location, shown
from paraval.errors import Problem
from paraval.plan.chat import STAND_IN
from paraval.plan.limits import read_errors, read_target_limits
from paraval.plan.matrix import AxisText, Choice, Matrix, spelled_out
from paraval.plan.prompts.texts import Prompt, insert_into, read_prompt
from paraval.plan.schema.agent_forms import (
    PATHS,
    SERVER_NAME,
    AgentRetriesForm,
    AgentTargetForm,
    CustomOutputForm,
    McpServerForm,
)
from paraval.plan.suite_folder import (
    SuiteFolder,
    check_executable,
    check_started_in_workspace,
    placed,
    search_path,
)
from paraval.records import (
    AgentRetries,
    AgentTarget,
    CustomAgent,
    Home,
    McpServer,
    Model,
    Plan,
    Reads,
)
from paraval.text.suggest import quoted, suggestion

if TYPE_CHECKING:
    from paraval.agents.program import AgentProgram


# Whether an agent supports what a suite asks for: checked when the suite is loaded.

DECISIVE = {
    "system": "system (extra instructions)",
    "mcp": "mcp (tool servers)",
    "model": "model (choosing a model)",
}
"""Without these an agent would not do what the suite asks, even if other agents could."""
CUSTOM_FIELDS = ("prompt", "workspace", "mcp_config", "model", "max_turns")
"""Fields of a custom agent's command."""
CUSTOMS_OWN = ("command", "stdin", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """The keys of a target, whichever agent it is for."""

    keys: frozenset[str]
    """The keys that are set."""
    locate: Locate
    target: AgentTarget
    absent: dict[str, dict[Problem, None]] = field(default_factory=dict, repr=False)
    """By agent: why it cannot be started here. Not an error in the suite: it can be planned, and
    run with other agents."""


def agents_by_name() -> Mapping[str, AgentProgram]:
    """Return the agents that suites can name; loaded late, since most suites have none."""
    from paraval.agents.catalog import AGENTS  # noqa: PLC0415 - see above

    return AGENTS


def known_agent(named: AxisText) -> AgentProgram | None:
    """Return the agent of this name; report an unknown one and return None."""
    agents = agents_by_name()
    if named.text not in agents:
        named.spot.report(f"unknown agent '{named.text}'{suggestion(named.text, agents)}")
    return agents.get(named.text)


def can_speak(program: AgentProgram, model: Model) -> bool:
    # A stand-in has no name, and its problem has been reported.
    return not model.name or model.provider in program.speaks


def check_speech(program: AgentProgram, model: Model, spot: Location) -> None:
    """Report an agent that cannot use a model from the registry."""
    if not can_speak(program, model):
        speaks = sorted(program.speaks)
        others = f"it supports {quoted(speaks)}" if speaks else "it only supports its own provider"
        spot.report(
            f"{program.name} cannot use '{model.name}' of provider '{model.provider}'; {others}"
        )


def check_fit(program: AgentProgram, asked: AgentRequest, named: AxisText) -> None:
    """Report keys that an agent does not support."""
    for key, words in DECISIVE.items():
        if key in asked.keys and key not in program.takes and _is_set(asked.target, key):
            asked.locate((key,)).report(
                f"{named.text} does not support {words}; remove it for this agent"
            )

    if asked.target.home is Home.MINE:
        for key in sorted(program.takes_in_own_home & asked.keys):
            if _is_set(asked.target, key):
                asked.locate((key,)).report(
                    f"{named.text} supports {key} only with home: own; remove {key} or home: mine"
                )


def _is_set(target: AgentTarget, key: str) -> bool:
    return key != "mcp" or bool(target.mcp)


def note_absence(program: AgentProgram, asked: AgentRequest, named: AxisText) -> None:
    """Note that an agent is not installed."""
    from paraval.agents.catalog import find_program  # noqa: PLC0415 - see known_agent

    path = search_path(asked.target.env)
    noted = asked.absent.setdefault(named.text, {})
    if asked.target.program:
        first = asked.target.program[0]
        spot = replace(asked.locate(("program",)), problems=noted)
        check_executable(first, str(Path.cwd()), path, spot)
    elif find_program(program, path) is None:
        replace(named.spot, problems=noted).report(
            f"{named.text} is not installed: {quoted(program.programs)} is not on PATH; install it"
            f" with: {program.install}; or set program: to its path"
        )


# ---- keys that apply to several agents


def check_shared_keys(used: Iterable[tuple[AgentRequest, str]]) -> None:
    """Report keys that none of their agents supports.

    One place in a file may apply to several agents, of which only some support it: `max_turns`
    limits those.
    """
    agents = agents_by_name()
    places: dict[tuple[str | None, tuple[object, ...]], _SharedKey] = {}
    for asked, agent in used:
        for key in ("max_turns", "retries", "program", *CUSTOMS_OWN):
            if key in asked.keys and agent in agents:
                spot = asked.locate((key,))
                shared = places.setdefault((spot.file, spot.path), _SharedKey(key, spot, []))
                if agent not in shared.agents:
                    shared.agents.append(agent)
    for shared in places.values():
        problem = _shared_problem(shared, [agent for agent in shared.agents if agent == "custom"])
        takes = any(shared.key in agents[agent].takes for agent in shared.agents)
        if shared.key == "max_turns" and not takes:
            problem = (
                f"{quoted(shared.agents)} cannot limit turns; remove max_turns and use timeout"
            )
        if shared.key == "retries" and not takes:
            problem = f"{quoted(shared.agents)} cannot be told how often to retry; remove retries"
        if problem:
            shared.spot.report(problem)


@dataclass(frozen=True, slots=True)
class _SharedKey:
    key: str
    spot: Location
    agents: list[str]


def _shared_problem(shared: _SharedKey, customs: Sequence[str]) -> str | None:
    agents = quoted(shared.agents)
    if shared.key in CUSTOMS_OWN and not customs:
        use = "; to start it from another path, use program" if shared.key == "command" else ""
        return f"applies only to agent: custom, not to {agents}{use}"
    if shared.key == "program" and customs:
        return "custom has no default program to replace; use command"
    if shared.key == "program" and len(shared.agents) > 1:
        return f"would be used for all of {agents}; set it for each value in the matrix"
    return None


def unbounded_agents(plan: Plan) -> tuple[str, ...]:
    """Return the agents that ignore the `max_turns` of their target, for a notice."""
    targets = [trial.target for trial in plan.trials if isinstance(trial.target, AgentTarget)]
    bounded = {target.agent for target in targets if target.max_turns is not None}
    if not bounded:
        return ()
    agents = agents_by_name()
    return tuple(sorted(name for name in bounded if "max_turns" not in agents[name].takes))


def agents_ignoring_retries(plan: Plan) -> tuple[str, ...]:
    """Return the agents that ignore the `retries` of their target, or a part, for a notice."""
    found = set()
    for target in (trial.target for trial in plan.trials):
        if not isinstance(target, AgentTarget) or target.retries == AgentRetries():
            continue
        takes = agents_by_name()[target.agent].takes
        has_setting = "before_first" in takes and (target.agent != "codex" or target.model)
        if "retries" not in takes:
            found.add(f"{target.agent} ignores retries")
        elif target.retries.before_first is not None and not has_setting:
            found.add(f"{target.agent} ignores retries.before_first")
    return tuple(sorted(found))


CUSTOM = "custom"
LONGEST_ACCOUNT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDraft:
    """An agent target before its agent and model are known; they may differ between variants."""

    agent: str
    """A template over axes, like the model."""
    model: str | None
    common: AgentTarget
    """The rest of the target, the same for all agents."""
    prompts: tuple[Prompt, ...]
    """The prompt, then the system text, if any."""
    asked: AgentRequest
    locate: Locate
    _targets: dict[tuple[str, str | None], AgentTarget] = field(default_factory=dict, repr=False)
    """By agent and model name: variants with the same names share one."""

    def asking(self, agent: str, name: str | None, model: Model | None) -> AgentTarget:
        if (agent, name) not in self._targets:
            self._targets[agent, name] = replace(
                self.common,
                agent=agent,
                model=model,
                model_name=name if model is None else None,
                account=self.common.account or _usual_account(agent, model, self.common.custom),
                custom=self.common.custom if agent == CUSTOM else None,
            )
        return self._targets[agent, name]

    def inserting(self, files: Mapping[str, Prompt]) -> AgentDraft:
        """Return the draft for variants whose axes stand for these texts."""
        prompts = tuple(prompt.inserting(files) for prompt in self.prompts)
        common, locate = self.common, self.locate
        arguments = enumerate(common.arguments)
        custom = common.custom
        if custom is not None:
            # Its own fields take precedence over axes.
            others = {name: file for name, file in files.items() if name not in CUSTOM_FIELDS}
            at = locate(("command",))
            command = tuple(insert_into(word, at, others) for word in custom.command)
            custom = replace(custom, command=command)
        common = replace(
            common,
            prompt=prompts[0].text,
            system=None if common.system is None else prompts[-1].text,
            arguments=tuple(
                insert_into(text, locate(("arguments", number)), files)
                for number, text in arguments
            ),
            env={
                name: insert_into(text, locate(("env", name)), files)
                for name, text in common.env.items()
            },
            custom=custom,
        )
        return replace(self, common=common, prompts=prompts, _targets={})


def _usual_account(agent: str, model: Model | None, custom: CustomAgent | None) -> str:
    """The default account: two custom programs are as different as two agents."""
    if model is not None:
        return model.account
    if agent != CUSTOM or custom is None:
        return agent
    command = shlex.join(custom.command)
    if len(command) <= LONGEST_ACCOUNT:
        return command
    digest = hashlib.blake2b(command.encode(), digest_size=4).hexdigest()
    return f"{command[: LONGEST_ACCOUNT - len(digest) - 2]}… {digest}"


def read_agent(keys: Mapping[str, Any], locate: Locate, around: SuiteFolder) -> AgentDraft | None:
    """Read an agent target except for its agent and model; report problems, None if unusable."""
    found = len(locate(()).problems)
    form = check(AgentTargetForm, keys, locate(()), locate)
    if form is None:
        return None
    prompt = read_prompt(form.prompt, locate(("prompt",)), around.folder)
    system = None
    if form.system is not None:
        system = read_prompt(form.system, locate(("system",)), around.folder)
    common = AgentTarget(
        agent="",
        prompt="" if prompt is None else prompt.text,
        system=None if system is None else system.text,
        account=form.account or "",
        max_turns=None if form.max_turns is None else int(form.max_turns),
        retries=_read_retries(form.retries),
        mcp=_read_servers(keys.get("mcp"), form, locate, around),
        arguments=tuple(form.arguments),
        program=_read_program(form, around.folder),
        custom=_read_custom(form, locate),
        home=Home(form.home),
        env=form.env,
        pass_env=tuple(form.pass_env),
        timeout=None if form.timeout is None else float(form.timeout),
        grace=float(form.grace),
        limits=read_target_limits(keys.get("limits"), locate),
        fails_on=read_errors(keys.get("errors"), locate),
    )
    if len(locate(()).problems) > found:
        return None
    set_keys = frozenset(name for name, value in keys.items() if value is not None)
    return AgentDraft(
        agent=form.agent,
        model=form.model,
        common=common,
        prompts=tuple(each for each in (prompt, system) if each is not None),
        asked=AgentRequest(keys=set_keys, locate=locate, target=common),
        locate=locate,
    )


def resolve_agent(
    draft: AgentDraft, choice: Choice, comparison: Matrix, around: SuiteFolder
) -> AgentTarget | None:
    """Return the target of a choice, with its agent and model; report their problems.

    None for a choice that is not part of the suite's own plan and whose agent cannot use its model.
    """
    named = spelled_out(draft.agent, draft.locate(("agent",)), choice, comparison, "an agent")
    if named is None:
        return draft.asking("", None, None)
    program = known_agent(named)
    model, name = _model_of(draft, choice, comparison, around)
    if program is None:
        return draft.asking(named.text, None if name is None else name.text, model)
    if model is not None and name is not None:
        if comparison.is_only_offered(choice) and not can_speak(program, model):
            return None
        check_speech(program, model, name.spot)
    check_fit(program, draft.asked, named)
    if named.text == CUSTOM:
        _check_custom(draft, named, around)
    elif not around.in_container:
        note_absence(program, draft.asked, named)
    return draft.asking(named.text, None if name is None else name.text, model)


def _check_custom(draft: AgentDraft, named: AxisText, around: SuiteFolder) -> None:
    custom = draft.common.custom
    if custom is None:
        named.spot.report("agent: custom needs command: the program to start, with its arguments")
        return
    path = search_path(draft.common.env)
    check_started_in_workspace(custom.command[0], path, draft.locate(("command",)), around)


def _model_of(
    draft: AgentDraft, choice: Choice, comparison: Matrix, around: SuiteFolder
) -> tuple[Model | None, AxisText | None]:
    """Return the registry's model of this name, if there is one, and the name."""
    if draft.model is None:
        return None, None
    named = spelled_out(draft.model, draft.locate(("model",)), choice, comparison, "a model")
    if named is None or named.text not in around.registry.spots:
        return None, named
    # Its problem has been reported.
    return around.registry.models.get(named.text, STAND_IN), named


def _read_retries(form: AgentRetriesForm | None) -> AgentRetries:
    if form is None:
        return AgentRetries()
    return AgentRetries(
        before_first=None if form.before_first == "default" else form.before_first,
        after=None if form.after == "default" else form.after,
    )


# ---- tool servers


def _read_servers(
    written: Any, form: AgentTargetForm, locate: Locate, around: SuiteFolder
) -> tuple[McpServer, ...]:
    if written is None:
        return ()
    if not isinstance(written, Mapping):
        locate(("mcp",)).report(f"must be a mapping of names to servers, not {shown(written)}")
        return ()
    servers = []
    for name, entry in written.items():
        spot = locate(("mcp", str(name)))
        if not re.fullmatch(SERVER_NAME, str(name)):
            spot.report("server names consist of 1 to 64 letters, digits, '_' and '-'")
        elif entry is not None:  # an overlay removes a server of the target like this
            servers.append(_read_server(str(name), entry, spot, search_path(form.env), around))
    return tuple(server for server in servers if server is not None)


def _read_server(
    name: str, written: Any, spot: Location, path: str, around: SuiteFolder
) -> McpServer | None:
    form = check(McpServerForm, written, spot)
    if form is None:
        return None
    given = [key for key in ("command", "url") if written.get(key) is not None]
    if len(given) != 1:
        has = "both command and url" if given else "neither command nor url"
        spot.report(f"has {has}; give exactly one")
        return None
    if form.env and given == ["url"]:
        spot.at("env").report("applies only to servers started with command")
    if form.command is not None:
        path = form.env.get("PATH", path)
        check_started_in_workspace(form.command[0], path, spot.at("command"), around)
    return McpServer(name=name, command=tuple(form.command or ()), env=form.env, url=form.url)


# ---- custom programs


def _read_program(form: AgentTargetForm, folder: Path) -> tuple[str, ...]:
    """Return what replaces the agent's program; a path is made absolute, because attempts start
    elsewhere."""
    if form.program is None:
        return ()
    words = [form.program] if isinstance(form.program, str) else form.program
    first, *others = [placed(word, str(folder)) for word in words]
    is_path = "/" in first and not first.startswith(("/", "{"))
    return (
        placed(f"{{suite}}/{first.removeprefix('./')}", str(folder)) if is_path else first,
        *others,
    )


def _read_custom(form: AgentTargetForm, locate: Locate) -> CustomAgent | None:
    output = _read_output(form.output, locate)
    if form.command is None or output is None:
        return None
    return CustomAgent(
        command=tuple(form.command),
        stdin=form.stdin,
        like=output.like,
        reads=Reads(output.format),
        paths={name: path for name in PATHS if isinstance(path := getattr(output, name), str)},
        rate_limited=output.rate_limited,
        refused=output.refused,
    )


def _read_output(written: Any, locate: Locate) -> CustomOutputForm | None:
    if isinstance(written, str):
        written = {"format" if written in tuple(Reads) else "like": written}
    at_output: Locate = lambda steps: locate(("output", *steps))  # noqa: E731 - a name for one use
    form = check(CustomOutputForm, {} if written is None else written, at_output(()), at_output)
    if form is None:
        return None
    spot = at_output(())
    has_paths = any(getattr(form, name) is not None for name in PATHS)
    if form.like is not None:
        _check_like(form.like, spot)
        if has_paths or "format" in form.model_fields_set:
            spot.report(
                f"already has the format of '{form.like}'; remove format and the paths, or like"
            )
    elif form.format == "text" and has_paths:
        spot.report("format: text has no paths; set format: json or jsonl, or remove them")
    elif form.format != "text" and form.answer is None:
        spot.report(f"{form.format} needs answer: the path of the answer, such as result.text")
    for key in ("rate_limited", "refused"):
        pattern = getattr(form, key)
        problem = None if pattern is None else pattern_problem(pattern)
        if problem:
            at_output((key,)).report(problem)
    return form


def _check_like(name: str, spot: Location) -> None:
    agents = agents_by_name()
    known = [agent for agent in agents if agent != CUSTOM]
    if name not in known:
        near = suggestion(name, [*Reads, *known])
        spot.report(f"unknown output format '{name}'{near}")
