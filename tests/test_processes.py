"""Real children, and hostile ones. Survivors are looked for by an argument or variable that no
other process has, and by the pids that the scripts themselves wrote down.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from paraval.processes import log_capture as capture, supervisor, warden_client as links
from paraval.processes.children import Child, Command, ProcessEnd, Warden
from paraval.processes.identity import end_leftovers, is_alive, process_identity
from paraval.processes.tree import ProcessEntry, descendants, process_table

PATIENCE_S = 10.0
PYTHON = sys.executable

HOSTILE = """
trap '' TERM
sleep {mark} & echo $! >> {pids}
(trap '' TERM; setsid sleep {mark} & echo $! >> {pids})
(setsid env -i /bin/sh -c 'trap "" TERM; (sleep {mark} & echo $! >> {pids}) ; sleep {mark}' &)
echo $$ >> {pids}
echo ready
"""
"""Ignores SIGTERM; a child in the background, one in a session of its own, and a daemon of two
forks with nothing in its environment, all of which hold stdout open."""


class Place:
    """A folder for one test, and what tells its processes from all others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"98765.{uuid.uuid4().int % 10**15:015d}"
        self.marker = uuid.uuid4().hex
        self.stdout = folder / "logs" / "stdout.log"
        self.stderr = folder / "logs" / "stderr.log"
        self.pids = folder / "pids"

    def command(self, *argv: str, **changes: Any) -> Command:
        env = {"PATH": os.environ["PATH"], "PARAVAL_RUN": self.marker}
        command = Command(
            argv=argv,
            env=env,
            cwd=str(self.folder),
            stdout=str(self.stdout),
            stderr=str(self.stderr),
            grace=0.2,
        )
        return replace(command, **changes)

    def shell(self, script: str, **changes: Any) -> Command:
        return self.command("/bin/sh", "-c", script, **changes)

    def hostile(self, then: str, **changes: Any) -> Command:
        script = HOSTILE.format(mark=self.mark, pids=self.pids) + then.format(mark=self.mark)
        return self.shell(script, **changes)

    def survivors(self) -> list[int]:
        """By argument, by variable, and by what the scripts wrote down."""
        needles = (self.mark.encode(), f"PARAVAL_RUN={self.marker}".encode())
        found = {pid for pid in process_table() if any(n in _words(pid) for n in needles)}
        if self.pids.exists():
            written = [int(pid) for pid in self.pids.read_text().split()]
            found |= {pid for pid in written if process_identity(pid) is not None}
        return sorted(found)

    def written_pids(self) -> int:
        return len(self.pids.read_text().split())

    async def wait_for(self, path: Path, content: str) -> None:
        await _until(lambda: path.exists() and content in path.read_text(errors="replace"))


def _words(pid: int) -> bytes:
    words = b""
    for name in ("cmdline", "environ"):
        try:
            words += Path("/proc", str(pid), name).read_bytes() + b"\0"
        except OSError:
            continue
    return words


async def _until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        await asyncio.sleep(0.005)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


T = TypeVar("T")


def with_warden(use: Callable[[Warden], Awaitable[T]]) -> T:
    async def main() -> T:
        async with Warden() as warden:
            return await use(warden)

    return asyncio.run(main())


def run(*commands: Command) -> list[ProcessEnd]:
    async def use(warden: Warden) -> list[ProcessEnd]:
        return [await warden.run(command) for command in commands]

    return with_warden(use)


def own_fds() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


# ---- ends


def test_a_command_ends_with_its_exit_code_its_output_and_what_it_took(place: Place) -> None:
    script = "echo out; echo err >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3"
    (ended,) = run(place.shell(script))
    assert (ended.exit_code, ended.signal, ended.failure) == (3, None, None)
    assert (place.stdout.read_text(), place.stderr.read_text()) == ("out\n", "err\n")
    assert (ended.stdout_bytes, ended.stderr_bytes) == (4, 4)
    assert 0 < ended.cpu_s <= ended.wall_s * 2
    assert ended.max_rss_bytes > 100_000
    assert (ended.timed_out, ended.cancelled, ended.stdout_cut, ended.leaked) == (*[False] * 3, 0)


def test_a_command_that_dies_of_a_signal_has_no_exit_code(place: Place) -> None:
    (ended,) = run(place.shell("kill -SEGV $$"))
    assert (ended.exit_code, ended.signal) == (None, signal.SIGSEGV)


def test_a_silent_command_makes_no_files(place: Place) -> None:
    (ended,) = run(place.command("true"))
    assert ended.exit_code == 0
    assert list(place.folder.iterdir()) == []


def test_a_timeout_ends_a_tree_that_ignores_sigterm_and_daemonises(place: Place) -> None:
    (ended,) = run(place.hostile("sleep {mark}", timeout=0.5))
    assert place.written_pids() == 4
    assert place.survivors() == []
    assert (ended.timed_out, ended.signal, ended.leaked) == (True, signal.SIGKILL, 0)
    assert place.stdout.read_text() == "ready\n"
    assert 0.5 <= ended.wall_s < PATIENCE_S


def test_sigterm_reaches_every_process_of_the_tree_and_grace_lets_it_clean_up(place: Place) -> None:
    inner = "trap 'echo inner-clean; exit 0' TERM; echo inner-up; while :; do sleep 0.02; done"
    script = f"""setsid sh -c "{inner}" & trap 'wait; echo outer-clean; exit 7' TERM; wait"""
    (ended,) = run(place.shell(script, timeout=0.4, grace=PATIENCE_S))
    assert (ended.timed_out, ended.exit_code) == (True, 7)
    assert place.stdout.read_text().split() == ["inner-up", "inner-clean", "outer-clean"]
    assert ended.wall_s < PATIENCE_S


def test_a_stopped_process_hears_sigterm_too(place: Place) -> None:
    script = "trap 'echo heard; exit 0' TERM; kill -STOP $$; sleep 0.01"
    (ended,) = run(place.shell(script, timeout=0.3, grace=PATIENCE_S))
    assert ended.timed_out
    assert place.stdout.read_text() == "heard\n"


def test_a_command_that_is_faster_than_its_timeout_has_not_timed_out(place: Place) -> None:
    (ended,) = run(place.shell("exit 4", timeout=30.0))
    assert (ended.timed_out, ended.exit_code) == (False, 4)


def test_a_timeout_of_years_is_no_surprise(place: Place) -> None:
    (ended,) = run(place.command("true", timeout=1e9))
    assert ended.exit_code == 0


def test_strays_are_ended_and_counted_and_the_exit_code_is_kept(place: Place) -> None:
    (ended,) = run(place.hostile("exit 5"))
    assert place.survivors() == []
    assert (ended.exit_code, ended.signal, ended.timed_out) == (5, None, False)
    # In the background, in its own session, and the daemon: its shell, the subshell that lives for
    # a moment, and a sleep below each. The end of the command may come before the daemon is up.
    assert 3 <= ended.leaked <= 6


def test_a_daemon_that_holds_stdout_open_holds_up_nothing(place: Place) -> None:
    (ended,) = run(place.shell(f"echo done; (setsid sleep {place.mark} &); exit 0"))
    assert (ended.exit_code, ended.leaked) == (0, 1)
    assert place.stdout.read_text() == "done\n"
    assert place.survivors() == []


def test_a_chain_of_processes_that_each_start_the_next_is_caught(place: Place) -> None:
    script = "import os,sys,time\nwhile True:\n    if os.fork(): os._exit(0)\n"
    (ended,) = run(place.command(PYTHON, "-I", "-S", "-c", script, place.mark))
    assert ended.exit_code == 0
    assert place.survivors() == []


def test_attempts_beside_it_don_t_notice_when_a_tree_is_ended(place: Place) -> None:
    async def use(warden: Warden) -> tuple[ProcessEnd, ProcessEnd]:
        neighbor = asyncio.create_task(
            warden.run(place.shell("sleep 1; echo alive", stdout=str(place.folder / "other")))
        )
        ended = await warden.run(place.hostile("sleep {mark}", timeout=0.2))
        return ended, await neighbor

    ended, neighbor = with_warden(use)
    assert ended.timed_out
    assert (neighbor.exit_code, (place.folder / "other").read_text()) == (0, "alive\n")


# ---- hostile output


def test_a_gigabyte_of_output_leaves_the_engine_small_and_keeps_head_and_tail(place: Place) -> None:
    script = "echo head; head -c 1000000000 /dev/zero; echo tail"

    async def use(warden: Warden) -> tuple[ProcessEnd, int]:
        before = largest = _rss_bytes()
        task = asyncio.create_task(warden.run(place.shell(script, log_limit=1 << 20)))
        while not task.done():
            largest = max(largest, _rss_bytes())
            await asyncio.wait([task], timeout=0.05)
        return task.result(), largest - before

    ended, growth = with_warden(use)
    assert (ended.exit_code, ended.stdout_bytes, ended.stdout_cut) == (0, 1_000_000_010, True)
    assert growth < 64 << 20
    log = place.stdout.read_bytes()
    left_out = 1_000_000_010 - (1 << 20) - capture.TAIL_BYTES
    assert log.startswith(b"head\n\0")
    assert log.endswith(b"\0tail\n")
    assert b"\n[... %d bytes left out ...]\n" % left_out in log
    assert len(log) < (1 << 20) + capture.TAIL_BYTES + 100


def test_one_line_of_a_hundred_megabytes_is_cut_like_any_other_output(place: Place) -> None:
    (ended,) = run(place.shell("head -c 100000000 /dev/zero | tr '\\0' x", log_limit=1 << 16))
    assert (ended.exit_code, ended.stdout_bytes, ended.stdout_cut) == (0, 100_000_000, True)
    assert place.stdout.stat().st_size < 200_000


def test_output_a_little_over_the_limit_is_kept_whole(place: Place) -> None:
    (ended,) = run(place.shell("printf 0123456789", log_limit=4))
    assert (ended.stdout_cut, place.stdout.read_text()) == (False, "0123456789")


def test_bytes_that_are_no_text_come_through_as_they_are(place: Place) -> None:
    run(place.shell(r"printf '\000\377\033[31m\r\n\355\240\200'"))
    assert place.stdout.read_bytes() == b"\0\xff\x1b[31m\r\n\xed\xa0\x80"


def test_output_can_be_read_while_the_command_runs(place: Place) -> None:
    async def use(warden: Warden) -> ProcessEnd:
        task = asyncio.create_task(warden.run(place.shell("echo now; read line", stdin=b"")))
        go_on = place.folder / "go-on"
        waiting = place.shell(f"echo now; while ! [ -e {go_on} ]; do sleep 0.01; done")
        await task
        task = asyncio.create_task(warden.run(waiting))
        await place.wait_for(place.stdout, "now\n")
        assert not task.done()
        go_on.touch()
        return await task

    assert with_warden(use).exit_code == 0


def test_a_full_disk_under_a_log_costs_the_log_and_not_the_command(place: Place) -> None:
    (ended,) = run(place.shell("echo lost; echo kept >&2; exit 3", stdout="/dev/full"))
    assert (ended.exit_code, ended.stdout_bytes, ended.stdout_cut) == (3, 5, False)
    assert ended.log_error is not None
    assert ended.log_error.startswith("ENOSPC: cannot write '/dev/full'")
    assert place.stderr.read_text() == "kept\n"


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- what cannot be started


def test_what_cannot_be_started_is_told_as_a_value(place: Place) -> None:
    script = place.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    plain = place.folder / "plain"
    plain.write_text("echo\n")
    cases: dict[str, tuple[Command, str]] = {
        "not found on PATH": (place.command("no-such-program"), "ENOENT"),
        "no such file": (place.command("./no-such-file"), "ENOENT"),
        "the interpreter": (place.command("./script"), "ENOENT"),
        "not executable": (place.command("./plain"), "EACCES"),
        "is no folder": (place.command("true", cwd=str(plain)), "ENOTDIR"),
        "does not exist": (place.command("true", cwd=str(place.folder / "gone")), "ENOENT"),
        "exceed the system's limit": (place.command("true", "x" * 3_000_000), "E2BIG"),
        "null byte": (place.command("true", "a\0b"), "EINVAL"),
        "text that cannot be encoded": (place.command("true", "\ud800"), "EILSEQ"),
    }
    endings = run(*(command for command, _ in cases.values()), place.command("true"))
    for ended, (words, (command, code)) in zip(endings, cases.items(), strict=False):
        assert ended.failure is not None, words
        assert (ended.failure.code, ended.failure.transient) == (code, False), words
        assert words == "is no folder" or words in ended.failure.message
        assert command.argv[0] in ended.failure.message
        assert ended.exit_code is None
    assert endings[-1].exit_code == 0


def test_a_command_without_a_program_or_with_one_log_for_two_streams_is_misuse(
    place: Place,
) -> None:
    with pytest.raises(ValueError, match="name of a program"):
        place.command()
    with pytest.raises(ValueError, match="a log file each"):
        place.command("true", stderr=str(place.stdout))


# ---- what a command finds


def test_a_command_finds_exactly_the_environment_folder_and_descriptors_it_was_given(
    place: Place,
) -> None:
    script = (
        "import json, os, signal\n"
        "blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
        "ignored = open('/proc/self/status').read().split('SigIgn:')[1].split()[0]\n"
        "listing = os.open('/proc/self/fd', os.O_RDONLY)\n"
        "fds = sorted(set(map(int, os.listdir('/proc/self/fd'))) - {listing})\n"
        "found = [fd for fd in fds if os.path.exists(f'/proc/self/fd/{fd}')]\n"
        "print(json.dumps([dict(os.environ), os.getcwd(), found, os.getsid(0) == os.getpid(),"
        " blocked, ignored]))"
    )
    env = {"PATH": "/usr/bin:/bin", "ODD": "ä=\udcff\n", "LC_ALL": "C.UTF-8"}
    leaked = socket.socket()
    os.set_inheritable(leaked.fileno(), True)
    with leaked:
        (ended,) = run(place.command(PYTHON, "-I", "-S", "-c", script, env=env))
    assert ended.exit_code == 0, place.stderr.read_text()
    environment, folder, fds, leads_session, blocked, ignored = json.loads(place.stdout.read_text())
    assert environment == env
    assert folder == str(place.folder)
    assert fds == [0, 1, 2]
    assert leads_session
    assert blocked == []
    # Python ignores two when it starts, glibc hands down two of its own; no other is handed down.
    theirs = {signal.SIGPIPE, signal.SIGXFSZ, 32, 33}
    assert {number for number in range(1, 65) if int(ignored, 16) >> (number - 1) & 1} <= theirs


def test_no_parent_of_a_command_shows_it_the_engine_s_environment(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    (ended,) = run(place.shell("tr '\\0' '\\n' < /proc/$PPID/environ; echo end"))
    assert ended.exit_code == 0
    assert place.stdout.read_text().strip().split("\n")[-1] == "end"
    assert "sk-secret" not in place.stdout.read_text()


def test_the_program_is_looked_for_on_the_command_s_own_path(place: Place) -> None:
    tool = place.folder / "bin" / "paraval-test-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    found, missing = run(
        place.command(tool.name, env={"PATH": f"/nowhere:{tool.parent}"}), place.command(tool.name)
    )
    assert (found.exit_code, place.stdout.read_text()) == (0, "found\n")
    assert missing.failure is not None


def test_a_megabyte_on_stdin_arrives_whole(place: Place) -> None:
    data = os.urandom(1 << 20)
    (ended,) = run(place.command("cat", stdin=data))
    assert ended.exit_code == 0
    assert place.stdout.read_bytes() == data


def test_a_megabyte_on_stdin_for_a_command_that_never_reads_blocks_nobody(place: Place) -> None:
    idle = place.command("sleep", place.mark, stdin=b"x" * (1 << 20), timeout=0.5)
    closing = place.shell("exec <&-; sleep 0.1; exit 6", stdin=b"x" * (1 << 20))

    async def use(warden: Warden) -> tuple[tuple[ProcessEnd, ProcessEnd], float]:
        task = asyncio.gather(warden.run(idle), warden.run(closing))
        longest = 0.0
        while not task.done():
            asked = time.monotonic()
            await asyncio.wait([task], timeout=0.01)
            longest = max(longest, time.monotonic() - asked)
        return await task, longest

    (timed_out, left), longest_pause = with_warden(use)
    assert timed_out.timed_out
    assert left.exit_code == 6
    assert longest_pause < 0.4


# ---- cancellation


def test_a_cancelled_wait_goes_on_until_the_tree_is_gone(place: Place) -> None:
    async def use(warden: Warden) -> None:
        task = asyncio.create_task(warden.run(place.hostile("sleep {mark}")))
        await place.wait_for(place.stdout, "ready")
        assert len(place.survivors()) >= 4
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert place.survivors() == []

    with_warden(use)


def test_a_second_cancel_takes_the_grace_away(place: Place) -> None:
    async def use(warden: Warden) -> None:
        command = place.shell("trap 'echo termed' TERM; echo up; while :; do sleep 0.01; done")
        task = asyncio.create_task(warden.run(replace(command, grace=600.0)))
        await place.wait_for(place.stdout, "up")
        task.cancel()
        await place.wait_for(place.stdout, "termed")
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert place.survivors() == []

    with_warden(use)


def test_a_cancel_at_any_moment_of_a_start_leaves_nothing(place: Place) -> None:
    async def use(warden: Warden) -> None:
        for steps in range(12):
            task = asyncio.create_task(warden.run(place.command("sleep", place.mark)))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert place.survivors() == []

    with_warden(use)


def test_kill_all_ends_everything_at_once(place: Place) -> None:
    async def use(warden: Warden) -> list[ProcessEnd]:
        commands = [
            place.hostile("sleep {mark}", grace=600.0, stdout=str(place.folder / str(number)))
            for number in range(5)
        ]
        tasks = [asyncio.create_task(warden.run(command)) for command in commands]
        for command in commands:
            await place.wait_for(Path(command.stdout), "ready")
        late = asyncio.create_task(warden.run(place.command("sleep", place.mark)))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(warden.kill_all)
        return [await task for task in (*tasks, late)]

    endings = with_warden(use)
    assert place.survivors() == []
    assert all(ended.cancelled and ended.failure is None for ended in endings)


def test_close_ends_what_runs_and_the_warden_too(place: Place) -> None:
    async def main() -> tuple[ProcessEnd, int]:
        async with Warden() as warden:
            task = asyncio.create_task(warden.run(place.hostile("sleep {mark}", grace=600.0)))
            await place.wait_for(place.stdout, "ready")
            pid = _warden_pid()
        with pytest.raises(RuntimeError, match="closed"):
            await warden.run(place.command("true"))
        return await task, pid

    ended, pid = asyncio.run(main())
    assert ended.cancelled
    assert place.survivors() == []
    assert process_identity(pid) is None


# ---- kills


ENGINE = """
import asyncio, sys
from paraval.processes.children import Command, Warden

async def main():
    script, folder = sys.argv[1:]
    async with Warden() as warden:
        await asyncio.gather(*(warden.run(Command(
            argv=("/bin/sh", "-c", script), env={"PATH": "/usr/bin:/bin"}, cwd=folder,
            stdout=f"{folder}/{n}.out", stderr=f"{folder}/{n}.err")) for n in range(3)))

asyncio.run(main())
"""


def test_nothing_survives_an_engine_that_is_killed(place: Place) -> None:
    engine = subprocess.Popen([PYTHON, "-c", ENGINE, _hostile_script(place), str(place.folder)])
    asyncio.run(_all_ready(place, 3))
    below = _below(engine.pid)
    assert len(below) > 12
    engine.kill()
    engine.wait()
    asyncio.run(_until(lambda: not place.survivors()))
    asyncio.run(_until(lambda: not any(map(is_alive, below))))


FORKING_ENGINE = """
import asyncio, os, sys
from paraval.processes.children import Command, Warden

async def main():
    script, folder, mark = sys.argv[1:]
    async with Warden() as warden:
        run = asyncio.create_task(warden.run(Command(
            argv=("/bin/sh", "-c", script), env={"PATH": "/usr/bin:/bin"}, cwd=folder,
            stdout=f"{folder}/0.out", stderr=f"{folder}/0.err")))
        while not os.path.exists(f"{folder}/0.out"):
            await asyncio.sleep(0.01)
        copy = os.fork()
        if copy == 0:
            os.read(0, 1)
            os._exit(0)
        print(copy, flush=True)
        await run

asyncio.run(main())
"""


def test_nothing_survives_a_killed_engine_whose_sockets_a_fork_of_it_holds(place: Place) -> None:
    arguments = [_hostile_script(place), str(place.folder), place.mark + "x"]
    engine = subprocess.Popen(
        [PYTHON, "-c", FORKING_ENGINE, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert engine.stdin is not None
    assert engine.stdout is not None
    with engine.stdin, engine.stdout:
        fork = int(engine.stdout.readline())
        engine.kill()
        engine.wait()
        asyncio.run(_until(lambda: set(place.survivors()) <= {fork}))
        assert process_identity(fork) is not None


def test_after_the_kill_of_a_warden_commands_fail_for_now_and_the_next_one_works(
    place: Place,
) -> None:
    async def use(warden: Warden) -> tuple[ProcessEnd, ProcessEnd]:
        task = asyncio.create_task(warden.run(place.hostile("sleep {mark}")))
        await place.wait_for(place.stdout, "ready")
        os.kill(_warden_pid(), signal.SIGKILL)
        lost = await task
        assert place.survivors() == []
        return lost, await warden.run(place.shell("exit 3"))

    lost, after = with_warden(use)
    assert lost.failure is not None
    assert (lost.failure.code, lost.failure.transient) == ("LOST", True)
    assert after.exit_code == 3


def _supervisor_of(place: Place) -> int:
    """The supervisor of the hostile command: the child of the warden that is a parent of one of its
    processes. They write their pids in any order, daemons too, so that none tells by its place."""
    table = process_table()
    parents = {
        table[pid].parent for pid in map(int, place.pids.read_text().split()) if pid in table
    }
    (found,) = (pid for pid in parents if pid in table and table[pid].parent == _warden_pid())
    return found


def test_after_the_kill_of_a_supervisor_its_command_alone_is_lost_and_ended(place: Place) -> None:
    async def use(warden: Warden) -> tuple[ProcessEnd, ProcessEnd]:
        spared = asyncio.create_task(
            warden.run(place.shell("sleep 0.5; exit 4", stdout=str(place.folder / "other")))
        )
        task = asyncio.create_task(warden.run(place.hostile("sleep {mark}")))
        await place.wait_for(place.stdout, "ready")
        os.kill(_supervisor_of(place), signal.SIGKILL)
        lost = await task
        return lost, await spared

    lost, spared = with_warden(use)
    assert place.survivors() == []
    assert lost.failure is not None
    assert (lost.failure.code, lost.failure.transient) == ("LOST", True)
    assert spared.exit_code == 4


STOPS_ITS_SUPERVISOR = "trap '' TERM; echo $PPID > supervisor; kill -STOP $PPID; sleep {mark}"
STOPS_ITS_WARDEN = "read _ _ _ warden _ < /proc/$PPID/stat; kill -STOP $warden {also}; sleep {mark}"


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    _have_little_patience(monkeypatch)


def _have_little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "SUPERVISOR_PATIENCE_S", 0.3)
    monkeypatch.setattr(links, "ASK_AGAIN_S", 0.3)


async def _soon(awaited: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await awaited


def _is_lost(ended: ProcessEnd) -> bool:
    failure = ended.failure
    return failure is not None and failure.code == "LOST" and failure.transient


@pytest.mark.usefixtures("little_patience")
def test_a_supervisor_that_its_command_stopped_is_killed_after_the_timeout(place: Place) -> None:
    async def use(warden: Warden) -> tuple[ProcessEnd, ProcessEnd, ProcessEnd]:
        beside = place.shell("sleep 1; exit 4", stdout=str(place.folder / "other"))
        spared = asyncio.create_task(warden.run(beside))
        script = STOPS_ITS_SUPERVISOR.format(mark=place.mark)
        lost = await _soon(warden.run(place.shell(script, timeout=0.2)))
        assert not spared.done()
        return lost, await spared, await warden.run(place.shell("exit 3"))

    lost, spared, after = with_warden(use)
    assert place.survivors() == []
    # The engine's own clock decides, and the command gains no second try by it.
    assert (lost.timed_out, lost.failure) == (True, None)
    assert (spared.exit_code, after.exit_code) == (4, 3)


@pytest.mark.usefixtures("little_patience")
def test_a_supervisor_without_a_timeout_is_waited_for_until_its_end_is_asked_for(
    place: Place,
) -> None:
    async def use(warden: Warden) -> None:
        script = STOPS_ITS_SUPERVISOR.format(mark=place.mark)
        task = asyncio.create_task(warden.run(place.shell(script)))
        await _until(lambda: _supervisor_is_stopped(place))
        await asyncio.wait([task], timeout=0.6)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await _soon(task)
        assert place.survivors() == []

    with_warden(use)


@pytest.mark.parametrize("way", ["kill", "end", "switch_logs", "kill_all"])
def test_a_worker_s_stopped_supervisor_ends_every_wait_for_it(
    place: Place, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(warden: Warden) -> ProcessEnd:
        script = "read go <&3; " + STOPS_ITS_SUPERVISOR.format(mark=place.mark)
        child = await warden.open(place.shell(script))
        # Not before: a start may take its time.
        _have_little_patience(monkeypatch)
        with child.channel:
            child.channel.send(b"go\n")
            await _until(lambda: _supervisor_is_stopped(place))
            if way == "switch_logs":
                assert await _soon(child.switch_logs("a", "b")) is None
            elif way == "kill_all":
                warden.kill_all()
            else:
                getattr(child, way)()
            return await _soon(child.wait())

    assert _is_lost(with_warden(use))
    assert place.survivors() == []


@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize("also", ["", "$PPID"])
def test_a_warden_that_a_command_stopped_is_replaced(place: Place, also: str) -> None:
    async def use(warden: Warden) -> tuple[ProcessEnd, ProcessEnd]:
        script = STOPS_ITS_WARDEN.format(mark=place.mark, also=also)
        lost = await _soon(warden.run(place.shell(script, timeout=0.2)))
        if not also:
            # Its supervisor could end it in time. A free one is left, which nobody hands a command.
            await _soon(warden.run(place.shell("exit 3", timeout=0.2)))
        assert place.survivors() == []
        return lost, await _soon(warden.run(place.shell("exit 3", timeout=5.0)))

    lost, after = with_warden(use)
    assert lost.timed_out or _is_lost(lost)
    assert after.exit_code == 3
    assert place.survivors() == []


def _supervisor_is_stopped(place: Place) -> bool:
    written = place.folder / "supervisor"
    if not written.exists() or not (pid := written.read_text()).endswith("\n"):
        return False
    entry = process_table().get(int(pid))
    return entry is not None and entry.state == "T"


NO_FILES_ENGINE = """
import asyncio, os, resource
from paraval.processes.children import Command, Warden, MOST_STARTS_IN_A_ROW

async def main():
    quick = Command(argv=("true",), env={"PATH": "/usr/bin:/bin"}, cwd="/",
                    stdout="/dev/null", stderr="/dev/null")
    async with Warden() as warden:
        free = os.dup(0)
        os.close(free)
        # Room for a link, and for half a warden.
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 4, 4096))
        endings = [await warden.run(quick) for _ in range(MOST_STARTS_IN_A_ROW + 3)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
        after = await warden.run(quick)
    for ended in endings:
        assert ended.failure and ended.failure.transient, endings
        assert ended.failure.code == "EMFILE", endings
    assert after.exit_code == 0, after

asyncio.run(main())
"""


def test_a_warden_that_could_not_be_started_has_not_died() -> None:
    ended = subprocess.run(
        [PYTHON, "-c", NO_FILES_ENGINE], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr


def test_a_warden_that_cannot_live_is_not_started_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    async def use(warden: Warden) -> list[ProcessEnd]:
        return [await warden.run(place.command("true")) for _ in range(12)]

    endings = with_warden(use)
    assert all(ended.failure is not None for ended in endings)
    last = endings[-1].failure
    assert last is not None
    assert not last.transient
    assert "in a row" in last.message


def test_a_warden_is_closed_to_its_end_whoever_cancels_that() -> None:
    """A child that nobody waited for would stay behind as a zombie."""

    async def main() -> int | None:
        warden = Warden()
        warden.prepare(1)
        process = warden._living_process()._process
        closing = asyncio.create_task(warden.close())
        for _ in range(3):
            await asyncio.sleep(0)
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        return process.returncode

    assert asyncio.run(main()) is not None


def test_leftovers_of_a_run_are_found_by_its_marker_and_ended(place: Place) -> None:
    """As if engine, warden and supervisors were killed together, so that nothing ends them."""
    env = {"PATH": os.environ["PATH"], "PARAVAL_RUN": place.marker}
    script = (
        f"(setsid env -i sleep {place.mark} &) ; setsid sh -c 'env -i sleep {place.mark} & wait'"
    )
    other = subprocess.Popen(["sleep", "600"], env={**env, "PARAVAL_RUN": place.marker + "2"})
    leftover = subprocess.Popen(["/bin/sh", "-c", f"{script} & wait"], env=env)
    try:
        asyncio.run(_until(lambda: len(place.survivors()) >= 4))
        assert end_leftovers(place.marker) >= 3
        assert leftover.wait() == -signal.SIGKILL
        assert other.poll() is None
        assert end_leftovers(place.marker) == 0
    finally:
        for pid in place.survivors():
            os.kill(pid, signal.SIGKILL)
        other.kill()
        other.wait()
        leftover.wait()


def test_leftovers_never_include_the_one_who_asks_or_its_parents(place: Place) -> None:
    ask = f"from paraval.processes.identity import end_leftovers as e; print(e({place.marker!r}))"
    asked = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -c "{ask}"; exit 9', PYTHON],
        env={"PATH": os.environ["PATH"], "PARAVAL_RUN": place.marker},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (asked.stdout, asked.returncode) == ("0\n", 9), asked.stderr


def test_a_process_is_known_by_its_start_as_well_as_its_number() -> None:
    child = subprocess.Popen(["sleep", "600"])
    identity = process_identity(child.pid)
    assert identity is not None
    assert is_alive(identity)
    assert not is_alive((identity.pid, identity.start_time - 1))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(identity), "a zombie is not alive"
    child.wait()
    assert process_identity(child.pid) is None


def test_a_name_full_of_brackets_doesn_t_confuse_the_process_table() -> None:
    fields = " ".join(["S", "7", "8", "9", *["0"] * 15, "4242", *["0"] * 30])
    entry = ProcessEntry(5, f"5 (a) R 1 (b)) {fields}".encode())
    assert (entry.state, entry.parent, entry.group, entry.session) == ("S", 7, 8, 9)
    assert entry.start_time == 4242


def _hostile_script(place: Place) -> str:
    return HOSTILE.format(mark=place.mark, pids=place.pids) + f"sleep {place.mark}"


async def _all_ready(place: Place, count: int) -> None:
    for number in range(count):
        await place.wait_for(place.folder / f"{number}.out", "ready")


def _below(pid: int) -> list[tuple[int, float]]:
    return [(entry.pid, entry.start_time) for entry in descendants([pid], process_table())]


def _warden_pid() -> int:
    """The one child of this process that leads a session: nobody else here starts such."""
    own = os.getpid()
    (pid,) = (
        entry.pid
        for entry in process_table().values()
        if entry.parent == own and entry.session == entry.pid and not entry.is_dead
    )
    return pid


# ---- warm workers


WORKER = """
import os, socket, sys
channel = socket.socket(fileno=3)
while data := channel.recv(100):
    os.write(1, b"out " + data)
    os.write(2, b"err " + data)
    channel.sendall(data.upper())
sys.exit(9)
"""


def test_a_worker_answers_on_its_channel_and_its_logs_are_kept_apart(place: Place) -> None:
    async def use(warden: Warden) -> tuple[Child, ProcessEnd]:
        child = await warden.open(place.command(PYTHON, "-I", "-S", "-c", WORKER))
        loop = asyncio.get_running_loop()
        for number in range(3):
            logs = [str(place.folder / f"{number}.{name}") for name in ("out", "err")]
            captured = await child.switch_logs(logs[0], logs[1])
            assert captured is not None
            assert captured.stdout_bytes == (6 if number else 0)
            await loop.sock_sendall(child.channel, b"a%d" % number)
            assert await loop.sock_recv(child.channel, 100) == b"A%d" % number
        assert child.identity is not None
        assert is_alive(child.identity)
        child.channel.close()
        return child, await child.wait()

    child, ended = with_warden(use)
    assert (ended.exit_code, ended.stdout_bytes) == (9, 6)
    for number in range(3):
        assert (place.folder / f"{number}.out").read_text() == f"out a{number}"
        assert (place.folder / f"{number}.err").read_text() == f"err a{number}"
    assert not place.stdout.exists()
    assert child.identity is not None
    assert not is_alive(child.identity)


def test_logs_can_be_switched_under_a_worker_that_never_stops_writing(place: Place) -> None:
    async def use(warden: Warden) -> int:
        child = await warden.open(place.command("yes", log_limit=1000))
        for number in range(5):
            new = str(place.folder / str(number))
            assert await child.switch_logs(new, new + ".err") is not None
            await place.wait_for(Path(new), "y\n")
        child.kill()
        with child.channel:
            ended = await child.wait()
        assert await child.switch_logs("a", "b") is None
        return ended.signal or 0

    assert with_warden(use) == signal.SIGKILL


def test_a_worker_is_ended_softly_or_at_once(place: Place) -> None:
    async def use(warden: Warden) -> list[ProcessEnd]:
        endings = []
        for way in (Child.end, Child.kill):
            script = "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done"
            log = place.folder / f"{way.__name__}.log"
            child = await warden.open(place.shell(script, stdout=str(log), grace=PATIENCE_S))
            await place.wait_for(log, "up")
            way(child)
            with child.channel:
                endings.append(await child.wait())
        return endings

    softly, at_once = with_warden(use)
    assert (softly.exit_code, softly.cancelled) == (7, True)
    assert (at_once.signal, at_once.cancelled) == (signal.SIGKILL, True)


def test_a_worker_that_cannot_be_started_says_so_when_waited_for(place: Place) -> None:
    async def use(warden: Warden) -> ProcessEnd:
        child = await warden.open(place.command("no-such-program"))
        with child.channel:
            assert child.identity is None
            return await child.wait()

    failure = with_warden(use).failure
    assert failure is not None
    assert failure.code == "ENOENT"


def test_the_channel_is_the_only_other_descriptor_of_a_worker(place: Place) -> None:
    async def use(warden: Warden) -> ProcessEnd:
        child = await warden.open(place.shell("ls /proc/$$/fd"))
        with child.channel:
            return await child.wait()

    assert with_warden(use).exit_code == 0
    assert place.stdout.read_text().split() == ["0", "1", "2", "3"]


# ---- many


def test_hundreds_of_commands_in_a_row_and_at_once_leave_no_descriptor_open(place: Place) -> None:
    async def use(warden: Warden) -> list[int | None]:
        await warden.run(place.command("true"))
        before = own_fds()
        codes = [(await warden.run(place.command("true"))).exit_code for _ in range(300)]
        many = (warden.run(place.shell("read x; exit $x", stdin=b"%d\n" % n)) for n in range(200))
        codes += [ended.exit_code for ended in await asyncio.gather(*many)]
        failed = await warden.run(place.command("no-such-program"))
        assert failed.failure is not None
        assert own_fds() == before
        return codes

    before = own_fds()
    codes = with_warden(use)
    assert codes == [0] * 300 + list(range(200))
    assert len(own_fds()) == len(before)


FEW_FILES_ENGINE = """
import asyncio, dataclasses, resource, sys
from paraval.processes.children import Command, Warden

async def main():
    quick = Command(argv=("true",), env={"PATH": "/usr/bin:/bin"}, cwd="/",
                      stdout="/dev/null", stderr="/dev/null")
    async with Warden() as warden:
        await warden.run(quick)
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), 4096))
        slow = dataclasses.replace(quick, argv=("sleep", "1.5"))
        endings = await asyncio.gather(*(warden.run(slow) for _ in range(80)))
        after = await warden.run(quick)
    failures = [ended.failure for ended in endings if ended.failure]
    assert failures and all(failure.transient for failure in failures), failures
    assert sum(ended.exit_code == 0 for ended in endings) + len(failures) == 80
    assert after.exit_code == 0, after

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), 4096))
asyncio.run(main())
"""


@pytest.mark.parametrize(("engine", "warden"), [(40, 1024), (1024, 40)])
def test_too_many_open_files_are_a_failure_for_now_on_either_side(engine: int, warden: int) -> None:
    script = [PYTHON, "-c", FEW_FILES_ENGINE, str(engine), str(warden)]
    ended = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_a_loop_in_another_thread_than_the_main_one_can_run_commands(place: Place) -> None:
    endings: list[ProcessEnd] = []
    thread = threading.Thread(target=lambda: endings.extend(run(place.shell("exit 3"))))
    thread.start()
    thread.join()
    assert [ended.exit_code for ended in endings] == [3]


def test_a_warden_that_was_never_used_starts_no_process() -> None:
    async def use(warden: Warden) -> set[int]:
        own = os.getpid()
        return {entry.pid for entry in process_table().values() if entry.parent == own}

    async def before() -> set[int]:
        own = os.getpid()
        return {entry.pid for entry in process_table().values() if entry.parent == own}

    assert with_warden(use) == asyncio.run(before())


def test_the_warden_s_own_interpreter_loads_only_light_modules() -> None:
    script = (
        "import sys\n"
        "package = type(sys)('paraval'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['paraval'] = package\n"
        "import paraval.processes.warden\n"
        "print(*sys.modules)"
    )
    folder = Path(supervisor.__file__).parent.parent
    command = [PYTHON, "-I", "-S", "-c", script, str(folder)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    heavy = {"typing", "dataclasses", "asyncio", "subprocess", "pathlib", "threading", "inspect"}
    heavy |= {"enum", "json", "re", "signal", "socket"}
    assert not heavy & set(loaded)
    assert {name for name in loaded if name.startswith("paraval.")} == {
        "paraval.processes",
        *(
            f"paraval.processes.{name}"
            for name in (
                *("cgroups", "supervisor", "launch", "fast_imports", "log_capture", "priority"),
                *("tree", "warden", "wire"),
            )
        ),
    }


def test_what_a_supervisor_said_last_is_heard_although_the_engine_talks_over_it(
    place: Place,
) -> None:
    """To write to a supervisor that has just left must not drop the end that it reported."""

    async def use(warden: Warden) -> list[int | None]:
        codes = []
        for _ in range(20):
            child = await warden.open(place.shell("exit 7"))
            # The engine must not read while the supervisor reports and leaves: hold the loop up.
            time.sleep(0.05)  # noqa: ASYNC251 - that is the point
            child.end()
            codes.append((await child.wait()).exit_code)
            child.channel.close()
        return codes

    assert with_warden(use) == [7] * 20


def contents(path: str) -> str:
    return Path(path).read_text()


def test_a_supervisor_serves_many_commands_and_mixes_nothing_up(place: Place) -> None:
    """More than a supervisor serves in its life, so that it is also replaced in between."""

    async def use(warden: Warden) -> tuple[list[tuple[int | None, str]], set[int]]:
        ends, supervisors = [], set()
        for number in range(250):
            path = str(place.folder / f"{number}.out")
            script = f"echo {number}; echo $PPID; exit {number % 5}"
            ended = await warden.run(place.shell(script, stdout=path))
            said, parent = contents(path).split()
            supervisors.add(int(parent))
            ends.append((ended.exit_code, said))
        return ends, supervisors

    ends, supervisors = with_warden(use)
    assert ends == [(number % 5, str(number)) for number in range(250)]
    assert 2 <= len(supervisors) < 10


def test_a_free_supervisor_that_is_killed_is_replaced(place: Place) -> None:
    async def use(warden: Warden) -> list[int | None]:
        codes = []
        for number in range(3):
            path = str(place.folder / f"{number}.out")
            ended = await warden.run(place.shell("echo $PPID; exit 4", stdout=path))
            codes.append(ended.exit_code)
            parent = int(contents(path))
            os.kill(parent, signal.SIGKILL)
            # Until its warden has reaped it, and so knows: a zombie may still be handed a command.
            gone = Path("/proc", str(parent))
            await _until(lambda gone=gone: not gone.exists())  # type: ignore[misc]
        return codes

    assert with_warden(use) == [4, 4, 4]


def test_commands_that_cannot_be_started_leave_no_descriptor_open_in_a_supervisor(
    place: Place,
) -> None:
    failing = [place.command("no-such-program", stdin=b"input")] * 100
    *failed, listed = run(*failing, place.shell("ls /proc/$PPID/fd"))
    assert all(ended.failure is not None for ended in failed)
    assert listed.exit_code == 0
    assert len(place.stdout.read_text().split()) < 16


UNUSED_CHANNEL = """
import os, socket
from paraval.processes.supervisor import ChildSignalPipe, keep

engine, control = socket.socketpair()
engine.close()
lifeline, held = os.pipe()
wake = ChildSignalPipe()
channel = os.dup(0)
keep(control, channel, lifeline, wake)
assert os.dup(0) == channel
"""


def test_a_supervisor_closes_the_channel_of_a_command_that_never_came() -> None:
    subprocess.run([PYTHON, "-c", UNUSED_CHANNEL], check=True)


REFUSED_HAND_OVER = """
import os, socket
from paraval.processes.warden import ForkServer

engine, ours = socket.socketpair()
server = ForkServer(ours, os.getppid(), 1)
assert server._hire_ahead()
(supervisor,) = server._free
watcher, control = socket.socketpair()
try:
    # No such descriptor: the kernel refuses to send it, as it does when too many are under way.
    server._give(control, [control.fileno(), 999])
except OSError:
    pass
else:
    raise AssertionError("it was sent")
assert server._free == [supervisor]
assert supervisor.control is None
server._give(control, [control.fileno()])
assert (server._free, supervisor.control) == ([], control)
watcher.close()
server._handle_line(supervisor)
assert server._free == [supervisor]
server.close()
"""


def test_a_supervisor_that_a_command_could_not_be_sent_to_is_free_for_the_next() -> None:
    subprocess.run([PYTHON, "-c", REFUSED_HAND_OVER], check=True, timeout=30)


FILLS_STDERR = """
import fcntl, os, signal, sys, time
supervisor, go_on = os.getppid(), sys.argv[1]
fcntl.fcntl(2, fcntl.F_SETPIPE_SZ, 1 << 20)
print(os.getpid(), supervisor, flush=True)
while not os.path.exists(go_on):
    time.sleep(0.005)
os.kill(supervisor, signal.SIGSTOP)
os.write(2, b"x" * (1 << 20))
"""


def test_a_stdout_that_someone_outside_holds_open_costs_stderr_nothing(place: Place) -> None:
    go_on = place.folder / "go-on"

    async def use(warden: Warden) -> ProcessEnd:
        command = place.command(PYTHON, "-I", "-S", "-c", FILLS_STDERR, str(go_on))
        task = asyncio.create_task(warden.run(command))
        await place.wait_for(place.stdout, "\n")
        pid, supervisor_pid = map(int, place.stdout.read_text().split())
        with open(f"/proc/{pid}/fd/1", "wb"):  # noqa: ASYNC230, PTH123 - a pipe, and at once
            go_on.touch()
            # The supervisor is stopped until all is written and its command has left.
            await _until(lambda: process_identity(pid) is None)
            os.kill(supervisor_pid, signal.SIGCONT)
            return await task

    ended = with_warden(use)
    assert (ended.exit_code, ended.stderr_bytes) == (0, 1 << 20)
    assert place.stderr.stat().st_size == 1 << 20
