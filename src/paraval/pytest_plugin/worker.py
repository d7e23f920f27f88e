"""A worker: runs one test at a time by pytest's own protocol, and sends its reports to the parent.

To everyone else it looks like a worker of xdist. It doesn't know its next test when one ends: it
keeps what class, module and package have set up, and ends what the next one doesn't share before
that one starts.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import pickle
import signal
import socket
import struct
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paraval.pytest_plugin.pytest_internals import (
    CaptureManager,
    FDCaptureBase,
    Session,
    catch_warnings_for_item,
    junit_file_of,
    temporary_folders_of,
)
from paraval.pytest_plugin.recording.report_data import register_report_data
from paraval.pytest_plugin.reports import (
    know_plugins,
    pickled,
    sendable_report,
    sendable_warning,
)
from paraval.pytest_plugin.retries import begin, begin_again

STACKS_SIGNAL = signal.SIGRTMAX if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
"""Makes a worker write where each of its threads is."""
REPORTING = (
    "pytest_runtest_logstart",
    "pytest_runtest_logreport",
    "pytest_runtest_logfinish",
    "pytest_warning_recorded",
)
"""Hooks that only the parent calls: reporters, which write files, are there."""
MODELS = "models"
"""The socket of the parent's client, in the session's folder."""
_LENGTH = struct.Struct("!I")


@dataclass(slots=True)
class Message:
    """What a worker tells: about the test that has just ended, or about its own end."""

    is_end: bool = False
    is_ready: bool = False
    """From a worker that had to collect first."""
    reports: list[bytes] = field(default_factory=list)
    """Pickled, as those that follow."""
    late: bytes | None = None
    """How the teardown of the test before this one really ended: with what its module shared."""
    is_open: bool = False
    """Whether the teardown of this test goes on when the next one is known."""
    warnings: list[dict[str, Any]] = field(default_factory=list)
    suite_properties: list[tuple[str, str]] = field(default_factory=list)
    """Those of JUnit's file as a whole."""
    stop: str | None = None
    """Why a plugin wants the session to stop."""
    exit: tuple[str, int | None] | None = None
    """From `pytest.exit`."""
    interrupted_at: tuple[str, int] | None = None
    """Where a KeyboardInterrupt came up."""
    failure: str | None = None
    """An error of a hook."""
    output: dict[str, Any] | None = None
    """At its end: `config.workeroutput`."""
    is_printed: bool = False
    """At its end: whether a conftest printed something, which nobody sees."""


def send(sock: socket.socket, message: object) -> None:
    data = pickle.dumps(message)
    sock.sendall(_LENGTH.pack(len(data)) + data)


def receive(sock: socket.socket) -> Any:
    """None: the other side has closed."""
    head = _exactly(sock, _LENGTH.size)
    data = head and _exactly(sock, _LENGTH.unpack(head)[0])
    return pickle.loads(data) if data else None  # noqa: S301 - from our own process


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts, missing = [], size
    while missing:
        part = sock.recv(missing)
        if not part:
            return b""
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


class Inbox:
    """Messages as they arrive, for a reader that must not wait for the rest of one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = bytearray()

    def take(self) -> Iterator[Message]:
        """Those that are complete. Raises EOFError after the last one."""
        try:
            part = self._sock.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self._data += part
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            message = pickle.loads(self._data[_LENGTH.size : end])  # noqa: S301 - from a worker
            del self._data[:end]
            yield message
        if not part:
            raise EOFError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """Which worker of which session it is."""

    number: int
    count: int
    session_id: str
    folder: str
    """The session's own folder: each worker has files in it, which the parent reads."""
    calls_models: bool = False
    """Whether tests use the fixture `model`: the parent makes their calls."""

    @property
    def name(self) -> str:
        return f"gw{self.number}"

    def file(self, kind: str) -> Path:
        """`stacks`, `out` or `err`."""
        return Path(self.folder, f"{self.name}.{kind}")

    def announce(self, config: Any) -> None:
        """To plugins and tests that know xdist."""
        config.workerinput = {
            "workerid": self.name,
            "workercount": self.count,
            "testrunuid": self.session_id,
            "mainargv": sys.argv,
            # For pytest-randomly and pytest-cov:
            "randomly_seed": config.getoption("randomly_seed", None),
            "cov_master_host": socket.gethostname(),
            "cov_master_topdir": str(Path.cwd()),
            "cov_master_rsync_roots": [],
        }
        config.workeroutput = {}
        os.environ["PYTEST_XDIST_WORKER"] = self.name
        os.environ["PYTEST_XDIST_WORKER_COUNT"] = str(self.count)
        os.environ["PYTEST_XDIST_TESTRUNUID"] = self.session_id
        if self.calls_models:
            from paraval.pytest_plugin.model_fixture import CLIENT, WorkersModelClient

            config.stash[CLIENT] = WorkersModelClient(str(Path(self.folder, MODELS)))


class Worker:
    """Serves the parent until that has no more tests."""

    def __init__(self, session: Session, identity: WorkerIdentity, sock: socket.socket) -> None:
        self._session = session
        self._config: Any = session.config
        self._identity = identity
        self._socket = sock
        self._message = Message()
        self._last: pytest.Item | None = None
        self._begun: set[int] = set()
        self._process = os.getpid()
        self._known_properties = len(self._suite_properties())
        know_plugins(session.config)

    def serve(self) -> None:
        """Run the tests that the parent names, by their position in the session."""
        stacks = self._identity.file("stacks").open("w")
        faulthandler.enable(stacks)
        faulthandler.register(STACKS_SIGNAL, stacks)
        register_report_data(self._config)
        self._relay()
        try:
            while (index := receive(self._socket)) is not None:
                self._run(index)
                # A child that a test forked, and that came back from the test, ends here.
                if os.getpid() != self._process:
                    os._exit(1)
                send(self._socket, self._message)
            self._message = Message(is_end=True)
            self._leave(None)
            self._finish()
        except pytest.exit.Exception as error:
            self._message.exit = (str(error.msg), error.returncode)
            self._end_early()
        except KeyboardInterrupt as error:
            self._message.interrupted_at = _place_of(error)
            self._end_early()
        except BaseException:  # noqa: BLE001 - of a hook; the parent shows it
            self._message.failure = str(pytest.ExceptionInfo.from_current().getrepr(style="short"))
            self._end_early()
        self._message.is_end = True
        atexit._run_exitfuncs()
        send(self._socket, self._message)

    def _end_early(self) -> None:
        with suppress(KeyboardInterrupt, pytest.exit.Exception, Exception):
            self._leave(None)

    def _relay(self) -> None:
        """Take the place of all reporters."""
        for name in REPORTING:
            hook = getattr(self._config.hook, name)
            for impl in hook.get_hookimpls():
                if impl.plugin is not self._session:  # It counts failures.
                    hook._remove_plugin(impl.plugin)
        self._config.pluginmanager.register(self, "paraval-worker")
        self._message = Message()  # Without the warnings of the collection.

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._message.reports.append(sendable_report(report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        self._message.warnings.append(
            {
                "warning_message": sendable_warning(warning_message),
                "when": when,
                "nodeid": nodeid,
                "location": location,
            }
        )

    def _run(self, index: int) -> None:
        item = self._session.items[index]
        self._message = Message()
        self._leave(item)
        if index in self._begun:
            begin_again(item, keeps_spending=False)  # The parent adds it up.
        else:
            begin(item)
        self._begun.add(index)
        self._last = item
        self._config.hook.pytest_runtest_protocol(item=item, nextitem=_Stay(item))
        message = self._message
        message.is_open = any(
            len(finalizers) > 1 and node is not self._session
            for node, (finalizers, _) in self._session._setupstate.stack.items()
        )
        properties = self._suite_properties()
        message.suite_properties = properties[self._known_properties :]
        self._known_properties = len(properties)
        stop = self._session.shouldstop
        message.stop = str(stop) if stop else None
        sys.stdout.flush()
        sys.stderr.flush()

    def _leave(self, item: pytest.Item | None) -> None:
        """End what the last test set up and the next one doesn't share."""
        last, state = self._last, self._session._setupstate
        shared = [] if item is None else item.listchain()
        if last is None or all(node in shared for node in state.stack):
            return
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        sections = len(last._report_sections)

        def end() -> None:
            with ExitStack() as stack:
                if isinstance(capture, CaptureManager):
                    stack.enter_context(capture.item_capture("teardown", last))
                stack.enter_context(
                    catch_warnings_for_item(self._config, last.ihook, "runtest", last)
                )
                state.teardown_exact(item)

        call = pytest.CallInfo.from_call(
            end, when="teardown", reraise=(pytest.exit.Exception, KeyboardInterrupt)
        )
        if call.excinfo is not None or len(last._report_sections) > sections:
            report = last.ihook.pytest_runtest_makereport(item=last, call=call)
            self._message.late = sendable_report(report)

    def _finish(self) -> None:
        """Call the hook of conftest files. Other plugins think that this is the only process."""
        hook = self._config.hook.pytest_sessionfinish
        for impl in hook.get_hookimpls():
            if not str(getattr(impl.plugin, "__file__", "")).endswith("conftest.py"):
                hook._remove_plugin(impl.plugin)
        capture: Any = self._config.pluginmanager.get_plugin("capturemanager")
        if capture is not None:
            capture.resume_global_capture()
        hook(session=self._session, exitstatus=int(bool(self._session.testsfailed)))
        if capture is not None:
            capture.suspend_global_capture()
            self._message.is_printed = any(capture.read_global_capture())
        if (coverage := measured_coverage()) is not None:
            coverage.stop()
            coverage.save()
        output = self._config.workeroutput
        self._message.output = {name: output[name] for name in output if pickled(output[name])}

    def _suite_properties(self) -> list[tuple[str, str]]:
        xml = junit_file_of(self._config)
        return [] if xml is None else list(xml.global_properties)


class _Stay:
    """Stands for a next test beside this one, so that what both share stays set up."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def listchain(self) -> list[Any]:
        return self._item.listchain()[:-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._item, name)


def _place_of(error: BaseException) -> tuple[str, int]:
    entry = pytest.ExceptionInfo.from_exception(error).traceback[-1]
    return str(entry.path), entry.lineno + 1


# ---- what a fork changes before it works


def set_up_fork(session: Session, identity: WorkerIdentity) -> None:
    """Give it what it must not share with the other forks."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit._clear()  # What was registered before is for the end of the parent.
    config: Any = session.config
    identity.announce(config)
    state = session._setupstate
    if session in state.stack:  # The keeper ends what all workers share.
        state.stack[session] = ([session.teardown], None)
    folders = temporary_folders_of(config)
    if folders is not None:
        folders._given_basetemp = folders.getbasetemp() / f"popen-{identity.name}"
        folders._basetemp = None
    own_files(config, identity)
    if (coverage := measured_coverage()) is not None:
        # At its next use, it notices the fork, and opens its file.
        coverage._data._basename, coverage._data._suffix = str(identity.file("coverage")), False


def own_files(config: pytest.Config, identity: WorkerIdentity) -> None:
    """Capture output in files that the parent can read, should the worker die."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    streams = capture._global_capturing if isinstance(capture, CaptureManager) else None
    for kind in ("out", "err"):
        stream = getattr(streams, kind, None)
        if isinstance(stream, FDCaptureBase):
            _own_file(stream, identity.file(kind))


def measured_coverage() -> Any:
    """What measures this process, such as pytest-cov; None: nothing does."""
    module = sys.modules.get("coverage")
    return None if module is None else module.Coverage.current()


def add_coverage(folder: Path) -> None:
    """In the parent: what the workers have measured."""
    coverage = measured_coverage()
    for path in () if coverage is None else folder.glob("*.coverage*"):
        data = type(coverage.get_data())(str(path))
        data.read()
        coverage.get_data().update(data)


def _own_file(stream: Any, path: Path) -> None:
    """Put another file below the open ones, so that a stream that a module kept still works."""
    with path.open("wb+", buffering=0) as file:
        os.dup2(file.fileno(), stream.tmpfile.fileno())
        if stream._state == "started":
            os.dup2(file.fileno(), stream.targetfd)


class SharedByAll:
    """Session fixtures that exist once: set up in the keeper, and inherited by all workers."""

    def __init__(self, session: Session, names: Sequence[str]) -> None:
        self._session = session
        self._names = names

    def set_up(self) -> None:
        session, state = self._session, self._session._setupstate
        if not self._names:
            return
        state.stack[session] = ([session.teardown], None)
        session.setup()
        for name in self._names:
            users = (one for one in session.items if name in getattr(one, "fixturenames", ()))
            item: Any = next(users, None)
            if item is not None:
                state.stack[item] = ([], None)
                # An exception is kept, and raised in each test that asks for the fixture.
                with suppress(Exception):
                    item._request._get_active_fixturedef(name)
                del state.stack[item]

    def tear_down(self) -> None:
        self._session._setupstate.teardown_exact(None)
