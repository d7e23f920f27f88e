"""What became of a folder is found whatever was done to it, and however quickly."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings, strategies as st

from paraval.workspaces.inventory import (
    Inventory,
    compare,
    mark_again,
    outwait_the_tick,
    take_stock,
)

FILES = ("a", "b", "inner/c", "inner/deep/d")


def rewrite(path: Path) -> None:
    """The same size, and the time of before."""
    found = path.lstat()
    path.write_bytes(bytes(255 - byte for byte in path.read_bytes()))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def replace(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


ACTS: dict[str, Callable[[Path], object]] = {
    "rewrite": rewrite,
    "replace": replace,
    "remove": Path.unlink,
    "chmod": lambda path: path.chmod(0o600),
    "link": lambda path: os.link(path, path.with_name(f"{path.name}-too")),
    "rename": lambda path: path.rename(path.with_name(f"{path.name}-moved")),
    "folder": make_folder,
}


def filled(top: Path) -> Inventory:
    for name in FILES:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name * 3)
    stock = take_stock(os.fsencode(top))
    outwait_the_tick(stock)
    return stock


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(FILES), st.sampled_from(sorted(ACTS)), max_size=3))
def test_every_change_is_found_and_nothing_else(acts: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        stock = filled(top)
        for name, act in acts.items():
            ACTS[act](top / name)
        found = compare(os.fsencode(top), stock)
        assert {*map(os.fsdecode, found.changed + found.missing)} == set(acts)
        assert bool(found) == bool(acts)
        assert not found.is_lost


def test_what_was_put_back_is_known_again(tmp_path: Path) -> None:
    stock = filled(tmp_path)
    replace(tmp_path / "a")
    mark_again(os.fsencode(tmp_path), stock, [b"a"])
    outwait_the_tick(stock)
    assert not compare(os.fsencode(tmp_path), stock)
    rewrite(tmp_path / "a")
    assert compare(os.fsencode(tmp_path), stock).changed == [b"a"]


def test_a_folder_that_is_gone_takes_all_that_was_in_it(tmp_path: Path) -> None:
    stock = filled(tmp_path)
    shutil.rmtree(tmp_path / "inner")
    found = compare(os.fsencode(tmp_path), stock)
    assert sorted(found.missing) == [b"inner/c", b"inner/deep/d"]
    assert found.missing_folders == [b"inner", b"inner/deep"]
