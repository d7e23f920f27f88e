"""`--paraval-store`: records every test run in the store, like the runs of suites.

Plain, parallel and xdist sessions are all recorded the same way, from pytest's reports. The engine
and xdist's workers take no part in it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, StoreError
from paraval.git.repositories import find_repository, resolve, tree_of
from paraval.git.snapshots import snapshot_tree
from paraval.models.secrets import Redactor
from paraval.pytest_plugin.options import FAIL_UNDER, PluginOptions, dest_of
from paraval.pytest_plugin.recording.item_trials import (
    PlanFrame,
    PlannedTest,
    SourceDigests,
    has_model,
    key_by_code,
    known_test,
    named_test,
    plan_of,
)
from paraval.pytest_plugin.recording.journal import RunJournal
from paraval.pytest_plugin.recording.report_data import register_report_data
from paraval.records import FunctionTarget, Limits, Model, Outcome, Plan, RunInfo
from paraval.report.gate import Gate, GateVerdict
from paraval.report.report import Report
from paraval.settings import TESTS, default_store
from paraval.store.connection import CLOSE_AND_RESUME, RESUMABLE
from paraval.store.folder import OPTION
from paraval.store.store import Store
from paraval.text.words import counted

_SECRET = re.compile(r"(?:^|_)(?:KEY|TOKEN|PASSWORD)$|(?:^|_)SECRET", re.IGNORECASE)
"""Names of environment variables whose values must not be stored."""


def register_recording(config: pytest.Config, options: PluginOptions) -> None:
    """Register the recording; xdist's workers only add report data, the controller records."""
    register_report_data(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunRecorder(config, options), RunRecorder.NAME)


class RunRecorder:
    """Records a session; a plugin."""

    NAME = "paraval-recording"

    def __init__(self, config: pytest.Config, options: PluginOptions) -> None:
        assert options.store is not None
        self._config = config
        self._options = options
        self._store = Store(options.store)
        self._fail_under = fail_under_in(config)
        self._journal: RunJournal | None = None
        self._review: SessionReview | None = None
        self._why_not_all: str | None = None
        """Why the session ends early, if that is on purpose."""

    # ---- start

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        option = session.config.option
        is_broken = session.testsfailed and not option.continue_on_collection_errors
        if session.items and not option.collectonly and not is_broken:
            models = self._models(are_asked_for=any(map(has_model, session.items)))
            self._begin([known_test(item, models) for item in session.items], models)
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Start in xdist's controller, which only has node ids. All workers report the same ids."""
        if ids and self._journal is None and not self._config.option.collectonly:
            models = self._models(are_asked_for=any("[" in node_id for node_id in ids))
            self._begin([named_test(node_id, models) for node_id in ids], models)

    def _models(self, *, are_asked_for: bool) -> Mapping[str, Model]:
        """The registry's models by name; xdist's controller reads the registry here."""
        if not are_asked_for:
            return {}
        # Imported here because most tests need no registry, and reading one loads the whole
        # planner.
        from paraval.pytest_plugin.models.choice import choose

        try:
            return choose(self._config, self._options).registry.models
        except ParavalError:
            # No registry: whatever a test calls a model is its own.
            return {}

    def _begin(self, tests: Sequence[PlannedTest], models: Mapping[str, Model]) -> None:
        rootdir = self._config.rootpath
        redactor = _redactor(models)
        frame = PlanFrame(
            name=redactor.text(str(self._config.getini("paraval_suite")))
            or f"pytest:{rootdir.name}",
            folder=str(rootdir),
            limits=Limits(parallel=self._at_once()),
            fail_under=self._fail_under,
            selection={TESTS: redactor.data(self._about(rootdir))},
        )
        # Parameters may be secrets, and they appear in the names of tests.
        shown = [replace(test, node_id=redactor.text(test.node_id)) for test in tests]
        plan = plan_of(shown, frame=frame, key_of=key_by_code(SourceDigests(rootdir)))
        try:
            ledger = self._store.create_run(plan, seed=0)
        except ParavalError as error:
            raise pytest.UsageError(f"--paraval-store: {for_tests(error)}") from error
        self._journal = RunJournal(ledger, redactor, [test.node_id for test in tests])

    def _at_once(self) -> int:
        workers = getattr(self._config.option, "numprocesses", None)
        return max(1, self._options.parallel) * max(1, workers if isinstance(workers, int) else 1)

    def _about(self, rootdir: Path) -> dict[str, object]:
        """How the run was started, and on which code."""
        state = code_state(rootdir)
        arguments = [str(argument) for argument in self._config.invocation_params.args]
        return {"arguments": arguments, **({} if state is None else state.as_mapping())}

    # ---- tests

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Never in a worker, nor in xdist's controller."""
        self.started(item.nodeid)

    def started(self, node_id: str) -> None:
        """A test starts, here or in a worker."""
        if self._journal is not None:
            self._journal.begin(node_id)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._journal is not None:
            self._journal.announce(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._journal is not None:
            self._journal.add(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._journal is not None:
            self._journal.end(nodeid)

    # ---- end

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note why pytest stops; also called for pytest's own stops and for pytest.exit."""
        if isinstance(excinfo.value, pytest.Session.Interrupted | pytest.exit.Exception):
            self._why_not_all = str(excinfo.value) or type(excinfo.value).__name__

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int | pytest.ExitCode
    ) -> None:
        if self._journal is None or self._review is not None:
            return
        self._journal.close(why_not_all=self._why(session, exitstatus))
        self._review = review_of(self._store, self._journal, self._fail_under)
        if self._fail_under is not None and exitstatus in (0, 1):
            session.exitstatus = 0 if self._review.is_good_enough else 1

    def _why(self, session: pytest.Session, exitstatus: int) -> str | None:
        """Why tests were left out; None: not on purpose."""
        if self._why_not_all is not None:
            return f"not run: {self._why_not_all}"
        if session.shouldfail:
            return f"not run: {session.shouldfail}"
        return "not run: the session ended before it" if exitstatus in (0, 1) else None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._review is not None:
            terminalreporter.write_sep("=", "recorded by paraval")
            for line in self._review.lines():
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Record a session that ended between its hooks as interrupted."""
        if self._journal is not None and self._review is None:
            self._journal.close(why_not_all=None)


def fail_under_in(config: pytest.Config) -> float | None:
    """The required pass rate, from 0 to 1; None: none."""
    given = getattr(config.option, dest_of(FAIL_UNDER), None)
    text = str(config.getini("paraval_fail_under") if given is None else given).strip()
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise pytest.UsageError(f"{FAIL_UNDER}: expected a pass rate from 0 to 1; got {text!r}")
    return rate


def _redactor(models: Mapping[str, Model]) -> Redactor:
    """Redact the models' keys, and variables named like secrets, from output and names."""
    names = {model.api_key_env for model in models.values()}
    return Redactor(
        value for name, value in os.environ.items() if name in names or _SECRET.search(name)
    )


# ---- after a run


MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReview:
    """The summary of a recorded session."""

    run: RunInfo
    flaky: tuple[FlakyTest, ...] = ()
    gate: Gate | None = None
    """None: no rate is required, or it is unknown."""
    failure: ParavalError | None = None
    """What went wrong with the store."""

    @property
    def is_good_enough(self) -> bool:
        return self.gate is not None and self.gate.verdict is GateVerdict.MET

    def lines(self) -> Iterator[str]:
        yield f"run {self.run.id}: {_how_to_report(self.run)}"
        yield from map(str, self.flaky[:MOST_NAMED])
        if (more := len(self.flaky) - MOST_NAMED) > 0:
            yield f"flaky: {counted(more, 'more test')}"
        if self.gate is not None:
            yield self.gate.sentence
        if self.failure is not None:
            yield f"recording is incomplete: {for_tests(self.failure)}"


def review_of(store: Store, journal: RunJournal, fail_under: float | None) -> SessionReview:
    """Review a closed journal. An unreadable store is reported and does not end the session."""
    flaky: tuple[FlakyTest, ...] = ()
    gate: Gate | None = None
    failure: ParavalError | None = journal.failure
    try:
        flaky = flaky_tests(store, journal.plan)
        if fail_under is not None and failure is None:
            with store.reader(journal.run) as reader:
                gate = Report(reader).gate
    except ParavalError as error:
        failure = failure or error
    return SessionReview(run=journal.run, flaky=flaky, gate=gate, failure=failure)


def _how_to_report(run: RunInfo) -> str:
    store = Path(run.folder).parent.parent
    if store == default_store().absolute():
        return f"paraval report {run.id}"
    return f"paraval report {run.id} --store {shlex.quote(str(store))}"


# ---- hints


_FOR_TESTS = {
    OPTION: "--paraval-store-at=FOLDER",
    RESUMABLE: "what was recorded is safe",
    CLOSE_AND_RESUME: "close the program that has it open, then run the tests again",
}


def for_tests(error: ParavalError) -> str:
    text = str(error)
    for of_suites, of_tests in _FOR_TESTS.items():
        text = text.replace(of_suites, of_tests)
    return text


# ---- flaky tests


MOST_RUNS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyTest:
    """A test that both passed and failed on the same code."""

    node_id: str
    passed: int
    failed: int
    runs: int
    """The number of runs in which it was judged."""

    def __str__(self) -> str:
        times = counted(self.passed + self.failed, "time")
        runs = "this run" if self.runs == 1 else f"last {self.runs} runs"
        return f"flaky: {self.node_id} passed {self.passed} of {times} on this code ({runs})"


def flaky_tests(store: Store, plan: Plan) -> tuple[FlakyTest, ...]:
    """Find the plan's flaky tests, in plan order.

    Attempts count, so a test that passed when rerun in the same session is included. If the code of
    a run is unknown, no test counts as flaky.
    """
    tree = tree_in(plan.selection)
    if tree is None:
        return ()
    verdicts: dict[str, Counter[Outcome]] = defaultdict(Counter)
    runs: Counter[str] = Counter()
    for judged in _verdicts_of(store, _of_suite(store, plan.name), tree):
        runs.update(judged.keys())
        for key, counts in judged.items():
            verdicts[key].update(counts)
    return tuple(
        FlakyTest(
            node_id=trial.target.reference,
            passed=verdicts[trial.key][Outcome.PASSED],
            failed=verdicts[trial.key][Outcome.FAILED],
            runs=runs[trial.key],
        )
        for trial in plan.trials
        if isinstance(trial.target, FunctionTarget) and len(verdicts[trial.key]) > 1
    )


def _of_suite(store: Store, suite: str) -> Sequence[RunInfo]:
    return [run for run in store.runs() if run.suite == suite][:MOST_RUNS]


def _verdicts_of(
    store: Store, runs: Sequence[RunInfo], tree: str
) -> Iterator[Mapping[str, Counter[Outcome]]]:
    """The verdicts of each run of exactly this tree, by key."""
    for run in runs:
        try:
            with store.reader(run) as reader:
                if tree_in(reader.selection()) == tree:
                    yield reader.verdicts()
        except StoreError:
            # It was removed or damaged since it was listed: use the others.
            continue


# ---- the code of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeState:
    """A repository's state. Runs with the same tree have the same code, even across commits."""

    commit: str
    tree: str
    """A hash of the working tree: committed, changed and new files that git does not ignore."""
    is_dirty: bool
    """True: the tree differs from the commit's."""

    def as_mapping(self) -> dict[str, object]:
        return {"commit": self.commit, "tree": self.tree, "dirty": self.is_dirty}


def code_state(rootdir: Path) -> CodeState | None:
    """The repository's state; None: there is no repository with a commit, or git fails."""
    try:
        repository = find_repository(rootdir)
        commit = resolve(repository, "HEAD")
        tree = snapshot_tree(repository)
        is_dirty = tree != tree_of(repository, commit)
    except (ParavalError, OSError):
        return None
    return CodeState(commit=commit, tree=tree, is_dirty=is_dirty)


def tree_in(selection: Mapping[str, object]) -> str | None:
    """The tree of a stored run; None: unknown."""
    about = selection.get(TESTS)
    tree = about.get("tree") if isinstance(about, Mapping) else None
    return tree if isinstance(tree, str) else None
