"""A limit that is not enforced here is said to be that, once."""

from __future__ import annotations

from typing import Any

import pytest

from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.processes.enforcement import Enforcement, Means
from paraval.runner.notices import unenforced
from paraval.settings import Selection

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("limits", "memory", "processes", "told"),
    [
        ({}, Means.NONE, Means.NONE, None),
        ({"cpu": 1, "open_files": 9}, Means.NONE, Means.NONE, None),
        ({"memory": "1GB", "processes": 9}, Means.CGROUP_V2, Means.CGROUP_V1, None),
        (
            {"memory": "1GB"},
            Means.NONE,
            Means.NONE,
            "limits.memory is not enforced here: no writable cgroup (see paraval doctor",
        ),
        (
            {"memory": "1GB", "processes": 9},
            Means.CGROUP_V2,
            Means.NONE,
            "limits.processes is not enforced here",
        ),
        (
            {"memory": "1GB", "processes": 9},
            Means.NONE,
            Means.NONE,
            "limits.memory and limits.processes are not enforced here",
        ),
    ],
)
def test_a_limit_that_nothing_enforces_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
    memory: Means,
    processes: Means,
    told: str | None,
) -> None:
    here = Enforcement(kill=Means.SUBREAPER, memory=memory, processes=processes)
    monkeypatch.setattr("paraval.runner.notices.limits_enforced", lambda: here)
    target = {"command": ["true"], "limits": limits}
    plan = build_plan(Suite(cases=[{"id": "a"}], target=target), Selection())
    said = unenforced(plan)
    assert said is None if told is None else (said or "").startswith(told)
    assert said is None or ("memory is still reserved" in said) is ("memory" in limits)
