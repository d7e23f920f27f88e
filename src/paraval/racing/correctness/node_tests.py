"""The tests of a race on the nodes of a cluster: which files they need, and how they run there.

A node has the commit that the race starts from. The objects of a candidate's tree travel with its
tests, and what the tests left comes back. Whatever reads the worktree happens on the node; the
results are compared with the baseline's by `tester`, on the engine's machine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paraval.environment import WorktreeImports
from paraval.git.alternates import alternates_variable
from paraval.git.repositories import find_repository
from paraval.git.run_git import GitError, must_git
from paraval.processes.identity import unreadable_environment
from paraval.racing.context import RaceContext, failed
from paraval.racing.correctness.test_run import RECORD, TestRun, load_record, run_tests
from paraval.racing.prepare import RaceStart, start_from_data
from paraval.racing.steps import Step, StepKind, trial_of
from paraval.records import Attempt, AttemptResult, CommandTarget, Outcome, Plan
from paraval.runner.attempt_dirs import HiddenPaths, open_attempt_dirs
from paraval.runner.resources import NICE, AttemptResources
from paraval.targets.command import ProcessRoom
from paraval.workspaces.pool import Pool

if TYPE_CHECKING:
    from paraval.execute.attempts import UnjudgedAnswer
    from paraval.runner.cluster.job import NodeJob

PERFORMER = f"{__name__}:open_node_tests"
OBJECTS = "objects"
"""The folder, in a run's folder, of the candidates' trees."""
_PACK = "tree.pack"
_PATIENCE_S = 600.0

# ---- the engine's side


def race_job(plan: Plan, start: RaceStart) -> NodeJob:
    """Pack what nodes need for the tests of a race. Blocks."""
    from paraval.runner.cluster.files import workspace_bundle  # noqa: PLC0415 - few races
    from paraval.runner.cluster.job import NodeJob  # noqa: PLC0415
    from paraval.runner.cluster.survey import PlanNeeds  # noqa: PLC0415

    packed = workspace_bundle(plan.workspace)
    assert packed is not None, "a race starts from a commit"
    request, source = start.request, plan.workspace.source
    trial = trial_of(Step(kind=StepKind.TEST), 0, request, start.base)
    # Others are in the worktree, or the node's own Python.
    programs = ("git", *request.test.command[:1], *(request.keys.setup or ())[:1])
    installed = (one for one in programs if "/" not in one or one[0] == "/")
    return NodeJob(
        plan=replace(plan, workspace=packed[1]),
        targets=(trial.target,),
        bundles=(packed[0],),
        needs=PlanNeeds(programs=tuple(installed), sandbox=request.is_sandboxed),
        env={name: os.environ[name] for name in request.keys.pass_env if name in os.environ},
        performer=PERFORMER,
        details={"start": replace(start, proposals=()).as_data(), "source": source},
    )


async def run_tests_on_node(
    context: RaceContext, attempt: Attempt, tree: str | None
) -> TestRun | AttemptResult:
    """Run the tests on the attempt's node. `tree`: None for the baseline. A result: they could not
    run."""
    trial, nodes = attempt.trial, context.nodes
    assert nodes is not None
    assert isinstance(trial.target, CommandTarget)
    try:
        files = {} if tree is None else {_PACK: await asyncio.to_thread(_packed, context, tree)}
    except GitError as error:
        return failed(Outcome.INFRA_ERROR, error.message, lasting=True)
    asked = {"tree": tree, "timeout": trial.target.timeout}
    sent = replace(trial, case=replace(trial.case, input=asked, metadata={}))
    result = await nodes.perform_there(replace(attempt, trial=sent), files=files)
    assert isinstance(result, AttemptResult), "no judge is asked"
    artifacts = {name: str(context.run_folder / path) for name, path in result.artifacts.items()}
    if RECORD not in artifacts or (result.error is not None and result.error.lost):
        return replace(result, artifacts=artifacts)
    record = await asyncio.to_thread(load_record, Path(artifacts[RECORD]))
    if record is None:
        message = f"the test results were not received from node {attempt.node}"
        return failed(Outcome.INFRA_ERROR, "; ".join((message, *result.notes)))
    return TestRun(
        record=record,
        failure=result.error,
        fields={
            "duration_s": result.duration_s,
            "exit_code": result.exit_code,
            "artifacts": artifacts,
            "notes": result.notes,
            "cpu_s": result.cpu_s,
            "memory_bytes": result.memory_bytes,
        },
    )


def _packed(context: RaceContext, tree: str) -> bytes:
    """The objects of a tree that the baseline lacks. Blocks."""
    repository = find_repository(context.request.repo)
    return must_git(
        [f"--git-dir={repository.git_dir}", "pack-objects", "--revs", "--stdout", "-q"],
        doing=f"cannot pack the tree {tree}",
        env=alternates_variable(str(context.objects)),
        stdin=f"{tree}\n^{context.base.tree}\n".encode(),
        timeout=_PATIENCE_S,
    )


# ---- on a node


@asynccontextmanager
async def open_node_tests(resources: AttemptResources, details: Any) -> AsyncIterator[NodeTests]:
    """Open what runs the tests of a race on this node."""
    start, plan = start_from_data(details["start"]), resources.plan
    # Its paths are the user's own, wherever the node has the repository; so are those of tests.
    plan = replace(plan, workspace=replace(plan.workspace, setup=start.request.keys.setup or ()))
    objects = resources.folder / OBJECTS
    with unreadable_environment():
        async with open_attempt_dirs(
            plan,
            warden=resources.warden,
            at_most=resources.at_once,
            hidden=HiddenPaths(store=resources.store_root),
            say=lambda _words: None,
            objects=objects,
        ) as dirs:
            assert isinstance(dirs.workspaces, Pool), "the plan of a race has workspaces"
            context = RaceContext(
                request=start.request,
                base=start.base,
                processes=ProcessRoom(
                    warden=resources.warden,
                    run_id=resources.run_id,
                    homes=dirs.homes,
                    nice=NICE,
                    sandbox_for=dirs.sandbox_for,
                    # Of a clone here at the same path, if there is one.
                    imports=WorktreeImports(
                        details["source"], plan.workspace.start, finds_src=True
                    ),
                ),
                workspaces=dirs.workspaces,
                objects=objects,
                run_folder=resources.folder,
            )
            yield NodeTests(context, str(plan.workspace.source))


class NodeTests:
    """Runs tests, and saves their results in the folder of the attempt."""

    def __init__(self, context: RaceContext, source: str) -> None:
        """`source`: the repository on this node."""
        self._context = context
        self._source = source
        trial = trial_of(Step(kind=StepKind.TEST), 0, context.request, context.base)
        assert isinstance(trial.target, CommandTarget)
        self._target = trial.target

    async def perform(self, attempt: Attempt) -> AttemptResult:
        asked = attempt.trial.case.input
        target = replace(self._target, timeout=asked["timeout"])
        attempt = replace(attempt, trial=replace(attempt.trial, target=target))
        try:
            if asked["tree"] is not None:
                await asyncio.to_thread(self._unpack, Path(attempt.folder, _PACK))
            ran = await run_tests(self._context, attempt, asked["tree"])
            result = ran if isinstance(ran, AttemptResult) else await self._saved(ran, attempt)
        except (GitError, OSError) as error:
            return failed(Outcome.INFRA_ERROR, str(error))
        return replace(result, artifacts=self._context.relative(result.artifacts))

    async def _saved(self, ran: TestRun, attempt: Attempt) -> AttemptResult:
        artifacts = await asyncio.to_thread(ran.record.save, attempt.folder)
        outcome = Outcome.PASSED if ran.record.exit_code == 0 else Outcome.FAILED
        if ran.failure is not None:
            outcome = ran.failure.kind
        return AttemptResult(outcome=outcome, error=ran.failure, **ran.fields_with(artifacts))

    def _unpack(self, pack: Path) -> None:
        """Put the objects of a tree where worktrees find them. Blocks."""
        must_git(
            [f"--git-dir={find_repository(self._source).git_dir}", "index-pack", "--stdin"],
            doing="cannot unpack a candidate's tree",
            env={"GIT_OBJECT_DIRECTORY": str(self._context.objects)},
            stdin=pack.read_bytes(),
            timeout=_PATIENCE_S,
        )
        pack.unlink()

    def take_answer(self, _index: int) -> UnjudgedAnswer | None:
        """None: no judge is asked."""
        return None

    def forget(self, index: int) -> None:
        """Do nothing: no state is kept between attempts."""

    def kill(self) -> None:
        self._context.processes.warden.kill_all()
