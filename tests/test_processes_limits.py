"""What a command may take, what it is seen to take, and how little it holds up others. Limits are
tested by the means that this machine has; where it has none, that is said.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from paraval.processes.cgroups import (
    PREFIX,
    CgroupDir,
    CgroupDirs,
    Cgroups,
    CommandCgroups,
    find_places,
    own_folders,
)
from paraval.processes.children import Child, Command, ProcessEnd, TreeLoad, Warden
from paraval.processes.enforcement import Enforcement, Means, limits_enforced
from paraval.processes.identity import process_identity
from paraval.processes.tree import ProcessEntry, descendants, process_table, read_entry
from paraval.records import TargetLimits

PATIENCE_S = 10.0
PYTHON = sys.executable
MB = 1 << 20
SLEEP = "import time; time.sleep(60)"
T = TypeVar("T")

needs_memory_limits = pytest.mark.skipif(
    limits_enforced().memory is Means.NONE, reason="no memory cgroup may be written here"
)
needs_process_limits = pytest.mark.skipif(
    limits_enforced().processes is Means.NONE, reason="no pids cgroup may be written here"
)
needs_kill = pytest.mark.skipif(
    limits_enforced().kill is not Means.CGROUP_V2, reason="no cgroup of v2 may be made here"
)
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(
        argv=("true",),
        env={"PATH": os.environ["PATH"]},
        cwd=str(tmp_path),
        stdout=str(tmp_path / "stdout.log"),
        stderr=str(tmp_path / "stderr.log"),
        grace=0.2,
    )


def own_groups(told: str) -> set[Path]:
    """The groups of a warden's commands, told by their /proc/self/cgroup, as far as they exist."""
    folders = own_folders(told, Path("/proc/self/mountinfo").read_text()).values()
    return {Path(folder) for folder in folders if PREFIX in folder and Path(folder).exists()}


def python(command: Command, script: str, **changes: Any) -> Command:
    return replace(command, argv=(PYTHON, "-c", script), **changes)


def with_warden(use: Callable[[Warden], Awaitable[T]]) -> T:
    async def main() -> T:
        async with Warden() as warden:
            return await use(warden)

    return asyncio.run(main())


def run(command: Command) -> ProcessEnd:
    return with_warden(lambda warden: warden.run(command))


async def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        await asyncio.sleep(0.01)


# ---- memory


@needs_memory_limits
def test_a_command_over_its_memory_limit_is_killed_and_said_to_be_out_of_memory(
    command: Command,
) -> None:
    limits = TargetLimits(memory_bytes=60 * MB)
    ended = run(python(command, "x = bytearray(300 << 20)", limits=limits))
    assert (ended.signal, ended.out_of_memory) == (signal.SIGKILL, True)
    assert 40 * MB < ended.memory_bytes < 70 * MB


@needs_memory_limits
def test_the_memory_of_all_processes_of_a_command_counts_together(command: Command) -> None:
    """Three processes of 60 MB each are too much for 120 MB, which a limit on each would allow."""
    script = (
        "import os, time\n"
        "pids = [os.fork() for _ in range(2)]\n"
        "x = bytearray(60 << 20)\n"
        "time.sleep(0.5)\n"
    )
    limits = TargetLimits(memory_bytes=120 * MB)
    ended = run(python(command, script, limits=limits))
    assert ended.out_of_memory


@needs_memory_limits
def test_a_command_within_its_memory_limit_is_told_what_it_held(command: Command) -> None:
    limits = TargetLimits(memory_bytes=200 * MB)
    ended = run(python(command, "x = bytearray(80 << 20)", limits=limits))
    assert (ended.exit_code, ended.out_of_memory) == (0, False)
    assert 80 * MB < ended.memory_bytes < 200 * MB


@needs_memory_limits
def test_a_limit_that_no_program_fits_into_is_out_of_memory_and_no_lost_supervisor(
    command: Command,
) -> None:
    ended = run(python(command, "pass", limits=TargetLimits(memory_bytes=64 << 10)))
    assert (ended.failure, ended.signal, ended.out_of_memory) == (None, signal.SIGKILL, True)


def test_a_command_that_kills_itself_is_not_out_of_memory(command: Command) -> None:
    script = "import os; os.kill(os.getpid(), 9)"
    ended = run(python(command, script, limits=TargetLimits(memory_bytes=500 * MB)))
    assert (ended.signal, ended.out_of_memory) == (signal.SIGKILL, False)


# ---- processes


@needs_process_limits
def test_a_fork_bomb_is_held_to_its_limit_and_ended(command: Command) -> None:
    script = (
        "import os, time\n"
        "count = 0\n"
        "try:\n"
        "    while count < 50:\n"
        "        if not os.fork():\n"
        "            os.setsid()\n"
        "            time.sleep(60)\n"
        "        count += 1\n"
        "except BlockingIOError:\n"
        "    pass\n"
        "print(count)\n"
    )
    ended = run(python(command, script, limits=TargetLimits(processes=8)))
    assert Path(command.stdout).read_text() == "7\n"
    assert (ended.exit_code, ended.leaked, ended.survivors) == (0, 7, 0)


@needs_process_limits
def test_a_limit_of_one_process_lets_the_command_itself_start(command: Command) -> None:
    ended = run(python(command, "print('alone')", limits=TargetLimits(processes=1)))
    assert (ended.exit_code, Path(command.stdout).read_text()) == (0, "alone\n")


# ---- the same start, whichever way


@pytest.mark.parametrize("limits", [TargetLimits(), TargetLimits(processes=100)])
def test_a_command_with_limits_finds_what_one_without_finds(
    command: Command, limits: TargetLimits
) -> None:
    """It is started another way; folder, descriptors, signals, session and stdin are the same."""
    script = (
        "import os, signal, sys, resource\n"
        "print(os.getcwd(), sorted(os.environ), os.getsid(0) == os.getpid())\n"
        "print(sorted(os.listdir('/proc/self/fd'))[:3], sys.stdin.read())\n"
        "print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.pthread_sigmask(0, []))\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE))\n"
        "sys.exit(7)\n"
    )
    ended = run(python(command, script, limits=limits, stdin=b"hello", env={"A": "1"}))
    assert ended.exit_code == 7
    out = Path(command.stdout).read_text().splitlines()
    assert out[0].startswith(command.cwd)
    assert out[0].endswith("True")
    assert out[1] == "['0', '1', '2'] hello"
    assert out[2:] == ["True set()", "(0, 0)"]


@pytest.mark.parametrize("limits", [TargetLimits(), TargetLimits(processes=100)])
def test_what_cannot_be_started_is_told_alike(command: Command, limits: TargetLimits) -> None:
    plain = Path(command.cwd, "plain")
    plain.write_text("no program")
    lost = run(replace(command, argv=("surely-not-there",), limits=limits)).failure
    barred = run(replace(command, argv=(str(plain),), limits=limits)).failure
    assert lost is not None
    assert (lost.code, lost.transient) == ("ENOENT", False)
    assert "not found on PATH" in lost.message
    assert barred is not None
    assert (barred.code, "not executable" in barred.message) == ("EACCES", True)


# ---- nothing left behind


SUPERVISOR = """
import subprocess
from paraval.processes.cgroups import Cgroups, find_places

cgroups = Cgroups(find_places())
cgroups.settle()
home = open("/proc/self/cgroup").read()
sleeps = [subprocess.Popen(["setsid", "sleep", "300"]) for _ in range(5)]
cgroups.kill_all_but_this()
print(*[sleep.wait() for sleep in sleeps], open("/proc/self/cgroup").read() == home)
"""


@needs_kill
def test_a_supervisor_kills_its_whole_group_at_one_stroke_and_lives() -> None:
    ended = subprocess.run(
        [PYTHON, "-c", SUPERVISOR], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("-9 -9 -9 -9 -9 True\n", "")
    Cgroups(find_places()).heal()


@needs_linux
def test_a_tree_whose_processes_each_flee_into_a_session_of_their_own_is_ended(
    command: Command,
) -> None:
    """Each of them starts the next and ends: none is there for long, and no group holds two."""
    script = (
        "import os, time\n"
        "def run_away():\n"
        "    for _ in range(4):\n"
        "        if os.fork() == 0:\n"
        "            while True:\n"
        "                os.setsid() if os.getsid(0) != os.getpid() else None\n"
        "                if os.fork(): os._exit(0)\n"
        "run_away()\n"
        "print('off', flush=True)\n"
    )
    ended = run(python(command, script))
    assert (ended.exit_code, ended.survivors) == (0, 0)
    assert ended.failure is None


@needs_kill
@pytest.mark.parametrize(
    "limits", [TargetLimits(), TargetLimits(processes=9, memory_bytes=99 * MB)]
)
def test_a_command_is_born_in_a_group_and_none_is_left_when_the_warden_has_gone(
    command: Command, limits: TargetLimits
) -> None:
    async def use(warden: Warden) -> None:
        shell = ("/bin/sh", "-c", "cat /proc/self/cgroup; read word")
        child = await warden.open(replace(command, argv=shell, limits=limits))
        log = Path(command.stdout)
        await until(lambda: log.exists() and "0::" in log.read_text())
        await until(lambda: own_groups(log.read_text()))
        await _kill(child)

    with_warden(use)
    told = Path(command.stdout).read_text()
    assert PREFIX in told
    assert own_groups(told) == set()


ENGINE = """
import asyncio, os, sys
from paraval.records import TargetLimits
from paraval.processes.children import Command, Warden

SCRIPT = (
    "setsid env -i sleep 300 & cat /proc/self/cgroup > groups; echo $$ $! >> pids; wait"
)

async def main():
    async with Warden() as warden:
        command = Command(
            argv=("/bin/sh", "-c", SCRIPT),
            env={"PATH": os.environ["PATH"]}, cwd=os.getcwd(), stdout="o", stderr="e",
            limits=TargetLimits(processes=50, memory_bytes=100 << 20),
        )
        await asyncio.gather(warden.run(command), warden.run(command))

asyncio.run(main())
"""


def test_groups_and_processes_of_an_engine_that_was_killed_with_all_its_helpers_are_cleared(
    command: Command, tmp_path: Path
) -> None:
    """Engine, warden and supervisors die at one stroke: the next start ends what they left."""
    with subprocess.Popen([PYTHON, "-c", ENGINE], cwd=tmp_path) as engine:
        pids = tmp_path / "pids"
        asyncio.run(until(lambda: pids.exists() and len(pids.read_text().split()) == 4))
        working = {int(pid) for pid in pids.read_text().split()}
        watching = [
            entry
            for entry in descendants([engine.pid], process_table())
            if entry.pid not in working and entry.name not in {b"sleep", b"sh"}
        ]
        # Stopped first: none of them may see another one go.
        for pid in (engine.pid, *(entry.pid for entry in watching)):
            os.kill(pid, signal.SIGSTOP)
        for pid in (*(entry.pid for entry in watching), engine.pid):
            os.kill(pid, signal.SIGKILL)
    if limits_enforced().kill is Means.CGROUP_V2:
        assert {pid for pid in working if process_identity(pid) is not None}
        told = (tmp_path / "groups").read_text()
        assert own_groups(told)
        assert run(command).exit_code == 0
        asyncio.run(until(lambda: not any(map(process_identity, working))))
        assert run(command).exit_code == 0
        assert own_groups(told) == set()
    else:
        for pid in working:
            os.kill(pid, signal.SIGKILL)


@needs_kill
def test_groups_of_the_living_of_other_containers_and_of_strangers_are_spared() -> None:
    place = find_places().kill
    assert place is not None
    own = read_entry(os.getpid())
    assert own is not None
    namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    names = [
        f"{PREFIX}{os.getpid()}-{own.start_time}-{namespace}",
        f"{PREFIX}999999999-1-1",
        f"{PREFIX}of-a-stranger",
    ]
    gone = f"{PREFIX}999999999-1-{namespace}"
    folders = [Path(place.folder, name) for name in (*names, gone)]
    try:
        for folder in folders:
            folder.mkdir()
        with_warden(_nothing)
        assert [folder.exists() for folder in folders] == [True, True, True, True]
        Cgroups(find_places()).heal()
        assert [folder.exists() for folder in folders] == [True, True, True, False]
    finally:
        for folder in folders:
            if folder.exists():
                folder.rmdir()


async def _nothing(warden: Warden) -> None:
    """A warden that starts nothing clears nothing."""
    del warden


# ---- where groups are found


def test_the_own_groups_are_found_in_a_machine_of_both_kinds() -> None:
    groups = "4:memory:/a/b\n3:cpu,cpuacct:/\n8:pids:/\n9:name=systemd:/x\n0::/user.slice\n"
    mounts = (
        "33 25 0:30 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
        "37 33 0:34 / /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory\n"
        "34 33 0:31 / /sys/fs/cgroup/cpu\\040both rw - cgroup cgroup rw,cpu,cpuacct\n"
        "43 33 0:40 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
    )
    assert own_folders(groups, mounts) == {
        "memory": "/sys/fs/cgroup/memory/a/b",
        "cpu": "/sys/fs/cgroup/cpu both",
        "cpuacct": "/sys/fs/cgroup/cpu both",
        "": "/sys/fs/cgroup/unified/user.slice",
    }


def test_in_a_container_the_mount_s_root_is_taken_off_and_groups_out_of_sight_are_none() -> None:
    mount = "41 33 0:38 /docker/abc /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n"
    assert own_folders("8:pids:/docker/abc/x\n", mount) == {"pids": "/sys/fs/cgroup/pids/x"}
    assert own_folders("8:pids:/docker/abc\n", mount) == {"pids": "/sys/fs/cgroup/pids"}
    assert own_folders("8:pids:/docker/abcd\n", mount) == {}
    assert own_folders("0::/../elsewhere\n", "1 2 0:1 /here /c rw - cgroup2 c rw\n") == {}
    assert own_folders("", "") == {}


def test_the_files_of_v2_are_written_as_the_kernel_names_them(tmp_path: Path) -> None:
    """On a stand-in folder, for a machine whose controllers are all of v1; the kernel is not in
    this one."""
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max"):
        (tmp_path / name).touch()
    (tmp_path / "memory.peak").write_text("12345\n")
    (tmp_path / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 1\n")
    box = CommandCgroups([str(tmp_path)])
    box.limit(1000, 7)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written["memory.max"] == "1000"
    assert (written["memory.swap.max"], written["memory.oom.group"]) == ("0", "1")
    assert written["pids.max"] == "7"
    assert (box.peak_bytes, box.out_of_memory) == (12345, True)


def test_where_nothing_may_be_written_nothing_is_made_and_nothing_is_said(tmp_path: Path) -> None:
    missing = CgroupDir(str(tmp_path / "missing"), 2)
    cgroups = Cgroups(CgroupDirs(missing, missing, missing))
    cgroups.heal()
    cgroups.settle()
    cgroups.kill_all_but_this()
    box = cgroups.box(1000, 10)
    assert box is not None
    box.enter()
    box.kill()
    assert (box.peak_bytes, box.out_of_memory) == (0, False)
    box.remove()
    cgroups.forget(1)
    cgroups.close()
    assert list(tmp_path.iterdir()) == []
    assert Cgroups(CgroupDirs(None, None, None)).box(1000, 10) is None


NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
    *("--bounding-set=-all,+dac_read_search",),
)
"""A user who may read everything, this checkout and its Python among it, and write nothing."""
AS_NOBODY = """
import asyncio, os, sys
from paraval.records import TargetLimits
from paraval.processes.children import Command, Warden
from paraval.processes.enforcement import limits_enforced

async def main():
    async with Warden() as warden:
        command = Command(
            argv=("/bin/sh", "-c", "setsid sleep 300 & exit 4"),
            env={"PATH": os.environ["PATH"]}, cwd="/", stdout=os.devnull, stderr=os.devnull,
            limits=TargetLimits(processes=50, memory_bytes=100 << 20), nice=10,
        )
        return await warden.run(command)

means = limits_enforced()
ended = asyncio.run(main())
print(means.kill, means.memory, means.processes, sep="|")
print(ended.exit_code, ended.leaked, ended.survivors, ended.failure)
"""


@needs_linux
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can become another user"
)
def test_a_user_who_may_write_no_group_runs_commands_all_the_same() -> None:
    ended = subprocess.run(
        [*NOBODY, PYTHON, "-c", AS_NOBODY], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["subreaper|none|none", "4 1 0 None"]


def test_what_is_enforced_is_told_in_words_for_doctor() -> None:
    told = limits_enforced()
    assert told == limits_enforced()
    assert isinstance(told, Enforcement)
    assert told.kill is not Means.NONE


# ---- what is seen


@needs_linux
def test_loads_tell_memory_and_cpu_of_whole_trees_by_tag(command: Command) -> None:
    """Also of a daemon of two forks, and of what has ended already."""
    script = (
        "import os, time\n"
        "x = bytearray(50 << 20)\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if not os.fork():\n"
        "        y = bytearray(50 << 20)\n"
        "        end = time.process_time() + 0.3\n"
        "        while time.process_time() < end: pass\n"
        "        print('ready', flush=True)\n"
        "        time.sleep(60)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "time.sleep(60)\n"
    )

    async def use(warden: Warden) -> tuple[dict[int, TreeLoad], ProcessEnd]:
        big = await warden.open(python(command, script, tag=7))
        untold = await warden.open(_logged_apart(python(command, SLEEP), "untold"))
        small = await warden.open(_logged_apart(python(command, SLEEP, tag=8), "small"))
        log = Path(command.stdout)
        await until(lambda: log.exists() and "ready" in log.read_text())
        loads = await asyncio.to_thread(warden.loads)
        ended = [await _kill(child) for child in (big, untold, small)]
        return loads, ended[0]

    loads, ended = with_warden(use)
    assert loads.keys() == {7, 8}
    assert 100 * MB < loads[7].memory_bytes < 250 * MB
    assert loads[8].memory_bytes < 40 * MB
    assert 0.3 <= loads[7].cpu_s < 5.0
    assert ended.memory_bytes >= loads[7].memory_bytes


async def _kill(child: Child) -> ProcessEnd:
    child.kill()
    ended = await child.wait()
    child.channel.close()
    return ended


def _logged_apart(command: Command, name: str) -> Command:
    return replace(command, stdout=f"{command.cwd}/{name}.out", stderr=f"{command.cwd}/{name}.err")


@needs_linux
def test_a_supervisor_s_earlier_commands_are_not_counted_for_the_next(command: Command) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"

    async def use(warden: Warden) -> float:
        await warden.run(python(command, burn))
        child = await warden.open(python(command, SLEEP, tag=1))
        loads = await asyncio.to_thread(warden.loads)
        await _kill(child)
        return loads[1].cpu_s

    assert with_warden(use) < 0.25


@needs_linux
def test_commands_of_one_tag_are_told_together(command: Command) -> None:
    async def use(warden: Warden) -> dict[int, TreeLoad]:
        children = [
            await warden.open(_logged_apart(python(command, SLEEP, tag=3), str(number)))
            for number in range(2)
        ]
        loads = warden.loads()
        for child in children:
            await _kill(child)
        return loads

    loads = with_warden(use)
    assert loads.keys() == {3}


@needs_linux
def test_loads_may_be_asked_for_while_commands_come_and_go(command: Command) -> None:
    async def use(warden: Warden) -> list[BaseException]:
        over = threading.Event()
        errors: list[BaseException] = []

        def look() -> None:
            try:
                while not over.is_set():
                    warden.loads()
            except BaseException as error:  # noqa: BLE001 - told to the test
                errors.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        quiet = replace(command, stdout=os.devnull, stderr=os.devnull)
        for _ in range(5):
            runs = [warden.run(replace(quiet, tag=tag)) for tag in range(16)]
            await asyncio.gather(*runs)
        over.set()
        await asyncio.to_thread(thread.join)
        assert warden.loads() == {}
        return errors

    assert with_warden(use) == []


def test_what_a_short_command_held_is_never_less_than_its_largest_process(
    command: Command,
) -> None:
    ended = run(python(command, "x = bytearray(60 << 20)"))
    assert ended.memory_bytes >= ended.max_rss_bytes > 60 * MB


def test_an_entry_tells_memory_and_cpu_of_its_process() -> None:
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    entry = read_entry(os.getpid())
    assert isinstance(entry, ProcessEntry)
    assert entry.rss_pages * os.sysconf("SC_PAGE_SIZE") > 10 * MB
    assert entry.cpu_ticks / os.sysconf("SC_CLK_TCK") >= 0.03


# ---- niceness


@needs_linux
@pytest.mark.parametrize("limits", [TargetLimits(), TargetLimits(processes=100)])
def test_a_nice_command_yields_and_so_does_its_session(
    command: Command, limits: TargetLimits
) -> None:
    async def use(warden: Warden) -> tuple[int, str]:
        sleep = replace(command, argv=("sleep", "60"), nice=11, limits=limits)
        child = await warden.open(sleep)
        assert child.identity is not None
        pid = child.identity.pid
        group = Path(f"/proc/{pid}/autogroup")
        await until(lambda: os.getpriority(os.PRIO_PROCESS, pid) == 11)
        await until(lambda: not group.exists() or group.read_text().strip().endswith("nice 11"))
        found = os.getpriority(os.PRIO_PROCESS, pid), str(child.identity.pid)
        await _kill(child)
        return found

    assert with_warden(use)[0] == 11


@needs_linux
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="no autogroup in this kernel")
def test_a_session_that_a_nice_command_starts_yields_after_the_next_look(command: Command) -> None:
    async def use(warden: Warden) -> None:
        shell = ("/bin/sh", "-c", "setsid sleep 60 & echo $! > pid; wait")
        child = await warden.open(replace(command, argv=shell, nice=9, tag=1))
        written = Path(command.cwd, "pid")

        def yields() -> bool:
            warden.loads()
            group = Path(f"/proc/{written.read_text().strip()}/autogroup")
            return group.read_text().strip().endswith("nice 9")

        await until(lambda: written.exists() and written.read_text().strip())
        await until(yields)
        await _kill(child)

    with_warden(use)


@pytest.mark.parametrize("nice", [-1, 20])
def test_a_niceness_that_does_not_exist_is_misuse(command: Command, nice: int) -> None:
    with pytest.raises(ValueError, match="niceness must be from 0 to 19"):
        replace(command, nice=nice)


# ---- what the kernel holds each process to


def test_open_files_and_the_size_of_files_are_bounded_without_any_cgroup(command: Command) -> None:
    script = (
        "import resource as r; print(*r.getrlimit(r.RLIMIT_NOFILE), *r.getrlimit(r.RLIMIT_FSIZE),"
        " *r.getrlimit(r.RLIMIT_CORE))"
    )
    limits = TargetLimits(open_files=64, file_bytes=5 * MB)
    ended = run(python(command, script, limits=limits))
    assert ended.exit_code == 0
    assert Path(command.stdout).read_text().split() == [
        "64",
        "64",
        f"{5 * MB}",
        f"{5 * MB}",
        "0",
        "0",
    ]


def test_a_file_that_would_grow_over_its_bound_ends_the_command(command: Command) -> None:
    limits = TargetLimits(file_bytes=MB)
    ended = run(replace(command, argv=("sh", "-c", "exec cat /dev/zero > big"), limits=limits))
    assert ended.signal == signal.SIGXFSZ
    assert Path(command.cwd, "big").stat().st_size == MB
