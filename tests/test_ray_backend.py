"""What the Ray backend refuses before Ray is loaded, and how it names nodes. `make test-cluster`
tests the rest, with real clusters."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import RequestError
from paraval.runner.cluster import ray_backend
from paraval.runner.cluster.ray_backend import connect


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and no variable of Ray's; whether it is installed does not matter."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    spec = importlib.machinery.ModuleSpec("ray", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    return tmp_path


@pytest.mark.asyncio
async def test_without_the_extra_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(RequestError, match="--cluster needs Ray") as raised:
        async with connect("head:6379"):
            pass

    assert raised.value.hint == "pip install 'paraval[cluster]'"


@pytest.mark.asyncio
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("address", ["head:6379", "ray://head:10001"])
async def test_a_cluster_elsewhere_is_not_contacted_without_a_token(address: str) -> None:
    with pytest.raises(RequestError, match="no token for the Ray cluster") as raised:
        async with connect(address):
            pass

    assert raised.value.hint is not None
    assert "RAY_AUTH_TOKEN" in raised.value.hint


def test_a_named_file_without_a_token_is_an_error_and_no_token_is_created(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "missing"))

    with pytest.raises(RequestError, match="missing cannot be read"):
        ray_backend._find_token(may_create=True)

    assert list(home.iterdir()) == []


def test_a_token_created_for_a_cluster_here_can_be_read_by_this_user_only(home: Path) -> None:
    ray_backend._find_token(may_create=True)

    token = home / ".ray" / "auth_token"
    assert len(token.read_text()) == 64
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


def test_a_token_that_everyone_can_read_is_closed_to_others(home: Path) -> None:
    token = home / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("0" * 64)
    token.chmod(0o644)

    ray_backend._find_token(may_create=True)

    assert token.read_text() == "0" * 64
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


@pytest.mark.asyncio
@pytest.mark.usefixtures("home")
async def test_a_ray_that_was_imported_without_tokens_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    monkeypatch.setitem(sys.modules, "ray", os)

    with pytest.raises(RequestError, match="imported before") as raised:
        async with connect("head:6379"):
            pass

    assert raised.value.hint == "set RAY_AUTH_MODE=token before importing ray"


def test_nodes_have_their_host_names_or_their_addresses_if_they_share_one() -> None:
    alive = [_node("1", "gpu"), _node("2", "box"), _node("3", "box"), _node("4", "x", name="big")]

    assert ray_backend._names(alive, {}) == {
        "1": "gpu",
        "2": "10.0.0.2",
        "3": "10.0.0.3",
        "4": "big",
    }


def test_a_node_keeps_its_name_when_another_with_the_same_host_name_joins() -> None:
    before = ray_backend._names([_node("1", "box")], {})

    after = ray_backend._names([_node("1", "box"), _node("2", "box")], before)

    assert after == {"1": "box", "2": "10.0.0.2"}


def test_several_nodes_on_one_machine_are_told_apart_by_their_ports() -> None:
    alive = [_node("1", "box"), {**_node("2", "box", name="10.0.0.1"), "NodeManagerPort": 7}]
    alive[1]["NodeManagerAddress"] = "10.0.0.1"

    assert ray_backend._names(alive, {}) == {"1": "10.0.0.1", "2": "10.0.0.1:7"}


def _node(node_id: str, hostname: str, *, name: str | None = None) -> dict[str, Any]:
    address = f"10.0.0.{node_id}"
    return {
        "NodeID": node_id,
        "NodeManagerHostname": hostname,
        "NodeManagerAddress": address,
        "NodeManagerPort": 6,
        "NodeName": name or address,
    }
