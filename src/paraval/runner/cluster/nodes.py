"""The engine's side of a cluster: starts a host on each node, sends it what it needs, gives it the
attempts that the scheduler assigns to its node, and notices when it is lost.

The attempts of a lost host are lost with it: they end as errors of the infrastructure, and their
trials are given out again. A result that comes late finds nobody waiting for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import field, replace
from functools import partial

from paraval.codec import to_data
from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError, RunBrokenOffError
from paraval.execute.attempts import Attempts, UnjudgedAnswer
from paraval.execute.driver import Driver
from paraval.records import (
    Attempt,
    AttemptResult,
    Failure,
    MachineReading,
    Outcome,
    RunInfo,
    Target,
)
from paraval.runner.cluster.backend import (
    Backend,
    ClusterNode,
    HostHandle,
    HostLostError,
    Message,
)
from paraval.runner.cluster.host import attempt_data, write_files
from paraval.runner.cluster.host_client import NodeHost, why_lost
from paraval.runner.cluster.job import NodeJob
from paraval.runner.cluster.survey import facts_of
from paraval.runner.resume import how_to_resume
from paraval.settings import Options
from paraval.text.words import counted, some

LOOK_EVERY_S = 1.0
"""How often it looks for nodes that joined or left."""
START_S = 120.0
"""How long a host may take to start, and to get its files."""
ALONE_S = 60.0
"""How long a run waits for a node if it has none."""
FAILURES_IN_A_ROW = 3
"""A node that fails this often in a row, for reasons of its own, is left out."""

TOGETHER_S = 0.3
NAMES_SHOWN = 8
REST_S = 1.0
"""How long a node gets nothing after a failure of its own."""


class Cluster:
    """The hosts of a run's nodes. It is the driver's performer: what does not go to a node is
    performed here."""

    def __init__(self, backend: Backend, job: NodeJob, address: str) -> None:
        self._backend = backend
        self._address = address
        self._job = job
        self._run: _ClusterRun
        self._numbers = {id(target): number for number, target in enumerate(job.targets)}
        self._equipped: dict[str, HostHandle] = {}
        """Hosts that have what they need, before the run begins; by the node's id."""
        self._hosts: dict[str, NodeHost] = {}
        """Those that work, by the node's name."""
        self._failures: Counter[str] = Counter()
        """In a row, by the node's id."""
        self._left_out: dict[str, str] = {}
        """Nodes that get nothing more, by id, and why."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """One for each node that is being started or works, by id."""

    async def check(self) -> list[str]:
        """Start a host on every node, and send it what it needs. Returns what is wrong with nodes
        that cannot be used; raises RequestError if none can."""
        nodes = await self._backend.nodes()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._try_to_equip(node)) for node in nodes]
        problems = [problem for task in tasks if (problem := task.result()) is not None]
        if not self._equipped:
            raise RequestError("\n".join(problems) or "the cluster has no nodes")
        return problems

    async def _try_to_equip(self, node: ClusterNode) -> str | None:
        try:
            self._equipped[node.id] = await self._equip(node)
        except Exception as error:  # noqa: BLE001 - whatever it is, others may do better
            named = f"node {node.name}"
            why = why_lost(error)
            self._left_out[node.id] = why if why.startswith(named) else f"{named}: {why}"
            return self._left_out[node.id]
        return None

    async def _equip(self, node: ClusterNode) -> HostHandle:
        """A host that has its programs, files and secrets."""
        job = self._job
        async with asyncio.timeout(START_S):
            handle = await self._backend.start_host(node)
            try:
                await self._check(handle)
                await self._send_files(handle)
                secrets = Message.of(env=dict(job.env), redacted=list(job.redacted))
                await handle.call("secrets", secrets)
            except BaseException:
                handle.kill()
                raise
        return handle

    async def _check(self, handle: HostHandle) -> None:
        facts = await facts_of(handle, self._job.needs)
        if facts.missing:
            raise RequestError("; ".join(facts.missing))

    async def _send_files(self, handle: HostHandle) -> None:
        bundles = {bundle.header.name: bundle for bundle in self._job.bundles}
        missing = await handle.call("missing", Message.of(names=list(bundles)))
        for name in json.loads(missing.text):
            header, content = bundles[name].header, bundles[name].content
            text = json.dumps(to_data(header))
            await handle.call("put", Message(text=text, files={"content": content}))

    # ---- a run

    def takes(self, target: Target) -> bool:
        """Whether attempts at this target go to nodes."""
        return id(target) in self._numbers

    @contextlib.asynccontextmanager
    async def running(
        self,
        *,
        run: RunInfo,
        folder: str,
        driver: Driver,
        say: Callable[[str], None],
        local: Attempts | None = None,
    ) -> AsyncIterator[None]:
        """Give its nodes to a run. `local` performs what stays here, and asks the judges; None:
        another performer does, and calls `perform_there`."""
        self._run = _ClusterRun(
            info=run,
            resume=f"{how_to_resume(run)} --cluster {self._address}",
            folder=folder,
            local=local,
            driver=driver,
            say=say,
            auto=self._job.plan.limits.auto,
        )
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            tasks = [watch, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._run.say_who_joined()
            hosts = tuple(self._hosts.values())
            await asyncio.gather(*(host.close() for host in hosts))
        # A bug of ours must not look like a run without nodes.
        if not watch.cancelled():
            watch.result()

    async def _watch(self) -> None:
        """Start a host on every node that joins; end the run if none is left."""
        try:
            alone_since = time.monotonic()
            while True:
                nodes = await self._backend.nodes()
                for node in nodes:
                    if node.id not in self._tasks and node.id not in self._left_out:
                        self._tasks[node.id] = asyncio.create_task(self._serve(node))
                if nodes:
                    alone_since = time.monotonic()
                is_hopeless = bool(nodes) and all(node.id in self._left_out for node in nodes)
                if is_hopeless or time.monotonic() - alone_since > ALONE_S:
                    why = "; ".join(dict.fromkeys(self._left_out.values()))
                    self._run.fail(f"no node of the cluster is left{why and f' ({why})'}")
                    return
                await asyncio.sleep(LOOK_EVERY_S)
        except Exception as error:  # noqa: BLE001 - nobody else would notice
            self._run.fail(why_lost(error))

    async def _serve(self, node: ClusterNode) -> None:
        """Start hosts on a node, one after the other if they are lost, until it is gone or left
        out."""
        while node.id not in self._left_out:
            try:
                handle = self._equipped.pop(node.id, None) or await self._equip(node)
                host = NodeHost(handle, await self._open(handle))
            except Exception as error:  # noqa: BLE001 - whatever it is, it costs only this node
                self._fail(node, why_lost(error))
                await asyncio.sleep(REST_S)
            else:
                if (former := self._hosts.get(node.name)) is not None:
                    self._lose(former, "it came back as a new node")
                self._hosts[node.name] = host
                self._run.joined(host)
                try:
                    await host.work(partial(self._run.measured, node.name))
                except* Exception as errors:  # noqa: BLE001 - as above
                    self._lose(host, why_lost(errors))
            try:
                present = await self._backend.nodes()
            except ParavalError:
                # The watch ends the run if that lasts; otherwise it starts another host.
                break
            if node.id not in {one.id for one in present}:
                break
        del self._tasks[node.id]

    async def _open(self, handle: HostHandle) -> int:
        async with asyncio.timeout(START_S):
            opening = self._job.opening(self._run.info.id, handle.node.name)
            told = await handle.call("open", opening)
        return int(json.loads(told.text)["slots"])

    def _lose(self, host: NodeHost, why: str) -> None:
        if host.is_lost:
            return
        lost = host.running
        del self._hosts[host.name]
        self._run.left(host)
        host.lose(why)
        again = f"; {counted(lost, 'attempt')} will start again" if lost else ""
        self._run.say(f"Node {host.name} was lost: {why}{again}.")
        self._fail(host.handle.node, why)

    def _fail(self, node: ClusterNode, why: str) -> None:
        """It failed for reasons of its own."""
        why = why.removeprefix(f"node {node.name}: ")
        self._failures[node.id] += 1
        if self._failures[node.id] < FAILURES_IN_A_ROW or node.id in self._left_out:
            return
        self._left_out[node.id] = f"node {node.name}: {why}"
        self._run.say(
            f"Node {node.name} is left out: it failed {FAILURES_IN_A_ROW} times in a row ({why})."
        )
        if node.name in self._hosts:
            self._run.left(self._hosts[node.name])

    def _rest(self, host: NodeHost, why: str) -> None:
        """It gets nothing for a moment, so that a node where everything fails immediately does not
        take all trials."""
        if host.is_resting or host.is_lost:
            return
        host.is_resting = True
        self._run.left(host)
        self._fail(host.handle.node, why)
        asyncio.get_running_loop().call_later(REST_S, self._end_rest, host)

    def _end_rest(self, host: NodeHost) -> None:
        host.is_resting = False
        if not host.is_lost and host.handle.node.id not in self._left_out:
            self._run.rejoined(host)

    # ---- attempts

    async def perform(self, attempt: Attempt) -> AttemptResult:
        local = self._run.local
        assert local is not None, "the performer of a suite"
        if attempt.node is not None and not local.has_answer(attempt.trial.index):
            got = await self.perform_there(attempt, self._numbers[id(attempt.trial.target)])
            if isinstance(got, AttemptResult):
                return got
            local.put_answer(attempt.trial.index, self._placed(got))
        return replace(await local.perform(attempt), node=attempt.node)

    async def perform_there(
        self, attempt: Attempt, target: int = 0, files: Mapping[str, bytes] | None = None
    ) -> AttemptResult | UnjudgedAnswer:
        """Perform an attempt on its node. `target`: by its number in the job; `files`: what its
        folder contains when it starts."""
        assert attempt.node is not None
        began = time.monotonic()
        host = self._hosts.get(attempt.node)
        if host is None:
            return _lost(attempt.node, "before the attempt could start")
        try:
            data = attempt_data(attempt, target, self._run.folder)
            within = data["folder"]
            sent = {f"{within}/{name}": content for name, content in (files or {}).items()}
            message = Message(text=json.dumps(data), files=sent)
        except (TypeError, ValueError) as error:
            return _not_sent(error)
        try:
            reply, left = await host.perform(attempt, message)
        except HostLostError as error:
            return _lost(attempt.node, error.message, time.monotonic() - began)
        try:
            await self._keep(attempt, left)
        except OSError as error:
            return _not_kept(error)
        answer = reply.for_judges()
        if answer is not None:
            self._failures[host.handle.node.id] = 0
            return answer
        assert reply.result is not None
        result = replace(reply.result, node=attempt.node)
        if result.error is not None and result.error.lost:
            self._rest(host, result.error.message)
        elif result.outcome.is_judged:
            self._failures[host.handle.node.id] = 0
        return result

    async def _keep(self, attempt: Attempt, files: Mapping[str, bytes]) -> None:
        """Put the attempt's files where they would be if it had run here."""
        within = attempt.folder.removeprefix(f"{self._run.folder}/") + "/"
        own = {path: files[path] for path in files if path.startswith(within)}
        if own:
            await asyncio.to_thread(write_files, self._run.folder, own)

    def _placed(self, unjudged: UnjudgedAnswer) -> UnjudgedAnswer:
        """With paths in the run's folder here."""
        answer, kept, folder = unjudged.answer, unjudged.kept, self._run.folder
        artifacts = {name: f"{folder}/{path}" for name, path in answer.artifacts.items()}
        if kept is not None and kept.patch is not None:
            kept = replace(kept, patch=f"{folder}/{kept.patch}")
        return replace(unjudged, answer=replace(answer, artifacts=artifacts), kept=kept)

    def forget(self, index: int) -> None:
        if self._run.local is not None:
            self._run.local.forget(index)

    def kill(self) -> None:
        if self._run.local is not None:
            self._run.local.kill()
        for host in self._hosts.values():
            kill = asyncio.ensure_future(host.handle.call("kill", Message.of()))
            # Whether it arrives or not, the attempts are canceled too.
            kill.add_done_callback(lambda done: done.cancelled() or done.exception())


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterRun:
    """A run that uses the nodes."""

    info: RunInfo
    resume: str
    """The command that resumes it."""
    folder: str
    """Absolute."""
    local: Attempts | None
    """Performs what stays here, and asks the judges."""
    driver: Driver
    say: Callable[[str], None]
    auto: bool
    """Slots are what nodes may run at most."""
    new: list[NodeHost] = field(default_factory=list)
    """Those that joined a moment ago: many nodes are one message."""

    def joined(self, host: NodeHost) -> None:
        if not self.new:
            asyncio.get_running_loop().call_later(TOGETHER_S, self.say_who_joined)
        self.new.append(host)
        self.rejoined(host)

    def say_who_joined(self) -> None:
        if not self.new:
            return
        most = "up to " if self.auto else ""
        slots = most + counted(sum(host.slots for host in self.new), "slot")
        names = some(sorted(host.name for host in self.new), NAMES_SHOWN)
        self.say(f"Joined: {'node' if len(self.new) == 1 else 'nodes'} {names} ({slots}).")
        self.new.clear()

    def rejoined(self, host: NodeHost) -> None:
        self.driver.node_joined(host.name, host.slots)

    def left(self, host: NodeHost) -> None:
        self.driver.node_left(host.name)

    def measured(self, node: str, reading: MachineReading) -> None:
        self.driver.node_measured(node, reading)

    def fail(self, why: str) -> None:
        self.driver.fail(
            RunBrokenOffError(
                f"run {self.info.id} was aborted: {why}", hint=f"fix that, then run: {self.resume}"
            )
        )


def _lost(node: str, why: str, duration_s: float = 0.0) -> AttemptResult:
    failure = Failure(kind=Outcome.INFRA_ERROR, message=f"node {node} was lost: {why}", lost=True)
    return AttemptResult(outcome=failure.kind, error=failure, duration_s=duration_s, node=node)


def _not_sent(error: Exception) -> AttemptResult:
    failure = Failure(
        kind=Outcome.INFRA_ERROR,
        message=f"its case cannot be sent to a node: {error}",
        lasting=True,
    )
    return AttemptResult(outcome=failure.kind, error=failure)


def _not_kept(error: OSError) -> AttemptResult:
    message = f"its files cannot be written to the run's folder: {error}"
    failure = Failure(kind=Outcome.INFRA_ERROR, message=message)
    return AttemptResult(outcome=failure.kind, error=failure)


@contextlib.asynccontextmanager
async def open_cluster(
    options: Options, job: NodeJob, say: Callable[[str], None]
) -> AsyncIterator[Cluster]:
    """Connect to the cluster that the options name, and check its nodes. `say` gets a sentence
    about each thing that takes time or that users should know."""
    from paraval.runner.cluster import ray_backend  # noqa: PLC0415 - only with --cluster

    assert options.cluster is not None
    async with ray_backend.connect(
        options.cluster,
        insecure=options.insecure_cluster,
        say=say,
    ) as backend:
        cluster = Cluster(backend, job, options.cluster)
        for problem in await cluster.check():
            say(f"{problem[:1].upper()}{problem[1:]}; it is left out.")
        yield cluster
