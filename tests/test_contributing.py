"""CONTRIBUTING.md leads a newcomer to modules that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "paraval"
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_every_module_and_package_that_it_names_exists() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", TEXT)
    assert len(named) > 40
    top = {name for name in named if (SOURCE / name).exists()}
    below = {
        name for name in named if name.endswith("/") and any(SOURCE.glob(f"*/{name}__init__.py"))
    }
    assert set(named) - top - below == set()


def test_every_package_has_its_line() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == set(re.findall(r"^\| `([a-z_]+)/`", TEXT, flags=re.MULTILINE))


def test_each_walk_names_a_few_modules() -> None:
    walks = TEXT.partition("## Six walks")[2].partition("## How we write")[0].split("\n\n**")[1:]
    assert len(walks) == 6
    assert all(3 <= len(re.findall(r"`[a-z_/]+\.py`", walk)) <= 5 for walk in walks), walks
