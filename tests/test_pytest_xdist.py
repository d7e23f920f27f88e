"""xdist's workers that run several tests at once: what they are given, take, and give back."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paraval.pytest_plugin.session.xdist_controller import ParallelWorkStealing
from tests.child_pytest import run_pytest_with_all


def test_each_worker_runs_its_own_eight_and_every_test_runs_once(tmp_path: Path) -> None:
    """40 tests that wait 0.3 s: 12 s one after another, 6 s in two plain workers. One that runs
    alone and one that fails are told as everywhere."""
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import os, time
            import pytest

            @pytest.mark.parametrize("number", range(40))
            def test_waiting(number):
                began = time.time()
                time.sleep(0.3)
                with open(f"ran-{number}", "a") as file:
                    print(os.environ["PYTEST_XDIST_WORKER"], began, time.time(), file=file)
                assert number != 7

            def test_alone(monkeypatch):
                monkeypatch.setenv("SET", "1")
            """
        )
    )
    ran = run_pytest_with_all(tmp_path, "-n", "2", "--parallel", "8")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 40 passed" in ran.stdout
    assert "FAILED test_it.py::test_waiting[7]" in ran.stdout
    runs = [path.read_text().splitlines() for path in tmp_path.glob("ran-*")]
    assert [len(lines) for lines in runs] == [1] * 40
    workers, began, ended = zip(*(lines[0].split() for lines in runs), strict=True)
    assert {*workers} == {"gw0", "gw1"}
    assert max(map(float, ended)) - min(map(float, began)) < 4


class Worker:
    """A worker as the controller sees it."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.sent: list[int] = []
        self.asked: list[list[int]] = []

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.sent.extend(indices)

    def send_steal(self, indices: Sequence[int]) -> None:
        self.asked.append(list(indices))

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def shared() -> tuple[Any, Worker, Worker]:
    """20 tests between two workers that run four at once."""
    config: Any = SimpleNamespace(
        getvalue=lambda name: ["2*popen"], option=SimpleNamespace(debug=False), hook=None
    )
    scheduler = ParallelWorkStealing(config, at_once=4)
    first, second = Worker("gw0"), Worker("gw1")
    for worker in (first, second):
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, [f"test_{n}" for n in range(20)])
    scheduler.schedule()
    return scheduler, first, second


def test_a_worker_that_has_fewer_than_it_could_run_is_given_what_another_has_not_begun(
    shared: tuple[Any, Worker, Worker],
) -> None:
    scheduler, first, second = shared
    assert (first.sent, second.sent) == (list(range(10)), list(range(10, 20)))
    for index in range(7):
        scheduler.mark_test_complete(first, index, 0.1)
    assert second.asked == [[15, 16, 17, 18, 19]]
    scheduler.remove_pending_tests_from_node(second, [18, 19])
    assert first.sent[10:] == [18, 19]
    assert not scheduler.tests_finished


def test_a_worker_that_has_begun_all_is_asked_again_only_after_it_ended_one(
    shared: tuple[Any, Worker, Worker],
) -> None:
    """Or else the two would ask and refuse one another as fast as they can."""
    scheduler, first, second = shared
    for index in range(7):
        scheduler.mark_test_complete(first, index, 0.1)
    scheduler.remove_pending_tests_from_node(second, [])
    scheduler.mark_test_complete(first, 7, 0.1)
    assert len(second.asked) == 1
    assert not first.shutting_down
    scheduler.mark_test_complete(second, 10, 0.1)
    assert len(second.asked) == 2


def test_a_worker_is_sent_home_when_nothing_is_left_that_others_have_not_begun(
    shared: tuple[Any, Worker, Worker],
) -> None:
    scheduler, first, second = shared
    for index in range(10, 16):
        scheduler.mark_test_complete(second, index, 0.1)
    for index in range(7):
        scheduler.mark_test_complete(first, index, 0.1)
    assert first.shutting_down
    assert not scheduler.tests_finished
    for index in range(7, 10):
        scheduler.mark_test_complete(first, index, 0.1)
    for index in range(16, 20):
        scheduler.mark_test_complete(second, index, 0.1)
    assert scheduler.tests_finished


def test_after_the_first_failure_nothing_more_begins_with_x(
    shared: tuple[Any, Worker, Worker],
) -> None:
    """Neither what waits in the workers, nor what comes back from them."""
    scheduler, first, second = shared
    scheduler.mark_test_complete(first, 0, 0.1)
    scheduler.call_off()
    assert (first.asked, second.asked) == ([list(range(1, 10))], [list(range(10, 20))])
    scheduler.remove_pending_tests_from_node(first, [5, 6, 7, 8, 9])
    scheduler.remove_pending_tests_from_node(second, [14, 15, 16, 17, 18, 19])
    for index in range(1, 5):
        scheduler.mark_test_complete(first, index, 0.1)
    assert not scheduler.tests_finished
    for index in range(10, 14):
        scheduler.mark_test_complete(second, index, 0.1)
    assert scheduler.tests_finished
    assert (first.sent, second.sent) == (list(range(10)), list(range(10, 20)))
