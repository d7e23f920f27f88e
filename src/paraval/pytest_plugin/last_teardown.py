"""What is still set up when no test is left: torn down, and told of with the test that ended last.

After `-x`, in a worker of xdist, or when a test hangs, nobody was the last one to need it. pytest
tears such things down with the test that it stops at, and tells what fails there as that test's
error; left to the session's end, it would be told as a crash of pytest, or not at all.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from _pytest.capture import CaptureManager

from paraval.pytest_plugin.shared_setup import SharedSetup


def tear_down_rest(config: pytest.Config, setup: SharedSetup) -> None:
    """In the session's own thread, when no test runs any more."""
    item = setup.last
    if item is None or not setup.stack:
        return
    capture = config.pluginmanager.get_plugin("capturemanager")
    captured = (
        capture.item_capture("teardown", item)
        if isinstance(capture, CaptureManager)
        else nullcontext()
    )
    # The hooks of this test's teardown have been called; what is left is nobody's.
    with captured:
        call = pytest.CallInfo.from_call(
            lambda: setup.teardown_exact(None),
            when="teardown",
            reraise=(pytest.exit.Exception, KeyboardInterrupt),
        )
    if call.excinfo is not None:
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        item.ihook.pytest_runtest_logreport(report=report)
