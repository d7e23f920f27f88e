"""Marks of ours in a run of plain pytest: time limits and rate limits, one test after another."""

from __future__ import annotations

import time
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from paraval.pytest_plugin.needs import patience_of
from paraval.pytest_plugin.outcomes import outcome_of
from paraval.pytest_plugin.spending import begin_again
from paraval.pytest_plugin.time_limits import TimeLimits
from paraval.records import Outcome


def register_plain(config: pytest.Config) -> None:
    config.pluginmanager.register(TimeLimits(), TimeLimits.NAME)
