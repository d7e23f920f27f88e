"""Worlds for the tests: one that most share, and others for those that break it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.world import World, why_not


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three nodes: a (the head), b and c. Tests that break a node add one of their own."""
    with _world(tmp_path_factory.mktemp("world")) as shared:
        for name in "abc":
            shared.add(name)
        yield shared


@pytest.fixture
def other_world(tmp_path: Path) -> Iterator[World]:
    """No node yet."""
    with _world(tmp_path) as own:
        yield own


def _world(folder: Path) -> World:
    reason = why_not()
    if reason is not None:
        pytest.fail(f"{reason}; see tests/cluster/world.py")
    return World(folder=folder)
