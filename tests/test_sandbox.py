"""Commands in bubblewrap, started like all others. In CI it must work; elsewhere, where it doesn't,
these tests are skipped and say why.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paraval.processes.children import Command, ProcessEnd, Warden
from paraval.processes.enforcement import Means, limits_enforced
from paraval.processes.identity import process_identity
from paraval.processes.launch import scopes_abstract_sockets
from paraval.processes.sandbox import Sandbox, sandboxed, why_no_sandbox
from paraval.processes.tree import process_table
from paraval.records import TargetLimits

PATIENCE_S = 10.0
PYTHON = sys.executable

works = pytest.mark.skipif(
    why_no_sandbox() is not None and not os.environ.get("CI"), reason=str(why_no_sandbox())
)


class Place:
    """A workspace, a folder beside it, and where logs go."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.beside = folder / "beside"
        self.logs = folder / "logs"
        for path in (self.workspace, self.beside, self.logs):
            path.mkdir()
        (self.beside / "secret").write_text("of another attempt")

    def command(self, *argv: str, **changes: Any) -> Command:
        sandbox = Sandbox(writable=(str(self.workspace),))
        command = Command(
            argv=argv,
            env={"PATH": os.environ["PATH"], "TMPDIR": str(self.workspace)},
            cwd=str(self.workspace),
            stdout=str(self.logs / "out"),
            stderr=str(self.logs / "err"),
            grace=0.3,
            sandbox=sandbox,
        )
        return replace(command, **changes)

    def shell(self, script: str, **changes: Any) -> Command:
        return self.command("/bin/sh", "-c", script, **changes)

    @property
    def out(self) -> str:
        path = self.logs / "out"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def run(command: Command) -> ProcessEnd:
    async def main() -> ProcessEnd:
        async with Warden() as warden:
            return await warden.run(command)

    return asyncio.run(main())


async def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        await asyncio.sleep(0.01)


def running(mark: str) -> list[int]:
    """Processes with this argument, in whatever namespace."""
    found = []
    for pid in process_table():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in arguments:
            found.append(pid)
    return found


# ---- what it may do


@works
def test_it_writes_in_its_workspace_and_nowhere_else(place: Place) -> None:
    targets = f"{place.beside}/new /etc/new /usr/new {place.beside}/secret"
    script = f"echo mine > file; for f in {targets}; do (echo x >> $f) 2>/dev/null && echo $f; done"
    ended = run(place.shell(script + "; exit 0"))
    assert (ended.exit_code, place.out) == (0, "")
    assert (place.workspace / "file").read_text() == "mine\n"
    assert (place.beside / "secret").read_text() == "of another attempt"


@works
def test_root_in_it_cannot_mount_its_way_out(place: Place) -> None:
    script = f"mount -o remount,rw / ; mount -t tmpfs none {place.beside}; echo x > /etc/new"
    ended = run(place.shell(script))
    assert ended.exit_code != 0
    assert not Path("/etc/new").exists()


@works
def test_what_is_hidden_looks_empty_but_for_the_workspace_in_it(place: Place) -> None:
    home = place.workspace.parent
    sandbox = Sandbox(writable=(str(place.workspace),), hidden=(str(home), "/nowhere/at/all"))
    run(place.shell(f"ls {home}; cat {place.beside}/secret; echo x > new", sandbox=sandbox))
    assert place.out == "workspace\n"
    assert (place.workspace / "new").exists()


@works
def test_a_folder_that_is_hidden_within_the_workspace_stays_hidden(place: Place) -> None:
    (place.workspace / "store").mkdir()
    (place.workspace / "store" / "answers").touch()
    hidden = (str(place.workspace / "store"),)
    run(place.shell("ls store", sandbox=Sandbox(writable=(str(place.workspace),), hidden=hidden)))
    assert place.out == ""


@works
def test_it_has_a_temp_folder_of_its_own_unless_it_was_given_one(place: Place) -> None:
    name = f"paraval-{os.getpid()}-{time.monotonic_ns()}"
    run(place.shell(f"echo x > /tmp/{name} && cat /tmp/{name}", env={"PATH": os.defpath}))
    assert place.out == "x\n"
    assert not Path("/tmp", name).exists()


@works
def test_the_folder_it_starts_in_can_be_read_even_where_all_about_it_is_covered(
    place: Place,
) -> None:
    sandbox = Sandbox(hidden=(str(place.workspace.parent),))
    run(place.shell("cat secret; echo x > new", cwd=str(place.beside), sandbox=sandbox))
    assert place.out == "of another attempt"
    assert not (place.beside / "new").exists()


@works
@pytest.mark.parametrize("network", [False, True])
def test_it_reaches_a_server_of_this_machine_only_with_network(place: Place, network: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = (
            "import socket\n"
            f"try: socket.create_connection(('127.0.0.1', {port}), 5); print('reached')\n"
            "except OSError: print('alone')\n"
        )
        sandbox = Sandbox(writable=(str(place.workspace),), network=network)
        run(place.command(PYTHON, "-c", script, sandbox=sandbox))
    assert place.out == ("reached\n" if network else "alone\n")


@works
def test_it_has_a_loopback_of_its_own_for_tests_that_start_servers(place: Place) -> None:
    script = (
        "import socket\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname(), 5); print('own')\n"
    )
    run(place.command(PYTHON, "-c", script))
    assert place.out == "own\n"


@works
def test_it_sees_no_process_but_its_own(place: Place) -> None:
    run(
        place.command(
            PYTHON, "-c", "import os; print(len([p for p in os.listdir('/proc') if p.isdigit()]))"
        )
    )
    assert int(place.out) <= 3
    assert process_identity(os.getpid()) is not None


# ---- sockets of others


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that a sandbox shows: none of those for temporary files."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix="x") as folder:
        yield Path(folder)


def connect_to(*names: str) -> str:
    return (
        "import socket\n"
        f"for name in {names!r}:\n"
        "    try: socket.socket(socket.AF_UNIX).connect(name); print('reached')\n"
        "    except OSError: print('refused')\n"
    )


@works
@pytest.mark.parametrize("network", [False, True])
def test_a_socket_of_another_program_cannot_be_reached_wherever_it_is(
    place: Place, outside: Path, network: bool
) -> None:
    path = str(outside / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        run(place.command(PYTHON, "-c", connect_to(path), sandbox=None))
        assert place.out == "reached\n"
        sandbox = Sandbox(writable=(str(place.workspace),), network=network)
        run(place.command(PYTHON, "-c", connect_to(path), sandbox=sandbox))
    assert place.out == "refused\n"


@works
def test_a_socket_that_another_program_makes_later_cannot_be_reached_either(
    place: Place, outside: Path
) -> None:
    script = 'echo ready; while ! test -e go; do sleep 0.05; done; exec "$0" -c "$1"'
    path = str(outside / "socket")

    async def main() -> None:
        async with Warden() as warden:
            child = await warden.open(
                place.command(
                    *("/bin/sh", "-c", script, PYTHON, connect_to(path)),
                    sandbox=Sandbox(
                        writable=(str(place.workspace),), readable=(sys.prefix, sys.base_prefix)
                    ),
                )
            )
            await until(lambda: place.out)
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path)
                server.listen()
                (place.workspace / "go").touch()
                await child.wait()
            child.channel.close()

    asyncio.run(main())
    assert place.out == "ready\nrefused\n"


@works
@pytest.mark.skipif(
    not scopes_abstract_sockets(shutil.which("bwrap") or os.devnull),
    reason="this kernel cannot: Linux 6.12 with Landlock can",
)
@pytest.mark.parametrize("network", [False, True])
def test_an_abstract_socket_of_another_program_cannot_be_reached(
    place: Place, network: bool
) -> None:
    name = f"\0paraval-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        sandbox = Sandbox(writable=(str(place.workspace),), network=network)
        run(place.command(PYTHON, "-c", connect_to(name), sandbox=sandbox))
    assert place.out == "refused\n"


@works
@pytest.mark.parametrize("network", [False, True])
def test_its_own_sockets_work_with_and_without_a_name_in_the_file_system(
    place: Place, network: bool
) -> None:
    script = (
        "import multiprocessing, socket\n"
        "for name in ('mine', '/tmp/mine', '\\0mine'):\n"
        "    server = socket.socket(socket.AF_UNIX); server.bind(name); server.listen()\n"
        "    socket.socket(socket.AF_UNIX).connect(name)\n"
        "with multiprocessing.Manager() as manager: print(manager.list([1, 2]))\n"
        "server = multiprocessing.get_context('forkserver')\n"
        "with server.Pool(1) as pool: print(pool.map(abs, [-3]))\n"
    )
    sandbox = Sandbox(writable=(str(place.workspace),), network=network)
    # Without a folder of its own for temporary files: its path may be too long for a socket.
    command = place.command(PYTHON, "-c", script, sandbox=sandbox, env={"PATH": os.defpath})
    ended = run(command)
    assert (ended.exit_code, place.out) == (0, "[1, 2]\n[3]\n")


# ---- programs


@works
@pytest.mark.parametrize("given", ["absolute", "on PATH"])
def test_a_program_is_found_through_several_links_in_a_folder_that_is_hidden(
    place: Place, given: str
) -> None:
    """As package managers lay them: each relative, each in another folder."""
    top = place.workspace.parent
    folders = [top / name for name in ("bin", "lib/.bin", "lib/package")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    (folders[2] / "real").write_text("#!/bin/sh\necho works\n")
    (folders[2] / "real").chmod(0o755)
    (folders[1] / "tool").symlink_to("../package/real")
    (folders[0] / "tool").symlink_to("../lib/.bin/tool")
    if given == "absolute":
        ended = run(place.command(str(folders[0] / "tool")))
    else:
        path = f"{folders[0]}:{os.defpath}"
        ended = run(place.command("tool", env={"PATH": path}))
    assert (ended.exit_code, place.out) == (0, "works\n"), (place.logs / "err").read_text()


@works
def test_a_program_is_found_through_a_link_to_its_folder_and_one_to_that(place: Place) -> None:
    top = place.workspace.parent
    (top / "releases" / "2" / "bin").mkdir(parents=True)
    program = top / "releases" / "2" / "bin" / "tool"
    program.write_text('#!/bin/sh\ncat "${0%/*}/../share"\n')
    program.chmod(0o755)
    (top / "releases" / "2" / "share").write_text("its own files")
    (top / "current").symlink_to("newest")
    (top / "newest").symlink_to(top / "releases" / "2")
    ended = run(place.command(str(top / "current" / "bin" / "tool")))
    assert (ended.exit_code, place.out) == (0, "its own files"), (place.logs / "err").read_text()


@works
def test_a_program_in_a_hidden_folder_is_seen_and_what_lies_beside_it_is_not(place: Place) -> None:
    program = place.beside / "tool"
    program.write_text("#!/bin/sh\nls ${0%/*}\n")
    program.chmod(0o755)
    sandbox = Sandbox(writable=(str(place.workspace),), hidden=(str(place.beside),))
    ended = run(place.command(str(program), sandbox=sandbox))
    assert (ended.exit_code, place.out) == (0, "tool\n")


@works
def test_a_folder_on_the_path_that_this_user_cannot_enter_does_no_harm(place: Place) -> None:
    (place.beside / "bin").mkdir()
    place.beside.chmod(0)
    try:
        ended = run(place.command("true", env={"PATH": f"{place.beside}/bin:{os.defpath}"}))
    finally:
        place.beside.chmod(0o700)
    assert (ended.exit_code, ended.failure) == (0, None)


@works
def test_links_that_lead_in_a_circle_are_no_program(place: Place) -> None:
    (place.beside / "a").symlink_to("b")
    (place.beside / "b").symlink_to("a")
    lost = run(place.command(str(place.beside / "a"))).failure
    assert lost is not None
    assert lost.code in ("ENOENT", "ELOOP")


# ---- how it ends


@works
def test_exit_code_stdin_stdout_and_environment_come_through(place: Place) -> None:
    script = "cat; echo $WORD; echo oops >&2; exit 7"
    ended = run(place.shell(script, stdin=b"given\n", env={"PATH": os.defpath, "WORD": "a b"}))
    assert (ended.exit_code, ended.leaked, ended.failure) == (7, 0, None)
    assert place.out == "given\na b\n"
    assert (place.logs / "err").read_text() == "oops\n"


@works
def test_a_signal_is_told_as_shells_tell_it(place: Place) -> None:
    ended = run(place.shell("kill -SEGV $$"))
    assert (ended.exit_code, ended.signal) == (128 + signal.SIGSEGV, None)


@works
def test_a_timeout_lets_it_clean_up_and_ends_all_of_it(place: Place) -> None:
    mark = f"300.{time.monotonic_ns()}"
    script = f"trap 'echo cleaned; exit 3' TERM; setsid sleep {mark} & sleep {mark} & wait; wait"
    ended = run(place.shell(script, timeout=0.5, grace=5.0))
    assert (ended.timed_out, ended.survivors) == (True, 0)
    assert place.out == "cleaned\n"
    assert running(mark) == []


@works
def test_one_that_ignores_sigterm_is_killed_with_its_children(place: Place) -> None:
    mark = f"300.{time.monotonic_ns()}"
    script = f"trap '' TERM; setsid sleep {mark} & while :; do sleep {mark}; done"
    ended = run(place.shell(script, timeout=0.4, grace=0.2))
    assert (ended.timed_out, ended.survivors) == (True, 0)
    assert running(mark) == []


@works
def test_what_it_leaves_behind_is_ended_and_counted_and_the_sandbox_is_not(place: Place) -> None:
    mark = f"300.{time.monotonic_ns()}"
    ended = run(place.shell(f"setsid sleep {mark} & (setsid sleep {mark} &) ; sleep 0.1; exit 5"))
    assert (ended.exit_code, ended.leaked, ended.survivors) == (5, 2, 0)
    assert running(mark) == []


@works
def test_a_cancel_and_the_kill_of_its_supervisor_leave_nothing(place: Place) -> None:
    marks = [f"300.{time.monotonic_ns()}{way}" for way in "12"]

    async def main() -> None:
        async with Warden() as warden:
            task = asyncio.create_task(warden.run(place.shell(f"sleep {marks[0]} & wait")))
            await until(lambda: running(marks[0]))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert running(marks[0]) == []
            child = await warden.open(place.shell(f"sleep {marks[1]} & wait"))
            await until(lambda: running(marks[1]))
            assert child.identity is not None
            os.kill(process_table()[child.identity.pid].parent, signal.SIGKILL)
            ended = await child.wait()
            child.channel.close()
            assert ended.failure is not None
            assert ended.failure.code == "LOST"
            await until(lambda: not running(marks[1]))

    asyncio.run(main())


@works
def test_a_program_that_is_not_there_is_told_as_without_a_sandbox(place: Place) -> None:
    lost = run(place.command("surely-not-there")).failure
    bare = run(place.command("surely-not-there", sandbox=None)).failure
    assert lost == bare
    assert lost is not None
    assert lost.code == "ENOENT"


@works
def test_its_whole_tree_is_seen_and_held_to_its_limits(place: Place) -> None:
    """The supervisor sees into the namespace from outside, and groups hold in it too."""
    script = "import time; x = bytearray(60 << 20); print('ready', flush=True); time.sleep(60)"

    async def main() -> int:
        async with Warden() as warden:
            child = await warden.open(place.command(PYTHON, "-c", script, tag=1))
            await until(lambda: place.out)
            loads = warden.loads()
            child.kill()
            await child.wait()
            child.channel.close()
            return loads[1].memory_bytes

    assert asyncio.run(main()) > 60 << 20
    if limits_enforced().memory is not Means.NONE:
        hog = place.command(PYTHON, "-c", "x = bytearray(300 << 20)")
        ended = run(replace(hog, limits=TargetLimits(memory_bytes=80 << 20)))
        assert (ended.exit_code, ended.out_of_memory) == (128 + signal.SIGKILL, True)


# ---- whether it works here


def test_a_machine_without_bubblewrap_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    why = why_no_sandbox.__wrapped__()
    assert why is not None
    assert "bubblewrap" in why
    assert "\nhint: " in why


def test_a_bubblewrap_that_may_not_work_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    why = why_no_sandbox.__wrapped__()
    assert why is not None
    assert "No permissions to create new namespace" in why


def test_a_sandbox_elsewhere_than_on_linux_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "needs Linux" in (why_no_sandbox.__wrapped__() or "")


def test_a_bubblewrap_that_needs_privileges_is_not_kept_from_them(tmp_path: Path) -> None:
    (tmp_path / "bwrap").touch()
    (tmp_path / "bwrap").chmod(0o4755)
    assert not scopes_abstract_sockets(str(tmp_path / "bwrap"))


def test_relative_folders_are_misuse() -> None:
    with pytest.raises(ValueError, match="absolute paths, not 'here'"):
        Sandbox(writable=("here",))


def test_the_command_itself_stands_at_the_end_and_after_all_options() -> None:
    line = sandboxed(("--help", "x"), Sandbox(network=True), "/", {})
    assert line[-3:] == ("--", "--help", "x")
    assert "--share-net" in line
