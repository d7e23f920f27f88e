"""Temporary folders of tests that run beside each other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paraval.pytest_plugin.running.patches import serialize_temporary_folders


def test_the_folder_of_a_session_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask for it first at once, and though an old one has to be removed before."""
    plain = pytest.TempPathFactory.getbasetemp
    mktemp = pytest.TempPathFactory.mktemp
    made: list[Path] = []

    def make_slowly(factory: pytest.TempPathFactory) -> Path:
        if factory._basetemp is None:
            time.sleep(0.02)
            made.append(plain(factory))
        return plain(factory)

    monkeypatch.setattr(pytest.TempPathFactory, "getbasetemp", make_slowly)
    basetemp = tmp_path / "old"
    (basetemp / "of-before").mkdir(parents=True)
    factory = pytest.TempPathFactory(
        given_basetemp=basetemp,
        retention_count=3,
        retention_policy="all",
        trace=lambda *_: None,
        _ispytest=True,
    )
    with serialize_temporary_folders(), ThreadPoolExecutor(16) as pool:
        found = list(pool.map(factory.mktemp, ["same"] * 60))
    assert made == [basetemp.resolve()]
    assert len(set(found)) == 60
    assert all(folder.is_dir() for folder in found)
    assert not (basetemp / "of-before").exists()
    assert vars(pytest.TempPathFactory)["getbasetemp"] is make_slowly
    assert vars(pytest.TempPathFactory)["mktemp"] is mktemp
