"""Other plugins: which of their tests run exclusively, when all tests do, and notes for the user.

The notes appear once in the header; a test's reason with `-v`. `scan` covers what tests themselves
do to the process, with any plugin's fixtures; `async_tests` covers async tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

_OWN = ("_pytest", "paraval", "xdist", "__channelexec__")
"""Handled plugins: pytest's, ours and xdist's (its worker has no importable name)."""

_OPTIONS_FOR_ONE = {
    "usepdb": "--pdb is interactive, one test at a time",
    "trace": "--trace is interactive, one test at a time",
    "setupshow": "--setup-show prints one test at a time",
    "setuponly": "--setup-only prints one test at a time",
    "setupplan": "--setup-plan prints one test at a time",
    "stepwise": "--stepwise stops at the first failure, so tests run one by one",
    "forked": "--forked runs each test in a forked child process",
}

_FIXTURES_FOR_ONE = {
    "benchmark": "the fixture `benchmark` measures time",
    "subtests": "its subtests are reported while it runs",
}


# ---- the whole session


def owner_of_loop(config: pytest.Config) -> str | None:
    """The name of another plugin that runs the session's test loop itself."""
    return next(_unknown_plugins(config.hook.pytest_runtestloop), (None, None))[0]


def why_all_alone(config: pytest.Config) -> str | None:
    """Why no tests can run concurrently."""
    asked = (why for name, why in _OPTIONS_FOR_ONE.items() if config.getoption(name, False))
    return next(asked, None)


def notes(config: pytest.Config) -> list[str]:
    """Notes on behavior that may surprise the user, one per line."""
    found: list[str] = []
    owner = owner_of_loop(config)
    if owner is not None:
        found.append(f"not in parallel: the plugin {owner} runs the session's tests itself")
    why = why_all_alone(config)
    if why is not None:
        found.append(f"not in parallel: {why}")
    if config.getoption("cov_context", None):
        found.append(
            "--cov-context: lines run by concurrent tests are attributed to only one of them"
        )
    if config.pluginmanager.has_plugin("randomly") and config.getoption(
        "randomly_reset_seed", False
    ):
        found.append(
            "pytest-randomly: concurrent tests share `random`, so the seed does not reproduce its "
            "numbers (-p no:randomly, or --parallel 1)"
        )
    return found


# ---- a single test


def why_alone(item: pytest.Item) -> str | None:
    """Why the plugin that owns the test needs it to run exclusively."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        # In parallel it would fail its own checks: "data generation is slow", and deadlines.
        return "hypothesis seeds the process-wide random and times its inputs"
    for name in getattr(item, "fixturenames", ()):
        if name in _FIXTURES_FOR_ONE:
            return _FIXTURES_FOR_ONE[name]
    # A plugin may replace pytest's whole test protocol, to rerun a test for instance.
    owners = _unknown_plugins(item.ihook.pytest_runtest_protocol)
    return next((f"it is run by {name}" for name, one in owners if _owns(name, one, item)), None)


def _unknown_plugins(hook: Any) -> Iterator[tuple[str, Any]]:
    """The unknown plugins that implement a hook in pytest's place."""
    for one in hook.get_hookimpls():
        name = getattr(one.plugin, "__name__", None) or type(one.plugin).__module__
        if not (one.wrapper or one.hookwrapper or name.partition(".")[0] in _OWN):
            yield name, one.plugin


def _owns(name: str, plugin: Any, item: pytest.Item) -> bool:
    """Whether the plugin handles this test. The known plugins leave most tests to pytest."""
    match name.partition(".")[0]:
        case "pytest_rerunfailures":
            # `protocol` runs them, but in an xdist worker all tests would use one socket.
            count = getattr(plugin, "get_reruns_count", None)
            return count is None or (hasattr(item.config, "workerinput") and bool(count(item)))
        case "pytest_forked":
            return False  # its option and its mark are checked elsewhere
        case "flaky":
            holders = (getattr(item, "function", None), getattr(item, "cls", None))
            is_marked = item.get_closest_marker("flaky") is not None
            is_marked = is_marked or any(hasattr(one, "_flaky_max_runs") for one in holders)
            return is_marked or bool(item.config.getoption("force_flaky", False))
    return True
