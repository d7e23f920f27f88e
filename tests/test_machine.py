"""Readings of the machine, from trees of files as kernels and containers show them."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from paraval.machine.machine_reader import MachineReader
from paraval.records import MachineReading

GB = 1 << 30
KB = 1024


@dataclass(frozen=True)
class Load:
    memory_bytes: int
    cpu_s: float


class Tree:
    """A machine of files, and a clock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 100.0
        self.write(
            "proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n"
        )
        self.write("proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0-3\n")
        self.stat([0, 0, 0, 0], 0)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def stat(self, busy: list[int], total: int) -> None:
        """Ticks that each CPU was busy, of all its ticks so far."""
        lines = [f"cpu{i} {b} 0 0 {total - b} 0 0 0 0 0 0" for i, b in enumerate(busy)]
        self.write("proc/stat", "\n".join(["cpu  1 2 3 4 5 6 7 8 9 10", *lines, "intr 1 2 3", ""]))

    def cgroups(self, own: str, mounts: str) -> None:
        self.write("proc/self/cgroup", own)
        self.write("proc/self/mountinfo", mounts)

    def pressure(self, resource: str, some_us: int, full_us: int, folder: str = "") -> None:
        text = (
            f"some avg10=99.00 avg60=99.00 avg300=99.00 total={some_us}\n"
            f"full avg10=99.00 avg60=99.00 avg300=99.00 total={full_us}\n"
        )
        path = f"{folder}/{resource}.pressure" if folder else f"proc/pressure/{resource}"
        self.write(path, text)

    def reader(self) -> MachineReader:
        return MachineReader(self.root, clock=lambda: self.now)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


V2_OWN = "0::/job/task\n"
V2_MOUNT = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
V1_OWN = "4:memory:/box\n2:cpu,cpuacct:/box\n0::/\n"
V1_MOUNT = (
    "37 33 0:34 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 33 0:31 /box /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
)


# ---- without limits


def test_what_is_busy_is_what_the_cpus_did_since_the_reading_before(tree: Tree) -> None:
    reader = tree.reader()
    tree.now += 0.1
    tree.stat([10, 5, 0, 0], 10)
    reading = reader.read({})
    assert (reading.cpus, reading.busy_cpus) == (4.0, 1.5)
    tree.now += 0.1
    tree.stat([10, 5, 0, 0], 20)
    assert reader.read({}).busy_cpus == 0.0


def test_only_the_cpus_that_may_be_used_count(tree: Tree) -> None:
    tree.write("proc/self/status", "Cpus_allowed_list:\t0,2-2\n")
    reader = tree.reader()
    tree.now += 0.1
    tree.stat([0, 10, 0, 10], 10)
    reading = reader.read({})
    assert (reading.cpus, reading.busy_cpus) == (2.0, 0.0)


def test_memory_is_what_the_kernel_says_is_available(tree: Tree) -> None:
    reader = tree.reader()
    tree.now += 0.1
    reading = reader.read({})
    assert (reading.memory_bytes, reading.memory_available) == (8 * GB, 4 * GB)


def test_pressure_is_the_share_of_the_time_between_two_readings(tree: Tree) -> None:
    for resource in ("cpu", "memory", "io"):
        tree.pressure(resource, 1_000_000, 500_000)
    reader = tree.reader()
    tree.now += 0.2
    tree.pressure("cpu", 1_100_000, 500_000)
    tree.pressure("memory", 1_020_000, 510_000)
    tree.pressure("io", 1_200_000, 600_000)
    reading = reader.read({})
    assert reading.cpu_some == pytest.approx(0.5)
    assert reading.memory_some == pytest.approx(0.1)
    assert reading.memory_full == pytest.approx(0.05)
    assert reading.io_full == pytest.approx(0.5)
    tree.now += 0.2
    calm = reader.read({})
    assert calm.cpu_some == calm.memory_full == calm.io_full == 0.0


def test_each_attempt_has_its_memory_and_the_cores_it_keeps_busy(tree: Tree) -> None:
    reader = tree.reader()
    tree.now += 0.5
    first = reader.read({7: Load(5 * KB, 0.25)})
    assert first.attempts[7].memory_bytes == 5 * KB
    assert first.attempts[7].cpus == pytest.approx(0.5), "since it was not there before"
    tree.now += 0.5
    assert reader.read({7: Load(5 * KB, 1.25)}).attempts[7].cpus == pytest.approx(2.0)
    tree.now += 0.5
    again = reader.read({7: Load(0, 0.1)}).attempts[7]
    assert again.cpus == pytest.approx(0.2), "another attempt at the same trial began at nothing"


def test_two_readings_in_one_moment_tell_the_same(tree: Tree) -> None:
    reader = tree.reader()
    nothing_known = reader.read({})
    assert nothing_known.busy_cpus == nothing_known.cpus == 4.0
    assert nothing_known.memory_bytes == 8 * GB
    tree.now += 0.1
    tree.stat([10, 0, 0, 0], 10)
    assert reader.read({}) == reader.read({})


# ---- cgroups


def test_a_quota_of_v2_bounds_the_cores_from_any_group_above(tree: Tree) -> None:
    tree.cgroups(V2_OWN, V2_MOUNT)
    tree.write("sys/fs/cgroup/job/task/cpu.max", "max 100000\n")
    tree.write("sys/fs/cgroup/job/cpu.max", "150000 100000\n")
    tree.write("sys/fs/cgroup/job/cpu.stat", "usage_usec 1000000\nuser_usec 1\n")
    reader = tree.reader()
    tree.now += 1.0
    tree.stat([50, 50, 0, 0], 100)
    tree.write("sys/fs/cgroup/job/cpu.stat", "usage_usec 2250000\nuser_usec 1\n")
    reading = reader.read({})
    assert reading.cpus == 1.5
    assert reading.busy_cpus == pytest.approx(1.25), "the quota leaves less than the machine"


def test_a_busy_machine_leaves_less_than_the_quota(tree: Tree) -> None:
    tree.cgroups(V2_OWN, V2_MOUNT)
    tree.write("sys/fs/cgroup/job/cpu.max", "200000 100000\n")
    tree.write("sys/fs/cgroup/job/cpu.stat", "usage_usec 0\n")
    reader = tree.reader()
    tree.now += 1.0
    tree.stat([100, 100, 100, 50], 100)
    reading = reader.read({})
    assert reading.cpus - reading.busy_cpus == pytest.approx(0.5)


def test_a_limit_of_v2_bounds_memory_and_what_can_be_reclaimed_is_free(tree: Tree) -> None:
    tree.cgroups(V2_OWN, V2_MOUNT)
    tree.write("sys/fs/cgroup/job/memory.max", f"{2 * GB}\n")
    tree.write("sys/fs/cgroup/job/memory.current", f"{3 * GB // 2}\n")
    tree.write("sys/fs/cgroup/job/memory.stat", f"anon {GB}\ninactive_file {GB // 2}\n")
    tree.write("sys/fs/cgroup/job/task/memory.max", "max\n")
    tree.write("sys/fs/cgroup/job/task/memory.high", f"{3 * GB}\n")
    tree.write("sys/fs/cgroup/job/task/memory.current", "0\n")
    reader = tree.reader()
    tree.now += 0.1
    reading = reader.read({})
    assert (reading.memory_bytes, reading.memory_available) == (2 * GB, GB)


def test_v1_in_a_container_is_read_at_its_mount(tree: Tree) -> None:
    tree.cgroups(V1_OWN, V1_MOUNT)
    memory, cpu = "sys/fs/cgroup/memory", "sys/fs/cgroup/cpu,cpuacct"
    tree.write(f"{memory}/memory.limit_in_bytes", f"{GB}\n")
    tree.write(f"{memory}/memory.usage_in_bytes", f"{GB // 2}\n")
    tree.write(f"{memory}/memory.stat", f"total_inactive_file {GB // 4}\n")
    tree.write(f"{cpu}/cpu.cfs_quota_us", "50000\n")
    tree.write(f"{cpu}/cpu.cfs_period_us", "100000\n")
    tree.write(f"{cpu}/cpuacct.usage", "0\n")
    reader = tree.reader()
    tree.now += 1.0
    tree.stat([0, 0, 0, 0], 100)
    tree.write(f"{cpu}/cpuacct.usage", "400000000\n")
    reading = reader.read({})
    assert (reading.memory_bytes, reading.memory_available) == (GB, GB * 3 // 4)
    assert reading.cpus == 0.5
    assert reading.busy_cpus == pytest.approx(0.4)


def test_v1_without_limits_bounds_nothing(tree: Tree) -> None:
    tree.cgroups(V1_OWN, V1_MOUNT)
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", f"{GB}\n")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    reader = tree.reader()
    tree.now += 0.1
    reading = reader.read({})
    assert reading.cpus == 4.0
    assert (reading.memory_bytes, reading.memory_available) == (8 * GB, 4 * GB)


def test_of_v1_and_v2_together_both_are_asked(tree: Tree) -> None:
    tree.cgroups(
        "4:memory:/a/b\n0::/c\n",
        "37 33 0:34 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "43 33 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    )
    tree.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", f"{GB}\n")
    tree.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "0\n")
    tree.write("sys/fs/cgroup/unified/c/cpu.max", "100000 100000\n")
    reader = tree.reader()
    tree.now += 0.1
    reading = reader.read({})
    assert (reading.cpus, reading.memory_bytes) == (1.0, GB)


def test_a_containers_own_pressure_goes_before_the_machines(tree: Tree) -> None:
    tree.cgroups("0::/\n", V2_MOUNT)
    tree.pressure("memory", 0, 0)
    tree.pressure("memory", 0, 0, "sys/fs/cgroup")
    reader = tree.reader()
    tree.now += 1.0
    tree.pressure("memory", 900_000, 900_000)
    tree.pressure("memory", 100_000, 50_000, "sys/fs/cgroup")
    reading = reader.read({})
    assert reading.memory_some == pytest.approx(0.1)
    assert reading.memory_full == pytest.approx(0.05)


# ---- what makes no sense

FILES = [
    "proc/meminfo",
    "proc/stat",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/pressure/memory",
    "sys/fs/cgroup/job/cpu.max",
    "sys/fs/cgroup/job/cpu.stat",
    "sys/fs/cgroup/job/memory.max",
    "sys/fs/cgroup/job/memory.current",
    "sys/fs/cgroup/job/memory.stat",
]
GARBAGE = st.sampled_from(
    ["", "\n", "max max", "-1 0", "0 0", "cpu0 x y z", "cpu0", "MemTotal: many kB", "a - b", "::"]
) | st.text(max_size=40)


@given(st.dictionaries(st.sampled_from(FILES), GARBAGE), st.integers(-5, 500))
@settings(max_examples=40, deadline=None)
def test_garbage_in_any_file_costs_that_file_alone(files: dict[str, str], passed_ms: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder))
        tree.cgroups(V2_OWN, V2_MOUNT)
        for path, text in files.items():
            tree.write(path, text.encode("utf-8", "replace").decode())
        reader = tree.reader()
        tree.now += passed_ms / 1000
        reading = reader.read({1: Load(1, 1.0)})
    assert 0 <= reading.busy_cpus <= reading.cpus
    assert reading.cpus > 0
    assert reading.memory_bytes >= 0
    assert reading.memory_available >= 0
    assert 0 <= reading.memory_full <= 1


def test_without_proc_the_machine_is_read_as_on_other_systems(tmp_path: Path) -> None:
    now = [0.0]
    reader = MachineReader(tmp_path / "nothing", clock=lambda: now[0])
    now[0] += 1.0
    reading = reader.read({})
    assert reading.cpus >= 1
    assert 0 < reading.memory_available <= reading.memory_bytes


# ---- this machine


def test_this_machine_can_be_read_and_quickly() -> None:
    reader = MachineReader()
    loads = {index: Load(GB, 1.0) for index in range(64)}
    times = []
    readings: list[MachineReading] = []
    for _ in range(20):
        time.sleep(0.006)
        began = time.thread_time()
        readings.append(reader.read(loads))
        times.append(time.thread_time() - began)
    assert min(times) < 0.005
    last = readings[-1]
    assert 0 < last.cpus <= (os.cpu_count() or 1)
    assert 0 < last.memory_available <= last.memory_bytes
    if sys.platform == "linux":
        assert last.cpus <= len(os.sched_getaffinity(0))
